//! The egress proxy as commands meet it: real sockets on both sides, and a resolver that answers as a test says.
//!
//! `FILESECBOX_REQUIRE=curl,python3,pip` turns the named skips into failures.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, speaks through stderr, and starts programs as a sandbox would"
)]

mod bounds;
mod clients;
mod figures;
mod framing;
mod log;
mod reach;
mod revocation;
mod support;
mod upstream;
mod users;
