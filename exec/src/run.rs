//! One run from its description to its result.
//!
//! The service makes the pipes and a socket of the run's own, hands their far ends to the launcher, and then only
//! waits: for output, for the launcher's reports, for the deadline. It never waits for the end of a pipe, which a
//! forgotten grandchild may hold open for ever.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use policy::{RelPath, RunLimits, View};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use crate::enforcement::Circumstances;
use crate::error::Error;
use crate::hint;
use crate::launcher::{Buffers, Launcher, packet_sockets};
use crate::output::{Capture, Stream};
use crate::programs::shorten;
use crate::result::{Encoding, Ending, ExecResult};
use crate::sys;
use crate::tier::{Network, Tier};
use crate::walls::open_path;
use crate::wire::{self, Ceilings, Descriptors, KILL, Reach, Report, Request};

/// How long pipes are read after the main process is gone.
const DRAIN: Duration = Duration::from_millis(100);
/// How long the launcher may take to end a run before it is answered without.
const KILL_WAIT: Duration = Duration::from_millis(500);
/// Size of a pipe whose writer fills it, in bytes; the system's default is 64 KiB (pipe(7)).
const WIDE_PIPE_BYTES: i32 = 512 * 1024;

/// One command to run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The tree it runs in.
    pub view: View,
    /// The program's bare name, which the whitelist must have.
    pub program: String,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// The whole environment; nothing is added.
    pub environment: Vec<(String, String)>,
    /// The working directory, inside the tree.
    pub directory: RelPath,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// The deadline, counted from the call.
    pub timeout: Duration,
    /// Limits on resources and output.
    pub limits: RunLimits,
    /// What it may reach over the network.
    pub network: Network,
    /// A floor above the configured one.
    pub minimum: Option<Tier>,
    /// Whether the result also carries raw bytes.
    pub encoding: Encoding,
}

impl RunSpec {
    /// A run of `program` in `view` with no arguments, environment or input, default limits and no network.
    #[must_use]
    pub fn new(view: View, program: impl Into<String>) -> Self {
        let limits = RunLimits::default();
        Self {
            view,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: RelPath::root(),
            stdin: None,
            timeout: limits.deadline(None),
            limits,
            network: Network::None,
            minimum: None,
            encoding: Encoding::Text,
        }
    }
}

