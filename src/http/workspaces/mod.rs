//! Routes about sandboxes as a whole: a workspace with its home, its snapshots, and what brings it to a state.

pub(super) mod list;
pub(super) mod prepare;
pub(super) mod remove;
pub(super) mod restore;
pub(super) mod snapshots;
pub(super) mod usage;

use serde::Serialize;
use storage::Use;

/// The room that something takes on the disk.
#[derive(Serialize)]
pub(super) struct Taken {
    /// In whole blocks.
    bytes: u64,
    /// Names.
    files: u64,
}

impl From<Use> for Taken {
    fn from(Use { bytes, files }: Use) -> Self {
        Self { bytes, files }
    }
}
