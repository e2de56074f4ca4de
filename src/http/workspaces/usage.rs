//! `GET /v1/sandbox/{u}/{a}`

use axum::extract::State;
use policy::DiskLimits;
use serde::Serialize;
use storage::Use;

use super::Taken;
use super::list::Listed;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, WorkspaceRequest};

#[derive(Serialize)]
struct Usage<'a> {
    #[serde(flatten)]
    glance: Listed,
    /// The workspace with its home.
    taken: Taken,
    /// The room of the user's changes in each skill, sorted.
    skills: Vec<OfSkill>,
    /// Skills beyond the first thousand.
    more_skills: usize,
    /// All snapshots together.
    taken_by_snapshots: Taken,
    limits: Limits<'a>,
}

#[derive(Serialize)]
struct OfSkill {
    skill_id: String,
    #[serde(flatten)]
    taken: Taken,
}

#[derive(Serialize)]
pub(in crate::http) struct Limits<'a> {
    disk: DiskLimits,
    snapshots: &'a policy::SnapshotLimits,
    /// The time without use after which a workspace is set aside; 0 for never.
    idle_ms: u128,
    /// For how long more it is kept aside.
    keep_ms: u128,
}

impl<'a> Limits<'a> {
    /// The limits of a workspace whose trees may take `disk`.
    pub(in crate::http) fn of(app: &'a App, disk: DiskLimits) -> Self {
        let options = app.service.store_options();
        let idle_ms = options.idle.map_or(0, |idle| idle.as_millis());
        Self { disk, snapshots: &options.snapshots, idle_ms, keep_ms: options.keep.as_millis() }
    }
}

pub(in crate::http) async fn usage(State(app): State<App>, request: WorkspaceRequest, _: NoParams) -> Answer {
    let disk = app.service.disk_limits_of(&request.id.agent);
    let usage = app.service.usage(request.id).await?;
    let of_skill =
        |(skill, taken): (policy::SkillId, Use)| OfSkill { skill_id: skill.to_string(), taken: taken.into() };
    success(Usage {
        glance: Listed::from(&usage.glance),
        taken: usage.taken.into(),
        skills: usage.skills.into_iter().map(of_skill).collect(),
        more_skills: usage.more_skills,
        taken_by_snapshots: usage.snapshots.taken.into(),
        limits: Limits::of(&app, disk),
    })
}
