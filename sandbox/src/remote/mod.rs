//! [`RemoteSandbox`]: machines that users lend, each behind a runner that has connected to this process.
//!
//! * [`link`]: one connection; requests and answers on it. It does no I/O: a WebSocket's frames are handed to it.
//! * [`files`], [`pieces`], [`exec`]: the methods, as requests. Runners with [`Feature::Exact`](crate::wire::Feature::Exact) are asked
//!   in pieces, founding ones in single frames.
//! * [`live`]: commands in which a caller takes part. [`machine`]: connections of a machine one after the other.
//! * [`transfer`]: the transfers under way, as the HTTP connections of runners see them. [`moving`]: the same as the methods see them.

mod answer;
mod cutting;
mod exec;
mod files;
mod inputs;
mod link;
mod live;
mod machine;
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
use self::machine::Lent;
pub use self::machine::Machine;
pub use self::transfer::{Direction, TransferError, TransferUnderWay, Transfers};
use crate::file::check_permissions;
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec,
    ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
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
    links: RwLock<HashMap<UserId, Lent>>,
    is_closed: AtomicBool,
}

impl RemoteSandbox {
    /// A backend without any runner.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The backend of one user, through this very connection of a machine. Commands in which a caller takes part go on with the machine's
    /// next connections.
    #[must_use]
    pub fn of(machine: Arc<Machine>, link: Arc<Link>) -> Self {
        let links = HashMap::from([(link.user().clone(), Lent { machine, link })]);
        Self { links: RwLock::new(links), is_closed: AtomicBool::default() }
    }

    /// Has `link` serve its user from the next call on, and gives back the one that did so before: its requests go on.
    pub fn attach(&self, link: Arc<Link>) -> Option<Arc<Link>> {
        let mut links = self.links.write();
        let former = links.remove(link.user());
        let machine = former.as_ref().map(|lent| Arc::clone(&lent.machine)).unwrap_or_default();
        machine.connected(Arc::clone(&link));
        links.insert(link.user().clone(), Lent { machine, link });
        former.map(|lent| lent.link)
    }

    /// The connection that serves `user`.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`].
    fn lent(&self, operation: &'static str, user: &UserId) -> Result<Lent> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed"));
        }
        self.links.read().get(user).cloned().ok_or_else(|| link::disconnected(operation))
    }
}

#[async_trait]
impl Sandbox for RemoteSandbox {
    fn name(&self) -> &str {
        "remote"
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        Ok(self.lent("workspace", user)?.workspace().clone())
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        Ok(self.lent("shell", user)?.shell().to_owned())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let Lent { machine, link } = self.lent("exec", user)?;
        match link.is_live() {
            true => live::exec(machine, link, spec).await,
            false => exec::exec(&link, spec).await,
        }
    }

    fn has_live(&self, user: &UserId) -> bool {
        self.lent("exec", user).is_ok_and(|lent| lent.link.is_live())
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        let Lent { machine, link } = self.lent("exec", user)?;
        live::begin(machine, link, spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let link = self.lent("read_file", user)?;
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
    ) -> Result<Option<Version>> {
        options.check(path)?;
        let link = self.lent("write_file", user)?;
        if link.is_exact() {
            pieces::write(link, path, body, &options).await
        } else {
            files::write(&link, path, body, options).await
        }
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        files::stat(&self.lent("stat", user)?, "stat", path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        files::read_dir(&self.lent("read_dir", user)?, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        files::mkdir_all(&self.lent("mkdir_all", user)?, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        files::remove(&self.lent("remove", user)?, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        files::remove_all(&self.lent("remove_all", user)?, path).await
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
        for (_, lent) in self.links.write().drain() {
            lent.link.end();
        }
        Ok(())
    }
}
