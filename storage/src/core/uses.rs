//! [`Uses`]: which workspaces were used a moment ago.

use std::collections::HashMap;

use parking_lot::Mutex;
use policy::WorkspaceId;

/// Which sandboxes have a recent record, by uptime in milliseconds.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) noted: Mutex<HashMap<WorkspaceId, Noted>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) uptime_ms: u64,
    /// Whether there was anything of it to have a record.
    pub(crate) is_there: bool,
}

impl Uses {
    /// Has the next use of a sandbox noted, whenever the last one was.
    pub(crate) fn forget(&self, id: &WorkspaceId) {
        self.noted.lock().remove(id);
    }
}
