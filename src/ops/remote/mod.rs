//! [`Backend`]: a workspace that another [`Sandbox`] answers for, and what is done there.
//!
//! The backend may be slow, gone or hostile: every wait has an end, the bytes that come are counted, and of failures
//! nothing is told that names a path of a host.
//!
//! * [`files`]: bytes and directories. [`texts`]: texts over them. [`feeding`], [`reading`]: streams on their way.
//! * [`failures`]: what is believed of them.
//! * Commands are among the runs: [`crate::ops::run`]. Requests come by the face of all trees, [`crate::ops::tree`].

mod failures;
mod feeding;
mod files;
mod reading;
mod texts;

use std::sync::Arc;
use std::time::Duration;

use policy::{RelPath, UserId};
use sandbox::{ErrorKind, Sandbox, SandboxPath};
use tokio::sync::OnceCell;

use self::failures::is_possible;
pub use self::files::UNTAGGED;
pub(super) use self::files::{Written, tag};
pub(super) use self::texts::{Edited, RemoteText};
use super::error::{Error, Result};
use super::said::{Said, bounded};

/// How long a backend may be silent while something is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where a workspace stands, as requests name it.
const WORKSPACE: &str = "/workspace";

/// A remote workspace.
pub struct Backend {
    user: UserId,
    sandbox: Arc<dyn Sandbox>,
    workspace: OnceCell<SandboxPath>,
    /// Held while a text is read, changed and written, so that of two changes neither is lost.
    editing: tokio::sync::Mutex<()>,
}

impl Backend {
    pub(super) fn new(user: UserId, sandbox: Arc<dyn Sandbox>) -> Self {
        Self { user, sandbox, workspace: OnceCell::new(), editing: tokio::sync::Mutex::default() }
    }

    /// The backend itself.
    #[must_use]
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.sandbox
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.sandbox.name()
    }

    /// Whose workspace it is.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// The last part of the path of the shell that runs scripts there.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn shell(&self) -> Result<String> {
        let shell = self.ask("shell", self.sandbox.shell(&self.user)).await?;
        Ok(shell.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The backend's path for `path`.
    pub(super) async fn path(&self, path: &RelPath) -> Result<SandboxPath> {
        // Calls that come meanwhile wait for the same answer, and no longer than the first call.
        let asked = self.workspace.get_or_try_init(|| self.sandbox.workspace(&self.user));
        let workspace = self.ask("workspace", asked).await?;
        workspace.join(path.as_str()).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Arguments that name the workspace as requests do, as the backend names it.
    pub(super) fn in_its_words(&self, argument: String) -> String {
        let Some(workspace) = self.workspace.get().filter(|path| path.as_str() != WORKSPACE) else {
            return argument;
        };
        match argument.strip_prefix(WORKSPACE) {
            Some(below) if below.is_empty() || below.starts_with('/') => format!("{workspace}{below}"),
            _ => argument,
        }
    }

    /// Waits for an answer, as long as [`PATIENCE`] says.
    async fn ask<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = sandbox::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(operation, error)),
            Err(_) => Err(self.silent(operation)),
        }
    }

    /// As [`Backend::failure`], of an `operation` that a backend was asked for. One that it cannot have is the backend's own.
    pub(super) fn failed(&self, operation: &'static str, error: sandbox::Error) -> Error {
        match self.failure(error) {
            Error::Remote { kind, message, cause } if !is_possible(operation, kind) => {
                Error::Remote { kind: ErrorKind::Internal, message, cause }
            }
            other => other,
        }
    }

    /// A failure as a caller may see it: with the path that the caller knows, and none of the backend's.
    pub(super) fn failure(&self, error: sandbox::Error) -> Error {
        let workspace = self.workspace.get().cloned().unwrap_or_else(SandboxPath::workspace);
        let said = match error.path().and_then(|path| path.below(&workspace)) {
            Some("") => format!("the workspace: {}", error.message()),
            Some(below) => format!("`{below}`: {}", error.message()),
            None => error.message().to_owned(),
        };
        // The backend's path of the workspace is no part of the message.
        let said = match workspace.as_str() {
            "/" => said,
            place => said.replace(place, WORKSPACE),
        };
        Error::Remote { kind: error.kind(), message: bounded(&said), cause: Said::of(&error) }
    }

    pub(super) fn silent(&self, operation: &'static str) -> Error {
        let message = format!("`{}`, where this workspace is, did not answer in time", self.name());
        let cause = sandbox::Error::new(ErrorKind::Timeout, operation, "it was given up");
        Error::Remote { kind: ErrorKind::Timeout, message, cause: Said::of(&cause) }
    }

    /// A failure that says that what answers makes no sense.
    fn nonsense(&self, operation: &'static str, what: &'static str) -> Error {
        self.failure(sandbox::Error::new(ErrorKind::Internal, operation, what))
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use sandbox::{
        ByteStream, DirEntry, ExecResult, ExecSpec, FileBody, FileInfo, ReadOptions, Result, Version,
        WriteOptions,
    };
    use std::future::pending;

    use super::*;

    /// Never says anything.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl Sandbox for Silent {
        fn name(&self) -> &str {
            "silent"
        }

        async fn workspace(&self, _: &UserId) -> Result<SandboxPath> {
            pending().await
        }

        async fn shell(&self, _: &UserId) -> Result<String> {
            pending().await
        }

        async fn exec(&self, _: &UserId, _: ExecSpec) -> Result<ExecResult> {
            pending().await
        }

        async fn read_file(&self, _: &UserId, _: &SandboxPath, _: ReadOptions) -> Result<FileBody> {
            pending().await
        }

        async fn write_file(
            &self,
            _: &UserId,
            _: &SandboxPath,
            _: ByteStream,
            _: WriteOptions,
        ) -> Result<Option<Version>> {
            pending().await
        }

        async fn stat(&self, _: &UserId, _: &SandboxPath) -> Result<FileInfo> {
            pending().await
        }

        async fn read_dir(&self, _: &UserId, _: &SandboxPath) -> Result<Vec<DirEntry>> {
            pending().await
        }

        async fn mkdir_all(&self, _: &UserId, _: &SandboxPath, _: u32) -> Result<()> {
            pending().await
        }

        async fn remove(&self, _: &UserId, _: &SandboxPath) -> Result<()> {
            pending().await
        }

        async fn remove_all(&self, _: &UserId, _: &SandboxPath) -> Result<()> {
            pending().await
        }

        async fn close_for_user(&self, _: &UserId) -> Result<()> {
            pending().await
        }

        async fn close(&self) -> Result<()> {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_who_wait_for_a_silent_backend_nobody_waits_longer_than_one() {
        let backend = Backend::new(UserId::parse("甲").unwrap(), Arc::new(Silent));
        let path = RelPath::parse("file").unwrap();
        let asked = futures_util::future::join_all((0..100).map(|_| backend.stat(&path)));
        let told = tokio::time::timeout(PATIENCE + Duration::from_secs(1), asked).await.unwrap();
        for failure in told {
            assert!(matches!(failure, Err(Error::Remote { kind: ErrorKind::Timeout, .. })));
        }
    }
}
