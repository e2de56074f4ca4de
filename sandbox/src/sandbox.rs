//! [`Sandbox`]: what every backend does.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec,
    ReadOptions, Result, SandboxPath, UserId, Version, WriteOptions,
    heads::{self, HeadQuery, Heads},
};

/// The largest file that can be read or written, in every backend: 500 MiB.
pub const FILE_BYTES_MAX: u64 = 500 * 1024 * 1024;

/// The most entries of a directory that are listed.
pub const DIR_ENTRIES_MAX: usize = 100_000;

/// Files and commands of many users.
///
/// The promises of all backends, which the contract suite (feature `conformance`) checks:
///
/// * A call names its user, and reaches that user's files only.
/// * Paths are absolute and as the *sandbox* sees them. Below [`workspace`](Self::workspace) everything can be used;
///   elsewhere a backend may refuse with [`ErrorKind::PermissionDenied`]. Symbolic links are followed while they stay
///   in the workspace, and written through; one that leaves it, and a cycle of them, is
///   [`ErrorKind::PermissionDenied`]. An absolute link into the workspace is followed, or refused in the same way.
/// * Only regular files are read and written: a pipe, socket or device is [`ErrorKind::PermissionDenied`], at once.
/// * Files are replaced whole: a reader sees the old bytes or the new ones. Nothing makes directories by the way but
///   [`mkdir_all`](Self::mkdir_all). Permission bits that make no sense (more than `0o777`) are
///   [`ErrorKind::Invalid`].
/// * A file of more than [`FILE_BYTES_MAX`] is [`ErrorKind::TooLarge`], read or written, and a refused write leaves
///   what was there.
/// * The same failure has the same [`ErrorKind`] everywhere. Every call ends: what does not answer is
///   [`ErrorKind::Timeout`] or [`ErrorKind::Disconnected`].
/// * Dropping a future gives the call up; a command is then killed, as far as the backend can.
#[async_trait]
pub trait Sandbox: Debug + Send + Sync + 'static {
    /// The kind of backend: `none`, `docker`, `service`, `memory`, or another word without spaces.
    fn name(&self) -> &str;

    /// The directory that is the user's own, where relative paths begin. It exists once this has been answered.
    async fn workspace(&self, user: &UserId) -> Result<SandboxPath>;

    /// The shell that runs [`Program::Shell`](crate::Program::Shell), such as `/bin/sh`.
    async fn shell(&self, user: &UserId) -> Result<String>;

    /// Runs a command to its end. A program that cannot be found is [`ErrorKind::NotFound`].
    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult>;

    /// Whether [`begin`](Self::begin) can be asked for commands of `user` just now.
    fn has_live(&self, _user: &UserId) -> bool {
        false
    }

    /// Begins a command in which the caller takes part while it runs: its output comes as it is written.
    ///
    /// Backends that have nothing like it are [`ErrorKind::Unsupported`].
    async fn begin(&self, _user: &UserId, _spec: LiveSpec) -> Result<LiveRun> {
        let message = "this backend tells of a command when it has ended only";
        Err(Error::new(ErrorKind::Unsupported, "exec", message))
    }

    /// Opens a file to be read.
    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody>;

    /// Writes a file; its directory must be there. A stream that fails leaves what was there.
    ///
    /// Gives the version of what was written, as [`FileInfo::version`] tells it until the file is changed; `None` where the
    /// backend cannot tell, or where the answer that had it was lost with a connection.
    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>>;

    /// Looks at a file or directory; links are followed.
    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo>;

    /// Lists a directory, sorted by the bytes of the names; more than [`DIR_ENTRIES_MAX`] are [`ErrorKind::TooLarge`],
    /// in some backends fewer.
    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>>;

    /// Finds the files of one name below directories, and how each begins. What cannot be listed or read is told in the answer; an
    /// error says that nothing could be searched at all.
    async fn find_heads(&self, user: &UserId, query: &HeadQuery) -> Result<Heads> {
        Ok(heads::find_by_calls(self, user, query).await)
    }

    /// Makes a directory and those above it, each with `permissions` (no umask); those that are there are left as they
    /// are.
    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()>;

    /// Removes a file, a link (not what it leads to) or an empty directory. The workspace itself is
    /// [`ErrorKind::Invalid`].
    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()>;

    /// Removes the entry of any kind, with all below it; a missing entry is no error. Links are removed, never
    /// followed.
    ///
    /// The workspace itself is [`ErrorKind::Invalid`], and stays.
    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()>;

    /// Releases what the backend holds for one user: a container, a connection. The files stay.
    async fn close_for_user(&self, user: &UserId) -> Result<()>;

    /// Releases everything. Later calls are [`ErrorKind::Disconnected`].
    async fn close(&self) -> Result<()>;

    /// Whether the user's files are being exported just now, so that calls have to wait.
    fn is_exporting(&self, _user: &UserId) -> bool {
        false
    }

    /// Makes the state of the user's sandbox durable in itself (a container: its image anew) and goes on with that.
    async fn export_and_import(&self, _user: &UserId) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "export_and_import", "this backend has nothing to export"))
    }
}
