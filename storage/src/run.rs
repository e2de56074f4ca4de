//! [`PlannedRun`] and [`PreparedRun`]: a tree as a command will see it, and what the command did to it.
//!
//! A workspace is seen as it is. A merged view is *materialised*: copied into `work/`, run in, and compared with
//! what it was before; the difference is *absorbed* into the overlay, deletions as whiteouts. Changes that the
//! service makes to the overlay during the run stay, unless the command changed the same entry: then the command,
//! which ended later, wins.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use policy::{RelPath, TreeId, View};
use serde::{Deserialize, Serialize};

use crate::copy::copy_file;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::place;
use crate::stage::StagedFile;
use crate::stat::{Kind, Stat};
use crate::store::Store;
use crate::tree::{Aftermath, Room, Tree};
use crate::union::layers::{Found, Layers};

/// What a command did to a merged view.
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
}

/// Entries named in [`Absorbed::skipped`].
const SKIPPED_MAX: usize = 20;

/// Entries of the directory of temporary directories that are looked at, at the start of a run. A command may put any
/// number there.
const LEFT_OVER_MAX: usize = 1000;

/// Characters of a path in [`Absorbed::skipped`].
const SKIPPED_CHARACTERS: usize = 500;

/// A tree as a command will see it.
///
/// Dropping it removes what was made for the run, absorbing nothing.
pub struct PreparedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    /// The merged view's copy; `None` for a workspace.
    copy: Option<Copy>,
    home: Dir,
    run: OsString,
}

struct Copy {
    dir: Dir,
    before: BTreeMap<OsString, Fingerprint>,
    /// The baseline that was copied: what an overlay that this run makes begins with.
    base: String,
}

/// What tells whether an entry was touched. No command can set the change time back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    kind: Kind,
    mode: u32,
    /// Inode, size, modification and change time of a file or link; nothing of a directory, whose entries tell.
    content: Option<(u64, u64, i128, i128)>,
}

impl From<&Stat> for Fingerprint {
    fn from(stat: &Stat) -> Self {
        let content = match stat.kind {
            Kind::Directory => None,
            _ => Some((stat.inode, stat.size, stat.modified_ns, stat.changed_ns)),
        };
        Self { kind: stat.kind, mode: stat.mode, content }
    }
}

/// A run that nothing was made for yet: what it will see, known before it costs anything.
pub struct PlannedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    run: OsString,
}

impl Store {
    /// Plans a run in the tree `id`.
    ///
    /// # Errors
    /// [`Error::Path`] never happens for ids that were parsed.
    pub fn plan_run(&self, id: &TreeId) -> Result<PlannedRun> {
        let run = self.inner.stage.fresh_name();
        let place = |place: RelPath| self.root_path().join(place.as_str());
        let scratch = place(place::packages(id.user(), id.agent())?);
        let temporary = scratch.join("tmp").join(&run);
        let (tree, aliases) = match id {
            TreeId::Workspace(user, agent) => (place(place::workspace(user, agent)?), Vec::new()),
            TreeId::Skill(user, agent, skill) => {
                let layers = [place::overlay(user, agent)?, place::baseline(agent)?];
                let tree = place(RelPath::parse(place::WORK)?).join(&run);
                (tree, layers.map(|layer| place(layer).join(skill.as_str())).to_vec())
            }
        };
        let view = View { tree, scratch, sandbox_path: id.sandbox_path(), aliases, owner: self.owner(id) };
        Ok(PlannedRun { store: self.clone(), id: id.clone(), view, temporary, run })
    }

    /// Plans a run in the tree `id` and makes what it needs.
    ///
    /// # Errors
    /// As [`PlannedRun::prepare`].
    pub fn prepare_run(&self, id: &TreeId) -> Result<PreparedRun> {
        self.plan_run(id)?.prepare()
    }

    /// The directory of the runs' temporary directories, swept of those that a crash left.
    fn temporaries(&self, home: &Dir) -> Result<Dir> {
        let name = OsStr::new("tmp");
        let dir = match home.ensure_dir(name) {
            // A command may put anything in its home. It must not lock itself out for ever.
            Err(Error::NotADirectory(_) | Error::Escape(_)) => {
                drop(self.inner.stage.discard(home, name)?);
                home.ensure_dir(name)?
            }
            Err(Error::Closed(_)) => home.open_closed_dir(name)?,
            made => made?,
        };
        for entry in dir.first_entries(LEFT_OVER_MAX)? {
            if self.inner.stage.is_left_over(&entry.name)
                && let Err(error) = dir.remove_tree(&entry.name)
            {
                tracing::warn!(%error, "a run's temporary files stay until the next run");
            }
        }
        Ok(dir)
    }

