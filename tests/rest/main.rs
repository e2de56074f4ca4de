//! The running service as its callers meet it: the real binary, a data directory of its own, HTTP over a socket.
//!
//! Every test starts its own service on a free port. `FILESECBOX_REQUIRE=landlock,root,unzip` turns the named skips
//! into failures; `FILESECBOX_LARGE=1` adds the transfers that take long.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, speaks through stderr, and looks at the data directory from outside"
)]

mod access;
mod audit;
mod bad_input;
mod cli;
mod conditions;
mod connections;
mod contract;
mod defects;
mod heads;
mod natural;
mod policies;
mod programs;
mod promised;
mod quota;
mod registry;
mod roles;
mod seeing;
mod shares;
mod slow;
mod support;
mod telemetry;
mod tokens;
