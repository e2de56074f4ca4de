//! Machines that users lend, as the service sees them: runners of the founding dialects and hostile ones, played by the tests, and our
//! own runner as a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    unused_imports,
    missing_docs,
    reason = "a test fails by panicking, and shares files with other suites"
)]

mod commands;
mod faults;
mod founding;
#[path = "../rest/support/mod.rs"]
mod support;
mod sync;
mod tls;
mod transfers;
