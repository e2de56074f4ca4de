//! [`Limit`]: what a run may go beyond only once.

use serde::{Deserialize, Serialize};

/// A limit on resources that ends a run, other than its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The memory of all its processes together; the signal is `SIGKILL`.
    Memory,
    /// The processor time of one process; the signal is `SIGXCPU`.
    Cpu,
    /// The size of one file; the signal is `SIGXFSZ`.
    FileSize,
    /// The room that its trees may take on the disk, or that the disk keeps free; the signal is `SIGKILL`.
    Disk,
}
