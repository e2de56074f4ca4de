//! The real program under load: killed at random moments, and used by many at once.
//!
//! * [`crash`]: whatever was acknowledged survives SIGKILL, whatever was not is whole or absent;
//! * [`concurrency`]: in one skill under 64 clients nobody reads a half file or a half skill, and no edit is lost.
//!
//! Environment: `FILESECBOX_LOAD_SEED` repeats the random choices of a run, `FILESECBOX_LOAD_KILLS` (200) and
//! `FILESECBOX_LOAD_SECONDS` (20) say how long the two go on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and looks at the disk behind the service's back"
)]

mod client;
mod concurrency;
mod crash;
mod random;
mod service;
mod skill;
