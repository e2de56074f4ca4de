//! `POST T/exec/{exec_id}/signal`

use axum::extract::State;
use exec::Signal;
use serde::Deserialize;

use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success};
use crate::http::extract::{JsonBody, JsonLimit, NamedRun, NoParams};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    signal: String,
}

impl JsonLimit for Body {}

pub(in crate::http) async fn signal(
    State(app): State<App>,
    run: NamedRun,
    _: NoParams,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let name = body.signal.strip_prefix("SIG").unwrap_or(&body.signal);
    let recorded = app.service.named_run(run.tree.id(), &run.id)?;
    let full_name = format!("SIG{name}");
    match Signal::named(&full_name) {
        Some(signal) => recorded.signal(signal)?,
        None if name == "KILL" => recorded.kill(),
        None => {
            return Err(Problem::invalid(format!(
                "`signal` is `{name}`: send HUP, INT, QUIT, TERM, KILL, USR1, USR2, STOP or CONT"
            )));
        }
    }
    success(format!("{full_name} was sent"))
}
