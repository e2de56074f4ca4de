//! `GET T/exec`

use std::time::UNIX_EPOCH;

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;

use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, TreeRequest};
use crate::http::time::rfc3339;
use crate::ops::run::pending::Decision;
use crate::ops::run::record::{Phase, Purpose, Recorded};

/// A run at a glance.
#[derive(Serialize)]
pub(super) struct Summary<'a> {
    exec_id: &'a str,
    /// `starting`, `running` or `ended`.
    state: &'a str,
    /// `attached`, `background` or `terminal`.
    kind: &'a str,
    command: &'a str,
    asked_at: String,
    /// The oldest event that is there.
    first_seq: u64,
    /// The newest one; 0 when there is none.
    last_seq: u64,
    /// The state of its changes: `open`, `underway`, `committed` or `discarded`; null for a run that asked for no
    /// decision, or goes on.
    decision: Option<&'a str>,
    /// How it ended, without its output; null while it goes on.
    exit: Option<&'a Value>,
}

impl<'a> Summary<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> Self {
        let (first_seq, next_seq) = recorded.events();
        let asked = recorded.asked.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self {
            exec_id: recorded.id.as_str(),
            state: match recorded.phase() {
                // A caller that has read the last event finds the run ended.
                _ if recorded.exit().is_some() => "ended",
                Phase::Starting => "starting",
                Phase::Running => "running",
                Phase::Ended | Phase::NeverBegan => "ended",
            },
            kind: match recorded.purpose {
                Purpose::Attached => "attached",
                Purpose::Background => "background",
                Purpose::Terminal(_) => "terminal",
            },
            command: &recorded.command,
            asked_at: rfc3339(i128::try_from(asked).unwrap_or(i128::MAX)),
            first_seq,
            last_seq: next_seq - 1,
            decision: recorded.decision().map(|decision| match decision {
                Decision::Open => "open",
                Decision::Underway => "underway",
                Decision::Committed => "committed",
                Decision::Discarded => "discarded",
            }),
            exit: recorded.exit(),
        }
    }
}

pub(in crate::http) async fn list(State(app): State<App>, tree: TreeRequest, _: NoParams) -> Answer {
    let runs = app.service.table.of(&tree.id);
    success(runs.iter().map(|recorded| Summary::of(recorded)).collect::<Vec<_>>())
}
