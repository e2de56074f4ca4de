//! [`ServiceSandbox`]: files and commands of a filesecbox service, over REST.
//!
//! * [`address`]: paths as routes. [`http`]: requests and answers, whose codes are [`Code`](crate::Code); [`upload`]:
//!   streams on their way; [`connector`](mod@connector): the connections.
//! * [`files`] and [`exec`]: the operations; [`prepare`]: what the service has besides them.

mod address;
mod connector;
mod exec;
mod files;
mod http;
mod prepare;
mod upload;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use policy::AgentId;

use self::address::{Address, Place};
pub use self::connector::connector;
use self::http::{Http, Shared};
pub use self::prepare::{
    PrepareMode, PrepareRequest, PreparedSkill, PreparedStep, PreparedWorkspace, SelectedVersion, SentFile,
};
use crate::file::check_permissions;
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, FileKind, ReadOptions,
    Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// The service, and the token that is sent to it.
#[derive(Clone)]
pub struct ServiceOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`, with a path before `/v1` where a proxy adds one.
    pub address: String,
    /// The authorities to trust for `https://`, as PEM; those that the host trusts when none.
    pub authorities: Option<String>,
    /// A token of the role `engine`, or a user's own; none for a service without tokens.
    pub token: Option<String>,
    /// The agent whose workspaces these are.
    pub agent: AgentId,
    /// Whether the user's skills are at `/workspace/skills/<id>`, for files and, at tier `namespaces`, for commands.
    /// Else that is a directory of the workspace as any other.
    pub skills: bool,
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        formatter
            .debug_struct("ServiceOptions")
            .field("address", &self.address)
            .field("agent", &self.agent)
            .field("skills", &self.skills)
            .finish_non_exhaustive()
    }
}

/// The workspaces of one agent in a filesecbox service: its walls, its limits, its list of programs.
///
/// * The workspace is `/workspace` at every tier of the service; commands see its true path in `$WORKSPACE`, and
///   arguments that name `/workspace` are rewritten to it.
/// * Connections are kept and shared. A call that is dropped kills its command by the name that was given to the run.
#[derive(Debug)]
pub struct ServiceSandbox {
    options: ServiceOptions,
    http: Shared,
}

impl ServiceSandbox {
    /// Gets ready to speak to a service; nothing is sent yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]: the address or the token is none.
    pub fn new(options: ServiceOptions) -> Result<Self> {
        let http = Http::new(&options.address, options.token.as_deref(), options.authorities.as_deref())?;
        Ok(Self { options, http: Shared::new(Some(Arc::new(http))) })
    }

    fn http(&self, operation: &'static str) -> Result<Arc<Http>> {
        let http = self.http.read().clone();
        http.ok_or_else(|| Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed"))
    }

    fn place(
        &self,
        operation: &'static str,
        user: &UserId,
        path: &SandboxPath,
    ) -> Result<(Arc<Http>, Place)> {
        let http = self.http(operation)?;
        Ok((http, Place::of(user, &self.options.agent, self.options.skills, operation, path)?))
    }

    /// A place in a tree; for the directory of skills, an error of this kind.
    fn in_tree(
        &self,
        operation: &'static str,
        user: &UserId,
        path: &SandboxPath,
        otherwise: ErrorKind,
    ) -> Result<(Arc<Http>, Address)> {
        match self.place(operation, user, path)? {
            (http, Place::InTree(address)) => Ok((http, address)),
            (_, Place::Skills(_)) => Err(Error::about(otherwise, operation, path)),
        }
    }
}

#[async_trait]
impl Sandbox for ServiceSandbox {
    fn name(&self) -> &str {
        "service"
    }

    async fn workspace(&self, _user: &UserId) -> Result<SandboxPath> {
        self.http("workspace").map(|_| SandboxPath::workspace())
    }

    async fn shell(&self, _user: &UserId) -> Result<String> {
        self.http("shell").map(|_| "/bin/bash".to_owned())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let directory = spec.directory.clone().unwrap_or_else(SandboxPath::workspace);
        let (http, address) = self.in_tree("exec", user, &directory, ErrorKind::Unsupported)?;
        let skills = self.options.skills && address.tree.starts_with("/v1/sandbox/");
        exec::run(&http, &address, spec, skills).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let (http, address) = self.in_tree("read_file", user, path, ErrorKind::IsDirectory)?;
        files::read(&http, &address, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        options.check(path)?;
        let (http, address) = self.in_tree("write_file", user, path, ErrorKind::IsDirectory)?;
        files::write(&http, &address, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        match self.place("stat", user, path)? {
            (http, Place::InTree(address)) => files::stat(&http, &address, path).await,
            (_, Place::Skills(_)) => Ok(FileInfo {
                name: "skills".to_owned(),
                kind: FileKind::Directory,
                size: 0,
                mode: 0o755,
                modified: std::time::SystemTime::UNIX_EPOCH,
                version: None,
            }),
        }
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        match self.place("read_dir", user, path)? {
            (http, Place::InTree(address)) => files::read_dir(&http, &address, path).await,
            (http, Place::Skills(routes)) => files::read_skills(&http, &routes, path).await,
        }
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        match self.place("mkdir_all", user, path)? {
            (http, Place::InTree(address)) => files::mkdir_all(&http, &address, path, permissions).await,
            (_, Place::Skills(_)) => Ok(()),
        }
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let (http, address) = self.in_tree("remove", user, path, ErrorKind::Invalid)?;
        files::remove(&http, "remove", &address, path, false).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let (http, address) = self.in_tree("remove_all", user, path, ErrorKind::Invalid)?;
        files::remove(&http, "remove_all", &address, path, true).await
    }

    async fn close_for_user(&self, _user: &UserId) -> Result<()> {
        self.http("close_for_user").map(drop)
    }

    async fn close(&self) -> Result<()> {
        // The connections close when the last call that uses them has ended.
        *self.http.write() = None;
        Ok(())
    }
}