    fn materialise(&self, id: &TreeId, run: &OsStr, owner: Option<u32>) -> Result<Copy> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let _held = self.inner.locks.read(id);
        let layers = Layers::open(&self.inner.root, &place::overlay(user, agent)?, &place::baseline(agent)?)?;
        let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
            return Err(Error::NotFound(skill.to_string()));
        };
        let work = self.inner.root.open_dir(&RelPath::parse(place::WORK)?)?;
        let dir = work.create_dir(run, 0o700)?;
        give(&dir, owner)?;
        let limits = &self.inner.options.files;
        let mut copying = Copying {
            owner,
            before: BTreeMap::new(),
            room: Room::of_entries(limits.tree_entries),
            bytes: limits.view_bytes,
            limits,
        };
        copying.directory(&layers, &dir, OsStr::new(""), DEPTH_MAX)?;
        Ok(Copy { dir, before: copying.before, base: self.base_text(agent, skill)? })
    }
}

fn give(dir: &Dir, owner: Option<u32>) -> Result<()> {
    match owner {
        // Looking is cheaper than giving, which writes the inode.
        Some(owner) if dir.stat()?.owner != owner => dir.set_owner(owner),
        _ => Ok(()),
    }
}

fn below(prefix: &OsStr, name: &OsStr) -> OsString {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let mut path = prefix.to_owned();
    path.push("/");
    path.push(name);
    path
}

struct Copying<'a> {
    owner: Option<u32>,
    before: BTreeMap<OsString, Fingerprint>,
    room: Room,
    bytes: u64,
    limits: &'a policy::FileLimits,
}

impl Copying<'_> {
    fn directory(&mut self, from: &Layers, into: &Dir, prefix: &OsStr, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        };
        let children = from.children()?;
        self.room.take_entries(children.len())?;
        for child in children {
            let path = below(prefix, &child.name);
            self.room.take_path(path.len())?;
            let fingerprint = match from.lookup(&child.name)? {
                Some(Found::Directory(dirs, stat, _)) => {
                    // The mode comes last: it may keep the service itself from filling the directory.
                    let made = into.create_dir(&child.name, stat.mode | 0o700)?;
                    self.directory(&dirs, &made, &path, levels)?;
                    made.set_mode(stat.mode)?;
                    give(&made, self.owner)?;
                    Fingerprint::from(&made.stat()?)
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::File => {
                    let limit = self.limits.view_bytes;
                    self.bytes = self
                        .bytes
                        .checked_sub(stat.size)
                        .ok_or_else(|| Error::TooLarge { what: "the skill".to_owned(), limit })?;
                    let (source, stat) = from.at(layer)?.open_file_entry(&child.name)?;
                    let copy = into.create_file(&child.name, stat.mode & 0o777)?;
                    copy_file(source, &copy, stat.modified_ns)?;
                    if let Some(owner) = self.owner {
                        let owner =
                            (Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)));
                        rustix::fs::fchown(&copy, owner.0, owner.1)
                            .map_err(|errno| Error::from_errno("chown", path.to_string_lossy(), errno))?;
                    }
                    let stat = rustix::fs::fstat(&copy)
                        .map_err(|errno| Error::from_errno("stat", path.to_string_lossy(), errno))?;
                    Fingerprint::from(&Stat::from(stat))
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::Symlink => {
                    into.create_symlink(&from.at(layer)?.read_link(&child.name)?, &child.name)?;
                    match into.stat_entry(&child.name)? {
                        Some(stat) => Fingerprint::from(&stat),
                        None => continue,
                    }
                }
                _ => continue,
            };
            self.before.insert(path, fingerprint);
        }
        Ok(())
    }
}

