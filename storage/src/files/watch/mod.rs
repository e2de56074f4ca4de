//! [`TreeWatch`]: tells every change of the files of a tree, by requests and by commands.
//!
//! The kernel's notices (inotify) only say where to look. What is told is the difference between what is there and what
//! was told last, so that nothing is told twice, nothing that came and went in between, and nothing is missed that lasts:
//! neither in a directory that was made and filled before it was watched, nor when notices are lost.
//!
//! The watched directories are those that change: the directories of a workspace, or of an overlay, beneath the mounts
//! that commands have. A write through an overlayfs mount makes notices in its upper directory, as Linux 6.18 was seen
//! to do. Above the tree, the directories on the way to it are watched, too, for overlays that are made or exchanged,
//! and the baseline's, for publications.

mod found;
mod kernel;
mod known;
mod way;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};

use policy::{RelPath, TreeId};

use crate::core::store::Store;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::live::is_temporary_name;
use crate::stat::{Kind, Stat};
pub use found::{Became, Notice};
use found::{Found, Gone};
use kernel::{Inotify, Told};
use known::Known;

/// Names that wait to be looked at; beyond it the whole tree is looked at.
const NAMES_MAX: usize = 16_384;

/// The findings of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes of entries, in an order in which each follows from those before.
    pub notices: Vec<Notice>,
    /// Whether the baseline is another version: then any entry of it may be another, and `notices` tells none.
    pub is_rebased: bool,
}

/// Watches one tree.
pub struct TreeWatch {
    store: Store,
    id: TreeId,
    /// Entries that are told apart.
    entries_max: usize,
    inotify: Inotify,
    /// Directories on the way to the tree, each with the name in it that leads on.
    ways: HashMap<i32, OsString>,
    /// Directories of the tree.
    dirs: HashMap<i32, RelPath>,
    tree: Known,
    entries: usize,
    /// The layer that changes.
    changing: Option<Dir>,
    baseline_inode: Option<u64>,
    /// The directories to look at.
    names: BTreeSet<RelPath>,
    /// Files to look at whose names the kernel did not tell.
    inodes: HashSet<u64>,
    is_all: bool,
    is_way_changed: bool,
    /// Whether commands still hold the tree to an older baseline.
    is_held: bool,
}

impl TreeWatch {
    /// Begins to watch the tree `id`, of at most `entries_max` entries.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a skill that the user does not have; [`Error::TooManyEntries`]; [`Error::Watches`] when
    /// the kernel gives no more watches.
    pub fn new(store: Store, id: TreeId, entries_max: usize) -> Result<Self> {
        if matches!(id, TreeId::Skill(..)) {
            store.files(id.clone()).stat(&RelPath::root())?;
        }
        let root = Stat { kind: Kind::Directory, ..store.root().stat()? };
        let mut watch = Self {
            store,
            id,
            entries_max,
            inotify: Inotify::new()?,
            ways: HashMap::new(),
            dirs: HashMap::new(),
            tree: Known::new(&root),
            entries: 0,
            changing: None,
            baseline_inode: None,
            names: BTreeSet::new(),
            inodes: HashSet::new(),
            is_all: true,
            is_way_changed: true,
            is_held: false,
        };
        watch.look()?;
        Ok(watch)
    }

