//! [`Difference`]: what a command did to a copy, told before it is absorbed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::PreparedRun;
use super::absorbed::Absorbed;
use super::scan::Scan;
use crate::core::copies::Fingerprint;
use crate::dir::DEPTH_MAX;
use crate::error::Result;
use crate::layers::room::Room;

/// Files and links of a copy that are not as they were; each list is sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Those that were not there.
    pub created: Vec<Differing>,
    /// Those whose content, kind or mode changed.
    pub modified: Vec<Differing>,
    /// Those that are gone, with the size that they had.
    pub deleted: Vec<Differing>,
}

/// One file or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// From the root of the tree. What is no UTF-8 has U+FFFD, and will not be absorbed.
    pub path: String,
    /// In bytes.
    pub size: u64,
}

impl PreparedRun {
    /// Looks at what the command did to its copies. Nothing may run in them any more.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn difference(&self) -> Result<Difference> {
        let mut difference = Difference::default();
        for (_, copy) in self.copies() {
            let mut after = BTreeMap::new();
            let mut passed_over = Absorbed::default();
            let room = Room::of_entries(self.store.options().files.tree_entries);
            let mode = copy.dir.stat()?.mode;
            if mode & 0o700 != 0o700 {
                copy.dir.set_mode(mode | 0o700)?;
            }
            let mut scan = Scan { room, found: &mut after, absorbed: &mut passed_over };
            scan.directory(&copy.dir, OsStr::new(""), DEPTH_MAX)?;
            difference.add(&copy.before, &after);
        }
        Ok(difference)
    }
}

impl Difference {
    fn add(&mut self, before: &BTreeMap<OsString, Fingerprint>, after: &BTreeMap<OsString, Fingerprint>) {
        let differing = |path: &OsStr, size| Differing { path: path.to_string_lossy().into_owned(), size };
        for (path, now) in after {
            let Some(size) = now.size() else { continue };
            match before.get(path) {
                Some(was) if was == now => {}
                Some(was) if was.size().is_some() => self.modified.push(differing(path, size)),
                _ => self.created.push(differing(path, size)),
            }
        }
        for (path, was) in before {
            let is_gone = after.get(path).is_none_or(|now| now.size().is_none());
            if let Some(size) = was.size().filter(|_| is_gone) {
                self.deleted.push(differing(path, size));
            }
        }
    }
}
