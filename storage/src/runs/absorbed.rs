//! [`Absorbed`]: what a command did to a merged view.

use serde::{Deserialize, Serialize};

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

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
