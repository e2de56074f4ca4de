//! [`Case`]: what a law has in its hands.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::Subject;
use crate::{
    ByteStream, ErrorKind, ExecResult, ExecSpec, Result, Sandbox, SandboxExt, SandboxPath, UserId,
    WriteOptions,
};

/// One trial: a sandbox, two users, and an empty directory of `alice`, in which the law may do what it likes.
#[derive(Clone)]
pub struct Case {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) alice: UserId,
    pub(super) bob: UserId,
    pub(super) workspace: SandboxPath,
    pub(super) dir: SandboxPath,
}

impl Case {
    pub(super) async fn new(subject: Arc<dyn Subject>, law: &str) -> Self {
        let sandbox = subject.sandbox().await;
        let (alice, bob) = (user("alice"), user("bob"));
        let workspace = sandbox.workspace(&alice).await.unwrap();
        let dir = workspace.join(law).unwrap();
        let furnisher = subject.furnisher().await;
        furnisher.mkdir_all(&alice, &dir, 0o755).await.unwrap();
        Self { subject, sandbox, alice, bob, workspace, dir }
    }

    /// A path in the directory of the law.
    pub(super) fn path(&self, text: &str) -> SandboxPath {
        self.dir.join(text).unwrap()
    }

    /// Puts a file there to begin with.
    pub(super) async fn put(&self, text: &str, bytes: impl Into<Bytes>) -> SandboxPath {
        let path = self.path(text);
        self.subject.furnisher().await.write(&self.alice, &path, bytes.into()).await.unwrap();
        path
    }

    /// Makes a directory to begin with.
    pub(super) async fn put_dir(&self, text: &str) -> SandboxPath {
        let path = self.path(text);
        self.subject.furnisher().await.mkdir_all(&self.alice, &path, 0o755).await.unwrap();
        path
    }

    /// Puts a symbolic link there to begin with.
    pub(super) async fn put_link(&self, target: &str, text: &str) -> SandboxPath {
        let path = self.path(text);
        self.subject.symlink(&self.alice, target, &path).await.unwrap();
        path
    }

    pub(super) async fn read(&self, path: &SandboxPath) -> Result<Bytes> {
        self.sandbox.read(&self.alice, path).await
    }

    pub(super) async fn write(&self, path: &SandboxPath, bytes: impl Into<Bytes>) -> Result<()> {
        self.sandbox.write(&self.alice, path, bytes.into()).await
    }

    pub(super) async fn write_with(
        &self,
        path: &SandboxPath,
        bytes: &'static [u8],
        options: WriteOptions,
    ) -> Result<()> {
        self.sandbox.write_file(&self.alice, path, body([bytes]), options).await.map(drop)
    }

    pub(super) async fn mode(&self, path: &SandboxPath) -> u32 {
        self.sandbox.stat(&self.alice, path).await.unwrap().mode
    }

    /// The names in a directory.
    pub(super) async fn names(&self, path: &SandboxPath) -> Vec<String> {
        let entries = self.sandbox.read_dir(&self.alice, path).await.unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// Runs a script in the directory of the law.
    pub(super) async fn shell(&self, script: &str) -> ExecResult {
        self.exec(ExecSpec::shell(script)).await.unwrap()
    }

    /// Runs a command in the directory of the law, unless it says where.
    pub(super) async fn exec(&self, mut spec: ExecSpec) -> Result<ExecResult> {
        spec.directory.get_or_insert_with(|| self.dir.clone());
        self.sandbox.exec(&self.alice, spec).await
    }
}

pub(super) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// The kind of a failure, which there must be.
#[track_caller]
pub(super) fn kind<T: Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A stream of these pieces.
pub(super) fn body<const N: usize>(pieces: [&'static [u8]; N]) -> ByteStream {
    stream::iter(pieces.map(|piece| Ok(Bytes::from_static(piece)))).boxed()
}
