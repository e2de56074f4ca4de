//! What an overlay is, read past all of our code, and what overlayfs makes of it: a model of the merge in forty lines.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use storage::Prefer;

use super::fixture::{Node, Tree};

/// One entry of an upper directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Whiteout,
    Leaf(Node),
    Dir { mode: u32, is_opaque: bool },
}

/// A user's overlay of one skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    /// The user changed nothing.
    Absent,
    /// The user removed the skill.
    Hidden,
    Upper {
        is_opaque: bool,
        entries: BTreeMap<String, Entry>,
    },
}

impl Overlay {
    /// Reads the upper directory of a skill, which no view may be going from.
    pub(super) fn on_disk(at: &Path) -> Self {
        let Ok(metadata) = std::fs::symlink_metadata(at) else { return Self::Absent };
        if metadata.file_type().is_char_device() {
            return Self::Hidden;
        }
        let mut entries = BTreeMap::new();
        read(at, "", &mut entries);
        Self::Upper { is_opaque: is_opaque(at), entries }
    }

    /// The tree that a user with this overlay over `lower` sees.
    pub(super) fn over(&self, lower: Option<&Tree>) -> Option<Tree> {
        let Self::Upper { is_opaque, entries } = self else {
            return lower.filter(|_| *self == Self::Absent).cloned();
        };
        let mut tree = lower.filter(|_| !is_opaque).cloned().unwrap_or_default();
        for (at, entry) in entries {
            let is_merged = matches!(tree.nodes.get(at), Some(Node::Dir { .. }));
            match entry {
                Entry::Whiteout => tree.cut(at),
                Entry::Leaf(node) => {
                    tree.cut(at);
                    tree.nodes.insert(at.clone(), node.clone());
                }
                Entry::Dir { mode, is_opaque } => {
                    if *is_opaque || !is_merged {
                        tree.cut(at);
                    }
                    tree.nodes.insert(at.clone(), Node::Dir { mode: *mode });
                }
            }
        }
        Some(tree)
    }

    /// Tells whether anything at a path or below it is the user's: copied up, changed, or hidden as a whole.
    pub(super) fn has_touched(&self, at: &str) -> bool {
        let Self::Upper { is_opaque, entries } = self else { return false };
        let hides = |at: &str| matches!(entries.get(at), Some(Entry::Dir { is_opaque: true, .. }));
        let inside = format!("{at}/");
        let is_there = entries.keys().any(|key| key == at || key.starts_with(&inside));
        *is_opaque || is_there || ancestors(at).any(hides)
    }

    /// What a pull leaves of this overlay, which began with `base`, when the application has `current`.
    pub(super) fn pulled(&self, base: Option<&Tree>, current: Option<&Tree>, prefer: Prefer) -> Self {
        let Self::Upper { is_opaque: false, entries } = self else { return self.clone() };
        let nothing = Tree::default();
        let (base, current) = (base.unwrap_or(&nothing), current.unwrap_or(&nothing));
        let mut left = entries.clone();
        // From the bottom up, so that a directory is looked at when what is in it has gone.
        for (at, entry) in entries.iter().rev() {
            let is_own = ancestors(at).any(|above| match entries.get(above) {
                Some(Entry::Dir { is_opaque: true, .. }) => true,
                _ => matches!(current.nodes.get(above), Some(Node::File { .. } | Node::Link { .. })),
            });
            if !is_own && goes(at, entry, &left, (base, current), prefer) {
                let inside = format!("{at}/");
                left.retain(|key, _| key != at && !key.starts_with(&inside));
            }
        }
        Self::Upper { is_opaque: false, entries: left }
    }
}

fn ancestors(at: &str) -> impl Iterator<Item = &str> {
    at.match_indices('/').map(|(slash, _)| &at[..slash])
}

fn goes(
    at: &str,
    entry: &Entry,
    left: &BTreeMap<String, Entry>,
    (base, current): (&Tree, &Tree),
    prefer: Prefer,
) -> bool {
    let (before, now) = (base.nodes.get(at), current.nodes.get(at));
    let is_taken_over = !same(base, current, at) && prefer == Prefer::Theirs;
    match entry {
        Entry::Whiteout => now.is_none() || is_taken_over,
        Entry::Leaf(node) => {
            let own = Tree { nodes: BTreeMap::from([(at.to_owned(), node.clone())]) };
            let keeps_mode = same(&own, current, at) && Some(node) != now && Some(node) != before;
            let is_settled = same(&own, base, at) || same(&own, current, at);
            (is_settled && !keeps_mode) || (!is_settled && is_taken_over)
        }
        Entry::Dir { mode, is_opaque } => {
            let is_leaf = |node: Option<&Node>| matches!(node, Some(Node::File { .. } | Node::Link { .. }));
            if *is_opaque || is_leaf(now) {
                return now.is_some() && is_taken_over;
            }
            let inside = format!("{at}/");
            let is_empty = !left.keys().any(|key| key.starts_with(&inside));
            let is_dir = |node: Option<&Node>| matches!(node, Some(Node::Dir { .. }));
            let own = Node::Dir { mode: *mode };
            let keeps_mode = is_dir(now) && now != Some(&own) && before != Some(&own);
            is_empty && (is_dir(now) || is_dir(before)) && !keeps_mode
        }
    }
}

/// Tells whether two trees have the same at a path: kind, content, execute bit; what a directory holds, too.
pub(super) fn same(a: &Tree, b: &Tree, at: &str) -> bool {
    let bare = |tree: &Tree| {
        let inside = format!("{at}/");
        let below = tree.nodes.iter().filter(|(key, _)| *key == at || key.starts_with(&inside));
        below.map(|(key, node)| (key.clone(), without_modes(node))).collect::<Vec<_>>()
    };
    bare(a) == bare(b)
}

fn without_modes(node: &Node) -> Node {
    match node {
        Node::Dir { .. } => Node::Dir { mode: 0 },
        Node::File { mode, bytes } => Node::File { mode: mode & 0o100, bytes: bytes.clone() },
        other => other.clone(),
    }
}

impl Tree {
    /// Takes out what lies at and below a path.
    pub(super) fn cut(&mut self, at: &str) {
        let inside = format!("{at}/");
        self.nodes.retain(|key, _| key != at && !key.starts_with(&inside));
    }
}

fn read(dir: &Path, prefix: &str, entries: &mut BTreeMap<String, Entry>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let entry = entry.unwrap();
        let at = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let metadata = std::fs::symlink_metadata(entry.path()).unwrap();
        let (kind, mode) = (metadata.file_type(), metadata.permissions().mode() & 0o7777);
        let read_entry = if kind.is_char_device() {
            Entry::Whiteout
        } else if kind.is_dir() {
            read(&entry.path(), &format!("{at}/"), entries);
            Entry::Dir { mode, is_opaque: is_opaque(&entry.path()) }
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned();
            Entry::Leaf(Node::Link { target })
        } else {
            Entry::Leaf(Node::File { mode, bytes: std::fs::read(entry.path()).unwrap() })
        };
        entries.insert(at, read_entry);
    }
}

fn is_opaque(at: &Path) -> bool {
    let mut value = [0; 8];
    rustix::fs::lgetxattr(at, "user.overlay.opaque", &mut value).is_ok_and(|length| value[..length] == *b"y")
}
