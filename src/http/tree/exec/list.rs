//! `GET T/exec`

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use policy::TreeId;
use serde::Serialize;
use serde_json::Value;

use crate::http::App;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, TreeRequest};
use crate::http::tree::walls::{Told, Walls};
use crate::ops::run::pending::Decision;
use crate::ops::run::record::{Phase, Purpose, Recorded};
use crate::ops::run::unnamed::Unnamed;

/// A run, named or not.
pub(in crate::http) enum Run {
    /// One that is remembered by its name.
    Named(Arc<Recorded>),
    /// One without a name, which goes on.
    Unnamed(Arc<Unnamed>),
}

impl Run {
    /// All runs that are under way or remembered, in no particular order.
    pub(in crate::http) fn all(app: &App) -> Vec<Self> {
        let named = app.service.named_runs().into_iter().map(Self::Named);
        named.chain(app.service.unnamed_runs().into_iter().map(Self::Unnamed)).collect()
    }

    pub(in crate::http) fn tree(&self) -> &TreeId {
        match self {
            Self::Named(run) => &run.tree,
            Self::Unnamed(run) => &run.tree,
        }
    }

    /// What runs are sorted by: user, agent, skill and id. The runs of a workspace come first.
    pub(in crate::http) fn key(&self) -> String {
        let (tree, id) = match self {
            Self::Named(run) => (&run.tree, &run.id),
            Self::Unnamed(run) => (&run.tree, &run.id),
        };
        let skill = match tree {
            TreeId::Skill(.., skill) => skill.as_str(),
            TreeId::Workspace(..) => "",
        };
        format!("{}/{}/{skill}/{id}", tree.user(), tree.agent())
    }

    /// How far it has come, in a word.
    pub(in crate::http) fn state(&self) -> &'static str {
        match self {
            Self::Named(run) => state(run),
            Self::Unnamed(_) => "running",
        }
    }

    fn asked(&self) -> SystemTime {
        match self {
            Self::Named(run) => run.asked,
            Self::Unnamed(run) => run.asked,
        }
    }
}

/// A run at a glance.
#[derive(Serialize)]
pub(in crate::http) struct Summary<'a> {
    exec_id: &'a str,
    /// Whether it is remembered by its id. One that is not is listed, and can be killed, while it goes on.
    named: bool,
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
    exit: Option<Value>,
}

impl<'a> Summary<'a> {
    pub(in crate::http) fn of(run: &'a Run, walls: &Walls) -> Self {
        match run {
            Run::Named(recorded) => Self::of_named(recorded, walls),
            Run::Unnamed(unnamed) => Self {
                exec_id: unnamed.id.as_str(),
                named: false,
                state: run.state(),
                kind: "attached",
                command: &unnamed.command,
                asked_at: time(unnamed.asked),
                first_seq: 0,
                last_seq: 0,
                decision: None,
                exit: None,
            },
        }
    }

    pub(in crate::http) fn of_named(recorded: &'a Recorded, walls: &Walls) -> Self {
        let (first_seq, next_seq) = recorded.events();
        Self {
            exec_id: recorded.id.as_str(),
            named: true,
            state: state(recorded),
            kind: match recorded.purpose {
                Purpose::Attached => "attached",
                Purpose::Background => "background",
                Purpose::Terminal(_) => "terminal",
            },
            command: &recorded.command,
            asked_at: time(recorded.asked),
            first_seq,
            last_seq: next_seq - 1,
            decision: recorded.decision().map(|decision| match decision {
                Decision::Open => "open",
                Decision::Underway => "underway",
                Decision::Committed => "committed",
                Decision::Discarded => "discarded",
            }),
            exit: recorded.exit().map(|exit| walls.exit(exit)),
        }
    }
}

fn state(recorded: &Recorded) -> &'static str {
    match recorded.phase() {
        // A caller that has read the last event finds the run ended.
        _ if recorded.exit().is_some() => "ended",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Ended | Phase::NeverBegan => "ended",
    }
}

fn time(asked: SystemTime) -> String {
    let since = asked.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    rfc3339(i128::try_from(since).unwrap_or(i128::MAX))
}

pub(in crate::http) async fn list(State(app): State<App>, request: TreeRequest, _: NoParams) -> Answer {
    let walls = Walls::of(&app, Told::Differing);
    let mut runs = Run::all(&app);
    runs.retain(|run| run.tree() == request.tree.id());
    runs.sort_by_cached_key(|run| (run.asked(), run.key()));
    success(runs.iter().map(|run| Summary::of(run, &walls)).collect::<Vec<_>>())
}
