//! The question and the answer of a search for lines.

use policy::RelPath;

use super::sink::Match;
use super::{Patterns, Stop};

/// Which lines are looked for.
#[derive(Clone, Debug)]
pub struct GrepQuery {
    /// A regular expression for one line; its time is linear in the text.
    pub expression: String,
    /// Whether `expression` is a text to be found as it is.
    pub literal: bool,
    /// Whether upper and lower case are the same.
    pub ignore_case: bool,
    /// Directory to begin at, or the one file to search.
    pub path: RelPath,
    /// Files that are searched, relative to `path`; all, without patterns.
    pub include: Patterns,
    /// Files, and directories with all in them, that are left out.
    pub exclude: Patterns,
    /// Whether names that begin with a dot are met.
    pub hidden: bool,
    /// Lines before and after each match.
    pub context: usize,
    /// Most matches to return.
    pub limit: usize,
    /// Where to go on.
    pub after: Option<GrepCursor>,
}

/// Where a search goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrepCursor {
    /// The file.
    pub path: String,
    /// The last line that was searched; `None` when all of the file was.
    pub line: Option<u64>,
}

/// Lines that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grepped {
    /// By path, then by line.
    pub matches: Vec<Match>,
    /// Files that were searched.
    pub searched: usize,
    /// Files that are no text.
    pub binary: usize,
    /// Files with a line of more than 8 MiB, and files that could not be read.
    pub skipped: usize,
    /// Why there may be more.
    pub stop: Option<Stop>,
    /// Where to go on, when the search stopped.
    pub next: Option<GrepCursor>,
}
