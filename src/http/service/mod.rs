//! Routes about the service itself: its health and figures, its callers and tokens, its audit log, its registry.

pub(super) mod audit;
pub(super) mod meta;
pub(super) mod registry;
pub(super) mod tokens;
pub(super) mod whoami;
