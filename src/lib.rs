//! The filesecbox service: `ops` (what it does) under `http` (how it is asked) and `cli` (how it is operated).
//!
//! `policy` decides, `storage` keeps, `exec` runs; they meet in [`ops`] and nowhere else.

pub mod access;
pub mod audit;
pub mod cli;
pub mod config;
pub mod confine;
pub mod http;
pub mod local;
mod log_lines;
pub mod mcp;
pub mod metrics;
pub mod ops;
pub mod registry;
pub mod serve;
mod serve_error;
pub mod telemetry;
