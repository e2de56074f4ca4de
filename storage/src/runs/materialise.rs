//! Copying a merged view, or a workspace, for a run, and knowing it again afterwards.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use policy::{RelPath, TreeId};

use crate::core::store::Store;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::copy::copy_file;
use crate::layers::stack::{Found, Layers};
use crate::layers::stage::Stage;
use crate::layers::tree::Room;
use crate::layout;
use crate::stat::Use;
use crate::stat::{Kind, Stat};

/// A tree as it was copied for a run. Dropping it removes it.
pub(super) struct Copy {
    pub(super) dir: Dir,
    pub(super) before: BTreeMap<OsString, Fingerprint>,
    /// The baseline that was copied: what an overlay that this run makes begins with. Of a workspace, nothing.
    pub(super) base: String,
    // Last: a directory that is open is not gone when it is removed.
    _trash: WorkTrash,
}

/// A name in `work/`, whose content is thrown away when this is dropped. Until it is removed it counts for its tree.
struct WorkTrash {
    stage: Stage,
    id: TreeId,
    work: Dir,
    name: OsString,
}

impl Drop for WorkTrash {
    fn drop(&mut self) {
        match self.stage.discard(&self.work, &self.name, Some(&self.id)) {
            Ok(trash) => drop(trash),
            Err(error) => {
                tracing::warn!(
                    %error, run = ?self.name,
                    "failed to remove the copy of a run: it stays until the next start"
                )
            }
        }
    }
}

/// The values that tell whether an entry was touched. No command can set the change time back.
#[derive(Clone, Debug)]
pub(super) struct Fingerprint {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    /// Bytes on the disk; they tell nothing, because the kernel allocates when it likes.
    pub(super) allocated: u64,
    /// Inode, size, modification and change time of a file or link; nothing of a directory, whose entries tell.
    content: Option<(u64, u64, i128, i128)>,
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.mode, self.content) == (other.kind, other.mode, other.content)
    }
}

impl From<&Stat> for Fingerprint {
    fn from(stat: &Stat) -> Self {
        let content = match stat.kind {
            Kind::Directory => None,
            _ => Some((stat.inode, stat.size, stat.modified_ns, stat.changed_ns)),
        };
        Self { kind: stat.kind, mode: stat.mode, allocated: stat.allocated, content }
    }
}

impl Fingerprint {
    /// The size of a file or link, in bytes; `None` of anything else.
    pub(super) fn size(&self) -> Option<u64> {
        match self.kind {
            Kind::File | Kind::Symlink => self.content.map(|(_, size, ..)| size),
            Kind::Directory | Kind::Other => None,
        }
    }
}

impl Copy {
    /// The room that it took on the disk when it was made.
    pub(super) fn taken(&self) -> Use {
        let own = Use { bytes: 0, files: 1 };
        let entries = self.before.values();
        entries.fold(own, |sum, entry| sum.plus(Use { bytes: entry.allocated, files: 1 }))
    }
}

impl Store {
    /// Copies the tree `id`, a skill as merged, into `work/`, to be run in by `owner`.
    ///
    /// No request changes it meanwhile. Commands may be changing a workspace: what goes meanwhile is left out, and a file
    /// is copied as it is at the moment.
    pub(super) fn materialise(&self, id: &TreeId, run: &OsStr, owner: Option<u32>) -> Result<Copy> {
        let _held = self.inner.locks.read(id);
        let (layers, base) = match id {
            TreeId::Skill(user, agent, skill) => {
                let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
                let layers = Layers::open(&self.inner.root, &overlay, &baseline)?;
                let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
                    return Err(Error::NotFound(skill.to_string()));
                };
                (layers, self.base_text(agent, skill)?)
            }
            TreeId::Workspace(..) => {
                (Layers { upper: Some(self.plain(id, false)?.dir), lower: None }, String::new())
            }
        };
        let work = self.inner.root.open_dir(&RelPath::parse(layout::WORK)?)?;
        let dir = work.create_dir(run, 0o700)?;
        self.inner.stage.projects().begin(&dir, None);
        let stage = self.inner.stage.clone();
        let trash = WorkTrash { stage, id: id.clone(), work, name: run.to_owned() };
        give(&dir, owner)?;
        let limits = &self.inner.options.files;
        let mut copying = Copying {
            store: self,
            owner,
            what: if matches!(id, TreeId::Skill(..)) { "the skill" } else { "the workspace" },
            own: matches!(id, TreeId::Workspace(..)).then(|| self.owner(id)).flatten(),
            before: BTreeMap::new(),
            room: Room::of_entries(limits.tree_entries),
            bytes: limits.view_bytes,
            limits,
        };
        copying.directory(&layers, &dir, OsStr::new(""), DEPTH_MAX)?;
        Ok(Copy { dir, before: copying.before, base, _trash: trash })
    }
}

/// Gives a directory to `owner`, when there is one and it is not its already.
pub(super) fn give(dir: &Dir, owner: Option<u32>) -> Result<()> {
    match owner {
        // Looking is cheaper than giving, which writes the inode.
        Some(owner) if dir.stat()?.owner != owner => dir.set_owner(owner),
        _ => Ok(()),
    }
}

/// The path of `name` in the directory `prefix`, empty for the tree itself.
pub(super) fn below(prefix: &OsStr, name: &OsStr) -> OsString {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let mut path = prefix.to_owned();
    path.push("/");
    path.push(name);
    path
}

struct Copying<'a> {
    store: &'a Store,
    owner: Option<u32>,
    what: &'static str,
    /// The owner that a file with several names must have, if any: a file of another owner was linked in.
    own: Option<u32>,
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
                    let (source, stat) = match from.at(layer)?.open_file_entry(&child.name) {
                        // A command has taken it away, or put something else there.
                        Err(
                            Error::NotFound(_)
                            | Error::IsDirectory(_)
                            | Error::NotAFile(_)
                            | Error::Escape(_),
                        ) => continue,
                        opened => opened?,
                    };
                    // Of the one that is open: a command may have put it there a moment ago.
                    if self.own.is_some_and(|own| stat.links > 1 && stat.owner != own) {
                        continue;
                    }
                    let limit = self.limits.view_bytes;
                    self.bytes = self
                        .bytes
                        .checked_sub(stat.size)
                        .ok_or_else(|| Error::TooLarge { what: self.what.to_owned(), limit })?;
                    self.store.admit_space_for(stat.allocated)?;
                    let copy = into.create_file(&child.name, stat.mode & 0o777)?;
                    copy_file(source, &copy, &stat)?;
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
                    let target = match from.at(layer)?.read_link(&child.name) {
                        Err(Error::NotFound(_)) => continue,
                        target => target?,
                    };
                    into.create_symlink(&target, &child.name)?;
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
