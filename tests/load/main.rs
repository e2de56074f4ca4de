//! The real program under load: killed at random moments, and used by many at once.
//!
//! * [`crash`]: every acknowledged change survives SIGKILL, every other one is whole or absent;
//! * [`concurrency`]: in one skill under 64 clients no client reads a half file or a half skill, and no edit is lost;
//! * [`company`]: fifty commands run in one skill at once, see every edit of it and are seen;
//! * [`cost`]: when one user spends all that it may have, others go on at most three times as slowly;
//! * [`users`]: a thousand users each write and run once, without any error;
//! * [`views`]: what the service holds is bounded by the views it may hold, however many it ever made;
//! * [`soak`]: honest and hostile users together, for as long as `scripts/soak` says: nothing grows, nothing is lost.
//!
//! Environment: `FILESECBOX_LOAD_SEED` repeats the random choices of a run, `FILESECBOX_LOAD_KILLS` (60; 200 with
//! `FILESECBOX_LARGE`) and `FILESECBOX_LOAD_SECONDS` (20) say how long the first two go on, `FILESECBOX_LOAD_USERS` (1000) and
//! `FILESECBOX_LOAD_VIEWS` (1000; its law is about 10000) how much the last two do. `FILESECBOX_REQUIRE=namespaces`
//! turns the skips of tests about live views into failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and looks at the disk behind the service's back"
)]

mod client;
mod company;
mod concurrency;
mod cost;
mod crash;
mod host;
mod random;
mod service;
mod skill;
mod soak;
mod users;
mod views;
