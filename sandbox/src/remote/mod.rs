//! [`RemoteSandbox`]: machines that users lend, each behind a runner that has connected to this process.
//!
//! * [`link`]: one connection; requests and answers on it. It does no I/O: a WebSocket's frames are handed to it.
//! * [`files`], [`pieces`], [`exec`]: the methods, as requests. Runners with [`Feature::Exact`](crate::wire::Feature::Exact) are asked
//!   in pieces, founding ones in single frames.
//! * [`transfer`]: the transfers under way, as the HTTP connections of runners see them. [`moving`]: the same as the methods see them.

mod cutting;
mod exec;
mod files;
mod link;
mod moving;
mod open_file;
mod pieces;
mod transfer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;

pub use self::link::{Link, Outgoing};
pub use self::transfer::{Direction, TransferError, TransferUnderWay, Transfers};
use crate::file::check_permissions;
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, ReadOptions, Result,
    Sandbox, SandboxPath, UserId, WriteOptions,
};

/// How long a runner may take to answer, but for commands.
const PATIENCE: Duration = Duration::from_secs(30);

/// The backend of users who lend their own machines.
///
/// * A user has the machine whose runner was [attached](RemoteSandbox::attach) last. While there is none, every method is
///   [`ErrorKind::Disconnected`].
/// * Nothing of a user's files is kept here.
/// * The path guard and the walls of commands are the runner's.
#[derive(Debug, Default)]
pub struct RemoteSandbox {
    links: RwLock<HashMap<UserId, Arc<Link>>>,
    is_closed: AtomicBool,
}

impl RemoteSandbox {
    /// A backend without any runner.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `link` serve its user from the next call on, and gives back the one that did so before: its requests go on.
    pub fn attach(&self, link: Arc<Link>) -> Option<Arc<Link>> {
        self.links.write().insert(link.user().clone(), link)
    }

    /// The connection that serves `user`.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`].
    fn link(&self, operation: &'static str, user: &UserId) -> Result<Arc<Link>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed"));
        }
        self.links.read().get(user).cloned().ok_or_else(|| {
            let message = "the runner is not connected: start it, or wait until it has connected again";
            Error::new(ErrorKind::Disconnected, operation, message)
        })
    }
}

#[async_trait]
impl Sandbox for RemoteSandbox {
    fn name(&self) -> &str {
        "remote"
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        Ok(self.link("workspace", user)?.workspace().clone())
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        Ok(self.link("shell", user)?.shell().to_owned())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        exec::exec(&*self.link("exec", user)?, spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let link = self.link("read_file", user)?;
        if link.is_exact() {
            pieces::read(link, path, &options).await
        } else {
            files::read(&link, path, &options).await
        }
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<()> {
        options.check(path)?;
        let link = self.link("write_file", user)?;
        if link.is_exact() {
            pieces::write(link, path, body, options).await
        } else {
            files::write(&link, path, body, options).await
        }
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        files::stat(&*self.link("stat", user)?, "stat", path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        files::read_dir(&*self.link("read_dir", user)?, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        files::mkdir_all(&*self.link("mkdir_all", user)?, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        files::remove(&*self.link("remove", user)?, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        files::remove_all(&*self.link("remove_all", user)?, path).await
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Disconnected, "close_for_user", "the sandbox is closed"));
        }
        // The machine is the user's: a runner that is there stays, and one that is not has nothing to release.
        let _ = user;
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Release);
        for (_, link) in self.links.write().drain() {
            link.end();
        }
        Ok(())
    }
}
