//! Beginning a run: from its description to the hands of the launcher.
//!
//! The service makes the pipes and a socket of the run's own, hands their far ends over, and then only waits (see
//! [`watch`](super::watch)).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::hand_over::HandedOver;
use super::handle::RunHandle;
use super::live::Live;
use super::result::ExecResult;
use super::spec::{RunSpec, check, remaining};
use super::stdio::StdioPipes;
use crate::error::Error;
use crate::service::launcher::Launcher;
use crate::service::launcher::known::Bounds;
use crate::service::networks::RunNetwork;
use crate::service::residents::Surroundings;
use crate::tier::{MemoryBound, Network};
use crate::wire::{Ceilings, Command, Request, Sockets, TreeLocation, Whole};

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
    /// * [`Error::Processes`]: the other commands of the user have all processes that they may.
    /// * [`Error::Networks`]: there are too many commands of too many users and agents at once.
    /// * [`Error::LauncherStart`], [`Error::LauncherDied`], [`Error::Walls`], [`Error::Resource`]: the host failed.
    pub async fn run(self: &Arc<Self>, spec: RunSpec) -> Result<ExecResult, Error> {
        self.wait_for_turn_of(&spec).await;
        self.begin(spec, None).await?.end().await
    }

    /// As [`Launcher::run`], for a caller who takes part in the run while it is under way.
    ///
    /// # Errors
    /// As [`Launcher::run`].
    pub async fn run_live(self: &Arc<Self>, spec: RunSpec, live: Live) -> Result<ExecResult, Error> {
        self.wait_for_turn_of(&spec).await;
        self.begin(spec, Some(live)).await?.end().await
    }

    /// Waits until the command may begin among others of its user, while another user is there: a second at most, or ten after short
    /// commands that wrote much to the disk. No thread waits with it.
    pub async fn wait_for_turn_of(&self, spec: &RunSpec) {
        let Some(owner) = &spec.network_of else { return };
        if self.has_others(Some(self.workloads.number_of(&owner.user))) {
            let wait = self.workloads.turn(&owner.user);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Hands a command to the launcher, and is done: for a caller who has to leave the runtime's own threads on the way
    /// there anyhow, and can come back while the command starts. Such a caller has [waited](Launcher::wait_for_turn_of) for the
    /// command's turn before.
    ///
    /// Waits only for a launcher that is behind or gone.
    ///
    /// # Errors
    /// As [`Launcher::run`], but for what happens later.
    pub async fn begin(
        self: &Arc<Self>,
        mut spec: RunSpec,
        mut live: Option<Live>,
    ) -> Result<RunHandle, Error> {
        let began = Instant::now();
        check(&spec)?;
        let floor = self.config.isolation.minimum;
        self.require(spec.minimum.map_or(floor, |minimum| minimum.max(floor)))?;
        if spec.network == Network::Proxy
            && let Some(reason) = self.without_proxy()
        {
            return Err(Error::NoProxy { reason });
        }
        let identity = self.identity(spec.view.owner)?;
        let mut bounds = self.bounds(spec.allowed.as_ref());
        let run_network = self.network_of(spec.network_of.as_ref(), spec.network).await?;
        let mut request = self.request(&spec, identity, &mut bounds)?;
        request.sockets = run_network.sockets(spec.network, self.unconnected().is_none());
        let user = spec.network_of.as_ref().map(|owner| &owner.user);
        let others = self.has_others(user.map(|user| self.workloads.number_of(user)));
        let rate = if others { spec.limits.write_bytes_per_second } else { 0 };
        let mut working = self.workloads.begin(user, rate);
        request.gives_way = working.gives_way();
        if let Some(user) = user {
            self.note_user(user);
            request.user = Some(self.workloads.number_of(user));
        }
        request.is_aside = request.gives_way && others;
        request.is_live = live.is_some();
        request.has_terminal = live.as_ref().is_some_and(|live| live.terminal.is_some());
        let surroundings = self.common(&spec, &request, &run_network, &bounds)?;
        request.may_stay = surroundings.as_ref().is_some_and(|surroundings| self.recur(surroundings));
        let stdin = spec.stdin.take();
        let stdio = StdioPipes::open(stdin, live.as_mut())?;
        let handed_over = match surroundings.as_ref().and_then(|surroundings| self.resident(surroundings)) {
            Some(resident) => self.hand_on(&spec, resident, &stdio, request)?,
            None => Err(request),
        };
        let is_residents = handed_over.is_ok();
        let HandedOver { reports, through, mounts, supervised } = match handed_over {
            Ok(handed_over) => handed_over,
            Err(request) => {
                let work = working.of_service();
                self.launch(&spec, &stdio, request, &run_network, &bounds, work).await?
            }
        };
        working.hand_over();
        let pipes = stdio.ours;
        let has_own_uid = identity.is_some();
        let launcher = Arc::clone(self);
        Ok(RunHandle {
            launcher,
            spec,
            live,
            began,
            working,
            has_own_uid,
            run_network,
            pipes,
            reports,
            through,
            lasting: surroundings.zip(mounts),
            is_residents,
            supervised,
            bounds,
        })
    }

    /// The surroundings of a run, when its first process may stay for another run with the same.
    fn common(
        &self,
        spec: &RunSpec,
        request: &Request,
        run_network: &RunNetwork,
        bounds: &Bounds,
    ) -> Result<Option<Surroundings>, Error> {
        let Some(identity) = request.identity.filter(|_| self.mounts()) else { return Ok(None) };
        let is_apart = spec.network_of.is_none() && run_network.namespace().is_some();
        if request.has_terminal || !spec.recurs || is_apart {
            return Ok(None);
        }
        let limits = (request.limits, request.whole);
        let network = (request.sockets, run_network.namespace().map(|namespace| namespace.generation()));
        let walls = request.has_walls.then_some(bounds.generation);
        let mut surroundings = Surroundings::new(identity, limits, network, walls, &spec.attachments)?;
        surroundings.is_aside = request.is_aside;
        Ok(Some(surroundings))
    }

    /// The uid a run takes; `None` keeps the service's.
    pub(super) fn identity(&self, owner: Option<u32>) -> Result<Option<u32>, Error> {
        match owner {
            Some(uid) if uid == self.service.uid => Ok(None),
            Some(uid) if !self.hello().can_change_identity => Err(Error::Identity { uid }),
            other => Ok(other),
        }
    }

    /// The file of a program; one that was installed since the last look is found.
    fn program_file(&self, spec: &RunSpec, bounds: &mut Arc<Bounds>) -> Result<PathBuf, Error> {
        let (name, allowed) = (spec.program.as_str(), spec.allowed.as_ref());
        match bounds.programs.file(name) {
            Err(Error::ProgramMissing { .. }) if self.programs_are_others(allowed, &bounds.programs) => {
                *bounds = self.bounds(allowed);
                Ok(bounds.programs.file(name)?.to_path_buf())
            }
            file => Ok(file?.to_path_buf()),
        }
    }

    fn request(
        &self,
        spec: &RunSpec,
        identity: Option<u32>,
        bounds: &mut Arc<Bounds>,
    ) -> Result<Request, Error> {
        let program = self.program_file(spec, bounds)?;
        let limits = &spec.limits;
        let mut arguments = Vec::with_capacity(spec.arguments.len() + 1);
        arguments.push(spec.program.clone());
        arguments.extend_from_slice(&spec.arguments);
        let processes = match identity {
            Some(_) => limits.processes,
            // The supervisor counts the processes of the run.
            None if self.supervises() => u64::MAX,
            // The kernel counts them in the run's user namespace.
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
            deadline_ms: u64::try_from(remaining(spec).as_millis()).unwrap_or(u64::MAX),
            place: TreeLocation::Host { tree: spec.view.tree.clone() },
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
                write_bytes_per_second: limits.write_bytes_per_second,
            },
            sockets: Sockets::Refused,
            has_walls: self.landlock.is_ok(),
            has_memory_files: bounds.code_in_trees,
            is_live: false,
            has_terminal: false,
            may_stay: false,
            is_watched: self.hello().memory.0 != MemoryBound::EachProcess,
            gives_way: false,
            is_aside: false,
            user: None,
        })
    }
}
