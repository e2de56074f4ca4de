//! [`Absorbed`]: what a command did to a merged view.

use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

/// Entries named in [`Absorbed::skipped`].
const SKIPPED_MAX: usize = 20;

/// Characters of a path in [`Absorbed::skipped`].
const SKIPPED_CHARACTERS: usize = 500;

/// The changes that a command made to a merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absorbed {
    /// Entries that were made.
    pub created: usize,
    /// Entries whose content, kind or mode changed.
    pub modified: usize,
    /// Entries that were removed; a directory counts once.
    pub deleted: usize,
    /// Entries that were left out, with the reason: sockets, pipes, names that cannot be spelled. At most 20.
    pub skipped: Vec<String>,
    /// Why nothing of a tree was taken over, when it would have become larger than it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Changes that were not taken in although others were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Why they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_because: Option<String>,
    /// How long comparing and taking in took after the command had ended, in milliseconds; 0 when there was nothing to take
    /// in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub absorb_ms: u64,
}

impl Absorbed {
    /// Notes an entry that was left out, while there are few.
    pub(super) fn skip(&mut self, path: &OsStr, reason: &str) {
        if self.skipped.len() < SKIPPED_MAX {
            let path = path.to_string_lossy();
            let shown: String = path.chars().take(SKIPPED_CHARACTERS).collect();
            let rest = if shown.len() < path.len() { "…" } else { "" };
            self.skipped.push(format!("`{shown}{rest}`: {reason}"));
        }
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
