//! MCP: a workspace as a server of tools, files and skills for any client of the Model Context Protocol.
//!
//! The SDK `rmcp` reads and writes the wire, in all revisions of the protocol; it is used in this folder only. The tools are
//! those of `agent::tools`, over the operations of the service. There are no sessions: each request stands alone.
//!
//! | File | Holds |
//! | --- | --- |
//! | `target` | who sends a message, and the workspace that it is about |
//! | `message` | what is refused before a message is read |
//! | `wire` | one message over the SDK's transport |
//! | `handler` | the methods of the protocol |
//! | `offer` | the tools as clients see them |
//! | `call` | one call of a tool |
//! | `held` | what a message holds until its answer has left |
//! | `resources`, `uri`, `media` | files as resources, their names and types |
//! | `skills` | the skills extension |
//! | `listen`, `subscription` | subscriptions to changes of files, and telling them |
//! | `record` | the audit record of a call |
//! | `refusal` | failures as errors of the protocol |
//!
//! # References
//! <https://modelcontextprotocol.io/specification/2026-07-28>

mod call;
mod handler;
mod held;
mod listen;
mod media;
pub mod message;
mod offer;
mod record;
mod refusal;
mod resources;
mod skills;
mod subscription;
pub mod target;
mod uri;
pub mod wire;

use std::sync::Arc;

use agent::tools::Toolbox;
use axum::http::Request;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use policy::AgentId;
use sandbox::Sandbox;

pub use self::handler::Handler;
use self::held::Held;
use self::target::Target;
use self::wire::Answer;
use crate::config::{ConfigError, McpConfig, SkillNames};
use crate::ops::Service;
use crate::ops::admission::permit_kind::PermitKind;
use crate::ops::admission::permits::Permits;

/// Largest message, in bytes: as many as the arguments of a tool may have.
pub const MESSAGE_BYTES_MAX: usize = agent::tools::ARGUMENT_BYTES_MAX;

/// Gives the workspaces of an agent with the skills of its users, for requests with records of their own.
pub type Workspaces = Box<dyn Fn(Arc<Service>, AgentId) -> Arc<dyn Sandbox> + Send + Sync>;

/// Answers a message, by [`wire::answer`]: with the service's own methods, or with a handler that adds others to them.
pub type Answering = Box<dyn Fn(Handler, Request<Bytes>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// The server. One for all workspaces, so that edits of one file take turns.
pub struct Mcp {
    service: Arc<Service>,
    workspaces: Workspaces,
    answering: Answering,
    toolbox: Toolbox,
    /// The agent of a message that names none.
    agent: Option<AgentId>,
    /// Whether only tools that change nothing are offered.
    is_read_only: bool,
    /// Which names skills may have that are served.
    skill_names: SkillNames,
    /// The calls of each user that are under way.
    calls: Permits,
}

impl Mcp {
    /// The server of `service`, on which at most `connections` are open.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn new(
        service: Arc<Service>,
        config: &McpConfig,
        connections: usize,
        workspaces: Workspaces,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            service,
            workspaces,
            answering: Box::new(|handler, message| wire::answer(handler, message).boxed()),
            toolbox: Toolbox::standard(),
            agent: config.agent()?,
            is_read_only: config.read_only,
            skill_names: config.skill_names,
            // Each call has a connection, so these bound the calls of all users.
            calls: Permits::without_queue(PermitKind::CALLS, connections, config.calls_per_user),
        })
    }

    /// The same server, whose messages `answering` answers: an application that links this crate adds tools, resources or prompts of
    /// its own so, behind the same checks of callers, sizes and heads.
    #[must_use]
    pub fn answering(self, answering: Answering) -> Self {
        Self { answering, ..self }
    }

    /// The agent of a message that names none, where the configuration has one.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// Answers a message about `target`.
    ///
    /// The caller checks where it comes from (`Host`, `Origin`), who sends it, and its size.
    pub async fn answer(self: &Arc<Self>, target: Target, message: Request<Bytes>) -> Answer {
        let held = Held::default();
        let handler = Handler {
            mcp: Arc::clone(self),
            target: Arc::new(target),
            held: held.clone(),
            subscription: Arc::default(),
        };
        if message.headers().get("mcp-method").is_some_and(|method| method == subscription::METHOD) {
            handler.begin_to_listen(message.body()).await;
        }
        held.until_taken((self.answering)(handler, message).await)
    }
}
