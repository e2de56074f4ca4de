//! Running a command: policy decides, storage prepares the view, exec runs, storage takes in the difference.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`request`], [`fingerprint`] | what is asked for, and whether it is the same as before |
//! | [`id`], [`table`], [`record`] | runs that have a name, and what can be done with them by it |
//! | [`under_way`] | which sandboxes have how many runs, named or not |
//! | [`session`] | how such a run begins, and its task |
//! | [`remote`], [`confined`] | one that a remote backend makes, and what is said of the walls around a run |
//! | [`attended`] | one that ends with the caller that waits for it |
//! | [`pending`] | what a run did aside, until a caller decides about it |
//! | [`changes`] | which files a run made, changed and removed |
//! | [`event`], [`log`], [`ring`], [`budget`] | what it did, event by event, on a bounded part of the disk |

mod attended;
mod budget;
pub mod changes;
pub mod confined;
mod decide;
pub mod event;
mod fingerprint;
pub mod id;
mod log;
pub mod pending;
pub mod record;
mod remote;
mod request;
mod ring;
pub mod session;
pub mod table;
pub mod under_way;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exec::{ExecResult, Limit, Live, Network, NetworkOwner, RunSpec};
use policy::environment::{self, Places};
use policy::{Anchors, SkillId, TreeId};
use storage::{Absorbed, Placement, PlannedRun, PreparedRun};
use tokio::runtime::Handle;

use self::changes::{Changes, Watched};
use self::confined::Confined;
use self::fingerprint::Fingerprint;
use self::pending::Pending;
pub use self::request::{Command, Commit, RunOutcome, RunRequest, Skills};
use super::error::{Error, Result};
use super::places::Place;
use super::remote::Backend;
use super::{Service, blocking};
use crate::metrics::Outcome;
use crate::telemetry::Context;
use crate::telemetry::span::{Begun, Run};
use egress::{Pass, Who};

/// A run that policy has let through.
pub(crate) struct Planned {
    plan: PlannedRun,
    spec: RunSpec,
    /// Its way through the proxy, void when dropped.
    pass: Option<Pass>,
    /// The trees whose changes are to be told.
    watched: Option<Watched>,
    /// The place of what is to be decided about later, in a run that works aside.
    aside: Option<Place>,
    /// The bare name of its program, and its place in the trace of its request, where it has a span.
    traced: Option<(String, Context)>,
}

impl Service {
    /// Commands under way, and requests that wait for a place to run one: attended or in the background, in terminals, and
    /// elsewhere.
    #[must_use]
    pub fn commands(&self) -> (usize, usize) {
        let all = [&self.places, &self.background, &self.terminals, &self.backends.places];
        (all.iter().map(|places| places.taken()).sum(), all.iter().map(|places| places.waiting()).sum())
    }

