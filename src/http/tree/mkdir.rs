//! `POST T/mkdir`

use serde::{Deserialize, Serialize};

use super::mode;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{JsonBody, JsonLimit, NoParams, TreeRequest};

/// The answer of a success.
pub(in crate::http) const MADE: &str = "Directory made.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    pub(in crate::http) path: String,
    pub(in crate::http) mode: Option<String>,
    #[serde(default)]
    pub(in crate::http) parents: bool,
}

impl JsonLimit for Body {}

#[derive(Serialize)]
pub(in crate::http) struct Beside {
    pub(in crate::http) created: bool,
}

pub(in crate::http) async fn mkdir(tree: TreeRequest, _: NoParams, JsonBody(body): JsonBody<Body>) -> Answer {
    let place = tree.entry(Some(&body.path)).await?;
    let created = place.tree.make_dir(&place.path, mode_of(&body)?, body.parents).await?;
    success_with(MADE, Beside { created })
}

/// The permission bits that are meant.
pub(in crate::http) fn mode_of(body: &Body) -> Result<u32, Problem> {
    Ok(mode(body.mode.as_deref())?.unwrap_or(0o755))
}
