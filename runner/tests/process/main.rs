//! The program itself, with a service of the tests at the other end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, tells what it skips, and looks at the host from behind the runner"
)]

mod attacks;
mod encrypted;
mod liveness;
mod status;
mod support;
