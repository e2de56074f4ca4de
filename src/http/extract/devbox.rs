//! Requests about devboxes.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use super::caller::{admitted, caller};
use crate::access::Action;
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::devbox::name::DevboxName;
use crate::ops::devbox::table::Devboxes;

/// A caller who may have devboxes; which one it asks for is in the body.
pub(in crate::http) struct DevboxCaller(());

impl DevboxCaller {
    /// Notes which devbox the request is about. To be called before anything is done.
    pub(in crate::http) fn about(&self, app: &App, name: &DevboxName) -> Result<Arc<Devboxes>, Problem> {
        let devboxes = Arc::clone(app.service.devboxes()?);
        let tree = devboxes.workspace(name);
        request_log::tree(tree.user(), tree.agent(), None);
        admitted(app)?;
        Ok(devboxes)
    }
}

impl FromRequestParts<App> for DevboxCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Devboxes)?;
        Ok(Self(()))
    }
}

/// A request about one devbox, by a caller who may have any.
pub(in crate::http) struct DevboxRequest {
    pub(in crate::http) name: DevboxName,
    pub(in crate::http) devboxes: Arc<Devboxes>,
}

impl FromRequestParts<App> for DevboxRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = DevboxCaller::from_request_parts(parts, app).await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params =
            params.map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
        let name = params.iter().find(|(name, _)| *name == "name").map_or("", |(_, value)| value);
        let name = DevboxName::parse(name)?;
        let devboxes = caller.about(app, &name)?;
        Ok(Self { name, devboxes })
    }
}
