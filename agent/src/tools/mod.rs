//! The tools that a model calls, over any [`Sandbox`](sandbox::Sandbox).
//!
//! * [`Tool`], [`Toolbox`]: a name, a description and a JSON schema each; a call takes JSON and gives text.
//! * [`Session`]: what lasts between calls: the user, the workspace, the current directory, exported variables.
//! * [`glob`], [`grep`], [`read`], [`edit`], [`cd`], [`skill`], [`shell`]: one tool each, and the pure functions it is
//!   made of.
//!
//! A tool reaches files and commands through the trait alone. None of them makes a shell script of what it was given,
//! but *Shell*, whose argument is one.

mod apart;
pub mod braces;
pub mod cd;
pub mod edit;
pub mod glob;
pub mod grep;
mod listing;
mod pattern;
pub mod read;
mod session;
pub mod shell;
pub mod skill;
mod tool;
mod toolbox;

pub use crate::text::{format_size, truncate};
pub use listing::Search;
pub use session::Session;
pub(crate) use tool::parse as parse_arguments;
pub use tool::{Context, Refusal, Report, Tool, ToolOutput};
pub use toolbox::{ARGUMENT_BYTES_MAX, Toolbox};
