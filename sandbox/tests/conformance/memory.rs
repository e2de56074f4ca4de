//! Files in memory.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{MemSandbox, Result, Sandbox, SandboxPath, UserId};

#[derive(Default)]
pub(crate) struct Memory(MemSandbox);

#[async_trait]
impl Subject for Memory {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls};
        &[Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        Arc::new(self.0.clone())
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(MemSandbox::new())
    }

    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        self.0.with_tree(user, "symlink", |tree| tree.symlink(target, path))
    }

    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.0.with_tree(user, "mkfifo", |tree| tree.pipe(path))
    }
}
