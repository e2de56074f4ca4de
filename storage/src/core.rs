//! The core: one root directory, the locks of its trees, and what they may take.

pub(crate) mod access;
pub(crate) mod accounts;
pub mod agents;
pub(crate) mod allowances;
pub(crate) mod copies;
pub(crate) mod count;
pub(crate) mod devboxes;
pub(crate) mod flights;
pub(crate) mod growth;
pub(crate) mod keyed_texts;
pub(crate) mod listings;
pub(crate) mod lock;
pub(crate) mod mount_points;
pub(crate) mod occupants;
pub mod open;
pub(crate) mod revocations;
pub(crate) mod runners;
pub(crate) mod short_ways;
pub(crate) mod snapshot_locks;
pub mod spool;
pub mod store;
pub(crate) mod totals;
pub(crate) mod uptime;
pub mod usage;
pub(crate) mod uses;
pub(crate) mod views;
