//! Adapters around files in memory.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{Limited, Limits, MemSandbox, ReadOnly, Result, Sandbox, SandboxPath, UserId};

/// Which adapter.
#[derive(Clone, Copy)]
pub(crate) enum Adapter {
    ReadOnly,
    Limited,
}

pub(crate) struct Adapted {
    inner: MemSandbox,
    adapter: Adapter,
}

impl Adapted {
    pub(crate) fn new(adapter: Adapter) -> Self {
        Self { inner: MemSandbox::new(), adapter }
    }

    fn around(&self, inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        match self.adapter {
            Adapter::ReadOnly => Arc::new(ReadOnly::new(inner)),
            // Two calls at a time: laws read while a write goes on.
            Adapter::Limited => Arc::new(Limited::new(inner, Limits { calls: 2, ..Limits::default() })),
        }
    }
}

#[async_trait]
impl Subject for Adapted {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls};
        match self.adapter {
            Adapter::ReadOnly => &[Closing, Huge, Links, Modes, Pipes, Versions, Walls],
            Adapter::Limited => &[Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls],
        }
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.around(Arc::new(self.inner.clone()))
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        self.around(Arc::new(MemSandbox::new()))
    }

    async fn furnisher(&self) -> Arc<dyn Sandbox> {
        Arc::new(self.inner.clone())
    }

    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        self.inner.with_tree(user, "symlink", |tree| tree.symlink(target, path))
    }

    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.inner.with_tree(user, "mkfifo", |tree| tree.pipe(path))
    }
}
