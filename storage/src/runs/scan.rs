//! [`Scan`]: a look at everything that a command left.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::absorbed::Absorbed;
use super::copying::below;
use crate::core::copies::Fingerprint;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::room::Room;
use crate::stat::Kind;

/// A look at everything that a command left.
pub(super) struct Scan<'a> {
    pub(super) room: Room,
    pub(super) found: &'a mut BTreeMap<OsString, Fingerprint>,
    pub(super) absorbed: &'a mut Absorbed,
}

impl Scan<'_> {
    /// Takes the fingerprints of everything below `dir`, opening up directories that the command closed.
    ///
    /// An entry that lies too deep, or under too long a path, is left out with its reason, so that it does not cost the
    /// command the rest of its work.
    pub(super) fn directory(&mut self, dir: &Dir, prefix: &OsStr, levels: usize) -> Result<()> {
        let levels = levels.saturating_sub(1);
        for entry in self.room.list(dir)? {
            let Some(stat) = dir.stat_entry(&entry.name)? else { continue };
            let path = below(prefix, &entry.name);
            if path.len() > policy::path::PATH_BYTES_MAX {
                self.absorbed.skip(&path, "its path is too long, and so is every path below it");
                continue;
            }
            self.room.take_path(path.len())?;
            if stat.kind == Kind::Directory {
                if levels == 0 {
                    self.absorbed.skip(&path, "it lies too deep, and so does everything below it");
                    continue;
                }
                let below = match dir.open_closed_dir(&entry.name) {
                    // Of another run in the same copy.
                    Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => continue,
                    opened => opened?,
                };
                self.directory(&below, &path, levels)?;
                // To open it may have changed its mode.
                self.found.insert(path, Fingerprint::from(&below.stat()?));
                continue;
            }
            self.found.insert(path, Fingerprint::from(&stat));
        }
        Ok(())
    }
}