    /// Runs a command in a tree and waits for its end. With `backend`, that answers for the workspace.
    ///
    /// The run goes on when the caller goes away, because what it does to the tree must be taken in.
    ///
    /// # Errors
    /// [`Error::Refused`] when policy says no; [`Error::Busy`]; [`Error::Stopping`]; [`Error::Storage`] when the
    /// view cannot be made or taken in; [`Error::Exec`]; [`Error::Remote`].
    pub async fn run(
        self: &Arc<Self>,
        id: TreeId,
        backend: Option<Arc<Backend>>,
        request: RunRequest,
    ) -> Result<RunOutcome> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopping);
        }
        if let Some(backend) = backend {
            return self.run_remotely(id, backend, request).await;
        }
        let planned = self.plan(&id, request, None).await?;
        let place = self.places.take(id.user()).await?;
        let service = Arc::clone(self);
        let run = self.runs.spawn(async move { service.run_planned(place, planned, None).await });
        let (outcome, _) = run.await.map_err(|_| Error::Panicked)??;
        Ok(outcome)
    }

    /// Asks policy, and works out what the command will see. `longest` replaces the latest deadline of
    /// [`RunLimits`](policy::RunLimits), in milliseconds.
    async fn plan(&self, id: &TreeId, request: RunRequest, longest: Option<u64>) -> Result<Planned> {
        let mut limits = self.run_limits.clone();
        limits.timeout_ms = longest.unwrap_or(limits.timeout_ms);
        if request.stdin.as_ref().is_some_and(|stdin| stdin.len() > self.run_limits.stdin_bytes) {
            let limit = self.run_limits.stdin_bytes;
            return Err(Error::Invalid(format!("`stdin` has more than {limit} bytes: write it to a file")));
        }
        let network = self.network_for(request.network)?;
        let placement = if self.launcher.mounts() { Placement::Mounted } else { Placement::InPlace };
        let skills = self.skills_of(id, request.skills).await?;
        let watched = request.changes.then(|| {
            let skill = |skill: &SkillId| {
                let tree = TreeId::Skill(id.user().clone(), id.agent().clone(), skill.clone());
                (format!("skills/{skill}/"), tree)
            };
            std::iter::once((String::new(), id.clone())).chain(skills.iter().map(skill)).collect()
        });
        let plan = self.store.plan_run(id, placement, &skills)?;
        let plan = if request.commit == Commit::Ask { plan.aside()? } else { plan };
        let view = plan.view().clone();
        let text = |path: &std::path::Path| -> Result<String> {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Error::Unsupported("commands need a data directory whose path is UTF-8".to_owned())
            })
        };
        let inside = text(&view.tree)?;
        let mut aliases = vec![view.sandbox_path.clone()];
        for alias in &view.aliases {
            aliases.push(text(alias)?);
        }
        let anchors = Anchors { inside: inside.clone(), aliases };
        let checked = match &request.command {
            Command::Program { name, args } => self.commands.check(name, args, &anchors)?,
            Command::Shell(line) => self.commands.check_script(line, &anchors)?,
        };
        let working =
            if request.dir.is_root() { inside.clone() } else { format!("{inside}/{}", request.dir) };
        let places = Places {
            tree: &inside,
            dir: &working,
            home: &text(&view.scratch)?,
            tmp: &text(plan.temporary())?,
            system_is_writable: view.owner.is_none() && rustix::process::geteuid().is_root(),
        };
        let requested: Vec<(String, String)> = request.env.into_iter().collect();
        let mut environment =
            environment::build(places, &self.environment, &requested, self.run_limits.arguments_bytes)?;
        let traced = Context::current().and_then(|request| request.child());
        let traced = traced.map(|context| (request.command.program().to_owned(), context));
        let pass = self.pass(id, network)?;
        if let Some(pass) = &pass {
            let proxy = pass.environment();
            environment.retain(|(name, _)| proxy.iter().all(|(own, _)| own != name));
            environment.extend(proxy);
        }
        let spec = RunSpec {
            attachments: Vec::new(),
            leases: Vec::new(),
            recurs: false,
            program: checked.program,
            arguments: checked.args,
            environment,
            directory: request.dir,
            stdin: request.stdin,
            timeout: limits.deadline(request.timeout_ms),
            limits,
            network,
            network_of: Some(NetworkOwner { user: id.user().clone(), agent: id.agent().clone() }),
            minimum: request.isolation,
            encoding: request.encoding,
            halt: None,
            view,
        };
        Ok(Planned { plan, spec, pass, watched, aside: None, traced })
    }

    async fn run_planned(
        &self,
        place: Place,
        mut planned: Planned,
        live: Option<Live>,
    ) -> Result<(RunOutcome, Option<Pending>)> {
        let (traced, begun) = (planned.traced.take(), Begun::now());
        let ended = self.carry_out(place, planned, live).await;
        self.tell(traced, begun, ended.as_ref().ok().map(|(outcome, _)| &outcome.result));
        ended
    }

    /// Counts a run that is over, and tells of it where it has a span.
    fn tell(&self, traced: Option<(String, Context)>, begun: Begun, result: Option<&ExecResult<Confined>>) {
        match result {
            Some(result) => self.metrics.ran(result.enforcement.word(), result),
            None => self.metrics.ran_without_result(),
        }
        if let (Some(spans), Some((program, context))) = (&self.spans, traced) {
            let run = Run {
                program: &program,
                outcome: result.map_or(Outcome::Failed, Outcome::of),
                tier: result.map(|result| result.enforcement.word()),
            };
            spans.push(run.ended(&context, begun));
        }
    }

    async fn carry_out(
        &self,
        place: Place,
        planned: Planned,
        live: Option<Live>,
    ) -> Result<(RunOutcome, Option<Pending>)> {
        let Planned { plan, mut spec, pass, watched, aside, traced: _ } = planned;
        let is_terminal = live.as_ref().is_some_and(|live| live.terminal.is_some());
        // Where nothing is mounted, skills are copied.
        self.let_publications_pass(|| plan.awaits_publication()).await?;
        let entry = self.under_way.enter(plan.sandbox(), is_terminal);
        let (store, launcher, disk) =
            (self.store.clone(), Arc::clone(&self.launcher), Arc::clone(&self.disk));
        let runtime = Handle::current();
        // All of it away from the runtime, once: each thread that has to be woken costs a run a twentieth of a
        // millisecond.
        let (prepared, watched, watching, begun) = blocking(move || {
            let prepared = plan.prepare()?;
            let gauges = prepared.gauges()?;
            if launcher.mounts() {
                spec.attachments = prepared.attachments()?;
                spec.leases = prepared.leases()?.into_iter().map(Arc::new).collect();
                spec.recurs = !prepared.is_copy();
            }
            // Through the same door as afterwards: what the run sees is there by now.
            let watched = watched.map(|trees| (changes::look(&store, &trees), trees));
            let watching = disk.watch(gauges);
            spec.halt = Some(watching.halt.clone());
            let begun = runtime.block_on(launcher.begin(spec, live));
            Ok((prepared, watched, watching, begun))
        })
        .await?;
        let ended = async { begun?.end().await };
        let result = tokio::select! {
            result = ended => Ok(result.map(|result| result.confined_by(|walls| Confined::Here(walls.into())))),
            () = self.stop.cancelled() => Err(Error::Stopping),
            () = entry.stop.cancelled() => Err(Error::Removed),
        };
        drop(entry);
        drop(watching);
        drop(pass);
        let outcome = match result {
            // The dropped run kills its processes, which may be at it for a moment yet: nothing is taken in.
            Err(reason) => Err(reason),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(result)) if let Some(aside) = aside => {
                let look = blocking(move || Ok((prepared.difference()?, prepared)));
                let (difference, prepared) = look.await?;
                let changes = Some(difference.into());
                drop(place);
                let outcome = RunOutcome { result, absorbed: Absorbed::default(), changes };
                return Ok((outcome, Some(Pending::new(prepared, aside))));
            }
            Ok(Ok(mut result)) if prepared.is_copy() => {
                let (absorbed, prepared) = blocking(move || Ok((prepared.absorb()?, prepared))).await?;
                let changes = self.changes(watched).await?;
                clean_up(place, prepared);
                if let Some(reason) = &absorbed.refused {
                    result.limit = Some(Limit::Disk);
                    result.hint =
                        Some(format!("nothing that the run changed in the skill was kept: {reason}"));
                }
                if let Some(reason) = &absorbed.left_out_because {
                    let left_out = absorbed.left_out;
                    result.hint =
                        Some(format!("{left_out} changes that the run made were left out: {reason}"));
                }
                return Ok((RunOutcome { result, absorbed, changes }, None));
            }
            Ok(Ok(result)) => {
                let changes = self.changes(watched).await?;
                Ok((RunOutcome { result, absorbed: Absorbed::default(), changes }, None))
            }
        };
        clean_up(place, prepared);
        outcome
    }

    /// Looks again, where it was looked before.
    async fn changes(
        &self,
        watched: Option<(Result<changes::Snapshot, String>, Watched)>,
    ) -> Result<Option<Changes>> {
        let Some((before, trees)) = watched else { return Ok(None) };
        let store = self.store.clone();
        blocking(move || {
            let after = changes::look(&store, &trees);
            Ok(Some(changes::compare(&trees, before, after)))
        })
        .await
    }

    /// A request may ask for less network than configured, never for more.
    fn network_for(&self, requested: Option<Network>) -> Result<Network> {
        match requested {
            Some(more) if more > self.network => {
                let (more, most) = (word(more), word(self.network));
                Err(Error::Unsupported(format!(
                    "network `{more}` is not enabled here: leave `network` out for `{most}`, or ask the operator to \
                     set `commands.network = \"{more}\"`"
                )))
            }
            // The proxy is no less than the host's network where it cannot be reached.
            Some(Network::Proxy) if !self.launcher.offers_proxy() => Err(exec::Error::NoProxy.into()),
            requested => Ok(requested.unwrap_or(self.network)),
        }
    }

    async fn skills_of(&self, id: &TreeId, wanted: Skills) -> Result<Vec<SkillId>> {
        match wanted {
            Skills::None => Ok(Vec::new()),
            Skills::Named(skills) => Ok(skills),
            Skills::All => {
                let skills = self.skills(id.user().clone(), id.agent().clone()).await?;
                Ok(skills.into_iter().map(|skill| skill.id).collect())
            }
        }
    }

    /// Admits a run to the proxy, when that is its network.
    fn pass(&self, id: &TreeId, network: Network) -> Result<Option<Pass>> {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        if network != Network::Proxy {
            return Ok(None);
        }
        let run = RUNS.fetch_add(1, Ordering::Relaxed).to_string();
        let who = Who { user: id.user().clone(), agent: id.agent().clone(), run };
        let admitted = self.egress.admit(who).map_err(exec::Error::Random)?;
        Ok(Some(admitted))
    }
}

/// A network mode as requests and configuration spell it.
fn word(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Proxy => "proxy",
        Network::Host => "host",
    }
}

/// Removes what was made for a run while the answer is on its way. The place is free only afterwards, so that no
/// more than a bounded number of runs wait to be cleaned up.
fn clean_up(place: Place, prepared: PreparedRun) {
    // Before the answer: who has it may remove or replace the workspace next.
    prepared.begin_to_leave();
    tokio::task::spawn_blocking(move || {
        drop(prepared);
        drop(place);
    });
}