impl PlannedRun {
    /// What the command will see.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The host path of the run's own temporary directory, below [`View::scratch`].
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Makes what the run needs: the workspace, or the copy of the merged view.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::TooLarge`], [`Error::TooManyEntries`],
    /// [`Error::NoSpace`].
    pub fn prepare(self) -> Result<PreparedRun> {
        let Self { store, id, view, temporary, run } = self;
        let owner = view.owner;
        let home = store.inner.root.ensure_path(&place::packages(id.user(), id.agent())?)?;
        if owner.is_some() && home.stat()?.mode != 0o700 {
            home.set_mode(0o700)?;
        }
        give(&home, owner)?;
        let temporaries = store.temporaries(&home)?;
        give(&temporaries, owner)?;
        give(&temporaries.create_dir(&run, 0o700)?, owner)?;
        // From here on, dropping it removes what was made.
        let mut prepared = PreparedRun { store, id, view, temporary, copy: None, home, run };
        match &prepared.id {
            TreeId::Workspace(..) => {
                // Not while a first change is about to put its own in place.
                let _held = prepared.store.inner.locks.read(&prepared.id);
                drop(prepared.store.plain(&prepared.id, true)?);
            }
            TreeId::Skill(..) => {
                prepared.copy = Some(prepared.store.materialise(&prepared.id, &prepared.run, owner)?);
            }
        }
        Ok(prepared)
    }
}

impl PreparedRun {
    /// What the command may see.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The host path of the run's own temporary directory, below [`View::scratch`].
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Tells whether there will be anything to absorb: a command works on a copy, not on the tree itself.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Takes what the command did into the overlay. Nothing may run in the view any more.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the skill was removed meanwhile; [`Error::NoSpace`], [`Error::Io`]. Each entry is
    /// then either taken over whole or as it was.
    pub fn absorb(&self) -> Result<Absorbed> {
        let Some(copy) = &self.copy else { return Ok(Absorbed::default()) };
        let mut after = BTreeMap::new();
        let mut absorbed = Absorbed::default();
        let limit = self.store.options().files.tree_entries;
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        let mut scan = Scan { room: Room::of_entries(limit), found: &mut after, absorbed: &mut absorbed };
        scan.directory(&copy.dir, OsStr::new(""), DEPTH_MAX)?;
        if after == copy.before {
            return Ok(absorbed);
        }
        let TreeId::Skill(user, agent, skill) = &self.id else { return Ok(absorbed) };
        if self.store.is_strict() {
            // One call for the bytes of all files, before the first of them takes an old one's place.
            self.store.inner.stage.dir().sync_file_system()?;
        }
        let aftermath = {
            let _alone = self.store.inner.locks.write(&self.id);
            let tree: &dyn Tree = &self.store.union(user, agent, skill, Some(copy.base.clone()))?;
            if let Err(Error::NotFound(_)) = tree.stat(&RelPath::root()) {
                let message = "the skill was removed while the command ran; what it wrote is dropped";
                return Err(Error::Conflict(message.to_owned()));
            }
            let mut aftermath = self.absorb_deletions(tree, copy, &after, &mut absorbed)?;
            for (path, fingerprint) in &after {
                let before = copy.before.get(path);
                if before == Some(fingerprint) {
                    continue;
                }
                let Some(rel_path) = path.to_str().and_then(|path| RelPath::parse(path).ok()) else {
                    absorbed.skip(path, "its name cannot be spelled in a path");
                    continue;
                };
                match self.absorb_entry(tree, &copy.dir, &rel_path, fingerprint) {
                    // Only what is to be removed is kept: a descriptor for each entry would soon be too many.
                    Ok(Some(change)) => aftermath.trash.extend(change.trash),
                    Ok(None) => {
                        absorbed.skip(path, "it is neither a file, a directory nor a link");
                        continue;
                    }
                    Err(Error::IsDirectory(_) | Error::NotADirectory(_) | Error::Escape(_)) => {
                        absorbed.skip(path, "another request put something else there meanwhile");
                        continue;
                    }
                    Err(other) => return Err(other),
                }
                match before {
                    Some(_) => absorbed.modified += 1,
                    None => absorbed.created += 1,
                }
            }
            aftermath
        };
        if self.store.is_strict() {
            // And one for all names, instead of one for each directory.
            self.store.inner.stage.dir().sync_file_system()?;
        }
        drop(aftermath);
        Ok(absorbed)
    }

    fn absorb_deletions(
        &self,
        tree: &dyn Tree,
        copy: &Copy,
        after: &BTreeMap<OsString, Fingerprint>,
        absorbed: &mut Absorbed,
    ) -> Result<Aftermath> {
        let mut aftermath = Aftermath::default();
        let mut gone: HashSet<&[u8]> = HashSet::new();
        for (path, before) in &copy.before {
            let slash = path.as_bytes().iter().rposition(|byte| *byte == b'/');
            let parent = slash.and_then(|slash| path.as_bytes().get(..slash));
            if parent.is_some_and(|parent| gone.contains(parent)) {
                gone.insert(path.as_bytes());
                continue;
            }
            let replaced = match after.get(path) {
                None => false,
                Some(now) if (now.kind == Kind::Directory) != (before.kind == Kind::Directory) => true,
                Some(_) => continue,
            };
            gone.insert(path.as_bytes());
            if let Some(path) = path.to_str().and_then(|path| RelPath::parse(path).ok()) {
                match tree.remove(&path) {
                    Ok(removed) => aftermath.trash.extend(removed.trash),
                    Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => {}
                    Err(other) => return Err(other),
                }
                absorbed.deleted += usize::from(!replaced);
            }
        }
        Ok(aftermath)
    }

    /// Takes one entry over; `None` when it is of a kind that no tree holds.
    ///
    /// What the command closed to its owner stays open to the service, which is the owner from now on.
    fn absorb_entry(
        &self,
        tree: &dyn Tree,
        dir: &Dir,
        path: &RelPath,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Aftermath>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent_dir = dir.open_dir(&parent)?;
        let name = OsStr::new(name);
        let mut aftermath = tree.make_dirs(&parent)?;
        let placed = match fingerprint.kind {
            Kind::Directory => {
                let mode = fingerprint.mode & 0o777 | 0o700;
                match tree.make_dir(path, mode) {
                    Err(Error::AlreadyExists(_)) => match tree.stat_entry(path)? {
                        Some((stat, _)) if stat.kind == Kind::Directory => tree.set_mode(path, mode)?,
                        _ => return Err(Error::NotADirectory(path.to_string())),
                    },
                    made => made?,
                }
            }
            Kind::File => {
                if tree.stat_entry(path)?.is_some_and(|(stat, _)| stat.kind == Kind::Symlink) {
                    // A put would follow the link that the command replaced, and write what it leads to.
                    aftermath = aftermath.and(tree.remove(path)?);
                }
                let stage = &self.store.inner.stage;
                let file = StagedFile::adopt(stage, &parent_dir, name, fingerprint.mode & 0o777 | 0o400)?;
                file.own()?;
                tree.put(path, file)?
            }
            Kind::Symlink => tree.put_link(path, &parent_dir.read_link(name)?)?,
            Kind::Other => return Ok(None),
        };
        aftermath = aftermath.and(placed);
        Ok(Some(aftermath))
    }
}

impl Absorbed {
    fn skip(&mut self, path: &OsStr, reason: &str) {
        if self.skipped.len() < SKIPPED_MAX {
            let path = path.to_string_lossy();
            let shown: String = path.chars().take(SKIPPED_CHARACTERS).collect();
            let rest = if shown.len() < path.len() { "…" } else { "" };
            self.skipped.push(format!("`{shown}{rest}`: {reason}"));
        }
    }
}

/// A look at everything that a command left.
struct Scan<'a> {
    room: Room,
    found: &'a mut BTreeMap<OsString, Fingerprint>,
    absorbed: &'a mut Absorbed,
}

impl Scan<'_> {
    /// Takes the fingerprints of everything below `dir`, opening up directories that the command closed.
    ///
    /// What lies too deep, or under too long a path, is left out with its reason, so that it does not cost the
    /// command the rest of its work.
    fn directory(&mut self, dir: &Dir, prefix: &OsStr, levels: usize) -> Result<()> {
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
                let below = dir.open_closed_dir(&entry.name)?;
                self.directory(&below, &path, levels)?;
            }
            self.found.insert(path, Fingerprint::from(&stat));
        }
        Ok(())
    }
}

impl Drop for PreparedRun {
    fn drop(&mut self) {
        let work = || match self.id {
            TreeId::Skill(..) => {
                self.store.inner.root.open_dir(&RelPath::parse(place::WORK)?)?.remove_tree(&self.run)
            }
            TreeId::Workspace(..) => Ok(()),
        };
        // Each for itself: the command may have removed or replaced `tmp`.
        let temporary = || match self.home.open_dir_entry(OsStr::new("tmp")) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => Ok(()),
            tmp => tmp?.remove_tree(&self.run),
        };
        for removed in [work(), temporary()] {
            if let Err(error) = removed {
                tracing::warn!(%error, "a run's files stay until the next start");
            }
        }
    }
}
