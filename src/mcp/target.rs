//! [`Target`]: who sends a message, and the workspace that it is about.

use std::any::Any;
use std::sync::Arc;

use policy::{AgentId, UserId};

use crate::audit::Account;

/// A workspace, and a caller who may read it.
pub struct Target {
    /// The user of the workspace.
    pub user: UserId,
    /// Its agent.
    pub agent: AgentId,
    /// Whether the caller may change it and run commands there.
    pub may_change: bool,
    /// The caller, as records have it.
    pub sender: Sender,
    /// What is held as long as the message is worked on, such as room for its bytes.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// The caller of a request, as records have it.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The word of its role.
    pub role: &'static str,
    /// The name of its token.
    pub token: String,
    /// Whom its changes are charged to.
    pub account: Account,
    /// The id of the request.
    pub request: String,
    /// The id that the sender gave it.
    pub caller_request: Option<String>,
}
