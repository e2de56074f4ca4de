//! [`Attachment`]: a directory that stands at a path of its own in a run.

/// A directory, and where a run finds it.
///
/// `storage` names the directories of a run and `exec` mounts them. `ops` hands them over. How the directory is held open
/// is up to them: this crate opens nothing.
#[derive(Clone, Debug)]
pub struct Attachment<Directory> {
    /// The path in the run: absolute, `/workspace`, below it, [`HOME`] or [`TEMPORARY`].
    pub at: String,
    /// The directory.
    pub directory: Directory,
    /// The role of the directory.
    pub role: Role,
    /// Tells directories apart that may come to have the same device and inode number one after the other, such as
    /// the roots of live views, which are counted from 1. Equal for equal directories, 0 where an inode number is
    /// enough.
    pub generation: u64,
    /// Of the tree: the number of the set of directories in it that further skills are attached to, counted from 1. Where
    /// it is the same as for an earlier run, each of them is the same directory under the same name, and no one was moved
    /// or removed meanwhile. 0 where that is not known.
    pub points: u64,
}

/// The role of a directory in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The tree that the command runs in; exactly one of these.
    Tree,
    /// A further skill, which a run of the workspace asked for.
    Skill,
    /// The home directory.
    Home,
    /// The directory for temporary files of the user and agent.
    Temporary,
}

/// Where the directory of [`Role::Home`] stands in a run.
pub const HOME: &str = "/home/sandbox";
/// Where the directory of [`Role::Temporary`] stands in a run.
pub const TEMPORARY: &str = "/tmp";
