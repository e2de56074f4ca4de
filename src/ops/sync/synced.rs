//! [`SyncedSandbox`]: a machine whose commands, and whose skills and agents, wait for the first synchronisation of its connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use policy::{RelPath, UserId};
use sandbox::{
    ByteStream, DirEntry, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec, ReadOptions, Result,
    Sandbox, SandboxPath, Version, WriteOptions,
};
use tokio::sync::watch;
use tokio::time::timeout;

use super::State;

/// How long a request waits; then it goes on without.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine, and how far its synchronisation is.
pub(in crate::ops) struct SyncedSandbox {
    machine: Arc<dyn Sandbox>,
    state: watch::Receiver<State>,
    /// Skills and agents, in the workspace.
    directories: [RelPath; 2],
}

impl fmt::Debug for SyncedSandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SyncedSandbox").field(&self.machine).finish()
    }
}

impl SyncedSandbox {
    pub(super) fn new(
        machine: Arc<dyn Sandbox>,
        state: watch::Receiver<State>,
        directories: [RelPath; 2],
    ) -> Self {
        Self { machine, state, directories }
    }

    async fn ready(&self) {
        if *self.state.borrow() == State::Running {
            let mut state = self.state.clone();
            // Without a sender it is over.
            drop(timeout(PATIENCE, state.wait_for(|state| *state != State::Running)).await);
        }
    }

    /// Waits if `path` is in what is synchronised.
    async fn ready_at(&self, user: &UserId, path: &SandboxPath) {
        if *self.state.borrow() != State::Running {
            return;
        }
        let Ok(root) = self.machine.workspace(user).await else { return };
        let is_in = |directory: &RelPath| {
            root.join(directory.as_str()).is_ok_and(|top| *path == top || path.below(&top).is_some())
        };
        if self.directories.iter().any(is_in) {
            self.ready().await;
        }
    }
}

#[async_trait]
impl Sandbox for SyncedSandbox {
    fn name(&self) -> &str {
        self.machine.name()
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.machine.workspace(user).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.machine.shell(user).await
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        self.ready().await;
        self.machine.exec(user, spec).await
    }

    fn has_live(&self, user: &UserId) -> bool {
        self.machine.has_live(user)
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        self.ready().await;
        self.machine.begin(user, spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.ready_at(user, path).await;
        self.machine.read_file(user, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        self.ready_at(user, path).await;
        self.machine.write_file(user, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.ready_at(user, path).await;
        self.machine.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.ready_at(user, path).await;
        self.machine.read_dir(user, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        self.ready_at(user, path).await;
        self.machine.mkdir_all(user, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.ready_at(user, path).await;
        self.machine.remove(user, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.ready_at(user, path).await;
        self.machine.remove_all(user, path).await
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.machine.close_for_user(user).await
    }

    async fn close(&self) -> Result<()> {
        self.machine.close().await
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.machine.is_exporting(user)
    }

    async fn export_and_import(&self, user: &UserId) -> Result<()> {
        self.machine.export_and_import(user).await
    }
}
