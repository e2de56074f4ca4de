//! `POST T/patch`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use storage::Condition;
use storage::encoding::TextEncoding;
use storage::patch::{self, Action, Patched};

use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{JsonBody, JsonLimit, Local, NoParams, TreeRequest};
use crate::http::extract::{bounded, conditional};
use crate::http::{App, request_log};
use crate::ops::files::Conditions;

/// Names that a patch can have: two for each file.
const NAMES_MAX: usize = 2 * patch::FILES_MAX;
/// Size from which a patch is read in a thread of its own, in bytes.
const LARGE_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    patch: String,
    #[serde(default)]
    dry_run: bool,
    /// Tags as `ETag` gave them; null for a file that must not be there.
    #[serde(default, deserialize_with = "bounded::entries::<_, _, NAMES_MAX>")]
    etags: BTreeMap<String, Option<String>>,
}

impl JsonLimit for Body {
    /// The longest patch, of which JSON spells some characters in two.
    fn bytes_max(_app: &App) -> usize {
        2 * patch::PATCH_BYTES_MAX + 64 * 1024
    }
}

#[derive(Serialize)]
struct Beside {
    dry_run: bool,
    files: Vec<Changed>,
}

#[derive(Serialize)]
struct Changed {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    change: Action,
    lines_added: usize,
    lines_removed: usize,
    size: u64,
    encoding: TextEncoding,
    /// Null for a removed file and for what was only tried.
    etag: Option<String>,
}

pub(in crate::http) async fn patch(
    State(app): State<App>,
    Local(request): Local<TreeRequest>,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let id = request.tree.local()?.clone();
    let mut named = std::collections::HashMap::new();
    for (path, tag) in &body.etags {
        let path = id.resolve(path)?;
        let condition = match tag {
            Some(tag) => conditional::one_tag(tag)?,
            None => Condition::Missing,
        };
        named.insert(path, condition);
    }
    let header = conditional::of_change(&headers)?;
    let conditions = match (named.is_empty(), &header) {
        (true, _) => Conditions::Single(header),
        (false, Condition::Always) => Conditions::Named(named),
        (false, _) => return Err(Problem::invalid("send a condition in the header or `etags`, not both")),
    };
    let patch = if body.patch.len() < LARGE_BYTES {
        patch::parse(&body.patch, &|name| id.resolve(name))?
    } else {
        let (of, text) = (id.clone(), body.patch);
        let read = move || Ok(patch::parse(&text, &|name| of.resolve(name))?);
        app.service.light(id.user(), read).await?
    };
    for file in &patch {
        request.check_own(&file.from).await?;
        request.check_own(&file.to).await?;
        request_log::path(&file.from);
        if file.to != file.from {
            request_log::path(&file.to);
        }
    }
    let patched = app.service.patch(id, patch, body.dry_run, conditions).await?;
    let files: Vec<Changed> = patched.into_iter().map(Changed::from).collect();
    let done = if body.dry_run { "The patch can be made" } else { "Patch made" };
    let plural = if files.len() == 1 { "file" } else { "files" };
    success_with(format!("{done}: {} {plural}.", files.len()), Beside { dry_run: body.dry_run, files })
}

impl From<Patched> for Changed {
    fn from(patched: Patched) -> Self {
        Self {
            path: patched.path.into(),
            from: patched.from.map(String::from),
            change: patched.action,
            lines_added: patched.added,
            lines_removed: patched.removed,
            size: patched.size,
            encoding: patched.encoding,
            etag: patched.stat.map(|stat| stat.etag().to_string()),
        }
    }
}
