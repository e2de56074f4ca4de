//! The reverse-proxy examples of `deploy/`, each run by the program that it is for, in front of the real service.
//!
//! `FILESECBOX_REQUIRE=nginx,caddy` turns the skip of a program that is not installed into a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    unused_imports,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares files with other suites"
)]

mod front;
mod laws;
#[path = "../rest/support/mod.rs"]
mod support;
