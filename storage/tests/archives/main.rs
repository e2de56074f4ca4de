//! Archives from strangers: honest ones of every tool, hostile ones of every kind, and back to an archive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod builder;
mod charsets;
mod corpus;
mod extracting;
mod lies;
mod metadata;
mod mutations;
mod names;
mod packing;
mod shapes;

mod taking;
mod tar_lies;
mod tars;
mod tools;
mod validator;
