//! [`NetworkOwner`]: the user and agent to whom what a run does on the network belongs.

use policy::{AgentId, UserId};

/// The user and agent of a run: whose network namespace it lives in, and whose connections to the egress proxy it makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetworkOwner {
    /// The user.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
}
