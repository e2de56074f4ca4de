//! The runner: it lends a user's own machine to the user's agent.
//!
//! It connects out to a filesecbox service, so that it works behind NAT, and does in one directory of this machine what the service
//! asks: reads, edits and commands. `docs/RUNNER.md` specifies what is said.
//!
//! * [`Session`]: the requests of one connection and their answers; no network.
//! * [`Runs`]: commands in which the service takes part, across connections.
//! * [`outcomes`]: how changes went whose answers may have been lost.
//! * [`connect`]: the way to the service. [`link`]: connections one after the other. [`backoff`]: the pauses between them.
//! * [`tasks`], [`download`]: what only services of the second founding generation ask.
//! * [`transfer`]: large files over HTTP.
//! * [`screen`]: the log, and bars on a terminal. [`status`]: what a running runner tells of itself.
//! * [`confine`]: what holds commands.
//! * [`cli`]: the program.

mod backoff;
mod cli;
mod confine;
mod connect;
mod download;
mod link;
mod outcomes;
mod runs;
mod screen;
mod session;
mod status;
mod tasks;
mod transfer;

pub use cli::main;
pub use confine::{SUBCOMMAND, launcher_main};
pub use runs::Runs;
pub use session::Session;
