//! Requests to the MCP server.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use policy::{AgentId, TreeId, UserId};

use super::caller::caller;
use super::names::named;
use crate::access::{Action, Caller, Role};
use crate::http::answer::problem::{Code, Problem};
use crate::http::{App, request_log};
use crate::mcp::Mcp;
use crate::mcp::target::{Sender, Target};
use crate::ops::tree::Tree;

/// The agent of a request whose path names none.
const AGENT: HeaderName = HeaderName::from_static("x-filesecbox-agent");

/// A message for the MCP server about a workspace that its caller may read.
pub(in crate::http) struct McpRequest {
    pub(in crate::http) mcp: Arc<Mcp>,
    pub(in crate::http) target: Target,
}

impl FromRequestParts<App> for McpRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = caller(&app.access, &parts.headers)?;
        let mcp = app.mcp.clone();
        let mcp = mcp.ok_or_else(|| Problem::new(Code::Unsupported, "the MCP server is switched off"))?;
        let (user, agent) = match named(parts, app).await? {
            (Some(user), Some(agent), _) => (user, agent),
            _ => of_token(&caller.role, &parts.headers, &mcp)?,
        };
        request_log::tree(&user, &agent, None);
        caller.role.may(Action::Read(&user, &agent))?;
        let may_change = caller.role.may(Action::Change(&user, &agent)).is_ok();
        let workspace = Tree::of(&app.service, TreeId::Workspace(user.clone(), agent.clone()));
        if let Some(backend) = workspace.backend() {
            let message = format!(
                "`{backend}`, where this workspace is, is not reached over MCP: use the routes for files and commands"
            );
            return Err(Problem::new(Code::Unsupported, message));
        }
        let target = Target { user, agent, may_change, sender: sender(caller), held: request_log::kept() };
        Ok(Self { mcp, target })
    }
}

/// The caller, as the records of its calls have it.
fn sender(Caller { role, token }: Caller) -> Sender {
    Sender {
        role: role.word(),
        token,
        account: request_log::account(),
        request: request_log::request_id(),
        caller_request: request_log::caller_request_id(),
    }
}

/// The workspace of a request whose path names none: that of the token's user, with the agent of the token, the header
/// or the configuration.
fn of_token(role: &Role, headers: &HeaderMap, mcp: &Mcp) -> Result<(UserId, AgentId), Problem> {
    let Role::User { user, agent } = role else {
        return Err(Problem::invalid(
            "this token is of no user: name user and agent in the path, `/mcp/{user}/{agent}`",
        ));
    };
    let asked = headers.get(AGENT).map(|value| {
        let text = value.to_str().map_err(|_| Problem::invalid("`x-filesecbox-agent` is no text"))?;
        AgentId::parse(text).map_err(Problem::from)
    });
    let agent = asked.transpose()?.or_else(|| agent.clone()).or_else(|| mcp.agent().cloned());
    let agent = agent.ok_or_else(|| {
        Problem::invalid(
            "the request names no agent: send it in the header `x-filesecbox-agent`, or use the path \
             `/mcp/{user}/{agent}`",
        )
    })?;
    Ok((user.clone(), agent))
}
