//! Which programs may run and where their arguments may point.
//!
//! [`CommandPolicy::check`] takes a command and its arguments as a caller sent them and answers with the program
//! to start and the arguments to start it with, or with a [`Refusal`] that names what to change.
//!
//! | File | Holds |
//! | --- | --- |
//! | `policy` | [`CommandPolicy`]: the one entrance to everything below |
//! | `whitelist` | [`Profile`], and which programs may run |
//! | `refusal` | [`Refusal`] and [`Rule`]: why not, and what to do instead |
//! | `anchors` | [`Anchors`]: the absolute paths that mean the tree |
//! | `argument` | one argument in one role: is it a path, and where does it point |
//! | `vector` | the arguments of one command, read by the command's grammar |
//! | `shell` | the words, redirections and commands of a shell script |
//! | `word` | a word and where each of its bytes was written |
//! | `rules` | the data of `rules/*.toml`, compiled in |
//!
//! The scan is a courtesy: it turns an obvious mistake into an early, clear error. It is not the wall. A script can
//! build any path at run time, so what a command can really reach is the kernel's decision. Hence the scan prefers
//! letting odd but honest work pass over guessing at disguises.

mod anchors;
mod argument;
mod globs;
mod policy;
mod refusal;
mod rules;
mod sed;
mod shell;
mod vector;
mod whitelist;
mod word;

pub use anchors::Anchors;
pub use policy::{CheckedCommand, CommandPolicy, PolicyError, ScanOf};
pub use refusal::{CommandHint, Refusal, Rule};
pub use whitelist::Profile;
