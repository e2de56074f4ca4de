//! Open directories: a [`Dir`] is the permission to use what is in it, a path is none.
//!
//! The kernel resolves every path beneath a `Dir` (openat2(2)), also while other processes rename what the path leads
//! through. Everything here blocks.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`mod@dir`], [`mod@open`] | [`Dir`]: opening directories and regular files in it |
//! | [`attributes`] | what is known of a directory and its entries: modes, owners, extended attributes |
//! | [`list`], [`make`], [`rename`], [`remove`], [`sync`] | what can be done with the entries |
//! | [`mod@frozen`] | what is known of files that never change |
//! | [`closed`] | entries that a process closed by their permission bits |
//! | [`unnamed`] | files that get their name when they are whole |
//! | [`beneath`] | the system calls under all that, by their error numbers, for callers with rules of their own |
//! | [`stat`], [`error`] | what is known of a file without reading it; failures by meaning |
//!
//! Two crates use it and add a rule each. `storage` gives the service the permissions of its own directories back
//! (`storage/src/dir`). The host backend of `sandbox` follows absolute links into a workspace by their text
//! (`sandbox/src/none/beneath.rs`). Neither rule is here, because each is wrong for the other.

mod attributes;
mod beneath;
mod closed;
mod dir;
mod error;
#[cfg(test)]
mod fixture;
mod frozen;
mod list;
mod make;
mod open;
mod remove;
mod rename;
mod stat;
mod sync;
#[cfg(feature = "trace")]
pub mod trace;
mod unnamed;

pub use self::attributes::ATTRIBUTE_BYTES_MAX;
pub use self::beneath::{Links, READING, open_beneath, regular};
pub use self::dir::Dir;
pub use self::error::{Error, Result};
pub use self::frozen::frozen;
pub use self::list::Entry;
pub use self::stat::{ETag, Kind, Stat};
pub use self::unnamed::{PassingName, name_unnamed, open_unnamed};
