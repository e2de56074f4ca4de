//! Attacks on the running service by its callers and by their commands, each test named after one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    unused_imports,
    missing_docs,
    reason = "a test fails by panicking, and the support is shared with a suite that uses all of it"
)]

mod holding;
mod memory;
#[path = "../rest/support/mod.rs"]
mod support;
