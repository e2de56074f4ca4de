//! A request for one run of a tree.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use super::tree::TreeRequest;
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::run::id::ExecId;
use crate::ops::tree::Tree;

/// A request for one run of a tree, by a caller who may ask for it.
pub(in crate::http) struct NamedRun {
    pub(in crate::http) tree: Tree,
    pub(in crate::http) id: ExecId,
}

impl FromRequestParts<App> for NamedRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TreeRequest { tree, .. } = TreeRequest::from_request_parts(parts, app).await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))?;
        let name = params.iter().find(|(name, _)| *name == "exec_id").map_or("", |(_, value)| value);
        let id = ExecId::parse(name)?;
        request_log::run(&id);
        Ok(Self { tree, id })
    }
}
