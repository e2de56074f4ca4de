//! The devbox dialect: routes for platforms whose adapter speaks it, over the same workspaces (`docs/DEVBOX.md`).
//!
//! It translates, and has no rules of its own about files and commands. Its routes are there when `devbox.enabled` is set.
//!
//! | File | Holds |
//! | --- | --- |
//! | [`dialect`] | the envelope, and the statuses of failures |
//! | [`life`] | creating, looking at, pausing, stopping, resuming and deleting a devbox |
//! | [`exec`] | commands |
//! | [`files`] | uploads and downloads |

pub(super) mod dialect;
pub(super) mod exec;
pub(super) mod files;
pub(super) mod life;

/// The container that every devbox is said to have.
const CONTAINER: &str = "devbox";
