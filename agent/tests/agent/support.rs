//! The ground of the tests: a sandbox with a tree, a session in it, calls.

use std::sync::Arc;

use agent::tools::{Context, Search, Session, ToolOutput, Toolbox};
use bytes::Bytes;
use sandbox::{MemSandbox, Sandbox, SandboxExt, SandboxPath, UserId};
use serde_json::Value;

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// A sandbox, a session in it, and all tools.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) session: Session,
    pub(crate) toolbox: Toolbox,
    pub(crate) search: Search,
}

impl Bench {
    pub(crate) async fn memory() -> Self {
        Self::over(Arc::new(MemSandbox::new())).await
    }

    pub(crate) async fn over(sandbox: Arc<dyn Sandbox>) -> Self {
        let session = Session::open(&*sandbox, user("小明")).await.unwrap();
        Self { sandbox, session, toolbox: Toolbox::standard(), search: Search::default() }
    }

    pub(crate) fn path(&self, relative: &str) -> SandboxPath {
        self.session.workspace().join(relative).unwrap()
    }

    /// Writes a file, with the directories above it.
    pub(crate) async fn put(&self, relative: &str, bytes: impl Into<Vec<u8>>) {
        let path = self.path(relative);
        self.sandbox.mkdir_all(self.session.user(), &path.parent().unwrap(), 0o755).await.unwrap();
        self.sandbox.write(self.session.user(), &path, Bytes::from(bytes.into())).await.unwrap();
    }

    pub(crate) async fn make(&self, relative: &str) {
        self.sandbox.mkdir_all(self.session.user(), &self.path(relative), 0o755).await.unwrap();
    }

    pub(crate) async fn get(&self, relative: &str) -> Vec<u8> {
        self.sandbox.read(self.session.user(), &self.path(relative)).await.unwrap().to_vec()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> ToolOutput {
        self.call_raw(tool, &arguments.to_string()).await
    }

    pub(crate) async fn call_raw(&self, tool: &str, arguments: &str) -> ToolOutput {
        let context = Context { search: self.search, ..Context::new(&*self.sandbox, &self.session) };
        self.toolbox.call(&context, tool, arguments).await
    }
}
