//! [`Marking`]: giving what is there to a project.
//!
//! Files and directories are given to it by a call. Symbolic links and whiteouts cannot be opened, so that no call can: they
//! are made again in a directory of the project, and take the place of the old ones.

use std::ffi::{OsStr, OsString};

use super::{Project, Shared};
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::stat::{Kind, Stat};

/// What the one entry of the carrier is called.
const CARRIED: &str = "0";

/// Gives entries to one project.
pub(super) struct Marking<'a> {
    shared: &'a Shared,
    id: u32,
    /// Whose files with several names may be given away; `None` for all.
    owner: Option<u32>,
    entries_left: usize,
    most: usize,
    /// Whether anything was of another project.
    pub(super) has_changed: bool,
    /// A directory of the project in the stage. It is a file of the project, too, so that nothing else is given its number
    /// meanwhile.
    carrier: Dir,
    carrier_name: OsString,
}

impl<'a> Marking<'a> {
    /// Begins to give at most `most` entries to the project `id`, or to one that nothing is of yet.
    pub(super) fn new(shared: &'a Shared, id: Option<u32>, owner: Option<u32>, most: usize) -> Result<Self> {
        let carrier_name = shared.names.fresh();
        let carrier = shared.stage.create_dir(&carrier_name, 0o700)?;
        let (entries_left, has_changed) = (most, false);
        let mut marking =
            Self { shared, id: 0, owner, entries_left, most, has_changed, carrier, carrier_name };
        marking.id = match id {
            Some(id) => {
                shared.set(&marking.carrier, Project { id, is_inherited: true })?;
                id
            }
            None => shared.draw(&marking.carrier)?,
        };
        Ok(marking)
    }

    /// Gives `dir` with everything in it.
    pub(super) fn root(&mut self, dir: &Dir) -> Result<()> {
        self.contents(dir, DEPTH_MAX)?;
        self.directory_itself(dir)
    }

    /// Gives the entry `name` of `dir` with everything in it.
    pub(super) fn entry(&mut self, dir: &Dir, name: &OsStr) -> Result<()> {
        match dir.stat_entry(name)? {
            Some(stat) => self.looked_at(dir, name, &stat, DEPTH_MAX),
            None => Ok(()),
        }
    }

    fn contents(&mut self, dir: &Dir, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
        for entry in dir.first_entries(self.entries_left.saturating_add(1))? {
            interrupt::check()?;
            self.entries_left = self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.most))?;
            if let Some(stat) = dir.stat_entry(&entry.name)? {
                self.looked_at(dir, &entry.name, &stat, levels)?;
            }
        }
        Ok(())
    }

    fn looked_at(&mut self, dir: &Dir, name: &OsStr, stat: &Stat, levels: usize) -> Result<()> {
        match stat.kind {
            Kind::Directory => {
                let (below, was_closed) = match dir.open_dir_entry(name) {
                    Err(Error::Closed(_)) => (dir.open_closed_dir(name)?, true),
                    below => (below?, false),
                };
                self.contents(&below, levels)?;
                self.directory_itself(&below)?;
                if was_closed { below.set_mode(stat.mode) } else { Ok(()) }
            }
            // Another's file, linked in, is not this tree's to count.
            Kind::File if stat.links > 1 && self.owner.is_some_and(|owner| stat.owner != owner) => Ok(()),
            Kind::File => {
                let opened = dir.open_file_entry(name);
                let was_closed = matches!(opened, Err(Error::Closed(_)));
                let (file, _) = match opened {
                    Err(Error::Closed(_)) => {
                        dir.open_up_file(name)?;
                        dir.open_file_entry(name)?
                    }
                    opened => opened?,
                };
                let project = Project { id: self.id, is_inherited: false };
                self.has_changed |= self.shared.set(&file, project)?;
                if !was_closed {
                    return Ok(());
                }
                rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(stat.mode & 0o777))
                    .map_err(|errno| Error::from_errno("chmod", name.to_string_lossy(), errno))
            }
            Kind::Symlink => {
                let target = dir.read_link(name)?;
                self.carrier.create_symlink(&target, OsStr::new(CARRIED))?;
                if stat.owner != rustix::process::geteuid().as_raw() {
                    self.carrier.set_entry_owner(OsStr::new(CARRIED), stat.owner)?;
                }
                self.carry(dir, name)
            }
            Kind::Other if stat.is_whiteout() => {
                self.carrier.create_whiteout(OsStr::new(CARRIED))?;
                self.carry(dir, name)
            }
            // Neither moved nor opened by anything.
            Kind::Other => Ok(()),
        }
    }

    /// Puts what was made in the carrier in the place of `name` in `dir`.
    fn carry(&mut self, dir: &Dir, name: &OsStr) -> Result<()> {
        self.has_changed = true;
        self.carrier.rename(OsStr::new(CARRIED), dir, name)
    }

    fn directory_itself(&mut self, dir: &Dir) -> Result<()> {
        self.has_changed |= self.shared.set(dir, Project { id: self.id, is_inherited: true })?;
        Ok(())
    }
}

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.shared.stage.remove_tree(&self.carrier_name) {
            tracing::warn!(%error, "a staged entry stays until the next start");
        }
    }
}
