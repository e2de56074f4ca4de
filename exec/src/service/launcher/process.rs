//! [`Process`]: the launcher process as the service knows it, from its start to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;

use super::config::LauncherConfig;
use crate::service::networks::maker::NetworkMaker;
use crate::supervisor::tcp_pair;
use crate::tier::MemoryBound;
use crate::walls::host_paths;
use crate::walls::landlock::Walls;
use crate::walls::programs::Programs;
use crate::wire::{self, Hello, RootPlan, Setup, packet_sockets};

/// How long a new launcher may take to say hello.
const HELLO: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// How long dropping the handle waits for the process, in milliseconds.
const FAREWELL_MS: u64 = 500;

/// The launcher process of the moment.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) hello: Hello,
    /// `None` where the kernel has no Landlock.
    pub(super) walls: Option<Arc<Walls>>,
    /// The root of mounted runs.
    root: Option<OwnedFd>,
    has_landlock: bool,
    /// Where network namespaces come from; `None` where runs have none.
    pub(super) networks: Option<Arc<NetworkMaker>>,
    /// Why runs cannot have the egress proxy.
    pub(super) no_proxy: Option<String>,
}

/// The plan of the root of mounted runs.
pub(super) fn root_plan(config: &LauncherConfig, programs: &Programs) -> RootPlan {
    let system = host_paths::BOUND.iter().map(PathBuf::from);
    let own = programs.libraries().chain(programs.executable()).map(Path::to_path_buf);
    let further = programs.search_path().iter().chain(&config.read_only).cloned();
    let further = further.chain(programs.directories().map(Path::to_path_buf));
    let mut bound: Vec<PathBuf> = Vec::new();
    for path in system.chain(own).chain(further) {
        let is_there = |path: &Path| bound.iter().any(|above| path.starts_with(above));
        let is_of_system = host_paths::BOUND.iter().any(|system| path == Path::new(system));
        if !is_of_system {
            // Through a link such as /bin the file is there already, below what the link leads to.
            if is_there(&path) || path.canonicalize().is_ok_and(|real| is_there(&real)) {
                continue;
            }
        }
        if path.is_absolute() && path.exists() {
            bound.push(path);
        }
    }
    let aliases = programs.aliases().map(|(name, file)| (name.to_owned(), file.to_path_buf())).collect();
    RootPlan { bound, aliases, proxy_port: config.proxy_port, host_network: config.host_network }
}

/// Starts the process for the strongest tier that the configuration allows and the host grants; why it is not
/// [`Tier::Namespaces`](crate::tier::Tier::Namespaces).
pub(super) fn start_best(
    config: &LauncherConfig,
    programs: &Programs,
    landlock: &Result<u32, String>,
) -> io::Result<(Process, Result<(), String>)> {
    let reason = match landlock {
        Err(reason) => reason.clone(),
        Ok(_) if let Some(reason) = &config.without_namespaces => reason.clone(),
        Ok(_) if !config.may_use_namespaces() => "the configuration's `isolation.maximum` says so".to_owned(),
        Ok(_) if !can_mount() => "the service has no CAP_SYS_ADMIN and no user namespace".to_owned(),
        Ok(_) => {
            let process = Process::start(config, programs, Some(root_plan(config, programs)), true)?;
            match &process.hello.namespaces {
                Some(Ok(_)) => return Ok((process, Ok(()))),
                Some(Err(reason)) => reason.clone(),
                None => "the launcher does not know of namespaces".to_owned(),
            }
        }
    };
    Ok((Process::start(config, programs, None, landlock.is_ok())?, Err(reason)))
}

/// Tells whether this process may mount.
fn can_mount() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

impl Process {
    /// Starts the process, tells it what to prepare, and waits for its hello.
    pub(super) fn start(
        config: &LauncherConfig,
        programs: &Programs,
        root: Option<RootPlan>,
        has_landlock: bool,
    ) -> io::Result<Self> {
        let (ours, theirs) = packet_sockets()?;
        // No user, group or `pre_exec`: each would make the standard library copy this process with `fork`, at ten
        // times the cost, instead of `posix_spawn`.
        let child = Command::new(&config.program)
            .args(&config.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let nothing = Hello {
            pid: 0,
            filter: Err(String::new()),
            can_change_identity: false,
            supervision: Err(String::new()),
            namespaces: None,
            memory: (MemoryBound::EachProcess, None),
        };
        // In its place at once, so that a launcher that does not answer is ended by `drop`.
        let mut process = Self {
            child,
            socket: Arc::new(ours),
            hello: nothing,
            walls: None,
            root: None,
            has_landlock,
            networks: None,
            no_proxy: Some("no proxy is configured".to_owned()).filter(|_| config.proxy_port.is_none()),
        };
        wire::send_message(
            process.socket.as_fd(),
            &Setup { memory_files: config.code_in_trees, root, control_groups: config.control_groups },
        )?;
        let (hello, attached) = process.receive_hello()?;
        let mut attached = attached.into_iter();
        process.root = attached.next();
        process.build_walls(config, programs);
        process.hello = hello;
        if let Some(networks) = attached.next() {
            let maker = NetworkMaker::new(networks)?;
            let failed = maker.try_out().err();
            let failed = failed.map(|error| format!("no network namespace can be made: {error}"));
            process.no_proxy = process.no_proxy.take().or(failed);
            process.networks = Some(Arc::new(maker));
        } else if process.no_proxy.is_none() {
            process.no_proxy = process.can_connect().err();
        }
        Ok(process)
    }

    /// Builds the walls of runs to come around `programs`, where the kernel has Landlock.
    pub(super) fn build_walls(&mut self, config: &LauncherConfig, programs: &Programs) {
        self.walls = self.walls_around(config, programs, config.code_in_trees);
    }

    /// Walls around `programs`, where the kernel has Landlock. With `code`, runs may execute files of their own directories.
    pub(super) fn walls_around(
        &self,
        config: &LauncherConfig,
        programs: &Programs,
        code: bool,
    ) -> Option<Arc<Walls>> {
        self.has_landlock.then(|| {
            let root = self.root.as_ref().map(AsFd::as_fd);
            Arc::new(Walls::prepare(programs, &config.read_only, root, code))
        })
    }

    /// Tells whether the service can make the connections of runs that see the host's root; why not.
    fn can_connect(&self) -> Result<(), String> {
        if self.root.is_some() {
            return Err("no network namespace can be made".to_owned());
        }
        self.hello.filter.clone()?;
        self.hello.supervision.clone()?;
        let paired = tcp_pair().map_err(|error| format!("there is no loopback interface to use: {error}"));
        paired.map(drop)
    }

    /// Waits for the end of the process and collects it.
    pub(super) fn is_dead_within(&mut self, milliseconds: u64) -> bool {
        for _ in 0..milliseconds {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn receive_hello(&self) -> io::Result<(Hello, Vec<OwnedFd>)> {
        let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut set, Some(&HELLO))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut buffer = [0; 4096];
        let (length, attached) = wire::receive(self.socket.as_fd(), &mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((wire::decode(buffer.get(..length).unwrap_or_default())?, attached))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Shut down rather than closed: a task may still hold the socket for the length of one send.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if !self.is_dead_within(FAREWELL_MS) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
