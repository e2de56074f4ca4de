//! [`Site`]: the workspace that is being prepared, wherever it is, and the short forms that preparing needs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use policy::UserId;
use sandbox::heads::{HeadQuery, Heads};
use sandbox::{DirEntry, ErrorKind, ExecResult, ExecSpec, Sandbox, SandboxPath, WriteOptions};
use tokio::time::timeout;

use super::fence::Fence;
use crate::ops::error::{Error, Result};
use crate::ops::lease::Lease;
use crate::ops::remote::Backend;
use crate::ops::said::{Said, bounded};

/// How long one call about files may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a search may take, which some backends answer by many calls.
const SEARCHING: Duration = Duration::from_secs(600);
/// How long one short command of the service's own may take.
const SHORT: Duration = Duration::from_secs(5);
/// How long a command may take that gives names to what was written aside: on a busy machine a round is not to fail for that.
const NAMING: Duration = Duration::from_secs(60);
/// How much longer than its command a backend may take to answer.
const BEYOND: Duration = Duration::from_secs(30);
/// Output of a short command that is kept, in bytes.
const SHORT_OUTPUT_BYTES: usize = 2 * 65_536 + 4096;

/// A workspace that is being prepared.
#[derive(Clone)]
pub struct Site {
    sandbox: Arc<dyn Sandbox>,
    user: UserId,
    root: SandboxPath,
    /// What is told of failures, where another backend answers for the workspace.
    backend: Option<Arc<Backend>>,
    /// Whether files reach it that another process has sent.
    is_shared: bool,
    /// The lease that it is prepared under.
    fence: Option<Arc<Fence>>,
}

impl Site {
    /// The workspace of `user` in `sandbox`.
    ///
    /// # Errors
    /// As [`Sandbox::workspace`].
    pub async fn open(sandbox: Arc<dyn Sandbox>, user: UserId) -> Result<Self> {
        Self::within(sandbox, user, None).await
    }

    /// The workspace of `user` in a sandbox whose files this process alone changes, so that no write of another process comes late.
    ///
    /// # Errors
    /// As [`Sandbox::workspace`].
    pub(in crate::ops) async fn of_this_process(sandbox: Arc<dyn Sandbox>, user: UserId) -> Result<Self> {
        Ok(Self { is_shared: false, ..Self::open(sandbox, user).await? })
    }

    /// The workspace that `backend` answers for.
    ///
    /// # Errors
    /// As [`Sandbox::workspace`].
    pub(in crate::ops) async fn of_backend(backend: Arc<Backend>) -> Result<Self> {
        Self::within(Arc::clone(backend.sandbox()), backend.user().clone(), Some(backend)).await
    }

    async fn within(sandbox: Arc<dyn Sandbox>, user: UserId, backend: Option<Arc<Backend>>) -> Result<Self> {
        let mut site =
            Self { sandbox, user, root: SandboxPath::workspace(), backend, is_shared: true, fence: None };
        site.root = site.ask("workspace", site.sandbox.workspace(&site.user)).await?;
        Ok(site)
    }

    /// The same workspace, prepared under `lease`.
    #[must_use]
    pub(super) fn under(mut self, lease: Lease) -> Self {
        self.fence = Some(Arc::new(Fence::new(lease)));
        self
    }

    /// Returns when the workspace is still this caller's to prepare: to be asked before each step that cannot be taken back. Never
    /// returns when the lease is lost: the preparation is dropped.
    pub async fn confirm(&self) {
        if let Some(fence) = &self.fence {
            fence.lease().confirm().await;
        }
    }

    /// The workspace's directory, as file operations name it.
    pub(super) fn root(&self) -> &SandboxPath {
        &self.root
    }

    /// Whether other processes may write files of this workspace: one that comes late must not replace what is there.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The path of something in the workspace.
    pub(super) fn path(&self, relative: &str) -> Result<SandboxPath> {
        let path = self.root.join(relative).ok().filter(|path| path.below(&self.root).is_some());
        path.ok_or_else(|| Error::Invalid(format!("`{}` is no path in the workspace", bounded(relative))))
    }

    /// The entries of a directory.
    pub(super) async fn list(&self, relative: &str) -> Result<Vec<DirEntry>> {
        let path = self.path(relative)?;
        let mut entries = self.ask("read_dir", self.sandbox.read_dir(&self.user, &path)).await?;
        // What is no name of an entry would lead out of the directory.
        entries.retain(DirEntry::is_one_segment);
        Ok(entries)
    }

    /// Whether a regular file is there.
    pub(super) async fn is_file(&self, relative: &str) -> Result<bool> {
        let path = self.path(relative)?;
        match timeout(PATIENCE, self.sandbox.stat(&self.user, &path)).await {
            Ok(Ok(info)) => Ok(info.kind == sandbox::FileKind::File),
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Ok(Err(error)) => Err(self.failure(error)),
            Err(_) => Err(self.silent("stat")),
        }
    }

