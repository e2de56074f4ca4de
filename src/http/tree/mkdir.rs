//! `POST T/mkdir`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::mode;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::request::{JsonBody, NoParams, TreeRequest, path_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    path: String,
    mode: Option<String>,
    #[serde(default)]
    parents: bool,
}

#[derive(Serialize)]
struct Beside {
    created: bool,
}

pub(in crate::http) async fn mkdir(
    State(app): State<App>,
    tree: TreeRequest,
    _: NoParams,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let path = path_of(&tree.id, Some(&body.path))?;
    let mode = mode(body.mode.as_deref())?.unwrap_or(0o755);
    let created = app.service.make_dir(tree.id, path, mode, body.parents).await?;
    success_with("Directory made.", Beside { created })
}
