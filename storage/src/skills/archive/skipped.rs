//! [`Skipped`]: what an archive holds and an upload does not take, each with its reason.

use std::fmt;

use serde::Serialize;

use crate::error::excerpt;

/// Skipped paths that a plan lists; it counts the rest.
const SKIPPED_LISTED: usize = 100;

/// Directories that never are skills nor hold any, in any case of letters, and why.
const NEVER: [(&str, SkipReason); 8] = [
    ("__macosx", SkipReason::MacOs),
    ("meta-inf", SkipReason::Metadata),
    (".git", SkipReason::Metadata),
    (".hg", SkipReason::Metadata),
    (".svn", SkipReason::Metadata),
    ("__pycache__", SkipReason::Metadata),
    ("node_modules", SkipReason::Dependencies),
    (".venv", SkipReason::Dependencies),
];

/// Why something in the archive was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// macOS metadata (`__MACOSX/`, `._name`, `.DS_Store`).
    MacOs,
    /// Windows metadata (`Thumbs.db`, `desktop.ini`).
    Windows,
    /// A file or directory that lies beside the skills, in none.
    BesideSkills,
    /// A directory whose name begins with a dot, beside the skills.
    Hidden,
    /// A directory without any file, beside the skills.
    Empty,
    /// A link that lies beside the skills, in none.
    Link,
    /// What programs keep for themselves beside the skills (`META-INF/`, `.git/`, `__pycache__/`).
    Metadata,
    /// Packages of others beside the skills (`node_modules/`, `.venv/`).
    Dependencies,
    /// A skill that is in the archive a second time, the same to the byte.
    Duplicate,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MacOs => "macOS metadata",
            Self::Windows => "Windows metadata",
            Self::BesideSkills => "beside the skills, in none of them",
            Self::Hidden => "hidden directory beside the skills",
            Self::Empty => "directory without files",
            Self::Link => "link beside the skills",
            Self::Metadata => "kept by a program for itself",
            Self::Dependencies => "packages of others",
            Self::Duplicate => "the same skill again",
        })
    }
}

/// One path that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The path in the archive, of a directory for all that is in it; shortened when very long.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// The entries that were not taken, listed up to a bound.
#[derive(Clone, Debug, Default)]
pub(super) struct SkippedList {
    pub(super) listed: Vec<Skipped>,
    pub(super) total: usize,
}

impl SkippedList {
    pub(super) fn add(&mut self, path: &str, reason: SkipReason) {
        self.total += 1;
        if self.listed.len() < SKIPPED_LISTED {
            self.listed.push(Skipped { path: excerpt(path.as_bytes()), reason });
        }
    }
}

/// Tells whether `path` is what an operating system leaves behind.
pub(super) fn junk(path: &str) -> Option<SkipReason> {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    if path.split('/').any(|segment| segment == "__MACOSX") || name == ".DS_Store" || name.starts_with("._") {
        Some(SkipReason::MacOs)
    } else if name.eq_ignore_ascii_case("thumbs.db") || name.eq_ignore_ascii_case("desktop.ini") {
        Some(SkipReason::Windows)
    } else {
        None
    }
}

/// Why a directory of this name is passed over where skills are looked for.
pub(super) fn never(name: &str) -> Option<SkipReason> {
    NEVER.iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, reason)| *reason)
}
