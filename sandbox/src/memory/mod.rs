//! [`MemSandbox`]: files in memory, exact in every error: what tests compare other backends with.

mod contents;
mod tree;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use self::contents::Contents;
pub use self::tree::MemTree;
use crate::file::check_permissions;
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, ReadOptions, Result,
    Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// The effect of commands, for tests that build a [`MemSandbox`] with commands.
pub type MemCommands = dyn Fn(&mut MemTree, &ExecSpec) -> Result<ExecResult> + Send + Sync;

/// A tree for each user, at `/workspace`, that is gone with the value.
///
/// It answers as Linux would answer a process that owns all files and is not root. Commands are
/// [`ErrorKind::Unsupported`] unless [`MemSandbox::with_commands`] says what they do.
#[derive(Clone)]
pub struct MemSandbox {
    workspace: SandboxPath,
    commands: Option<Arc<MemCommands>>,
    trees: Arc<Mutex<Option<HashMap<UserId, MemTree>>>>,
}

impl fmt::Debug for MemSandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemSandbox").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl Default for MemSandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl MemSandbox {
    /// Empty workspaces, no commands.
    #[must_use]
    pub fn new() -> Self {
        let workspace = SandboxPath::workspace();
        Self { workspace, commands: None, trees: Arc::new(Mutex::new(Some(HashMap::new()))) }
    }

    /// Answers commands by `commands`, which sees and changes the tree of the user.
    #[must_use]
    pub fn with_commands(
        mut self,
        commands: impl Fn(&mut MemTree, &ExecSpec) -> Result<ExecResult> + Send + Sync + 'static,
    ) -> Self {
        self.commands = Some(Arc::new(commands));
        self
    }

    /// Does something to a user's tree: plants a link, for one.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] once closed, and what `act` gives.
    pub fn with_tree<T>(
        &self,
        user: &UserId,
        operation: &'static str,
        act: impl FnOnce(&mut MemTree) -> Result<T>,
    ) -> Result<T> {
        match self.trees.lock().as_mut() {
            Some(trees) => {
                act(trees.entry(user.clone()).or_insert_with(|| MemTree::new(self.workspace.clone())))
            }
            None => Err(Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed")),
        }
    }
}

#[async_trait]
impl Sandbox for MemSandbox {
    fn name(&self) -> &str {
        "memory"
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.with_tree(user, "workspace", |tree| Ok(tree.workspace().clone()))
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.with_tree(user, "shell", |_| Ok("/bin/sh".to_owned()))
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        self.with_tree(user, "exec", |tree| match &self.commands {
            Some(commands) => commands(tree, &spec),
            None => Err(Error::new(ErrorKind::Unsupported, "exec", "a sandbox in memory runs no commands")),
        })
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let (info, contents) = self.with_tree(user, "read_file", |tree| tree.open(path))?;
        let range = options.window(info.size, path)?;
        Ok(FileBody { info, stream: contents.stream(range.clone()), range })
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        options.check(path)?;
        let contents = Contents::collect(body, path).await?;
        self.with_tree(user, "write_file", |tree| tree.put(path, contents, options))
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.with_tree(user, "stat", |tree| tree.stat(path))
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.with_tree(user, "read_dir", |tree| tree.read_dir(path))
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        self.with_tree(user, "mkdir_all", |tree| tree.mkdir_all(path, permissions))
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.with_tree(user, "remove", |tree| tree.remove(path))
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.with_tree(user, "remove_all", |tree| tree.remove_all(path))
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.with_tree(user, "close_for_user", |_| Ok(()))
    }

    async fn close(&self) -> Result<()> {
        *self.trees.lock() = None;
        Ok(())
    }
}
