//! [`Limited`]: so many calls at once, so many bytes a file, and no more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FILE_BYTES_MAX, FileBody, FileInfo,
    LiveRun, LiveSpec, ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// The limits of a [`Limited`] sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls about files at once; a file counts until it was read to its end.
    pub calls: usize,
    /// Commands at once.
    pub commands: usize,
    /// How long a call waits for its turn before it is [`ErrorKind::Busy`].
    pub wait: Duration,
    /// The most bytes of a file, read or written; [`FILE_BYTES_MAX`] at most.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 64, commands: 8, wait: Duration::from_secs(30), file_bytes: FILE_BYTES_MAX }
    }
}

/// A sandbox that is asked only so much at once, over all users.
#[derive(Clone, Debug)]
pub struct Limited {
    inner: Arc<dyn Sandbox>,
    limits: Limits,
    calls: Arc<Semaphore>,
    commands: Arc<Semaphore>,
}

impl Limited {
    /// Lets `limits` through to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Sandbox>, limits: Limits) -> Self {
        let semaphore = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { inner, limits, calls: semaphore(limits.calls), commands: semaphore(limits.commands) }
    }

    async fn turn(&self, places: &Arc<Semaphore>, operation: &'static str) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(self.limits.wait, places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => {
                Err(Error::new(ErrorKind::Busy, operation, "too many calls are under way: try again later"))
            }
        }
    }

    async fn call(&self, operation: &'static str) -> Result<OwnedSemaphorePermit> {
        self.turn(&self.calls, operation).await
    }
}

#[async_trait]
impl Sandbox for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        let _turn = self.call("workspace").await?;
        self.inner.workspace(user).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        let _turn = self.call("shell").await?;
        self.inner.shell(user).await
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let _turn = self.turn(&self.commands, "exec").await?;
        self.inner.exec(user, spec).await
    }

    fn has_live(&self, user: &UserId) -> bool {
        self.inner.has_live(user)
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        let turn = self.turn(&self.commands, "exec").await?;
        let mut run = self.inner.begin(user, spec).await?;
        run.end.hold(turn);
        Ok(run)
    }

    async fn read_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        mut options: ReadOptions,
    ) -> Result<FileBody> {
        let turn = self.call("read_file").await?;
        let most = options.bytes_max.unwrap_or(FILE_BYTES_MAX).min(self.limits.file_bytes);
        options.bytes_max = Some(most);
        let mut body = self.inner.read_file(user, path, options).await?;
        // The turn ends with the stream.
        body.stream = body
            .stream
            .inspect(move |_| {
                let _held = &turn;
            })
            .boxed();
        Ok(body)
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        let _turn = self.call("write_file").await?;
        let (most, about) = (self.limits.file_bytes.min(FILE_BYTES_MAX), path.clone());
        let mut came = 0;
        let bounded = body.and_then(move |piece| {
            came += piece.len() as u64;
            let piece = if came > most {
                Err(Error::about(ErrorKind::TooLarge, "write_file", &about))
            } else {
                Ok(piece)
            };
            std::future::ready(piece)
        });
        self.inner.write_file(user, path, bounded.boxed(), options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        let _turn = self.call("stat").await?;
        self.inner.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        let _turn = self.call("read_dir").await?;
        self.inner.read_dir(user, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        let _turn = self.call("mkdir_all").await?;
        self.inner.mkdir_all(user, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let _turn = self.call("remove").await?;
        self.inner.remove(user, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let _turn = self.call("remove_all").await?;
        self.inner.remove_all(user, path).await
    }

    // A call to close does not wait for the calls under way.

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.inner.close_for_user(user).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.inner.is_exporting(user)
    }

    async fn export_and_import(&self, user: &UserId) -> Result<()> {
        let _turn = self.turn(&self.commands, "export_and_import").await?;
        self.inner.export_and_import(user).await
    }
}
