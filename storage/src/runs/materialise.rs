//! Making the copy of a merged view, or of a workspace, for runs, and bringing a copy up to date.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use policy::{RelPath, TreeId};

use super::Runs;
use super::absorbed::Absorbed;
use super::copying::{Copying, Former, give};
use super::scan::Scan;
use crate::core::copies::{Copy, CopyLease, CopyState, Entries, Fingerprint, WorkTrash, copy_name};
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::room::Room;
use crate::layers::stack::{Found, Layers};
use crate::layout;
use crate::stat::Kind;

impl Runs {
    /// Copies the tree `id`, a skill as merged, into `work/`, to be run in by `owner`.
    ///
    /// No request changes it meanwhile. Commands may be changing a workspace: what goes meanwhile is left out, and a file
    /// is copied as it is at the moment.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooLarge`], [`Error::TooManyEntries`], [`Error::NoSpace`]; those of
    /// [`interrupt::check`](crate::interrupt::check). Then nothing of the copy stays.
    pub(super) fn materialise(&self, id: &TreeId, run: &OsStr, owner: Option<u32>) -> Result<Copy> {
        let held = self.store.locks().read_in_time(id)?;
        let (layers, base) = self.copied(id)?;
        let mut copy = self.begin_copy(id, run, owner, base)?;
        let mut copying = Copying::new(&self.store, id, owner, None);
        copying.directory(&layers, &copy.dir, OsStr::new(""), DEPTH_MAX)?;
        (copy.before, copy.sources) = (copying.before, copying.sources);
        copy.generation = Some(self.store.locks().generation(id, &held));
        Ok(copy)
    }

    /// A copy of the tree `id` in which nothing is yet.
    fn begin_copy(&self, id: &TreeId, run: &OsStr, owner: Option<u32>, base: String) -> Result<Copy> {
        let work = self.store.root().open_dir(&RelPath::parse(layout::WORK)?)?;
        if work.stat_entry(run)?.is_some() {
            // A former copy could not be removed.
            drop(self.store.stage().discard(&work, run, Some(id))?);
        }
        let dir = work.create_dir(run, 0o700)?;
        self.store.stage().projects().begin(&dir, None);
        let stage = self.store.stage().clone();
        let trash = WorkTrash { stage, id: id.clone(), work, name: Some(run.to_owned()) };
        give(&dir, owner)?;
        let (before, sources) = (Entries::new(), Entries::new());
        Ok(Copy { dir, before, sources, base, generation: None, trash })
    }