    /// Entries of the tree that are told apart by now.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Reads the kernel's notices without waiting. Tells whether these were all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&mut self) -> Result<bool> {
        let Self { inotify, ways, dirs, names, inodes, is_all, is_way_changed, .. } = self;
        let were_all = inotify.read(&mut |told| match told {
            Told::Lost => *is_all = true,
            Told::Gone { watch } => {
                *is_way_changed |= ways.remove(&watch).is_some();
                dirs.remove(&watch);
            }
            Told::Name { watch, name } => {
                if let Some(way) = ways.get(&watch) {
                    *is_way_changed |= name.as_ref().is_some_and(|name| name == way);
                }
                let Some(dir) = dirs.get(&watch).filter(|_| !*is_all) else { return };
                let path = match name.as_deref().map(OsStr::to_str) {
                    // The directory itself: its name above it tells.
                    None => Ok(dir.clone()),
                    Some(Some(name)) => dir.join(name),
                    Some(None) => return,
                };
                // Names that no request can hold are not told.
                if let Ok(path) = path
                    && !path.file_name().is_some_and(is_temporary_name)
                {
                    inodes.extend(path.file_name().and_then(unnamed));
                    names.insert(path);
                    *is_all |= names.len() > NAMES_MAX;
                }
            }
        })?;
        if self.is_all {
            self.names.clear();
            self.inodes.clear();
        }
        Ok(were_all)
    }

    /// Tells whether there is anything to look at.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.is_all || self.is_way_changed || !self.names.is_empty()
    }

    /// Tells whether commands hold the tree to a baseline that is not the current one. When they end, it becomes
    /// another without a notice, so that the caller has to look now and then.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Looks at what the kernel's notices named, and tells what is another than it was told last.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Watches`]: then the tree cannot be watched any longer.
    pub fn look(&mut self) -> Result<Changes> {
        let mut changes = Changes::default();
        if std::mem::take(&mut self.is_way_changed) {
            changes.is_rebased = self.find_way()?;
            self.is_all = true;
        }
        let is_held = self.store.views().is_some_and(|views| views.has_older(&self.id));
        if std::mem::replace(&mut self.is_held, is_held) && !is_held {
            (changes.is_rebased, self.is_all) = (true, true);
        }
        let mut found = Found::default();
        let mut names = std::mem::take(&mut self.names);
        names.extend(self.tree.with_inodes(&std::mem::take(&mut self.inodes)));
        if std::mem::take(&mut self.is_all) {
            self.compare_below(RelPath::root(), &mut found)?;
        } else {
            let mut there = Vec::new();
            // Entries that are gone first, so that they can be recognised where they turn up.
            for path in names {
                match self.stat_of(&path)? {
                    Some(stat) => there.push((path, stat)),
                    None => self.take_away(&path, &mut found),
                }
            }
            for (path, stat) in there {
                self.compare(path, &stat, &mut found)?;
            }
        }
        for Gone { path, known, .. } in &found.gone {
            self.entries = self.entries.saturating_sub(known.count() + 1);
            self.forget(path, known);
        }
        if !changes.is_rebased {
            changes.notices = found.notices();
        }
        Ok(changes)
    }

    /// The entry at `path` now; `None` when there is none.
    fn stat_of(&self, path: &RelPath) -> Result<Option<Stat>> {
        let files = self.store.files(self.id.clone());
        let stat = files.read(path, |tree| match path.is_root() {
            true => tree.stat(path).map(Some),
            false => tree.stat_entry(path),
        });
        Ok(absent(stat)?.flatten().map(|(stat, _)| stat).filter(|stat| stat.kind != Kind::Other))
    }

    /// Takes an entry that is not there any more out of what is known.
    fn take_away(&mut self, path: &RelPath, found: &mut Found) {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return };
        let known = self.tree.at(&above).and_then(|above| above.below.remove(name));
        found.lose(path.clone(), known);
    }

    /// Compares one entry with what is known of it.
    fn compare(&mut self, path: RelPath, stat: &Stat, found: &mut Found) -> Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            // The root may have come into the changing layer.
            return self.compare_if_unwatched(path, found);
        };
        // Below what is not known, because it is new: it is looked at with that.
        let Some(above) = self.tree.at(&above) else { return Ok(()) };
        let notice =
            |became| Notice { path: path.clone(), became, kind: stat.kind, stat: Some(stat.clone()) };
        match above.below.get_mut(name) {
            Some(known) if known.kind == stat.kind => {
                if known.renew(stat) {
                    found.told.push(notice(Became::Modified));
                }
                return if stat.kind == Kind::Directory {
                    self.compare_if_unwatched(path, found)
                } else {
                    Ok(())
                };
            }
            Some(_) => {
                let known = above.below.remove(name);
                found.lose(path.clone(), known);
            }
            None => {}
        }
        // Where something else is by now, nothing can be said to have moved from.
        let is_it = |tree: &mut Known, gone: &Gone| gone.known.is_same(stat) && tree.at(&gone.path).is_none();
        let moved = found.gone.iter().position(|gone| is_it(&mut self.tree, gone));
        let parent = path.parent().unwrap_or_else(RelPath::root);
        let Some(above) = self.tree.at(&parent) else { return Ok(()) };
        match moved {
            Some(at) => {
                let Gone { path: from, mut known, .. } = found.gone.swap_remove(at);
                known.renew(stat);
                for (watch, path) in known.watches(&path) {
                    self.dirs.insert(watch, path);
                }
                above.below.insert(name.to_owned(), known);
                found.told.push(notice(Became::Moved { from }));
            }
            None => {
                above.below.insert(name.to_owned(), Known::new(stat));
                self.entries += 1;
                if self.entries > self.entries_max {
                    return Err(Error::TooManyEntries(self.entries_max));
                }
                found.told.push(notice(Became::Created));
            }
        }
        if stat.kind == Kind::Directory { self.compare_below(path, found) } else { Ok(()) }
    }

    /// Compares a directory whose watch is another than it was: changes in it may not have been told.
    fn compare_if_unwatched(&mut self, path: RelPath, found: &mut Found) -> Result<()> {
        let before = self.tree.at(&path).and_then(|known| known.watch);
        let now = self.watch(&path)?;
        if before == now { Ok(()) } else { self.compare_below(path, found) }
    }

    /// Compares everything below a directory.
    fn compare_below(&mut self, path: RelPath, found: &mut Found) -> Result<()> {
        let mut left = vec![path];
        while let Some(path) = left.pop() {
            // New directories below each other take the stack of this thread, level by level.
            if path.segments().count() > DEPTH_MAX {
                return Err(Error::TooManyEntries(DEPTH_MAX));
            }
            // First the watch, then the look: what comes after the look makes a notice.
            self.watch(&path)?;
            let files = self.store.files(self.id.clone());
            let limit = self.entries_max;
            let listed =
                absent(files.read(&path, |tree| tree.list_looking(&path, limit)))?.unwrap_or_default();
            let mut there = Vec::with_capacity(listed.len());
            for (child, stat) in listed {
                let name = child.name.into_string().ok().filter(|name| !is_temporary_name(name));
                let stat = stat.filter(|stat| stat.kind != Kind::Other);
                if let (Some(name), Some(stat)) = (name, stat)
                    && let Ok(path) = path.join(&name)
                {
                    there.push((name, path, stat));
                }
            }
            let Some(known) = self.tree.at(&path) else { continue };
            let names: BTreeSet<&str> = there.iter().map(|(name, ..)| name.as_str()).collect();
            let gone = known.below.keys().filter(|name| !names.contains(name.as_str()));
            let gone: Vec<RelPath> = gone.filter_map(|name| path.join(name).ok()).collect();
            for path in gone {
                self.take_away(&path, found);
            }
            for (name, path, stat) in there {
                let above = path.parent().unwrap_or_else(RelPath::root);
                let known = self.tree.at(&above).and_then(|above| above.below.get_mut(&name));
                match known.filter(|known| known.kind == stat.kind && stat.kind == Kind::Directory) {
                    Some(known) => {
                        if known.renew(&stat) {
                            let (path, kind, became) = (path.clone(), stat.kind, Became::Modified);
                            found.told.push(Notice { path, became, kind, stat: Some(stat) });
                        }
                        left.push(path);
                    }
                    None => self.compare(path, &stat, found)?,
                }
            }
        }
        Ok(())
    }

    /// Watches the directory `path` in the layer that changes, if it is there. Returns the watch.
    fn watch(&mut self, path: &RelPath) -> Result<Option<i32>> {
        let dir = match &self.changing {
            Some(changing) => absent(changing.open_dir(path))?,
            None => None,
        };
        let watch = match dir {
            // A directory that a command has closed tells nothing here, and nothing in a list.
            Some(dir) => match self.inotify.watch(&dir) {
                Err(Error::Closed(_)) => None,
                watch => Some(watch?),
            },
            None => None,
        };
        let Some(known) = self.tree.at(path) else { return Ok(None) };
        let before = std::mem::replace(&mut known.watch, watch);
        if let Some(before) = before.filter(|_| before != watch) {
            self.forget_watch(before, path);
        }
        if let Some(watch) = watch {
            self.dirs.insert(watch, path.clone());
        }
        Ok(watch)
    }

    /// Ends the watches of what is gone, but for directories that turned up elsewhere.
    fn forget(&mut self, path: &RelPath, known: &Known) {
        for (watch, path) in known.watches(path) {
            self.forget_watch(watch, &path);
        }
    }

    fn forget_watch(&mut self, watch: i32, path: &RelPath) {
        if self.dirs.get(&watch) == Some(path) {
            self.dirs.remove(&watch);
            self.inotify.forget(watch);
        }
    }
}

impl AsFd for TreeWatch {
    /// Readable when there is something to read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// The inode number in a name that the kernel made up for a file that was made without one (open(2), `O_TMPFILE`).
///
/// A live view keeps such a file under that name for as long as it has the file in memory, even after the file got
/// another name, and the notices of its upper directory have it.
fn unnamed(name: &str) -> Option<u64> {
    name.strip_prefix('#')?.parse().ok()
}

/// A directory that has gone, or is no directory any more, counts as missing.
fn absent<T>(looked: Result<T>) -> Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
        Err(other) => Err(other),
    }
}
