//! The documents say what is true: the README's tour runs as printed, the API document lists the routes and codes
//! of the source, and the example configuration is the default one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "these tests read documents and start the service from outside"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod api;
mod configuration;
mod costs;
mod deployment;
mod modules;
mod openapi;
mod own_directory;
mod paths;
#[path = "../rest/support/promise.rs"]
mod promise;
mod tour;
mod ways;

/// Reads a file of the repository.
fn read(path: &str) -> String {
    let whole = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&whole).unwrap_or_else(|error| panic!("{path}: {error}"))
}
