//! [`Launcher`]: the service's handle on its launcher process, and all that runs share.

pub(crate) mod buffers;
mod config;
mod grants;
pub(crate) mod known;
mod network;
mod process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use policy::UserId;
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;

use self::buffers::Buffers;
pub use self::config::LauncherConfig;
use self::known::Known;
use self::process::{Process, root_plan, start_best};
use crate::census::Census;
use crate::company::Company;
use crate::error::Error;
use crate::service::networks::Networks;
use crate::service::networks::loopbacks::Loopbacks;
use crate::service::processor_share::sessions_have_shares;
use crate::service::residents::{Resident, Residents, Surroundings};
use crate::supervisor::ProxyConnection;
use crate::sys;
use crate::walls::programs::Programs;
use crate::wire::{self, Descriptors, Order, Request};
use crate::workloads::Workloads;

/// How often and how long a send waits for a launcher that is behind.
const BEHIND_WAIT: Duration = Duration::from_millis(1);
const BEHIND_WAITS: usize = 2_000;
/// How long a process whose socket is closed may take to be gone, in milliseconds.
const DYING_MS: u64 = 200;

/// Starts runs. One for the whole service; cheap to share, safe to use from any task.
///
/// Dropping it kills all runs.
#[derive(Debug)]
pub struct Launcher {
    pub(crate) config: LauncherConfig,
    known: Known,
    pub(crate) landlock: Result<u32, String>,
    pub(crate) census: Census,
    /// The work of users' commands.
    pub(crate) workloads: Workloads,
    /// Who else is there.
    company: Mutex<Company>,
    /// Whether [sessions have shares](sessions_have_shares) of the processors.
    has_sessions_with_shares: bool,
    pub(crate) buffers: Buffers,
    /// `/dev/null`, the standard input of runs that get none.
    pub(crate) null: OwnedFd,
    pub(crate) service: Service,
    /// Why runs get no namespaces of their own; `Ok` when they do.
    namespaces: Result<(), String>,
    /// The network namespaces of runs.
    pub(crate) networks: Networks,
    /// The loopback addresses of runs without network namespaces.
    pub(crate) loopbacks: Loopbacks,
    /// Set when a probe failed: the walls count as absent from then on, for this reason.
    distrust: OnceLock<String>,
    /// Set when a probe found that the supervisor cannot do its work: why.
    unreadable: OnceLock<String>,
    /// Set when a probe did not reach the egress proxy: why.
    unconnectable: OnceLock<String>,
    residents: Arc<Residents>,
    /// The way of commands without namespaces to the egress proxy, once that is served.
    proxy: Mutex<Option<mpsc::Sender<ProxyConnection>>>,
    process: Mutex<Process>,
}

/// The ids of the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

