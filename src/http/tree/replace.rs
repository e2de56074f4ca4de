//! `POST T/replace`

use axum::http::HeaderMap;
use serde::Deserialize;
use storage::text::Replacement;

use super::edit::UPDATED;
use super::written;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::object::Object;
use crate::http::extract::{JsonBody, JsonLimit, NoParams, TreeRequest};
use crate::http::extract::{bounded, conditional};
use crate::ops::texts::EDITS_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    pub(in crate::http) path: String,
    #[serde(deserialize_with = "bounded::list::<_, _, EDITS_MAX>")]
    edits: Vec<Object<Edit>>,
}

impl JsonLimit for Body {
    /// The largest text.
    fn bytes_max(app: &App) -> usize {
        usize::try_from(app.service.file_limits().text_bytes).unwrap_or(usize::MAX).saturating_add(64 * 1024)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    old_string: String,
    new_string: String,
    #[serde(default = "once")]
    expected_replacements: usize,
}

fn once() -> usize {
    1
}

impl Body {
    /// The texts to replace and their replacements.
    pub(in crate::http) fn edits(self) -> Vec<Replacement> {
        let replacement = |Object(edit): Object<Edit>| Replacement {
            old: edit.old_string,
            new: edit.new_string,
            expected: edit.expected_replacements,
        };
        self.edits.into_iter().map(replacement).collect()
    }
}

pub(in crate::http) async fn replace(
    tree: TreeRequest,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let place = tree.file(Some(&body.path)).await?;
    let condition = conditional::of_change(&headers)?;
    let replaced = place.tree.replace(&place.path, body.edits(), condition).await?;
    written(UPDATED, &place, replaced)
}
