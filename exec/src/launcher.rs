//! [`Launcher`]: the service's handle on its launcher process, and all that runs share.

pub(crate) mod maker;
mod process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use policy::NetworkLimits;
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;

use self::maker::NetworkMaker;
pub(crate) use self::process::packet_sockets;
use self::process::{Process, root_plan, start_best};
use crate::census::Census;
use crate::error::Error;
use crate::networks::{Listening, Networks};
use crate::programs::{Programs, SEARCH_PATH, Whitelist};
use crate::residents::{Resident, Residents, Surroundings};
use crate::sys;
use crate::tier::{Isolation, Tier};
use crate::walls::Walls;
use crate::wire::{self, Descriptors, Hello, Namespaces, Request};

/// How often and how long a send waits for a launcher that is behind.
const BEHIND_WAIT: Duration = Duration::from_millis(1);
const BEHIND_WAITS: usize = 2_000;
/// How long a process whose socket is closed may take to be gone, in milliseconds.
const DYING_MS: u64 = 200;

/// How to start the launcher process and what its runs may do.
#[derive(Clone, Debug)]
pub struct LauncherConfig {
    /// The binary that calls [`launcher_main`](crate::launcher_main), usually `/proc/self/exe`.
    pub program: PathBuf,
    /// Its arguments: the hidden subcommand.
    pub arguments: Vec<String>,
    /// The floor.
    pub isolation: Isolation,
    /// Which programs may run.
    pub whitelist: Whitelist,
    /// Where they are looked for, in order.
    pub search_path: Vec<PathBuf>,
    /// Directories that every run may read besides the system's libraries and data.
    pub read_only: Vec<PathBuf>,
    /// Whether code is run from what runs can write to, as native parts of Python packages need it. Only runs in
    /// namespaces can be refused it.
    pub code_in_trees: bool,
    /// Why runs are to live in no namespaces although the configuration allows it: they were tried and did not hold.
    pub without_namespaces: Option<String>,
    /// Whether control groups are made for runs where the host lets them be made.
    pub control_groups: bool,
    /// The port on their loopback address at which runs in namespaces find the egress proxy; `None` without one.
    pub proxy_port: Option<u16>,
    /// How many network namespaces are kept for users and agents.
    pub networks: NetworkLimits,
}

impl LauncherConfig {
    /// The configuration of a service that is its own launcher: the default floor and search path.
    #[must_use]
    pub fn new(whitelist: Whitelist) -> Self {
        Self {
            program: "/proc/self/exe".into(),
            arguments: vec![crate::SUBCOMMAND.to_owned()],
            isolation: Isolation::default(),
            whitelist,
            search_path: SEARCH_PATH.map(PathBuf::from).to_vec(),
            read_only: Vec::new(),
            code_in_trees: true,
            without_namespaces: None,
            control_groups: true,
            proxy_port: None,
            networks: NetworkLimits::default(),
        }
    }

    fn may_use_namespaces(&self) -> bool {
        self.isolation.maximum >= Tier::Namespaces
    }
}

/// Starts runs. One for the whole service; cheap to share, safe to use from any task.
///
/// Dropping it kills all runs.
#[derive(Debug)]
pub struct Launcher {
    pub(crate) config: LauncherConfig,
    pub(crate) programs: Programs,
    pub(crate) landlock: Result<u32, String>,
    pub(crate) census: Census,
    pub(crate) buffers: Buffers,
    /// `/dev/null`, the standard input of runs that get none.
    pub(crate) null: OwnedFd,
    pub(crate) service: Service,
    /// Why runs get no namespaces of their own; `Ok` when they do.
    namespaces: Result<(), String>,
    /// The network namespaces of runs.
    pub(crate) networks: Networks,
    /// Set when a probe failed: the walls count as absent from then on, for this reason.
    distrust: OnceLock<String>,
    /// Set when a probe found that the supervisor cannot do its work: why.
    unreadable: OnceLock<String>,
    residents: Arc<Residents>,
    process: Mutex<Process>,
}