    /// The layers of a tree that is copied, and the baseline that an overlay begins with which a run makes.
    fn copied(&self, id: &TreeId) -> Result<(Layers, String)> {
        match id {
            TreeId::Skill(user, agent, skill) => {
                let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
                let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
                let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
                    return Err(Error::NotFound(skill.to_string()));
                };
                Ok((layers, self.store.base_text(agent, skill)?))
            }
            TreeId::Workspace(..) => {
                Ok((Layers { upper: Some(self.store.plain(id, false)?.dir), lower: None }, String::new()))
            }
        }
    }

    /// Takes part in the copy of the skill `id` that its runs share: as it was left when nothing has changed since,
    /// brought up to date, or new. It belongs to `owner`.
    ///
    /// While another run is in it, it stays with the baseline that it was copied from.
    ///
    /// # Errors
    /// As [`Runs::materialise`]. A copy whose making was interrupted stays, and the next run goes on with it.
    pub(super) fn enter_copy(&self, id: &TreeId, owner: Option<u32>) -> Result<CopyLease> {
        let lease = self.store.copies().enter(id);
        {
            let mut state = lease.copy().hold()?;
            let is_alone = lease.is_alone();
            if state.is_doubtful && is_alone {
                // Out of the way first: the next one has the same name.
                state.made = None;
                state.is_doubtful = false;
            }
            if state.is_exposed && is_alone {
                match state.made.as_mut().map(|copy| self.undo_changes(copy)) {
                    Some(Err(interrupted)) if is_interruption(&interrupted) => return Err(interrupted),
                    // One that cannot be compared is made anew: the other process may have filled it beyond every limit.
                    Some(Err(_)) => state.made = None,
                    Some(Ok(())) | None => {}
                }
                state.is_exposed = false;
            }
            let made = match self.make_current(id, &mut state, owner, is_alone) {
                Err(Error::Full { .. } | Error::NoSpace(_)) => {
                    self.store.copies().forget_idle();
                    self.make_current(id, &mut state, owner, is_alone)
                }
                made => made,
            };
            if let Err(error) = made {
                state.is_doubtful |= !is_interruption(&error);
                return Err(error);
            }
        }
        Ok(lease)
    }

    /// Removes from a copy all that has changed since its last run had ended, and files that have names elsewhere, so that
    /// they are copied anew.
    fn undo_changes(&self, copy: &mut Copy) -> Result<()> {
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        let mut now = Entries::new();
        let room = Room::of_entries(self.store.options().files.tree_entries);
        let mut scan = Scan { room, found: &mut now, absorbed: &mut Absorbed::default() };
        scan.directory(&copy.dir, OsStr::new(""), DEPTH_MAX)?;
        for path in now.keys().rev().filter(|path| !copy.before.contains_key(*path)) {
            remove(&copy.dir, path, None)?;
        }
        let is_as_it_was = |path, was| now.get(path).is_some_and(|now| now == was && !now.is_linked);
        let changed = copy.before.iter().rev().filter(|(path, was)| !is_as_it_was(*path, *was));
        let changed: Vec<(OsString, Kind)> = changed.map(|(path, was)| (path.clone(), was.kind)).collect();
        for (path, kind) in changed {
            copy.generation = None;
            copy.sources.remove(&path);
            match now.get(&path) {
                // It gets its mode again, and keeps what is in it.
                Some(directory) if (kind, directory.kind) == (Kind::Directory, Kind::Directory) => {
                    copy.before.insert(path, directory.clone());
                }
                _ => {
                    remove(&copy.dir, &path, None)?;
                    copy.before.remove(&path);
                }
            }
        }
        Ok(())
    }

    /// Has the copy of a skill be as the skill is. What a command of another run has changed in the copy meanwhile stays.
    ///
    /// After an error the copy is partly as the skill is, and what is known of it is right.
    fn make_current(
        &self,
        id: &TreeId,
        state: &mut CopyState,
        owner: Option<u32>,
        is_alone: bool,
    ) -> Result<()> {
        let held = self.store.locks().read_in_time(id)?;
        let generation = Some(self.store.locks().generation(id, &held));
        if state.made.as_ref().is_some_and(|copy| copy.generation == generation) {
            return Ok(());
        }
        let (layers, base) = self.copied(id)?;
        let copy = match &mut state.made {
            Some(copy) => copy,
            None => state.made.insert(self.begin_copy(id, &copy_name(id), owner, base.clone())?),
        };
        if !is_alone && base != copy.base {
            return Ok(());
        }
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        copy.generation = None;
        let former = Former { before: &copy.before, sources: &copy.sources, is_alone };
        let mut copying = Copying::new(&self.store, id, owner, Some(former));
        let copied = copying.directory(&layers, &copy.dir, OsStr::new(""), DEPTH_MAX);
        let Copying { before, sources, cleared, .. } = copying;
        if let Err(error) = copied {
            copy.forget_below(&cleared);
            copy.before.extend(before);
            copy.sources.extend(sources);
            return Err(error);
        }
        let removed = remove_gone(copy, &before, is_alone);
        copy.before.extend(before);
        copy.sources = sources;
        removed?;
        (copy.base, copy.generation) = (base, generation);
        Ok(())
    }
}

/// Whether a job ended because its caller has left or its time is over.
fn is_interruption(error: &Error) -> bool {
    matches!(error, Error::Abandoned | Error::TooLong { .. })
}

/// Removes from a copy what is no longer in its tree, whose entries are `now`, and forgets it. What a command of another run
/// has changed stays, and is known as it was.
fn remove_gone(copy: &mut Copy, now: &Entries, is_alone: bool) -> Result<()> {
    // Entries of a directory come after it, so that they are removed before it.
    let gone = copy.before.iter().rev().filter(|(path, _)| !now.contains_key(*path));
    let gone: Vec<OsString> = gone.map(|(path, _)| path.clone()).collect();
    for path in gone {
        let was = copy.before.get(&path).filter(|_| !is_alone);
        if remove(&copy.dir, &path, was)? {
            copy.before.remove(&path);
        }
    }
    Ok(())
}

/// Removes what is at `path` of a copy, unless it is not as it `was`; tells whether it is gone.
fn remove(copy: &Dir, path: &OsStr, was: Option<&Fingerprint>) -> Result<bool> {
    let mut segments: Vec<&OsStr> =
        path.as_bytes().split(|byte| *byte == b'/').map(OsStr::from_bytes).collect();
    let Some(name) = segments.pop() else { return Ok(true) };
    let mut dir = copy.reopen()?;
    for segment in segments {
        dir = match dir.open_closed_dir(segment) {
            Ok(below) => below,
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => return Ok(true),
            Err(other) => return Err(other),
        };
    }
    let Some(stat) = dir.stat_entry(name)? else { return Ok(true) };
    if was.is_some_and(|was| *was != Fingerprint::from(&stat)) {
        return Ok(false);
    }
    let removed = match stat.kind {
        Kind::Directory => dir.remove_dir(name),
        _ => dir.remove_tree(name),
    };
    match removed {
        // A command has put something into it.
        Err(Error::NotEmpty(_)) => Ok(false),
        other => other.map(|()| true),
    }
}
