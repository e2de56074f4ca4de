//! [`Local`]: a request for what this service does with the trees that it holds, and asks no backend for.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::run::NamedRun;
use super::tree::{ChangingRequest, TreeQuestion, TreeRequest};
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::ops::tree::Tree;

/// A request about a tree that this service holds. One about another is refused before its body is read.
pub(in crate::http) struct Local<R>(pub(in crate::http) R);

/// A request about one tree.
pub(in crate::http) trait AboutTree {
    /// The tree.
    fn tree(&self) -> &Tree;
}

impl AboutTree for TreeRequest {
    fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl AboutTree for TreeQuestion {
    fn tree(&self) -> &Tree {
        &self.0.tree
    }
}

impl AboutTree for ChangingRequest {
    fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl AboutTree for NamedRun {
    fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl<R: FromRequestParts<App, Rejection = Problem> + AboutTree> FromRequestParts<App> for Local<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let request = R::from_request_parts(parts, app).await?;
        request.tree().local()?;
        Ok(Self(request))
    }
}
