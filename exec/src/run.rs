//! One run from its description to its result.
//!
//! The service makes the pipes and a socket of the run's own, hands their far ends to the launcher, and then only
//! waits (see [`watch`](crate::watch)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{RelPath, RunLimits, View};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::begun::Begun;
use crate::ends::Ends;
use crate::error::Error;
use crate::launcher::{Launcher, packet_sockets};
use crate::live::Live;
use crate::mounts::{Attachment, Clones, Role};
use crate::networks::{NetworkOwner, Standing};
use crate::programs::shorten;
use crate::residents::{Resident, Surroundings};
use crate::result::{Encoding, ExecResult, Limit};
use crate::supervisor::Supervised;
use crate::tier::{Network, Tier};
use crate::walls::{Own, open_path};
use crate::wire::{self, Ceilings, Command, Descriptors, MOUNTS_MAX, Next, Place, Request, Sockets, Whole};

/// Longest deadline, whatever the limits say: beyond it the clock's own range ends.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// One command to run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The tree it runs in. In namespaces (see [`Launcher::mounts`]) [`View::tree`] and [`View::scratch`] are paths
    /// that the run sees, and `attachments` say what stands there.
    pub view: View,
    /// What a run in namespaces sees besides the minimal root; unused elsewhere.
    pub attachments: Vec<Attachment>,
    /// Descriptors that stay open as long as anything of a run in namespaces lives; unused elsewhere.
    pub leases: Vec<Arc<OwnedFd>>,
    /// Whether there may be another run that sees exactly the same, so that it pays to be ready for it.
    pub recurs: bool,
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
    /// The deadline, counted from the call; [`RunLimits::timeout_ms`] at most.
    pub timeout: Duration,
    /// Limits on resources and output.
    pub limits: RunLimits,
    /// What it may reach over the network.
    pub network: Network,
    /// Whose network namespace it lives in, where runs have some; without an owner, no other run shares it.
    pub network_of: Option<NetworkOwner>,
    /// A floor above the configured one.
    pub minimum: Option<Tier>,
    /// Whether the result also carries raw bytes.
    pub encoding: Encoding,
    /// Ends the run early, when somebody else finds that it goes beyond a limit.
    pub halt: Option<Halt>,
}

/// A way to end a run from outside: the run is killed as soon as the channel carries the limit that it goes beyond,
/// and its result says so.
pub type Halt = tokio::sync::watch::Receiver<Option<Limit>>;

