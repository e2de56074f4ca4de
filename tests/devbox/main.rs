//! The devbox dialect: a scripted adapter, and hostile ones, on a real service over HTTP.
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

mod adapter;
mod hostile;
mod idioms;
mod life;
#[path = "../rest/support/mod.rs"]
mod support;
