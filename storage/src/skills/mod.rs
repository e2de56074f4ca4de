//! Skills: what is published, kept, copied and compared.

pub mod archive;
pub mod artifact;
mod carry;
pub mod directory;
mod download;
pub mod gathered;
pub mod ids;
pub mod list;
pub mod merged;
pub mod packages;
pub mod provenance;
pub mod publish;
pub mod pull;
mod remove;
pub mod sides;
pub mod status;
mod version_diff;
mod version_log;
pub mod version_note;
pub mod versions;

use crate::core::store::Store;

/// The skills of a store: of applications, and of users. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct Skills {
    store: Store,
}

impl Store {
    /// Its skills.
    #[must_use]
    pub fn skills(&self) -> Skills {
        Skills { store: self.clone() }
    }
}
