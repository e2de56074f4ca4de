//! Routes about users, agents and runs as a whole, over all trees that the caller may see.

pub(super) mod agents;
pub(super) mod list;
pub(super) mod one;
pub(super) mod policy;
pub(super) mod remove;
pub(super) mod runs;
pub(super) mod usage;
