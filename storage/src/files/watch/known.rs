//! [`Known`]: a tree as it was last told.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use policy::RelPath;

use crate::stat::{Kind, Stat};

/// One entry as it was last told, with what is below it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) kind: Kind,
    inode: u64,
    modified_ns: i128,
    size: u64,
    /// The value that differs after each told change: of a directory, its permission bits.
    tag: u64,
    /// The watch of a directory, if it lies in a layer that changes.
    pub(super) watch: Option<i32>,
    pub(super) below: BTreeMap<String, Known>,
}

impl Known {
    pub(super) fn new(stat: &Stat) -> Self {
        let tag = tag(stat);
        let Stat { kind, inode, modified_ns, size, .. } = *stat;
        Self { kind, inode, modified_ns, size, tag, watch: None, below: BTreeMap::new() }
    }

    /// Notes what the entry is now, which is of the same kind. Tells whether that is another than before.
    pub(super) fn renew(&mut self, stat: &Stat) -> bool {
        let before = self.tag;
        (self.inode, self.modified_ns, self.size, self.tag) =
            (stat.inode, stat.modified_ns, stat.size, tag(stat));
        self.tag != before
    }

    /// Tells whether `stat` is this very entry under another name. An inode number alone may have a new owner.
    pub(super) fn is_same(&self, stat: &Stat) -> bool {
        let is_same_size = self.kind == Kind::Directory || self.size == stat.size;
        (self.kind, self.inode, self.modified_ns) == (stat.kind, stat.inode, stat.modified_ns) && is_same_size
    }

    /// The entry `path` below this one.
    pub(super) fn at(&mut self, path: &RelPath) -> Option<&mut Self> {
        path.segments().try_fold(self, |known, name| known.below.get_mut(name))
    }

    /// Every watch of this entry and below it, with the path of its directory when this one is `path`.
    pub(super) fn watches(&self, path: &RelPath) -> Vec<(i32, RelPath)> {
        let mut watches = Vec::new();
        let mut left = vec![(path.clone(), self)];
        while let Some((path, known)) = left.pop() {
            watches.extend(known.watch.map(|watch| (watch, path.clone())));
            // An entry that was told once has a path.
            left.extend(known.below.iter().filter_map(|(name, below)| Some((path.join(name).ok()?, below))));
        }
        watches
    }

    /// The paths below this one, which is the root, of the files with these inode numbers.
    pub(super) fn with_inodes(&self, inodes: &HashSet<u64>) -> Vec<RelPath> {
        let mut paths = Vec::new();
        let mut left = if inodes.is_empty() { Vec::new() } else { vec![(RelPath::root(), self)] };
        while let Some((above, known)) = left.pop() {
            for (name, below) in &known.below {
                let Ok(path) = above.join(name) else { continue };
                if below.kind == Kind::Directory {
                    left.push((path, below));
                } else if inodes.contains(&below.inode) {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// How many entries are below this one.
    pub(super) fn count(&self) -> usize {
        let mut count = 0;
        let mut left = vec![self];
        while let Some(known) = left.pop() {
            count += known.below.len();
            left.extend(known.below.values());
        }
        count
    }
}

fn tag(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    stat.mode.hash(&mut hasher);
    if stat.kind != Kind::Directory {
        (stat.inode, stat.size, stat.modified_ns, stat.changed_ns).hash(&mut hasher);
    }
    hasher.finish()
}
