//! Unified diffs over several files: read ([`parse`](mod@parse)), worked out for one text ([`hunks`]), and made in a tree
//! ([`Files::patch`](crate::Files::patch)), all of it or nothing.
//!
//! The format is that of `git diff` and of `diff -u` (git-diff(1), "Generating patch text with -p"; POSIX `diff -u`).
//! No fuzz: every context line and every removed line must be there. What may differ is where: a hunk whose lines are not
//! at the place that it names goes to the one place where they are.

mod hunks;
mod make;
mod parse;
mod quoted;
mod redo;

pub use self::hunks::{Hunk, Line, Side};
pub use self::make::{PatchOptions, Patched};
pub use self::parse::{FILES_MAX, PATCH_BYTES_MAX, parse};
pub(crate) use self::redo::redo_patches;

use policy::RelPath;
use serde::Serialize;

/// The patch of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The line of the patch where it begins, from 1.
    pub line: u64,
    /// The action.
    pub action: Action,
    /// The file read; of a new one, the file itself.
    pub from: RelPath,
    /// The file written; of a removed one, the file itself.
    pub to: RelPath,
    /// Permission bits to give; `None` keeps those that are, or gives 0644.
    pub mode: Option<u32>,
    /// Changes of the text, from the top down.
    pub hunks: Vec<Hunk>,
}

/// The action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is made; nothing may be there.
    Created,
    /// It is changed.
    Modified,
    /// It is removed; the hunks must take all lines.
    Deleted,
    /// It is moved, and perhaps changed; nothing may be at the new name.
    Renamed,
    /// It is copied, and perhaps changed; nothing may be at the new name.
    Copied,
}
