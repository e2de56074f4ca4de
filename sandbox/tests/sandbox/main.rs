//! The backends, the adapters and the router.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a test fails by panicking, tells its counts, and looks at the host from behind the sandbox"
)]

mod hostile_service;
mod limited;
mod none;
mod router;