impl Launcher {
    /// Runs one command and waits for its end, its deadline, or the death of the launcher.
    ///
    /// A command that fails, is killed or times out is a result. When the future is dropped, the whole tree of
    /// processes is killed.
    ///
    /// # Errors
    /// * [`Error::Unsupported`], [`Error::Identity`]: the host does not grant what is demanded.
    /// * [`Error::ProgramNotAllowed`], [`Error::ProgramMissing`]: the program may not or cannot run.
    /// * [`Error::TooLarge`], [`Error::Unpassable`]: input or arguments that cannot be handed over.
    /// * [`Error::Tree`], [`Error::Directory`]: the tree or the working directory cannot be opened.
    /// * [`Error::Step`]: confining the new process failed; the program did not start.
    /// * [`Error::LauncherStart`], [`Error::LauncherDied`], [`Error::Walls`], [`Error::Resource`]: the host failed.
    pub async fn run(self: &Arc<Self>, mut spec: RunSpec) -> Result<ExecResult, Error> {
        let began = Instant::now();
        check(&spec)?;
        let floor = self.config.isolation.minimum;
        self.require(spec.minimum.map_or(floor, |minimum| minimum.max(floor)))?;
        let identity = self.identity(spec.view.owner)?;
        let request = self.request(&spec, identity)?;
        let stdin = spec.stdin.take();
        let (ours, reports) = self.launch(&spec, stdin, &request).await?;
        let mut capture = Capture::new(spec.limits.output_bytes);
        let deadline = tokio::time::Instant::from_std(began + spec.timeout);
        let mut watch = Watch::new(ours, reports, deadline, self.buffers.lend())?;
        let watched = watch.until_ended(&mut capture).await;
        self.buffers.take_back(std::mem::take(&mut watch.buffer));
        let ending = watched?;
        let enforcement = self.enforcement(Circumstances {
            own_uid: identity.is_some(),
            reach: watch.reach,
            network: spec.network,
        });
        let exit_code = ending.code.unwrap_or(-1);
        let hint = match capture.total(Stream::Err) {
            0 => None,
            _ => hint::of(&self.programs, exit_code, &capture.end(Stream::Err, hint::LOOK_BYTES)),
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(ExecResult::new(&capture, ending, spec.encoding, duration_ms, enforcement, hint))
    }

    /// The uid a run takes; `None` keeps the service's.
    fn identity(&self, owner: Option<u32>) -> Result<Option<u32>, Error> {
        match owner {
            Some(uid) if uid == self.service.uid => Ok(None),
            Some(uid) if !self.hello().can_change_identity => Err(Error::Identity { uid }),
            other => Ok(other),
        }
    }

    fn request(&self, spec: &RunSpec, identity: Option<u32>) -> Result<Request, Error> {
        let program = self.programs.file(&spec.program)?.to_path_buf();
        let limits = &spec.limits;
        let mut arguments = Vec::with_capacity(spec.arguments.len() + 1);
        arguments.push(spec.program.clone());
        arguments.extend_from_slice(&spec.arguments);
        let others = match identity {
            Some(_) => 0,
            None => self.census.of(self.service.uid),
        };
        Ok(Request {
            program,
            arguments,
            environment: spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            identity,
            tree: spec.view.tree.clone(),
            limits: Ceilings {
                memory_bytes: limits.memory_bytes,
                processes: limits.processes.saturating_add(others),
                cpu_seconds: limits.cpu_seconds,
                file_bytes: limits.file_bytes,
                open_files: limits.open_files,
            },
            network: spec.network,
            has_walls: self.walls.is_some(),
        })
    }

    /// Opens what the run needs and hands it over; our ends of the pipes and the run's socket.
    async fn launch(
        self: &Arc<Self>,
        spec: &RunSpec,
        stdin: Option<Vec<u8>>,
        request: &Request,
    ) -> Result<(Pipes, OwnedFd), Error> {
        let place = |path: &std::path::Path| {
            open_path(path).map_err(|source| Error::Tree { path: path.to_path_buf(), source })
        };
        let tree = place(&spec.view.tree)?;
        let scratch = place(&spec.view.scratch)?;
        let directory = enter(tree.as_fd(), &spec.directory)?;
        let walls = match &self.walls {
            Some(walls) => {
                Some(walls.ruleset(tree.as_fd(), scratch.as_fd(), spec.network).map_err(Error::Walls)?)
            }
            None => None,
        };
        let (reports, run) = packet_sockets().map_err(Error::resource("socketpair"))?;
        let (out, their_out) = pipe()?;
        let (err, their_err) = pipe()?;
        let (input, their_in) = match &stdin {
            None => (None, None),
            Some(_) => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::resource("pipe2"))?;
                ioctl_fionbio(&write, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
                (Some(write), Some(read))
            }
        };
        let descriptors = Descriptors {
            run: run.as_fd(),
            stdio: [
                their_in.as_ref().map_or(self.null.as_fd(), AsFd::as_fd),
                their_out.as_fd(),
                their_err.as_fd(),
            ],
            directory: directory.as_fd(),
            walls: walls.as_ref().map(|ruleset| ruleset.as_fd()),
        };
        self.submit(request, &descriptors).await?;
        let input = input.zip(stdin).map(|(pipe, bytes)| Input { pipe, bytes, written: 0 });
        Ok((Pipes { out, err, input }, reports))
    }
}

/// Our ends of a run's pipes.
struct Pipes {
    out: OwnedFd,
    err: OwnedFd,
    input: Option<Input>,
}

/// Standard input on its way.
struct Input<Fd = OwnedFd> {
    pipe: Fd,
    bytes: Vec<u8>,
    written: usize,
}

