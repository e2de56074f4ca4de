//! MCP over HTTP and stdio: the acceptance table of its specification, on a real service.
//!
//! `FILESECBOX_REQUIRE=mcp-python-1,mcp-python-2,mcp-langchain,mcp-openai-agents,mcp-suite` turns the skips of the clients
//! (`clients.rs`) and of the official suite (`suite.rs`) into failures.
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

mod access;
mod bridge;
mod calls;
mod client;
mod clients;
mod conformance;
mod eras;
mod leaving;
mod limits;
mod listening;
mod refusals;
mod resources;
mod skills;
mod stdio;
mod suite;
#[path = "../rest/support/mod.rs"]
mod support;
mod tools;
mod transcript;