    /// Finds files below directories of the workspace, and how each begins: `query` with these roots.
    pub(super) async fn find_heads(&self, roots: &[String], query: &HeadQuery) -> Result<Heads> {
        let path = |root: &String| if root.is_empty() { Ok(self.root.clone()) } else { self.path(root) };
        let query = HeadQuery { roots: roots.iter().map(path).collect::<Result<_>>()?, ..query.clone() };
        match timeout(SEARCHING, self.sandbox.find_heads(&self.user, &query)).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(self.silent("find_heads")),
        }
    }

    /// Makes a directory and those above it.
    pub(super) async fn make_dir(&self, relative: &str) -> Result<()> {
        let path = self.path(relative)?;
        self.ask("mkdir_all", self.sandbox.mkdir_all(&self.user, &path, 0o755)).await
    }

    /// Replaces or makes a file.
    pub(super) async fn write(
        &self,
        relative: &str,
        body: sandbox::ByteStream,
        permissions: Option<u32>,
    ) -> Result<()> {
        let path = self.path(relative)?;
        let options = WriteOptions { permissions, ..WriteOptions::default() };
        self.ask("write_file", self.sandbox.write_file(&self.user, &path, body, options)).await.map(drop)
    }

    /// Removes what is there, with all below it.
    pub(super) async fn remove_all(&self, relative: &str) -> Result<()> {
        let path = self.path(relative)?;
        self.ask("remove_all", self.sandbox.remove_all(&self.user, &path)).await
    }

    /// Runs a short script of the service's own in the workspace.
    pub(super) async fn short(&self, script: &str, stdin: Bytes) -> Result<ExecResult> {
        self.run(script, "", stdin, SHORT, SHORT_OUTPUT_BYTES).await
    }

    /// The same, of a script that cannot be taken back.
    pub(super) async fn short_fenced(&self, script: &str, stdin: Bytes) -> Result<ExecResult> {
        self.run_fenced(script, "", stdin, SHORT, SHORT_OUTPUT_BYTES).await
    }

    /// The same, of a script that gives names to what was written aside.
    pub(super) async fn name_fenced(&self, script: &str) -> Result<ExecResult> {
        self.run_fenced(script, "", Bytes::new(), NAMING, SHORT_OUTPUT_BYTES).await
    }

    /// Runs a script that cannot be taken back: as [`Site::run`], once the lease is confirmed and [`Fence`] lets it pass.
    pub(super) async fn run_fenced(
        &self,
        script: &str,
        directory: &str,
        stdin: Bytes,
        deadline: Duration,
        output_bytes_max: usize,
    ) -> Result<ExecResult> {
        let Some(fence) = &self.fence else {
            return self.run(script, directory, stdin, deadline, output_bytes_max).await;
        };
        fence.lease().confirm().await;
        let first = fence.guard(script);
        let ran = self.run(&first.script, directory, stdin.clone(), deadline, output_bytes_max).await?;
        if !first.has_barred(&ran) {
            fence.has_passed();
            return Ok(ran);
        }
        // The mark is of another acquisition. The store tells whose turn it is; this returns only when it is this one's.
        fence.lease().confirm().await;
        let script = fence.seize(script);
        self.run(&script, directory, stdin, deadline, output_bytes_max).await
    }

    /// Runs a script in a directory of the workspace, empty for the workspace itself.
    pub(super) async fn run(
        &self,
        script: &str,
        directory: &str,
        stdin: Bytes,
        deadline: Duration,
        output_bytes_max: usize,
    ) -> Result<ExecResult> {
        let directory = if directory.is_empty() { self.root.clone() } else { self.path(directory)? };
        let spec = ExecSpec {
            directory: Some(directory),
            stdin,
            timeout: Some(deadline),
            output_bytes_max,
            ..ExecSpec::shell(script)
        };
        match timeout(deadline + BEYOND, self.sandbox.exec(&self.user, spec)).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(self.silent("exec")),
        }
    }

    async fn ask<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = sandbox::Result<T>>,
    ) -> Result<T> {
        match timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(self.silent(operation)),
        }
    }

    /// An error of the backend, as the caller is told of it.
    pub(super) fn failure(&self, error: sandbox::Error) -> Error {
        match &self.backend {
            Some(backend) => backend.failure(error),
            None => {
                let path = error.path().map_or_else(String::new, |path| format!("`{path}`: "));
                let message = bounded(&format!("{path}{}", error.message()));
                Error::Remote { kind: error.kind(), message, cause: Said::of(&error) }
            }
        }
    }

    fn silent(&self, operation: &'static str) -> Error {
        self.failure(sandbox::Error::new(
            ErrorKind::Timeout,
            operation,
            "the workspace did not answer in time",
        ))
    }
}

/// A text as one word of a shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
