//! [`View`]: what a command may see of stored trees.

use std::path::PathBuf;

/// The directories that a command may see, as `storage` prepared them and `exec` enforces them.
///
/// A view is data only. `ops` receives it from the one crate and hands it to the other; neither knows its giver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Where the command finds its tree, absolute: for a run at the paths of the host the directory itself, a
    /// workspace or a materialised merged view; for a run to which its tree is attached, [`View::sandbox_path`].
    /// It is the working directory of the command, and all that the command may write besides [`View::scratch`].
    pub tree: PathBuf,
    /// Where the command finds a private directory for `HOME` and caches, absolute: on the host a directory on the
    /// tree's file system, which holds `TMPDIR` too; for a run to which its tree is attached, `/home/sandbox`.
    pub scratch: PathBuf,
    /// The directories of further skills that the command sees and may write, absolute paths of the host; none for a run
    /// to which they are attached.
    pub skills: Vec<PathBuf>,
    /// The path by which callers know the tree, such as `/workspace/skills/demo`.
    pub sandbox_path: String,
    /// Further host paths that callers may use for the same tree, absolute: the overlay's and the baseline's of a
    /// skill; the workspace's own, for a run to which it is attached.
    pub aliases: Vec<PathBuf>,
    /// The user and group that own the tree and that the command runs as; `None` keeps the service's own.
    pub owner: Option<u32>,
}
