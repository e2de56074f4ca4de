//! The tools, the catalogue and the stores, over real backends.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a test fails by panicking, tells its counts, and looks at the host from behind the sandbox"
)]

mod agreement;
mod cases;
mod costs;
mod documents;
mod endurance;
mod hostile;
mod limits;
mod oracles;
#[path = "../transcript/play.rs"]
mod play;
mod registry;
mod stores;
mod support;
mod tapped;
mod transcript;
mod versions;
