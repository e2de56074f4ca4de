//! Sandboxes: the workspace and the home directory of one user with one agent, as something that comes and goes.
//!
//! | File | Holds |
//! | --- | --- |
//! | `occupants` | the runs in a sandbox, so that no request removes it from under a command |
//! | `uptime` | the clock by which sandboxes grow idle |
//! | `used` | when each was used last |
//! | `list` | which sandboxes there are, and what is known of them |
//! | `kept` | setting an unused one aside, and bringing it back |
//! | `users` | users and agents as a whole |
//! | `remove` | removing one, on a request or because it is not used |

mod kept;
mod list;
mod occupants;
mod remove;
pub mod snapshots;
mod used;
mod users;

pub use self::list::SandboxFacts;
pub(crate) use self::occupants::Occupant;
pub use self::remove::Swept;
pub use self::users::{Agent, AgentFacts};
use crate::core::store::Store;

/// The workspaces of a store, by user and agent. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct Workspaces {
    store: Store,
}

impl Store {
    /// Its workspaces.
    #[must_use]
    pub fn workspaces(&self) -> Workspaces {
        Workspaces { store: self.clone() }
    }
}
