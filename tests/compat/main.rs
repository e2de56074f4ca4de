//! The doors for clients of other vendors' registries of skills: their requests, and the vendors' own packages.
//!
//! `FILESECBOX_REQUIRE=compat-clients,installers` turns the skips of the packages into failures (`clients.rs`, `installers.rs`).
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

mod between;
mod clients;
mod doors;
mod downloads;
mod faults;
mod forms;
mod installers;
mod linted;
mod npm;
mod repeated;
#[path = "../rest/support/mod.rs"]
mod support;
mod transcripts;