/// A run under way, seen from the service.
struct Watch {
    reports: AsyncFd<OwnedFd>,
    out: Option<AsyncFd<OwnedFd>>,
    err: Option<AsyncFd<OwnedFd>>,
    input: Option<Input<AsyncFd<OwnedFd>>>,
    timer: Pin<Box<Sleep>>,
    phase: Phase,
    buffer: Box<[u8]>,
    pid: Option<i32>,
    reach: Reach,
    code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
}

/// What the timer is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The deadline.
    Running,
    /// The launcher's answer to the deadline.
    Killing,
    /// The rest of the output after the main process is gone.
    Draining,
}

/// What a run did next.
enum Event {
    Report,
    Output(Stream),
    Input,
    Timer,
}

impl Watch {
    fn new(
        pipes: Pipes,
        reports: OwnedFd,
        deadline: tokio::time::Instant,
        buffer: Box<[u8]>,
    ) -> Result<Self, Error> {
        let readable = |fd| watched(fd, Interest::READABLE);
        let input = match pipes.input {
            Some(mut input) => match input.write_all_at_once() {
                true => None,
                false => Some(Input {
                    pipe: watched(input.pipe, Interest::WRITABLE)?,
                    bytes: input.bytes,
                    written: input.written,
                }),
            },
            None => None,
        };
        ioctl_fionbio(&reports, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
        Ok(Self {
            reports: readable(reports)?,
            out: Some(readable(pipes.out)?),
            err: Some(readable(pipes.err)?),
            input,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            phase: Phase::Running,
            buffer,
            pid: None,
            reach: Reach::Open,
            code: None,
            signal: None,
            timed_out: false,
        })
    }

    /// Collects output until the run has ended.
    async fn until_ended(&mut self, capture: &mut Capture) -> Result<Ending, Error> {
        loop {
            if self.phase == Phase::Draining && self.out.is_none() && self.err.is_none() {
                return Ok(self.ending());
            }
            match self.next().await {
                Event::Report => self.take_report()?,
                Event::Output(stream) => self.take_output(stream, capture),
                Event::Input => {
                    if self.input.as_mut().is_some_and(Input::write_some) {
                        self.input = None;
                    }
                }
                Event::Timer => match self.phase {
                    Phase::Running => {
                        self.timed_out = true;
                        let _ = wire::send(self.reports.as_fd(), KILL, &[]);
                        self.wait(Phase::Killing, KILL_WAIT);
                    }
                    Phase::Killing | Phase::Draining => return Ok(self.ending()),
                },
            }
        }
    }

    async fn next(&mut self) -> Event {
        // The timer first: a run that never stops writing must not hold off its deadline.
        tokio::select! {
            biased;
            () = &mut self.timer => Event::Timer,
            () = ready(Some(&self.reports), Interest::READABLE), if self.phase != Phase::Draining => Event::Report,
            () = ready(self.out.as_ref(), Interest::READABLE) => Event::Output(Stream::Out),
            () = ready(self.err.as_ref(), Interest::READABLE) => Event::Output(Stream::Err),
            () = ready(self.input.as_ref().map(|input| &input.pipe), Interest::WRITABLE) => Event::Input,
        }
    }

    fn take_report(&mut self) -> Result<(), Error> {
        let mut packet = [0; 512];
        let received =
            self.reports.try_io(Interest::READABLE, |socket| wire::receive(socket.as_fd(), &mut packet));
        let length = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // The launcher closed its end with our request to kill still unread (unix(7)); the error is told once,
            // and what it sent before is behind it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(_) => 0,
            Ok((length, _)) => length,
        };
        let Ok(report) = serde_json::from_slice(packet.get(..length).unwrap_or_default()) else {
            return Err(self.orphaned());
        };
        match report {
            Report::Started { pid } => self.pid = Some(pid),
            Report::Unreachable { reach } => self.reach = reach,
            Report::Failed { step, errno } => {
                return Err(Error::Step { step, source: io::Error::from_raw_os_error(errno) });
            }
            Report::Exited { code, signal } => {
                (self.code, self.signal) = (code, signal);
                self.input = None;
                self.wait(Phase::Draining, DRAIN);
            }
        }
        Ok(())
    }

