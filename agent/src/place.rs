//! [`Place`]: a directory of a sandbox, as what stands on one keeps it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandbox::{
    DirEntry, Error, ErrorKind, FileKind, ReadOptions, Result, Sandbox, SandboxPath, UserId, WriteMode,
    WriteOptions,
};

/// A directory: in which sandbox, as which user, at which path.
///
/// The stores of this crate keep what is theirs, and find what all users share, in places. A directory of the host is a
/// place in a sandbox that reaches the host's files, so that it is opened beneath, and written whole, by the same code.
#[derive(Clone, Debug)]
pub struct Place {
    sandbox: Arc<dyn Sandbox>,
    user: UserId,
    root: SandboxPath,
}

impl Place {
    /// The directory `root` of `user`.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>, user: UserId, root: SandboxPath) -> Self {
        Self { sandbox, user, root }
    }

    /// A directory below the user's workspace; empty for the workspace itself.
    ///
    /// # Errors
    /// As [`Sandbox::workspace`]; [`ErrorKind::Invalid`] when `directory` is no path below
    /// it.
    pub async fn in_workspace(sandbox: Arc<dyn Sandbox>, user: UserId, directory: &str) -> Result<Self> {
        let workspace = sandbox.workspace(&user).await?;
        let root = workspace.join(directory).ok().filter(|root| root.below(&workspace).is_some());
        let root = root.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "workspace", "the directory is not in the workspace")
        })?;
        Ok(Self { sandbox, user, root })
    }

    pub(crate) fn directory(&self) -> Directory<'_> {
        Directory { sandbox: &*self.sandbox, user: &self.user, root: self.root.clone() }
    }
}

/// A directory that is being used: short forms for what is below it.
#[derive(Clone, Debug)]
pub(crate) struct Directory<'a> {
    pub(crate) sandbox: &'a dyn Sandbox,
    pub(crate) user: &'a UserId,
    pub(crate) root: SandboxPath,
}

impl Directory<'_> {
    /// The path of something below.
    pub(crate) fn path(&self, relative: &str) -> Result<SandboxPath> {
        let path = self.root.join(relative).ok().filter(|path| path.below(&self.root).is_some());
        path.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "path", "a name is not possible as a path").at(&self.root)
        })
    }

    /// A directory below this one.
    pub(crate) fn below(&self, relative: &str) -> Result<Self> {
        Ok(Self { root: self.path(relative)?, ..self.clone() })
    }

    /// Its entries; none when it is not there.
    pub(crate) async fn entries(&self) -> Result<Vec<DirEntry>> {
        match self.sandbox.read_dir(self.user, &self.root).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            other => other,
        }
    }

    /// A file's bytes, of at most `bytes_max`; none when it is not there.
    pub(crate) async fn read(&self, relative: &str, bytes_max: u64) -> Result<Option<Bytes>> {
        let options = ReadOptions { range: None, bytes_max: Some(bytes_max) };
        match self.sandbox.read_file(self.user, &self.path(relative)?, options).await {
            Ok(body) => body.bytes().await.map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first `bytes_max` bytes of a file, or fewer; none when it is not there.
    pub(crate) async fn head(&self, relative: &str, bytes_max: u64) -> Result<Option<Bytes>> {
        let options = ReadOptions { range: Some(0..bytes_max), bytes_max: None };
        match self.sandbox.read_file(self.user, &self.path(relative)?, options).await {
            Ok(body) => body.bytes().await.map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether something is there; what it is.
    pub(crate) async fn kind(&self, relative: &str) -> Result<Option<FileKind>> {
        match self.sandbox.stat(self.user, &self.path(relative)?).await {
            Ok(info) => Ok(Some(info.kind)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file whole; its directory must be there.
    pub(crate) async fn write(
        &self,
        relative: &str,
        bytes: Bytes,
        mode: WriteMode,
        permissions: Option<u32>,
    ) -> Result<()> {
        let body = stream::once(async { Ok(bytes) }).boxed();
        let options = WriteOptions { mode, permissions };
        self.sandbox.write_file(self.user, &self.path(relative)?, body, options).await.map(drop)
    }

    /// Makes a directory below, or this one for an empty path.
    pub(crate) async fn make(&self, relative: &str) -> Result<()> {
        self.sandbox.mkdir_all(self.user, &self.path(relative)?, 0o755).await
    }

    /// Removes what is there, with all below it.
    pub(crate) async fn remove_all(&self, relative: &str) -> Result<()> {
        self.sandbox.remove_all(self.user, &self.path(relative)?).await
    }
}
