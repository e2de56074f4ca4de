//! [`Options`]: how a store behaves.

use std::sync::Arc;
use std::time::Duration;

use policy::{DiskLimits, FileLimits, SnapshotLimits};

use crate::layers::durability::Durability;
use crate::layers::projects::ProjectQuotas;
use crate::layers::view::LiveOptions;

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a change counts as done.
    pub durability: Durability,
    /// Whether workspaces belong to a user id each. Without the privilege to give files away, they do not.
    pub separate_owners: bool,
    /// Former versions of a baseline skill that are kept although no overlay began with them.
    pub keep_versions: usize,
    /// Bounds on file operations.
    pub files: FileLimits,
    /// Bounds on what lies on the disk.
    pub disk: DiskLimits,
    /// Bounds on snapshots of workspaces.
    pub snapshots: SnapshotLimits,
    /// The room that unpacked files of packages may take, in bytes, equal ones once; 0 keeps none.
    pub unpacked_bytes: u64,
    /// The time without use after which a sandbox may be swept; `None` for never.
    pub idle: Option<Duration>,
    /// For how long more a sandbox is kept aside that has gone for that; zero removes it at once.
    pub keep: Duration,
    /// Whether and how commands get live views of skills, where the host lets the service mount.
    pub live: Option<LiveOptions>,
    /// How the kernel is asked to keep the limits of trees, where the file system has project quotas.
    pub projects: Option<Arc<dyn ProjectQuotas>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Strict,
            separate_owners: false,
            keep_versions: 20,
            files: FileLimits::default(),
            disk: DiskLimits::default(),
            snapshots: SnapshotLimits::default(),
            unpacked_bytes: 2 * 1024 * 1024 * 1024,
            idle: None,
            keep: Duration::ZERO,
            live: None,
            projects: None,
        }
    }
}
