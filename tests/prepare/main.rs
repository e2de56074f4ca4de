//! Preparing workspaces: the acceptance table of the specification on a workspace of this host, and of a service over REST.
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

mod acceptance;
mod acceptance_leases;
mod bucket;
mod bucket_server;
mod details;
mod encrypted;
mod fixture;
mod killed;
mod late;
mod lease_services;
mod leases;
#[path = "../../src/ops/lease/postgres_server.rs"]
mod postgres_server;
mod programs;
mod rest;
mod served;
mod served_details;
mod served_leases;
mod shared_machine;
mod standing_still;
#[path = "../rest/support/mod.rs"]
mod support;