impl RunSpec {
    /// A run of `program` in `view` with no arguments, environment or input, default limits and no network.
    #[must_use]
    pub fn new(view: View, program: impl Into<String>) -> Self {
        let limits = RunLimits::default();
        Self {
            view,
            attachments: Vec::new(),
            leases: Vec::new(),
            recurs: true,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: RelPath::root(),
            stdin: None,
            timeout: limits.deadline(None),
            limits,
            network: Network::None,
            network_of: None,
            minimum: None,
            encoding: Encoding::Text,
            halt: None,
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
    /// * [`Error::Networks`]: there are too many commands of too many users and agents at once.
    /// * [`Error::LauncherStart`], [`Error::LauncherDied`], [`Error::Walls`], [`Error::Resource`]: the host failed.
    pub async fn run(self: &Arc<Self>, spec: RunSpec) -> Result<ExecResult, Error> {
        self.begin(spec, None).await?.end().await
    }

    /// As [`Launcher::run`], for a caller who takes part in the run while it is under way.
    ///
    /// # Errors
    /// As [`Launcher::run`].
    pub async fn run_live(self: &Arc<Self>, spec: RunSpec, live: Live) -> Result<ExecResult, Error> {
        self.begin(spec, Some(live)).await?.end().await
    }

    /// Hands a command to the launcher, and is done: for a caller who has to leave the runtime's own threads on the way
    /// there anyhow, and can come back while the command starts.
    ///
    /// Waits only for a launcher that is behind or gone.
    ///
    /// # Errors
    /// As [`Launcher::run`], but for what happens later.
    pub async fn begin(self: &Arc<Self>, mut spec: RunSpec, mut live: Option<Live>) -> Result<Begun, Error> {
        let began = Instant::now();
        check(&spec)?;
        let floor = self.config.isolation.minimum;
        self.require(spec.minimum.map_or(floor, |minimum| minimum.max(floor)))?;
        if spec.network == Network::Proxy && !self.offers_proxy() {
            return Err(Error::NoProxy);
        }
        let identity = self.identity(spec.view.owner)?;
        let standing = self.network_of(spec.network_of.as_ref(), spec.network).await?;
        let mut request = self.request(&spec, identity)?;
        request.sockets = standing.sockets(spec.network);
        request.is_live = live.is_some();
        request.has_terminal = live.as_ref().is_some_and(|live| live.terminal.is_some());
        let surroundings = self.common(&spec, &request, &standing)?;
        request.may_stay = surroundings.as_ref().is_some_and(|surroundings| self.recur(surroundings));
        let stdin = spec.stdin.take();
        let ends = Ends::open(stdin, live.as_mut())?;
        let handed = match surroundings.as_ref().and_then(|surroundings| self.resident(surroundings)) {
            Some(resident) => self.hand_on(&spec, resident, &ends, request)?,
            None => Err(request),
        };
        let is_residents = handed.is_ok();
        let Handed { reports, through, tree, supervised } = match handed {
            Ok(handed) => handed,
            Err(request) => self.launch(&spec, &ends, request, &standing).await?,
        };
        let pipes = ends.ours;
        let has_own_uid = identity.is_some();
        let launcher = Arc::clone(self);
        Ok(Begun {
            launcher,
            spec,
            live,
            began,
            has_own_uid,
            standing,
            pipes,
            reports,
            through,
            lasting: surroundings.zip(tree),
            is_residents,
            supervised,
        })
    }

    /// What a run sees, when its first process may stay for another that sees the same.
    fn common(
        &self,
        spec: &RunSpec,
        request: &Request,
        standing: &Standing,
    ) -> Result<Option<Surroundings>, Error> {
        let Some(identity) = request.identity.filter(|_| self.mounts()) else { return Ok(None) };
        // Where a skill stands in the workspace is a directory of the workspace: whoever removes it takes the skill off.
        let may_lose = spec.attachments.iter().any(|attachment| attachment.role == Role::Skill);
        let is_apart = spec.network_of.is_none() && standing.namespace().is_some();
        if request.has_terminal || !spec.recurs || may_lose || is_apart {
            return Ok(None);
        }
        let limits = (request.limits, request.whole);
        let network = (request.sockets, standing.namespace().map(|namespace| namespace.generation()));
        Surroundings::new(identity, limits, network, request.has_walls, &spec.attachments).map(Some)
    }

    /// Gives a run to a resident. Gives the request back when the resident is gone.
    fn hand_on(
        &self,
        spec: &RunSpec,
        resident: Resident,
        ends: &Ends,
        request: Request,
    ) -> Result<Result<Handed, Request>, Error> {
        let Resident { socket, through, tree, .. } = resident;
        let directory = enter(tree.as_fd(), &spec.directory)?;
        let Request { command, deadline_ms, is_live, .. } = request;
        let next = Next { command, deadline_ms, is_live };
        match wire::send_next(socket.as_fd(), &next, ends.theirs(self.null.as_fd()), directory.as_fd()) {
            Ok(()) => Ok(Ok(Handed { reports: socket, through, tree: Some(tree), supervised: None })),
            Err(_) => Ok(Err(Request { command: next.command, ..request })),
        }
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
        let processes = match identity {
            Some(_) => limits.processes,
            // The supervisor counts.
            None if self.supervises() => u64::MAX,
            // So does the kernel.
            None if self.counts_apart() => limits.processes,
            None => limits.processes.saturating_add(self.census.of(self.service.uid)),
        };
        Ok(Request {
            command: Command {
                program,
                arguments,
                environment: spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            },
            identity,
            deadline_ms: u64::try_from(deadline(spec).as_millis()).unwrap_or(u64::MAX),
            place: Place::Host { tree: spec.view.tree.clone() },
            limits: Ceilings {
                memory_bytes: limits.memory_bytes,
                processes,
                cpu_seconds: limits.cpu_seconds,
                file_bytes: limits.file_bytes,
                open_files: limits.open_files,
            },
            whole: Whole {
                memory_bytes: limits.run_memory_bytes,
                // The first process of a mounted run is none of the user's.
                processes: limits.processes.saturating_add(u64::from(self.mounts())),
            },
            sockets: Sockets::Refused,
            has_walls: self.landlock.is_ok(),
            is_live: false,
            has_terminal: false,
            may_stay: false,
        })
    }

    /// Opens what the run needs and hands it over.
    async fn launch(
        self: &Arc<Self>,
        spec: &RunSpec,
        ends: &Ends,
        mut request: Request,
        standing: &Standing,
    ) -> Result<Handed, Error> {
        let clones = match self.mounts() {
            true => Some(Clones::of(&spec.attachments, self.config.code_in_trees)?),
            false => None,
        };
        if let Some(clones) = &clones {
            request.place = Place::Mounted { at: clones.at.clone(), leases: spec.leases.len() };
        }
        let Opened { directory, walls, own } = self.surroundings(spec, clones.as_ref())?;
        let (reports, run) = packet_sockets().map_err(Error::resource("socketpair"))?;
        let descriptors = Descriptors {
            run: run.as_fd(),
            stdio: ends.theirs(self.null.as_fd()),
            directory: directory.as_fd(),
            walls: walls.as_ref().map(|ruleset| ruleset.as_fd()),
            network: standing.namespace().map(|namespace| namespace.as_fd()),
            mounts: clones
                .as_ref()
                .map(|clones| clones.mounts.iter().map(AsFd::as_fd).collect())
                .unwrap_or_default(),
            leases: match &clones {
                Some(_) => spec.leases.iter().map(|lease| lease.as_fd()).collect(),
                None => Vec::new(),
            },
        };
        let through = self.submit(&request, &descriptors).await?;
        let tree = clones.filter(|_| request.may_stay).and_then(Clones::into_tree);
        let is_supervised = request.identity.is_none() && self.supervises();
        let processes = spec.limits.processes;
        let supervised = is_supervised.then_some(Supervised { own, processes });
        Ok(Handed { reports, through, tree, supervised })
    }
}

/// A run that was handed over.
struct Handed {
    /// Its socket.
    reports: OwnedFd,
    /// The launcher's.
    through: Arc<OwnedFd>,
    /// Its own mount of the tree, when its first process may stay.
    tree: Option<OwnedFd>,
    /// What its supervisor has to know, when it has one.
    supervised: Option<Supervised>,
}

/// What is opened for a run.
struct Opened {
    /// The working directory.
    directory: OwnedFd,
    walls: Option<Arc<OwnedFd>>,
    /// The directories of its own that are not mounted for it.
    own: Vec<OwnedFd>,
}

impl Launcher {
    /// Opens the working directory, and finds or builds the walls around what the run sees.
    fn surroundings(&self, spec: &RunSpec, clones: Option<&Clones>) -> Result<Opened, Error> {
        let has_ports = clones.is_some() || spec.network == Network::Host;
        let build = |own: &[Own<'_>]| {
            let walls = self.walls().filter(|_| self.landlock.is_ok());
            walls.map(|walls| walls.ruleset(own, has_ports).map_err(Error::Walls)).transpose()
        };
        if let Some(clones) = clones {
            let tree = clones.tree().ok_or(Error::Attachments { most: MOUNTS_MAX })?;
            // Rules on the parent hold for the temporary directory, another in every run.
            let kept = spec.attachments.iter().filter(|attachment| attachment.role != Role::Temporary);
            let own: Vec<Own<'_>> =
                kept.map(|attachment| (attachment.directory.as_fd(), attachment.generation)).collect();
            let directory = enter(tree, &spec.directory)?;
            return Ok(Opened { directory, walls: build(&own)?, own: Vec::new() });
        }
        let place =
            |path: &Path| open_path(path).map_err(|source| Error::Tree { path: path.to_path_buf(), source });
        let tree = place(&spec.view.tree)?;
        let scratch = place(&spec.view.scratch)?;
        let directory = enter(tree.as_fd(), &spec.directory)?;
        let walls = build(&[(tree.as_fd(), 0), (scratch.as_fd(), 0)])?;
        Ok(Opened { directory, walls, own: vec![tree, scratch] })
    }
}

/// How long a run may take.
pub(crate) fn deadline(spec: &RunSpec) -> Duration {
    spec.timeout.min(Duration::from_millis(spec.limits.timeout_ms)).min(LONGEST)
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
