//! [`Changes`]: which files a run made, changed and removed.
//!
//! The trees are walked before and after, and entries compared by their tags, which move with every write. So a run
//! that asks for nothing pays nothing, and one that asks pays for the number of files, not for their size. What
//! requests or other runs changed in the same trees meanwhile is told as well.

use std::collections::HashMap;

use policy::{RelPath, TreeId};
use serde::{Deserialize, Serialize};
use storage::{Difference, Differing, ETag, Kind, Store};

/// Most entries that one report names.
const NAMED_MAX: usize = 1000;
/// Most bytes that their paths have together: reports of ended runs are kept in memory.
const PATH_BYTES_MAX: usize = 128 * 1024;

/// The changes of files and links by a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Those that were not there before, sorted by path.
    pub created: Vec<Changed>,
    /// Those that were written, replaced, or given another mode.
    pub modified: Vec<Changed>,
    /// Those that are no longer there, with the size that they had.
    pub deleted: Vec<Changed>,
    /// How many more there are than the lists name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: usize,
    /// Why nothing is told, when a tree could not be walked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// One file or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// From the root of the tree; below `skills/<id>/` in a skill that the command saw beside its workspace.
    pub path: String,
    /// In bytes.
    pub size: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's `skip_serializing_if` passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The trees that a run may change, each with what stands before its paths.
pub(super) type Watched = Vec<(String, TreeId)>;

/// The entries at one moment.
pub(super) struct Snapshot(Vec<HashMap<RelPath, (ETag, u64)>>);

/// Looks at all files of `trees`; the sentence says why that is not possible.
pub(super) fn look(store: &Store, trees: &Watched) -> Result<Snapshot, String> {
    let look = |(_, tree): &(String, TreeId)| {
        let walked = store.files(tree.clone()).walk(&RelPath::root(), usize::MAX, true)?;
        let files = walked.into_iter().filter(|entry| matches!(entry.kind, Kind::File | Kind::Symlink));
        Ok(files
            .filter_map(|entry| {
                let stat = entry.stat?;
                Some((entry.path, (stat.etag(), stat.size)))
            })
            .collect())
    };
    let snapshot: storage::Result<Vec<_>> = trees.iter().map(look).collect();
    snapshot.map(Snapshot).map_err(|error| error.to_string())
}

impl From<Difference> for Changes {
    fn from(difference: Difference) -> Self {
        let named = |list: Vec<Differing>| -> Vec<Changed> {
            list.into_iter().map(|Differing { path, size }| Changed { path, size }).collect()
        };
        let Difference { created, modified, deleted } = difference;
        let mut changes = Self {
            created: named(created),
            modified: named(modified),
            deleted: named(deleted),
            ..Self::default()
        };
        changes.bound();
        changes
    }
}

impl Changes {
    /// Sorts the lists, and cuts them to [`NAMED_MAX`] entries and [`PATH_BYTES_MAX`].
    fn bound(&mut self) {
        let (mut entries, mut bytes) = (NAMED_MAX, PATH_BYTES_MAX);
        for list in [&mut self.created, &mut self.modified, &mut self.deleted] {
            list.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let fitting = list.iter().take(entries).take_while(|entry| {
                bytes = bytes.saturating_sub(entry.path.len());
                bytes > 0
            });
            let fitting = fitting.count();
            self.unnamed += list.len() - fitting;
            list.truncate(fitting);
            list.shrink_to_fit();
            entries -= fitting;
        }
    }
}

/// Compares two moments.
pub(super) fn compare(
    trees: &Watched,
    before: Result<Snapshot, String>,
    after: Result<Snapshot, String>,
) -> Changes {
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(sentence), _) | (_, Err(sentence)) => {
            return Changes { unknown: Some(sentence), ..Changes::default() };
        }
    };
    let mut changes = Changes::default();
    for (((prefix, _), mut before), after) in trees.iter().zip(before.0).zip(after.0) {
        let named = |path: RelPath, size| Changed { path: format!("{prefix}{path}"), size };
        for (path, (tag, size)) in after {
            match before.remove(&path) {
                None => changes.created.push(named(path, size)),
                Some((former, _)) if former != tag => changes.modified.push(named(path, size)),
                Some(_) => {}
            }
        }
        changes.deleted.extend(before.into_iter().map(|(path, (_, size))| named(path, size)));
    }
    changes.bound();
    changes
}
