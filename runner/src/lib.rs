//! The runner: it lends a user's own machine to the user's agent.
//!
//! It connects out to a filesecbox service, so that it works behind NAT, and does in one directory of this machine what the service
//! asks: reads, edits and commands. `docs/RUNNER.md` specifies what is said.
//!
//! * [`Session`]: the requests of one connection and their answers; no network.

mod session;

pub use session::Session;