    /// Kills what a dead launcher left behind, as far as it can be named: the main process died with its parent, so
    /// its number is free only when the whole group is gone.
    fn orphaned(&self) -> Error {
        if let Some(pid) = self.pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        Error::LauncherDied
    }

    fn take_output(&mut self, stream: Stream, capture: &mut Capture) {
        let pipe = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let Some(open) = pipe else { return };
        let buffer = &mut self.buffer;
        let read = open.try_io(Interest::READABLE, |pipe| Ok(rustix::io::read(pipe, &mut **buffer)?));
        match read {
            Ok(length) if length > 0 => {
                capture.push(stream, self.buffer.get(..length).unwrap_or_default());
                if length == Buffers::BYTES {
                    widen(open.as_fd());
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            _ => *pipe = None,
        }
    }

    fn wait(&mut self, phase: Phase, duration: Duration) {
        self.phase = phase;
        self.timer.as_mut().reset(tokio::time::Instant::now() + duration);
    }

    fn ending(&self) -> Ending {
        Ending { code: self.code, signal: self.signal, timed_out: self.timed_out }
    }
}

impl Input {
    /// Writes as much as fits; tells whether nothing is left to write.
    fn write_all_at_once(&mut self) -> bool {
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.pipe, rest) {
                Ok(length) => self.written += length,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => return true, // nobody reads any more
            }
        }
        true
    }
}

impl Input<AsyncFd<OwnedFd>> {
    /// Writes what the pipe takes; tells whether nothing is left to write.
    fn write_some(&mut self) -> bool {
        let rest = self.bytes.get(self.written..).unwrap_or_default();
        match self.pipe.try_io(Interest::WRITABLE, |pipe| Ok(rustix::io::write(pipe, rest)?)) {
            Ok(length) => self.written += length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return true,
        }
        self.written >= self.bytes.len()
    }
}

/// Gives `fd` to the runtime's event loop.
fn watched(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Error> {
    sys::watch(fd, interest).map_err(Error::resource("epoll_ctl"))
}

/// Waits until `fd` is ready, or for ever without one.
async fn ready(fd: Option<&AsyncFd<OwnedFd>>, interest: Interest) {
    match fd {
        // An error shows again, with its reason, when the descriptor is used.
        Some(fd) => drop(fd.ready(interest).await),
        None => pending().await,
    }
}

/// Checks what no process could receive, before anything is opened.
fn check(spec: &RunSpec) -> Result<(), Error> {
    let limits = &spec.limits;
    if let Some(bytes) = spec.stdin.as_ref().map(Vec::len).filter(|bytes| *bytes > limits.stdin_bytes) {
        return Err(Error::TooLarge { what: "standard input", bytes, limit: limits.stdin_bytes });
    }
    let arguments = spec.arguments.iter().map(|argument| argument.len() + 1);
    let variables = spec.environment.iter().map(|(name, value)| name.len() + value.len() + 2);
    let bytes = arguments.chain(variables).sum();
    if bytes > limits.arguments_bytes {
        let what = "command line with its environment";
        return Err(Error::TooLarge { what, bytes, limit: limits.arguments_bytes });
    }
    let bad_argument = spec.arguments.iter().find(|argument| argument.contains('\0'));
    let bad_variable = spec
        .environment
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
        .map(|(name, _)| name);
    match bad_argument.or(bad_variable) {
        Some(text) => Err(Error::Unpassable { text: shorten(text).replace('\0', "␀") }),
        None => Ok(()),
    }
}

/// Opens the working directory beneath the tree; the kernel refuses to leave it by any link.
fn enter(tree: BorrowedFd<'_>, directory: &RelPath) -> Result<OwnedFd, Error> {
    let path = if directory.is_root() { "." } else { directory.as_str() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(tree, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
        .map_err(|error| Error::Directory { directory: directory.to_string(), source: error.into() })
}

/// A pipe whose reading end does not block.
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::resource("pipe2"))?;
    ioctl_fionbio(&read, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
    Ok((read, write))
}

/// Gives a busy pipe more room; the default stays when the user's share of pipe memory is used up.
fn widen(pipe: BorrowedFd<'_>) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(WIDE_PIPE_BYTES));
}
