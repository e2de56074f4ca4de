//! [`ReadOnly`]: looks, and touches nothing.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec,
    ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// A sandbox whose files can be looked at only.
///
/// Changes are [`ErrorKind::PermissionDenied`]. Commands, whose changes cannot be known beforehand, are
/// [`ErrorKind::Unsupported`].
#[derive(Clone, Debug)]
pub struct ReadOnly {
    inner: Arc<dyn Sandbox>,
}

impl ReadOnly {
    /// Looks at the files of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Sandbox>) -> Self {
        Self { inner }
    }

    /// Refuses a change, or tells that the sandbox inside is closed.
    async fn refuse(&self, operation: &'static str, user: &UserId, path: &SandboxPath) -> Error {
        match self.inner.workspace(user).await {
            Err(error) if error.kind() == ErrorKind::Disconnected => error.at(path),
            _ => Error::new(ErrorKind::PermissionDenied, operation, "may only be looked at here").at(path),
        }
    }
}

fn no_commands() -> Error {
    Error::new(ErrorKind::Unsupported, "exec", "no commands run where files may only be looked at")
}

#[async_trait]
impl Sandbox for ReadOnly {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.inner.workspace(user).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.inner.shell(user).await
    }

    async fn exec(&self, user: &UserId, _spec: ExecSpec) -> Result<ExecResult> {
        self.inner.workspace(user).await?;
        Err(no_commands())
    }

    async fn begin(&self, user: &UserId, _spec: LiveSpec) -> Result<LiveRun> {
        self.inner.workspace(user).await?;
        Err(no_commands())
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.inner.read_file(user, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        _body: ByteStream,
        _options: WriteOptions,
    ) -> Result<Option<Version>> {
        Err(self.refuse("write_file", user, path).await)
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.inner.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.inner.read_dir(user, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, _permissions: u32) -> Result<()> {
        Err(self.refuse("mkdir_all", user, path).await)
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        Err(self.refuse("remove", user, path).await)
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        Err(self.refuse("remove_all", user, path).await)
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.inner.close_for_user(user).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.inner.is_exporting(user)
    }
}
