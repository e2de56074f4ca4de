//! [`Notice`]: a change of one entry as it is told, and the order in which changes can be followed.

use std::collections::HashSet;

use policy::RelPath;

use super::known::Known;
use crate::stat::{Kind, Stat};

/// The change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// It was not there before.
    Created,
    /// It has other bytes, another mode, or is another file.
    Modified,
    /// It is not there any more, nor is anything below it.
    Deleted,
    /// It was at another path, and everything below it, too.
    Moved {
        /// Where it was.
        from: RelPath,
    },
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Where it is, or was.
    pub path: RelPath,
    /// The change.
    pub became: Became,
    /// The kind of the entry, now or before.
    pub kind: Kind,
    /// The facts of the entry; `None` when it is gone.
    pub stat: Option<Stat>,
}

/// The findings of one look so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) told: Vec<Notice>,
    /// Entries that are no longer under their names; they may turn up under others.
    pub(super) gone: Vec<Gone>,
}

/// An entry that is no longer under its name.
pub(super) struct Gone {
    pub(super) path: RelPath,
    pub(super) known: Known,
    /// How many notices are told before that it is gone: it may lie in what was moved before.
    after: usize,
}

impl Found {
    /// Notes that `known` is no longer at `path`.
    pub(super) fn lose(&mut self, path: RelPath, known: Option<Known>) {
        let after = self.told.len();
        self.gone.extend(known.map(|known| Gone { path, known, after }));
    }

    /// Everything in an order in which it can be followed.
    pub(super) fn notices(mut self) -> Vec<Notice> {
        // With a directory goes what is below it.
        let dirs: HashSet<(usize, RelPath)> =
            self.gone.iter().map(|gone| (gone.after, gone.path.clone())).collect();
        self.gone.retain(|gone| {
            let mut above = std::iter::successors(gone.path.parent(), RelPath::parent);
            !above.any(|above| dirs.contains(&(gone.after, above)))
        });
        self.gone.sort_by(|one, other| (one.after, &one.path).cmp(&(other.after, &other.path)));
        let mut gone = self.gone.into_iter().peekable();
        let mut notices = Vec::with_capacity(gone.len() + self.told.len());
        for (number, told) in self.told.into_iter().map(Some).chain([None]).enumerate() {
            while let Some(Gone { path, known, .. }) = gone.next_if(|gone| gone.after <= number) {
                notices.push(Notice { path, became: Became::Deleted, kind: known.kind, stat: None });
            }
            notices.extend(told);
        }
        notices
    }
}
