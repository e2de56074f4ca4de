//! [`Watched`]: a sandbox that tells of changes to skills and agents.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use super::{AGENTS_DIRECTORY, HIDDEN_SKILLS_DIRECTORY, SKILLS_DIRECTORY};
use sandbox::{
    ByteStream, DirEntry, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec, ReadOptions, Result,
    Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// A store that remembers facts of users and can read them again.
pub trait Forget: Debug + Send + Sync {
    /// Reads what a user has again before it tells of it next.
    fn forget(&self, user: &UserId);

    /// The same for all users, as when what they share has changed.
    fn forget_all(&self);
}

/// A sandbox whose changes below `skills`, `.skills` and `agents` of a workspace, and whose commands, make stores forget the user.
///
/// Code that changes files through it, such as an upload, *Edit* or an installation, need not know of the stores.
#[derive(Clone, Debug)]
pub struct Watched {
    inner: Arc<dyn Sandbox>,
    stores: Arc<[Arc<dyn Forget>]>,
}

impl Watched {
    /// `inner`, watched for `stores`.
    #[must_use]
    pub fn new(inner: Arc<dyn Sandbox>, stores: impl IntoIterator<Item = Arc<dyn Forget>>) -> Self {
        Self { inner, stores: stores.into_iter().collect() }
    }

    /// Forgets the user when it is dropped, if a change at `path` may be one of skills or agents.
    ///
    /// It is asked for before the change and dropped after it, also when the caller goes away in between.
    async fn change(&self, user: &UserId, path: Option<&SandboxPath>) -> Option<Forgets> {
        if let Some(path) = path
            && let Ok(workspace) = self.inner.workspace(user).await
            && let Some(below) = path.below(&workspace)
        {
            // The workspace itself, and a directory above, hold both; a link may lead there from anywhere else, which is
            // found out when the time is over.
            let first = below.split('/').next().unwrap_or_default();
            if !matches!(first, "" | SKILLS_DIRECTORY | HIDDEN_SKILLS_DIRECTORY | AGENTS_DIRECTORY) {
                return None;
            }
        }
        Some(Forgets { stores: Arc::clone(&self.stores), user: user.clone() })
    }
}

struct Forgets {
    stores: Arc<[Arc<dyn Forget>]>,
    user: UserId,
}

impl Drop for Forgets {
    fn drop(&mut self) {
        self.stores.iter().for_each(|store| store.forget(&self.user));
    }
}

#[async_trait]
impl Sandbox for Watched {
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
        let _forgets = self.change(user, None).await;
        self.inner.exec(user, spec).await
    }

    fn has_live(&self, user: &UserId) -> bool {
        self.inner.has_live(user)
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        let forgets = Forgets { stores: Arc::clone(&self.stores), user: user.clone() };
        let mut run = self.inner.begin(user, spec).await?;
        run.end.hold(forgets);
        Ok(run)
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.inner.read_file(user, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        let _forgets = self.change(user, Some(path)).await;
        self.inner.write_file(user, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.inner.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.inner.read_dir(user, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        let _forgets = self.change(user, Some(path)).await;
        self.inner.mkdir_all(user, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let _forgets = self.change(user, Some(path)).await;
        self.inner.remove(user, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let _forgets = self.change(user, Some(path)).await;
        self.inner.remove_all(user, path).await
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        let _forgets = self.change(user, None).await;
        self.inner.close_for_user(user).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.inner.is_exporting(user)
    }

    async fn export_and_import(&self, user: &UserId) -> Result<()> {
        self.inner.export_and_import(user).await
    }
}
