//! [`Tapped`]: a real sandbox whose calls are counted, of which one can be made to fail or never to end, and which can be
//! made to list more than there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbox::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, ReadOptions, Result,
    Sandbox, SandboxPath, UserId, Version, WriteOptions,
};
use tokio::sync::Notify;

/// The event that replaces a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, as a full disk does.
    Fails,
    /// It never ends, as when the process dies there.
    Hangs,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<&'static str, usize>,
    changes: usize,
    fault: Option<(usize, Fault)>,
    planted: Vec<DirEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tapped {
    inner: Arc<dyn Sandbox>,
    state: Arc<Mutex<State>>,
    hangs: Arc<Notify>,
}

impl Tapped {
    pub(crate) fn new(inner: Arc<dyn Sandbox>) -> Self {
        Self { inner, state: Arc::default(), hangs: Arc::default() }
    }

    /// Makes the change number `at` from now on, from 0, meet `fault`.
    pub(crate) fn fail_at(&self, at: usize, fault: Fault) {
        let mut state = self.state.lock();
        state.changes = 0;
        state.fault = Some((at, fault));
    }

    /// Lets everything be done again; tells whether the fault was met.
    pub(crate) fn heal(&self) -> bool {
        let mut state = self.state.lock();
        let fault = state.fault.take();
        fault.is_some_and(|(at, _)| state.changes > at)
    }

    /// Has every directory list these entries, too.
    pub(crate) fn plant(&self, entries: impl IntoIterator<Item = DirEntry>) {
        self.state.lock().planted.extend(entries);
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        self.state.lock().calls.get(method).copied().unwrap_or(0)
    }

    fn count(&self, method: &'static str) {
        *self.state.lock().calls.entry(method).or_default() += 1;
    }

    async fn change(&self, method: &'static str) -> Result<()> {
        self.count(method);
        let fault = {
            let mut state = self.state.lock();
            state.changes += 1;
            // What fails once fails from then on, so that putting things right is of no help either.
            state.fault.filter(|(at, _)| state.changes > *at).map(|(_, fault)| fault)
        };
        match fault {
            None => Ok(()),
            Some(Fault::Fails) => Err(Error::new(ErrorKind::Quota, method, "no room")),
            Some(Fault::Hangs) => {
                self.hangs.notify_one();
                std::future::pending().await
            }
        }
    }

    /// Waits until a change hangs.
    pub(crate) async fn hangs(&self) {
        self.hangs.notified().await;
    }
}

#[async_trait]
impl Sandbox for Tapped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.inner.workspace(user).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.inner.shell(user).await
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        self.count("exec");
        self.inner.exec(user, spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.count("read_file");
        self.inner.read_file(user, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        self.change("write_file").await?;
        self.inner.write_file(user, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.count("stat");
        self.inner.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.count("read_dir");
        let mut entries = self.inner.read_dir(user, path).await?;
        entries.extend(self.state.lock().planted.iter().cloned());
        Ok(entries)
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        self.change("mkdir_all").await?;
        self.inner.mkdir_all(user, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.change("remove").await?;
        self.inner.remove(user, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.change("remove_all").await?;
        self.inner.remove_all(user, path).await
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.inner.close_for_user(user).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