/// Who the service is.
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
        let launcher = Self {
            config,
            programs,
            namespaces,
            networks,
            landlock,
            census: Census::default(),
            buffers: Buffers::default(),
            null,
            service,
            distrust: OnceLock::new(),
            unreadable: OnceLock::new(),
            residents: Arc::default(),
            process: Mutex::new(process),
        };
        launcher.require(launcher.config.isolation.minimum)?;
        Ok(Arc::new(launcher))
    }

    /// The programs of this host that may run.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The tier this host grants.
    #[must_use]
    pub fn tier(&self) -> Tier {
        if self.shortfall().is_some() {
            return Tier::Process;
        }
        let granted = if self.namespaces.is_ok() { Tier::Namespaces } else { Tier::Landlock };
        granted.min(self.config.isolation.maximum)
    }

    /// Tells whether runs live in namespaces of their own, so that what they see must be attached to them.
    #[must_use]
    pub fn mounts(&self) -> bool {
        self.namespaces.is_ok()
    }

    /// Why runs live in no namespaces of their own; `None` when they do.
    #[must_use]
    pub fn without_namespaces(&self) -> Option<&str> {
        self.namespaces.as_ref().err().map(String::as_str)
    }

    /// Tells whether runs can use the egress proxy.
    #[must_use]
    pub fn offers_proxy(&self) -> bool {
        let process = self.process();
        process.networks.is_some() && process.no_proxy.is_none()
    }

    /// Why runs cannot use the egress proxy; `None` when they can.
    #[must_use]
    pub fn without_proxy(&self) -> Option<String> {
        self.without_namespaces().map(str::to_owned).or_else(|| self.process().no_proxy.clone())
    }

    /// The egress proxy's listener in each network namespace that has an owner, those of the moment and those to come.
    ///
    /// For one who serves them all; a second call ends the channel of the first.
    #[must_use]
    pub fn listeners(&self) -> mpsc::UnboundedReceiver<Listening> {
        self.networks.listeners()
    }

    /// Lets go of network namespaces that nobody has used for a while; to be called from time to time.
    pub fn let_idle_networks_go(&self) {
        self.networks.let_idle_go();
    }

    /// How many network namespaces are kept for users and agents.
    #[must_use]
    pub fn network_count(&self) -> usize {
        self.networks.count()
    }

    /// The process id of the launcher of the moment, for the service's own accounting.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.hello().pid
    }

    /// Why the host does not grant tier `landlock`; `None` when it does.
    pub(crate) fn shortfall(&self) -> Option<String> {
        if let Some(reason) = self.distrusted() {
            return Some(reason.to_owned());
        }
        self.landlock.clone().err().or_else(|| self.hello().filter.err())
    }

    /// Checks that the host grants `floor`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it grants less.
    pub(crate) fn require(&self, floor: Tier) -> Result<(), Error> {
        let granted = self.tier();
        if granted >= floor {
            return Ok(());
        }
        let capped = || "the configuration's `isolation.maximum` says so".to_owned();
        let reason = self.shortfall().or_else(|| self.namespaces.clone().err()).unwrap_or_else(capped);
        Err(Error::Unsupported { wanted: floor, granted, reason })
    }

    /// Why the walls count as absent although the kernel has them.
    pub(crate) fn distrusted(&self) -> Option<&str> {
        self.distrust.get().map(String::as_str)
    }

    /// Counts the walls as absent from now on, for the first reason given.
    pub(crate) fn distrust(&self, reason: String) {
        let _ = self.distrust.set(reason);
    }

    /// Why the supervisor of a run may be unable to see what a call of it is about.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.unreadable.get().map(String::as_str)
    }

    /// Notes that it is, for the first reason given.
    pub(crate) fn cannot_read(&self, reason: String) {
        let _ = self.unreadable.set(reason);
    }

    /// What the launcher of the moment can do.
    pub(crate) fn hello(&self) -> Hello {
        self.process().hello.clone()
    }

    /// Tells whether some system calls of runs that share the uid of the service are answered by the service.
    pub(crate) fn supervises(&self) -> bool {
        let hello = self.hello();
        hello.filter.is_ok() && hello.supervision.is_ok()
    }

    /// Tells whether the processes of each run are counted apart although runs share the uid of the service.
    pub(crate) fn counts_apart(&self) -> bool {
        self.offers().is_some_and(|offers| offers.counted_apart.is_ok()) && self.service.uid != 0
    }

    /// What the namespaces of runs offer; `None` where they have none.
    pub(crate) fn offers(&self) -> Option<Namespaces> {
        self.hello().namespaces.and_then(Result::ok)
    }

    /// Where network namespaces come from; `None` where runs live in no namespaces.
    pub(crate) fn network_maker(&self) -> Option<Arc<NetworkMaker>> {
        self.process().networks.clone()
    }

    /// The walls of runs; `None` where the kernel has no Landlock.
    pub(crate) fn walls(&self) -> Option<Arc<Walls>> {
        self.process().walls.clone()
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
    /// [generation](crate::Attachment::generation), which is not 0, and waits for that: some milliseconds, a second at most.
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
            tracing::warn!(pid = process.hello.pid, "the launcher process ended; starting another");
            let plan = self.mounts().then(|| root_plan(&self.config, &self.programs));
            let started = Process::start(&self.config, &self.programs, plan, self.landlock.is_ok())?;
            if let Some(Err(reason)) = &started.hello.namespaces {
                // It granted more a moment ago: rather none than a weaker one.
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

/// Read buffers, lent to runs and taken back.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// Size of each buffer, in bytes.
    pub(crate) const BYTES: usize = 64 * 1024;
    /// Buffers kept while nobody needs them.
    const IDLE_MAX: usize = 32;

    /// Lends a buffer; its contents are left over from others and never shown.
    pub(crate) fn lend(&self) -> Box<[u8]> {
        self.idle().pop().unwrap_or_else(|| vec![0; Self::BYTES].into_boxed_slice())
    }

    /// Takes a buffer back.
    pub(crate) fn take_back(&self, buffer: Box<[u8]>) {
        let mut idle = self.idle();
        if idle.len() < Self::IDLE_MAX {
            idle.push(buffer);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
