//! [`Subject`]: a backend as the suite sees it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{ErrorKind, ExecSpec, Result, Sandbox, SandboxPath, UserId};

/// An ability that not every backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ability {
    /// Files can be changed.
    Changes,
    /// Commands run.
    Commands,
    /// A caller takes part in commands ([`Sandbox::begin`]).
    Live,
    /// [`Subject::symlink`] works.
    Links,
    /// [`Subject::pipe`] works.
    Pipes,
    /// Permission bits bind the backend itself, so that a file can be closed to it. They do not bind root.
    Modes,
    /// Nothing outside the workspace can be used.
    Walls,
    /// Files have versions, and a write can be bound to one ([`WriteMode::Swap`](crate::WriteMode::Swap)).
    Versions,
    /// Files of 500 MiB can be tried in reasonable time.
    Huge,
    /// [`Subject::another`] gives a sandbox that may be closed.
    Closing,
}

/// A backend that is to be tried.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// Its abilities.
    fn abilities(&self) -> &[Ability];

    /// The sandbox itself; all laws may share one. Users `alice` and `bob` are there, and no other test uses them.
    async fn sandbox(&self) -> Arc<dyn Sandbox>;

    /// Another sandbox over files of its own, which a law closes.
    async fn another(&self) -> Arc<dyn Sandbox>;

    /// The sandbox through which a law puts its first files: another way to the same files, where the sandbox itself
    /// cannot change them.
    async fn furnisher(&self) -> Arc<dyn Sandbox> {
        self.sandbox().await
    }

    /// Makes a symbolic link with any text in it.
    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        run(&*self.sandbox().await, user, ExecSpec::argv("ln", ["-s", "--", target, path.as_str()])).await
    }

    /// Makes a named pipe.
    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        run(&*self.sandbox().await, user, ExecSpec::argv("mkfifo", [path.as_str()])).await
    }
}

async fn run(sandbox: &dyn Sandbox, user: &UserId, spec: ExecSpec) -> Result<()> {
    let result = sandbox.exec(user, spec).await?;
    if result.is_success() {
        return Ok(());
    }
    Err(crate::Error::new(ErrorKind::Internal, "exec", result.stderr_text()))
}
