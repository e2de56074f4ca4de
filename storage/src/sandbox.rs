//! Sandboxes: the workspace and the home directory of one user with one agent, as something that comes and goes.
//!
//! | File | Holds |
//! | --- | --- |
//! | `occupants` | who is in a sandbox, so that nobody takes it away from under a command |
//! | `uptime` | the clock by which sandboxes grow idle |
//! | `used` | when each was used last |
//! | `list` | which sandboxes there are, and what is known of them |
//! | `kept` | setting one aside that nobody uses, and bringing it back |
//! | `remove` | taking one away, because somebody asks for it or nobody uses it |

mod kept;
mod list;
mod occupants;
mod remove;
mod uptime;
mod used;

use policy::{AgentId, TreeId, UserId};

pub use self::list::SandboxFacts;
pub(crate) use self::occupants::{Occupant, Occupants};
pub use self::remove::Swept;
pub(crate) use self::uptime::Uptime;
pub(crate) use self::used::Uses;

/// Whose sandbox, and with which agent. Sorted by user, then by agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId {
    /// Whose it is.
    pub user: UserId,
    /// With which agent.
    pub agent: AgentId,
}

impl SandboxId {
    /// The sandbox in which the commands of a tree run.
    #[must_use]
    pub fn of(tree: &TreeId) -> Self {
        Self { user: tree.user().clone(), agent: tree.agent().clone() }
    }

    /// Its workspace.
    #[must_use]
    pub fn workspace(&self) -> TreeId {
        TreeId::Workspace(self.user.clone(), self.agent.clone())
    }
}
