//! [`View`]: what a command may see of stored trees.

use std::path::PathBuf;

/// What a command may see, as `storage` prepared it and `exec` enforces it.
///
/// A view is data only. `ops` receives it from the one crate and hands it to the other; neither knows its giver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The directory that holds the tree on the host, absolute: a workspace, or a materialised merged view.
    /// It is the working directory of the command, and all that the command may write besides [`View::scratch`].
    pub tree: PathBuf,
    /// A private directory beside the tree for `HOME`, `TMPDIR` and caches, absolute and on the same file system.
    pub scratch: PathBuf,
    /// The path by which callers know the tree, such as `/workspace/skills/demo`.
    pub sandbox_path: String,
    /// Further host paths that callers may use for the same tree, absolute (the overlay's and the baseline's).
    pub aliases: Vec<PathBuf>,
    /// The user and group that own the tree and that the command runs as; `None` keeps the service's own.
    pub owner: Option<u32>,
}
