//! The requests of a service and their answers, in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and looks at the host from behind the sandbox"
)]

mod founding;
mod hostile;
mod live;
mod pieces;
mod recorded;
mod support;
mod versions;
