//! [`LocalSandbox`]: the service itself as a [`Sandbox`], for programs that link it as a library.
//!
//! Each method makes the calls of [`ops`](crate::ops) that the route of the same purpose makes; there is no other way to
//! the files. As with requests, each use of a workspace is noted, and each change is in the audit log.
//!
//! * [`store_path`]: paths as trees. [`errors`]: failures of the service as kinds of errors. [`record`]: the audit log.
//! * [`files`], [`find`] and [`commands`]: the operations.

mod commands;
mod errors;
mod files;
mod find;
mod record;
mod store_path;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use policy::{AgentId, TreeId, UserId};
use sandbox::heads::{self, HeadQuery, Heads};
use sandbox::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, FileKind, ReadOptions,
    Result, Sandbox, SandboxPath, Version, WriteOptions, check_permissions,
};
use storage::WorkspaceId;

use self::record::Records;
use self::store_path::{At, StorePath};
use crate::ops::Service;

/// The workspaces of one agent in this process.
///
/// * The workspace is `/workspace` at every tier; commands see its true path in `$WORKSPACE`.
/// * With skills, those of the user are at `/workspace/skills/<id>`, for files and, at tier `namespaces`, for commands.
/// * A workspace that [another backend](crate::ops::backends::Backends) answers for is [`ErrorKind::Unsupported`]: what
///   lies here is not what is meant. Skills are no part of it.
/// * A call that is dropped kills its command. Closing ends this sandbox, not the service.
pub struct LocalSandbox {
    service: Arc<Service>,
    agent: AgentId,
    skills: bool,
    records: Records,
    is_closed: AtomicBool,
}

impl LocalSandbox {
    /// The workspaces of `agent`, with `skills` also the skills.
    #[must_use]
    pub fn new(service: Arc<Service>, agent: AgentId, skills: bool) -> Self {
        Self { service, agent, skills, records: Records::EachChange, is_closed: AtomicBool::new(false) }
    }

    /// The workspaces of `agent` for a request that has a record of its own about everything that it changes.
    #[must_use]
    pub fn of_request(service: Arc<Service>, agent: AgentId) -> Self {
        Self { records: Records::OfRequest, ..Self::new(service, agent, false) }
    }

    /// The same, with the skills of each user.
    #[must_use]
    pub fn with_skills(self) -> Self {
        Self { skills: true, ..self }
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed"));
        }
        Ok(())
    }

    /// Where `path` is. Asking is a use of the user's sandbox.
    async fn place(&self, operation: &'static str, user: &UserId, path: &SandboxPath) -> Result<StorePath> {
        self.check_open(operation)?;
        let place = StorePath::of(user, &self.agent, self.skills, operation, path)?;
        let sandbox = WorkspaceId { user: user.clone(), agent: self.agent.clone() };
        if matches!(&place, StorePath::InTree(at) if matches!(at.tree, TreeId::Workspace(..)))
            && let Some(backend) = self.service.backends().get(&sandbox)
        {
            let message = format!(
                "`{}` answers for this workspace: ask it, or the routes of the service",
                backend.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, operation, message).at(path));
        }
        self.service.note_use(sandbox).await.map_err(|error| errors::of(operation, error))?;
        Ok(place)
    }

    /// A place in a tree; for the directory of skills, an error of this kind.
    async fn in_tree(
        &self,
        operation: &'static str,
        user: &UserId,
        path: &SandboxPath,
        otherwise: ErrorKind,
    ) -> Result<At> {
        match self.place(operation, user, path).await? {
            StorePath::InTree(at) => Ok(at),
            StorePath::Skills => Err(Error::about(otherwise, operation, path)),
        }
    }
}

impl fmt::Debug for LocalSandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("LocalSandbox");
        shown.field("agent", &self.agent).field("skills", &self.skills).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn name(&self) -> &str {
        "local"
    }

    async fn workspace(&self, _user: &UserId) -> Result<SandboxPath> {
        self.check_open("workspace").map(|()| SandboxPath::workspace())
    }

    async fn shell(&self, _user: &UserId) -> Result<String> {
        self.check_open("shell").map(|()| "/bin/bash".to_owned())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let directory = spec.directory.clone().unwrap_or_else(SandboxPath::workspace);
        let at = self.in_tree("exec", user, &directory, ErrorKind::Unsupported).await?;
        commands::run(&self.service, self.records, at, spec, self.skills).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let at = self.in_tree("read_file", user, path, ErrorKind::IsDirectory).await?;
        files::read(&self.service, at, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        options.check(path)?;
        let at = self.in_tree("write_file", user, path, ErrorKind::IsDirectory).await?;
        files::write(&self.service, self.records, at, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        match self.place("stat", user, path).await? {
            StorePath::InTree(at) => files::stat(&self.service, at, path).await,
            StorePath::Skills => Ok(unmade(path)),
        }
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        match self.place("read_dir", user, path).await? {
            StorePath::InTree(at) => files::read_dir(&self.service, at, path).await,
            StorePath::Skills => {
                let skills = self.service.skills(user.clone(), self.agent.clone()).await;
                let skills = skills.map_err(|error| errors::at("read_dir", path, error))?;
                let entry = |id: String| DirEntry { name: id, kind: FileKind::Directory, size: 0 };
                Ok(skills.into_iter().map(|skill| entry(skill.id.to_string())).collect())
            }
        }
    }

    async fn find_heads(&self, user: &UserId, query: &HeadQuery) -> Result<Heads> {
        let mut roots = Vec::new();
        for root in &query.roots {
            match self.place("find_heads", user, root).await? {
                StorePath::InTree(at) => roots.push(at),
                StorePath::Skills => return Ok(heads::find_by_calls(self, user, query).await),
            }
        }
        find::find(self, user, query, &roots).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        match self.place("mkdir_all", user, path).await? {
            StorePath::InTree(at) => {
                files::mkdir_all(&self.service, self.records, at, path, permissions).await
            }
            StorePath::Skills => Ok(()),
        }
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let at = self.in_tree("remove", user, path, ErrorKind::Invalid).await?;
        files::remove(&self.service, self.records, "remove", at, path, false).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let at = self.in_tree("remove_all", user, path, ErrorKind::Invalid).await?;
        files::remove(&self.service, self.records, "remove_all", at, path, true).await
    }

    async fn close_for_user(&self, _user: &UserId) -> Result<()> {
        self.check_open("close_for_user")
    }

    async fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// A directory that is there although nothing was written in it yet.
fn unmade(path: &SandboxPath) -> FileInfo {
    FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind: FileKind::Directory,
        size: 0,
        mode: 0o755,
        modified: SystemTime::UNIX_EPOCH,
        version: None,
    }
}
