//! Searching a tree: names by patterns ([`Files::glob`](crate::Files::glob)), lines by a regular expression
//! ([`Files::grep`](crate::Files::grep)).
//!
//! A search walks the layers themselves, in the order of paths, and follows no link. It is no snapshot: what a command
//! changes meanwhile is found or not. It ends at a limit of the caller's or at a deadline, and then says where to go on.
//!
//! | File | Holds |
//! | --- | --- |
//! | `pattern` | what a pattern for paths means |
//! | `order` | the walk, one batch of files at a time |
//! | `glob` | names |
//! | `grep` | lines, on as many threads as there are processors |
//! | `parts` | what threads found, put together in order |
//! | `lines` | one file: its encoding |
//! | `sink` | its lines that match, with those around them |

mod glob;
mod grep;
mod lines;
mod order;
mod parts;
mod pattern;
mod query;
mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use policy::{RelPath, TreeId};
use serde::Serialize;

pub use self::glob::{GlobQuery, Globbed, Kinds};
pub use self::pattern::{PATTERNS_MAX, Patterns};
pub use self::query::{GrepCursor, GrepQuery, Grepped};
pub use self::sink::Match;
use crate::error::Result;
use crate::files::Files;
use crate::interrupt;
use crate::layers::stack::Layers;

/// Why a search ended before everything was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// As many results as were asked for.
    Limit,
    /// As many bytes of results as one answer holds.
    Size,
    /// As long as a search may take.
    Time,
}

/// When a search ends, with the matches that it has found.
#[derive(Clone, Debug)]
pub struct Patience {
    /// The deadline.
    pub deadline: Instant,
    /// Set when the caller does not wait for the answer any more.
    pub abandoned: Arc<AtomicBool>,
}

impl Patience {
    /// Tells whether the search is to end, as the job on this thread is or by itself.
    pub(crate) fn is_over(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
            || Instant::now() >= self.deadline
            || interrupt::check().is_err()
    }
}

impl Files {
    /// The directory `path` of the tree as its layers. The caller holds the tree as it is.
    fn layers(&self, path: &RelPath) -> Result<Layers> {
        let (store, id) = self.parts();
        if let Some(version) = self.version() {
            return store.version_union(id, version)?.open_layers(path);
        }
        match id {
            TreeId::Skill(user, agent, skill) => {
                let mut union = store.union(user, agent, skill, None)?;
                union.seat = store.views().and_then(|views| views.sit_in_older(id));
                union.open_layers(path)
            }
            TreeId::Workspace(..) => {
                Ok(Layers { upper: Some(store.plain(id, false)?.open_dir(path)?), lower: None })
            }
        }
    }
}
