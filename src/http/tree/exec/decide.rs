//! `POST T/exec/{exec_id}/commit` and `POST T/exec/{exec_id}/discard`

use axum::extract::State;
use serde::Serialize;
use storage::Absorbed;

use crate::http::App;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::{Local, NamedRun, NoParams};

#[derive(Serialize)]
struct Taken {
    absorbed: Absorbed,
}

pub(in crate::http) async fn commit(
    State(app): State<App>,
    Local(run): Local<NamedRun>,
    _: NoParams,
) -> Answer {
    let recorded = app.service.named_run(run.tree.local()?, &run.id)?;
    let absorbed = recorded.commit().await?;
    match absorbed.refused {
        Some(sentence) => Err(Problem::new(Code::Quota, sentence)),
        None => success_with("what the run changed was taken in", Taken { absorbed }),
    }
}

pub(in crate::http) async fn discard(
    State(app): State<App>,
    Local(run): Local<NamedRun>,
    _: NoParams,
) -> Answer {
    app.service.named_run(run.tree.local()?, &run.id)?.discard()?;
    success("what the run changed was dropped")
}
