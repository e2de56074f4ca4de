//! `GET /v1/skills/{u}/{a}/{s}/lint?layer&version`

use std::collections::BTreeMap;

use policy::skill_md::{Finding, Target};
use serde::{Deserialize, Serialize};

use crate::http::answer::{Answer, success};
use crate::http::extract::{Params, SeenLayer, TreeRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    layer: Option<SeenLayer>,
    version: Option<String>,
}

#[derive(Serialize)]
struct Linted {
    /// For each program, whether it takes the skill as it is.
    ok: BTreeMap<Target, bool>,
    findings: Vec<Finding>,
}

impl From<Vec<Finding>> for Linted {
    fn from(findings: Vec<Finding>) -> Self {
        let is_ok = |target| !findings.iter().any(|finding| finding.targets.contains(&target));
        Self { ok: Target::ALL.map(|target| (target, is_ok(target))).into(), findings }
    }
}

pub(in crate::http) async fn lint(tree: TreeRequest, Params(query): Params<Query>) -> Answer {
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    success(Linted::from(tree.tree.lint().await?))
}
