//! `POST T/exec/{exec_id}/stdin`

use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};

use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::body;
use crate::http::extract::{NamedRun, Params};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    close: bool,
}

#[derive(Serialize)]
struct Fed {
    bytes: usize,
    closed: bool,
}

pub(in crate::http) async fn stdin(
    State(app): State<App>,
    run: NamedRun,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let recorded = app.service.named_run(run.tree.id(), &run.id)?;
    let bytes = body::collect(&app, request.into_body(), app.service.run_limits().stdin_bytes).await?;
    let length = bytes.len();
    recorded.feed(bytes.into(), query.close).await?;
    success_with("sent to standard input", Fed { bytes: length, closed: query.close })
}
