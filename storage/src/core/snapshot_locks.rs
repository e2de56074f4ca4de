//! [`SnapshotLocks`]: whose snapshots are being worked on.

use std::collections::HashSet;

use parking_lot::Mutex;
use policy::WorkspaceId;

/// Workspaces whose snapshots a request works on. No more than there are such requests.
#[derive(Default)]
pub(crate) struct SnapshotLocks {
    pub(crate) sandboxes: Mutex<HashSet<WorkspaceId>>,
}