impl Launcher {
    /// Resolves the programs, opens what every run may read, and starts the launcher process.
    ///
    /// Blocks for a few milliseconds; call it at start, before threads hold anything dear.
    ///
    /// # Errors
    /// * [`Error::LauncherStart`]: the process could not be started or did not say hello.
    /// * [`Error::Unsupported`]: the host grants less than `config.isolation` demands.
    pub fn start(config: LauncherConfig) -> Result<Arc<Self>, Error> {
        let programs = Programs::resolve(&config.whitelist, &config.search_path);
        let landlock = sys::landlock_abi().map_err(|error| format!("the kernel has no Landlock: {error}"));
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::resource("open(/dev/null)"))?;
        let service =
            Service { pid: rustix::process::getpid().as_raw_pid(), uid: rustix::process::geteuid().as_raw() };
        let (process, namespaces) =
            start_best(&config, &programs, &landlock).map_err(Error::LauncherStart)?;
        let networks = Networks::new(config.networks.clone());
        sys::find_processors();
        let launcher = Self {
            config,
            known: Known::new(programs),
            namespaces,
            networks,
            loopbacks: Loopbacks::default(),
            landlock,
            census: Census::default(),
            workloads: Workloads::default(),
            company: Mutex::default(),
            has_sessions_with_shares: sessions_have_shares(),
            buffers: Buffers::default(),
            null,
            service,
            distrust: OnceLock::new(),
            unreadable: OnceLock::new(),
            unconnectable: OnceLock::new(),
            residents: Arc::default(),
            proxy: Mutex::default(),
            process: Mutex::new(process),
        };
        launcher.require(launcher.config.isolation.minimum)?;
        Ok(Arc::new(launcher))
    }

    /// The process id of the launcher of the moment, for the service's own accounting.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.hello().pid
    }

    /// Notes that a user has asked for something: commands of others that give way leave a processor free for that.
    ///
    /// Waits for nothing: not for another thread that notes someone, nor for a launcher that is being started. Then the user's next
    /// request is noted.
    pub fn note_user(&self, user: &UserId) {
        let user = self.workloads.number_of(user);
        let is_news = self.company.try_lock().is_ok_and(|mut company| company.note(user, Instant::now()));
        if is_news
            && let Ok(order) = wire::encode(&Order::<()>::Here { user })
            && let Ok(process) = self.process.try_lock()
        {
            let _ = wire::send(process.socket.as_fd(), &order, &[]);
        }
    }

    /// Lets this thread, and each that it makes from now on, leave one processor to others while other users than `user` are here, where
    /// its niceness does not count beside their commands: these are in sessions of their own, with shares of their own, and that of the
    /// service is the largest. It is for threads that work for long and end with their work.
    pub fn leave_processor_to_others(&self, user: Option<&UserId>) {
        if self.has_sessions_with_shares && self.has_others(user.map(|user| self.workloads.number_of(user))) {
            sys::step_aside(0);
        }
    }

    /// Tells whether another user than this one was here lately.
    pub(crate) fn has_others(&self, user: Option<u64>) -> bool {
        self.company.lock().unwrap_or_else(PoisonError::into_inner).has_others(user, Instant::now())
    }

    /// Sends one order with a descriptor from a thread that may wait.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EAGAIN` when the launcher stays behind.
    pub(crate) fn send_blocking(&self, order: &[u8], attached: BorrowedFd<'_>) -> io::Result<()> {
        for _ in 0..BEHIND_WAITS {
            let socket = Arc::clone(&self.process().socket);
            match wire::send(socket.as_fd(), order, &[attached]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(BEHIND_WAIT),
                sent => return sent,
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// A first process that has stayed in these surroundings.
    pub(crate) fn resident(&self, surroundings: &Surroundings) -> Option<Resident> {
        let through = Arc::clone(&self.process().socket);
        self.residents.take(surroundings, &through)
    }

    /// Tells whether runs in these surroundings follow each other.
    pub(crate) fn recur(&self, surroundings: &Surroundings) -> bool {
        self.residents.recur(surroundings)
    }

    /// Lets go of the mounts that are kept for runs to come of an attached directory of this
    /// [generation](policy::attachment::Attachment::generation), which is not 0, and waits for that: some milliseconds, a
    /// second at most.
    pub fn let_go(&self, generation: u64) {
        self.residents.let_go(generation);
    }

    /// Lets a first process that stays wait for its next run, for a while.
    pub(crate) fn keep(self: &Arc<Self>, resident: Resident) {
        if let Some(tending) = self.residents.put(resident) {
            tokio::spawn(tending.until_none_waits());
        }
    }

    /// Hands one run to the launcher, starting a new one when the old one is gone; the socket it went through.
    ///
    /// # Errors
    /// * [`Error::LauncherStart`]: a new launcher could not be started.
    /// * [`Error::Resource`]: the request could not be sent.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        request: &Request,
        descriptors: &Descriptors<BorrowedFd<'_>>,
    ) -> Result<Arc<OwnedFd>, Error> {
        let mut restarts = 0;
        let mut waits = 0;
        loop {
            let socket = Arc::clone(&self.process().socket);
            let Err(error) = wire::send_request(socket.as_fd(), request, descriptors) else {
                return Ok(socket);
            };
            match error.kind() {
                io::ErrorKind::WouldBlock if waits < BEHIND_WAITS => {
                    waits += 1;
                    tokio::time::sleep(BEHIND_WAIT).await;
                }
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
                    if restarts == 0 =>
                {
                    restarts += 1;
                    self.replace_soon(socket).await?;
                }
                _ => return Err(Error::resource("sendmsg")(error)),
            }
        }
    }

    /// Starts a new launcher if the one behind `socket` is dead, away from the runtime's own threads.
    ///
    /// # Errors
    /// [`Error::LauncherStart`]: a new launcher could not be started.
    pub(crate) async fn replace_soon(self: &Arc<Self>, socket: Arc<OwnedFd>) -> Result<(), Error> {
        let launcher = Arc::clone(self);
        tokio::task::spawn_blocking(move || launcher.replace(&socket))
            .await
            .map_err(|error| Error::LauncherStart(io::Error::other(error)))?
            .map_err(Error::LauncherStart)
    }

    /// Starts a new launcher if the one behind `gone` is dead and no other task did so already.
    ///
    /// A dying process closes its sockets a moment before it can be collected, so that moment is waited for.
    fn replace(&self, gone: &Arc<OwnedFd>) -> io::Result<()> {
        let mut process = self.process();
        if Arc::ptr_eq(&process.socket, gone) && process.is_dead_within(DYING_MS) {
            tracing::warn!(
                pid = process.hello.pid,
                "the launcher process ended, its runs with it: starting another"
            );
            let programs = self.programs();
            let plan = self.mounts().then(|| root_plan(&self.config, &programs));
            let started = Process::start(&self.config, &programs, plan, self.landlock.is_ok())?;
            if let Some(Err(reason)) = &started.hello.namespaces {
                // The former launcher granted namespaces: rather no launcher than a weaker one.
                return Err(io::Error::other(reason.clone()));
            }
            *process = started;
        }
        Ok(())
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
