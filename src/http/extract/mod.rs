//! The content of requests: the caller, the tree, the parameters. Each is checked before a handler sees it.

pub(super) mod body;
pub(super) mod bounded;
mod caller;
pub(super) mod conditional;
mod devbox;
mod json;
mod local;
mod mcp;
mod names;
pub(super) mod object;
mod place;
mod query;
mod run;
mod runner;
mod seen;
mod skills;
mod snapshot;
pub(super) mod spooled;
mod tree;
mod version;
mod workspace;

pub(super) use self::caller::{
    Auditor, Governor, Issuer, Known, Observer, PackageRequest, Rebuilder, Someone, TokenReader,
    TokenRequest, admitted, bearer,
};
pub(super) use self::devbox::{DevboxCaller, DevboxRequest};
pub(super) use self::json::{JsonBody, JsonLimit, parse_json};
pub(super) use self::local::Local;
pub(super) use self::mcp::McpRequest;
pub(super) use self::names::named;
pub(super) use self::place::{Above, Place, dir_of};
pub(super) use self::query::{NoParams, PageQuery, Params, word};
pub(super) use self::run::NamedRun;
pub(super) use self::runner::{LendingUser, RunnerRequest};
pub(super) use self::seen::SeenLayer;
pub(super) use self::skills::SkillsRequest;
pub(super) use self::snapshot::SnapshotRequest;
pub(super) use self::tree::{ChangingRequest, PreparingRequest, TreeQuestion, TreeRequest};
pub(super) use self::version::VersionRequest;
pub(super) use self::workspace::{WorkspaceRequest, WorkspacesRequest};

/// The message that says what to change, without the layers around it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        innermost = inner.to_string();
        source = inner.source();
    }
    innermost
}
