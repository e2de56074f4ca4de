//! Looking at a workspace, file by file.

use std::collections::HashMap;
use std::ffi::OsStr;

use super::manifest::{Digest, FileNode, Line, Manifest, Node, spell};
use super::objects::{Objects, Put};
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::room::Room;
use crate::stat::{Kind, Stat};

/// Contents that need not be read again, by inode number.
///
/// No command can set the change time of a file, and every write moves it; but by the tick of the clock of the kernel,
/// so that a file which was changed a moment before it was read may be changed again without notice. And what a
/// command has mapped into its memory it can change for a while without the kernel noticing (mmap(2)). So only what
/// was read while no command was there, and was old by then, is remembered from one snapshot to the next.
#[derive(Default)]
pub(super) struct Known(HashMap<u64, Seen>);

struct Seen {
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
    digest: Digest,
    /// Whether an earlier snapshot remembers it.
    is_remembered: bool,
}

impl Known {
    /// The entries that a snapshot remembers.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a damaged one; [`Error::Io`].
    pub(super) fn of(mut manifest: Manifest) -> Result<Self> {
        let mut known = HashMap::new();
        while let Some(line) = manifest.next()? {
            if let Node::File(FileNode {
                size, modified_ns, digest, seen: Some((inode, changed_ns)), ..
            }) = line.node
            {
                known.insert(inode, Seen { size, modified_ns, changed_ns, digest, is_remembered: true });
            }
        }
        Ok(Self(known))
    }

    fn find(&self, stat: &Stat) -> Option<&Seen> {
        self.0.get(&stat.inode).filter(|seen| {
            (seen.size, seen.modified_ns, seen.changed_ns)
                == (stat.size, nanoseconds(stat.modified_ns), nanoseconds(stat.changed_ns))
        })
    }
}

/// A walk through a workspace.
pub(super) struct Walk<'a, 'b> {
    pub(super) objects: &'a mut Objects<'b>,
    pub(super) known: &'a mut Known,
    /// How often a file is read that changes meanwhile.
    pub(super) tries: usize,
    /// The owner of the workspace's files, if it has one.
    pub(super) owner: Option<u32>,
    pub(super) room: Room,
    /// The entries met, a directory before its entries.
    pub(super) lines: Vec<Line>,
    /// Which of them are files that no earlier snapshot remembers.
    pub(super) fresh: Vec<usize>,
    pub(super) unsettled: u64,
    pub(super) skipped: u64,
}

impl Walk<'_, '_> {
    /// Visits everything in `dir`.
    ///
    /// # Errors
    /// Those of [`Objects::put`]; [`Error::TooManyEntries`], [`Error::TooLarge`] for too many names or levels;
    /// [`Error::Closed`].
    pub(super) fn directory(&mut self, dir: &Dir, depth: usize) -> Result<()> {
        if depth >= DEPTH_MAX {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        }
        let mut entries = self.room.list(dir)?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            self.room.take_path(entry.name.len())?;
            // An entry that a command removes or replaces meanwhile is not there.
            let Some(stat) = dir.stat_entry(&entry.name)? else { continue };
            let node = match stat.kind {
                Kind::Directory => match dir.open_dir_entry(&entry.name) {
                    Ok(below) => {
                        let node = Node::Directory { mode: stat.mode & 0o777 };
                        self.lines.push(Line { depth, name: entry.name, node });
                        self.directory(&below, depth + 1)?;
                        continue;
                    }
                    Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => continue,
                    Err(other) => return Err(other),
                },
                Kind::Symlink => match dir.read_link(&entry.name) {
                    Ok(target) => {
                        let target = spell(&target);
                        // A link takes as much memory as its target is long, which is more than any name.
                        self.room.take_path(target.len())?;
                        Node::Link { target }
                    }
                    Err(Error::NotFound(_) | Error::Io { .. }) => continue,
                    Err(other) => return Err(other),
                },
                Kind::File => match self.file(dir, &entry.name, stat)? {
                    Some(file) => Node::File(file),
                    None => continue,
                },
                Kind::Other => {
                    self.skipped += 1;
                    continue;
                }
            };
            self.lines.push(Line { depth, name: entry.name, node });
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &OsStr, stat: Stat) -> Result<Option<FileNode>> {
        let is_foreign = |stat: &Stat| self.owner.is_some_and(|owner| stat.links > 1 && stat.owner != owner);
        if is_foreign(&stat) {
            // A file of another owner, linked in.
            self.skipped += 1;
            return Ok(None);
        }
        let mode = stat.mode & 0o777;
        if let Some(seen) = self.known.find(&stat) {
            if !seen.is_remembered {
                self.fresh.push(self.lines.len());
            }
            return Ok(Some(FileNode {
                mode,
                size: stat.size,
                modified_ns: seen.modified_ns,
                digest: seen.digest,
                seen: Some((stat.inode, seen.changed_ns)),
            }));
        }
        let (file, stat) = match dir.open_file_entry(name) {
            Ok(opened) => opened,
            Err(Error::NotFound(_) | Error::IsDirectory(_) | Error::NotAFile(_) | Error::Escape(_)) => {
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        if is_foreign(&stat) {
            // Another file has taken the place of the one that was looked at.
            self.skipped += 1;
            return Ok(None);
        }
        let Put { digest, stat, is_settled } = self.objects.put(file, stat, self.tries)?;
        let (modified_ns, changed_ns) = (nanoseconds(stat.modified_ns), nanoseconds(stat.changed_ns));
        if is_settled {
            let seen = Seen { size: stat.size, modified_ns, changed_ns, digest, is_remembered: false };
            self.known.0.insert(stat.inode, seen);
        } else {
            self.unsettled += 1;
        }
        let seen = is_settled.then_some((stat.inode, changed_ns));
        self.fresh.push(self.lines.len());
        Ok(Some(FileNode { mode, size: stat.size, modified_ns, digest, seen }))
    }

    /// The entries met. The next snapshot need not read again what was not changed since `quiet_since_ns`; `None` when
    /// it has to read all that no earlier snapshot remembers.
    pub(super) fn finish(mut self, quiet_since_ns: Option<i64>) -> Vec<Line> {
        for index in self.fresh {
            if let Some(Line { node: Node::File(file), .. }) = self.lines.get_mut(index) {
                let is_old = |seen: &(u64, i64)| quiet_since_ns.is_some_and(|since| seen.1 < since);
                file.seen = file.seen.filter(is_old);
            }
        }
        self.lines
    }
}

pub(super) fn nanoseconds(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(0)
}
