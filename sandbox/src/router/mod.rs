//! [`SandboxRouter`]: one sandbox in front of several, which chooses for each user and session.

mod choice;
mod select;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use self::choice::Choice;
use self::select::{Offer, Route, select};
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, LiveRun, LiveSpec,
    ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// The machines that users have connected, each a sandbox.
#[async_trait]
pub trait Runners: fmt::Debug + Send + Sync + 'static {
    /// The connected machine of `user` with this name, or the one that the user works with; none when it is away.
    fn of(&self, user: &UserId, name: Option<&str>) -> Option<Arc<dyn Sandbox>>;

    /// Ends all connections.
    async fn close(&self) -> Result<()>;
}

/// Tells users of the web from others.
pub type IsWeb = dyn Fn(&UserId) -> bool + Send + Sync;

/// The backends of a [`SandboxRouter`]; those that are not there are never chosen.
#[derive(Clone, Default)]
pub struct Backends {
    /// Users' own machines.
    pub runners: Option<Arc<dyn Runners>>,
    /// Containers.
    pub docker: Option<Arc<dyn Sandbox>>,
    /// This host itself.
    pub none: Option<Arc<dyn Sandbox>>,
    /// The users who come over the web, and so may not use this host itself unless [`Backends::web_may_use_none`]. No
    /// user, unless set.
    pub is_web: Option<Arc<IsWeb>>,
    /// Whether users of the web may use this host itself.
    pub web_may_use_none: bool,
}

impl fmt::Debug for Backends {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Backends")
            .field("runners", &self.runners)
            .field("docker", &self.docker)
            .field("none", &self.none)
            .field("web_may_use_none", &self.web_may_use_none)
            .finish_non_exhaustive()
    }
}

/// For each call the user's connected machine, else a container, else this host.
///
/// It is decided anew with every call, so that a machine that connects is used from then on. A session that wants
/// something else speaks to [`SandboxRouter::with_choice`].
#[derive(Clone, Debug)]
pub struct SandboxRouter {
    backends: Arc<Backends>,
    choice: Choice,
}

impl SandboxRouter {
    /// Chooses among `backends`.
    #[must_use]
    pub fn new(backends: Backends) -> Self {
        Self { backends: Arc::new(backends), choice: Choice::Usual }
    }

    /// The same backends for a session that made a choice.
    #[must_use]
    pub fn with_choice(&self, choice: Choice) -> Self {
        Self { backends: self.backends.clone(), choice }
    }

    /// The sandbox that a call of `user` goes to; without a user, the sandbox of a user who has no machine.
    ///
    /// # Errors
    /// * [`ErrorKind::Disconnected`]: the machine that was asked for is away, or there is no backend at all.
    /// * [`ErrorKind::PermissionDenied`]: only this host is left, which is not for users of the web.
    pub fn select(&self, operation: &'static str, user: Option<&UserId>) -> Result<Arc<dyn Sandbox>> {
        let backends = &*self.backends;
        let name = match &self.choice {
            Choice::Runner(name) => Some(name.as_str()),
            Choice::Usual | Choice::Docker => None,
        };
        let runner = backends.runners.as_ref().zip(user).and_then(|(runners, user)| runners.of(user, name));
        let is_web = backends.is_web.as_ref().zip(user).is_some_and(|(is_web, user)| is_web(user));
        let offer = Offer {
            has_runner: runner.is_some(),
            has_docker: backends.docker.is_some(),
            has_none: backends.none.is_some(),
            may_use_none: !is_web || backends.web_may_use_none,
        };
        let route = select(&self.choice, offer);
        let chosen = match route {
            Route::Runner => runner,
            Route::Docker => backends.docker.clone(),
            Route::None => backends.none.clone(),
            Route::RunnerAway | Route::Denied | Route::Nowhere => None,
        };
        chosen.ok_or_else(|| match route {
            Route::RunnerAway => {
                let message = "the chosen machine is not connected: start its runner, or choose another";
                Error::new(ErrorKind::Disconnected, operation, message)
            }
            Route::Denied => {
                let message =
                    "users of the web run on a machine of their own or in a container: connect a runner";
                Error::new(ErrorKind::PermissionDenied, operation, message)
            }
            _ => Error::new(ErrorKind::Disconnected, operation, "there is no sandbox to run in"),
        })
    }

    fn of(&self, operation: &'static str, user: &UserId) -> Result<Arc<dyn Sandbox>> {
        self.select(operation, Some(user))
    }
}

#[async_trait]
impl Sandbox for SandboxRouter {
    /// The first kind of backend that there is, `remote` before `docker` before `none`.
    fn name(&self) -> &str {
        match &*self.backends {
            Backends { runners: Some(_), .. } => "remote",
            Backends { docker: Some(docker), .. } => docker.name(),
            Backends { none: Some(none), .. } => none.name(),
            _ => "nowhere",
        }
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.of("workspace", user)?.workspace(user).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.of("shell", user)?.shell(user).await
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        self.of("exec", user)?.exec(user, spec).await
    }

    fn has_live(&self, user: &UserId) -> bool {
        self.of("exec", user).is_ok_and(|backend| backend.has_live(user))
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        self.of("exec", user)?.begin(user, spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.of("read_file", user)?.read_file(user, path, options).await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        self.of("write_file", user)?.write_file(user, path, body, options).await
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.of("stat", user)?.stat(user, path).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.of("read_dir", user)?.read_dir(user, path).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        self.of("mkdir_all", user)?.mkdir_all(user, path, permissions).await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.of("remove", user)?.remove(user, path).await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.of("remove_all", user)?.remove_all(user, path).await
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        // Wherever the user was before: what is held there is released, too.
        let runner = self.backends.runners.as_ref().and_then(|runners| runners.of(user, None));
        let all = [runner, self.backends.docker.clone(), self.backends.none.clone()];
        let mut first_failure = Ok(());
        for sandbox in all.into_iter().flatten() {
            first_failure = first_failure.and(sandbox.close_for_user(user).await);
        }
        first_failure
    }

    async fn close(&self) -> Result<()> {
        let mut first_failure = match &self.backends.runners {
            Some(runners) => runners.close().await,
            None => Ok(()),
        };
        for sandbox in [&self.backends.docker, &self.backends.none].into_iter().flatten() {
            first_failure = first_failure.and(sandbox.close().await);
        }
        first_failure
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.of("is_exporting", user).is_ok_and(|sandbox| sandbox.is_exporting(user))
    }

    async fn export_and_import(&self, user: &UserId) -> Result<()> {
        self.of("export_and_import", user)?.export_and_import(user).await
    }
}
