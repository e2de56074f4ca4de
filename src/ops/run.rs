//! Running a command: policy decides, storage prepares the view, exec runs, storage takes in the difference.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`id`], [`table`], [`record`] | runs that have a name, and what can be done with them by it |
//! | [`session`] | how such a run begins, and its task |
//! | [`changes`] | which files a run made, changed and removed |
//! | [`event`], [`log`], [`budget`] | what it did, event by event, on a bounded part of the disk |

mod budget;
pub mod changes;
pub mod event;
pub mod id;
mod log;
pub mod record;
pub mod session;
pub mod table;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exec::{Encoding, ExecResult, Limit, Live, Network, RunSpec, Tier};
use policy::environment::{self, Places};
use policy::{Anchors, RelPath, SkillId, TreeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use storage::{Absorbed, Placement, PlannedRun, PreparedRun};

use self::changes::{Changes, Watched};
use super::error::{Error, Result};
use super::places::Place;
use super::{Service, blocking};
use crate::egress::{Pass, Who};

/// Longest command that listings show, in characters.
const SHOWN_CHARACTERS: usize = 200;
/// What of a result is output, which streams have told already.
const OUTPUT: [&str; 7] =
    ["stdout", "stderr", "output", "stdout_base64", "stderr_base64", "truncated", "dropped_bytes"];

/// What to run.
#[derive(Clone, Debug, Hash)]
pub enum Command {
    /// A program and its arguments.
    Program {
        /// Its bare name.
        name: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A line for `bash -c`.
    Shell(String),
}

/// Which skills a command of a workspace sees, at `/workspace/skills/<id>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Skills {
    /// None.
    #[default]
    None,
    /// All that the user has.
    All,
    /// These.
    Named(Vec<SkillId>),
}

/// A run as a caller asks for it.
#[derive(Clone, Debug, Hash)]
pub struct RunRequest {
    /// What to run.
    pub command: Command,
    /// Working directory in the tree; the tree itself when empty.
    pub dir: RelPath,
    /// Further variables.
    pub env: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: Option<Vec<u8>>,
    /// Deadline in milliseconds; never later than the configured one.
    pub timeout_ms: Option<u64>,
    /// Weakest confinement that will do.
    pub isolation: Option<Tier>,
    /// Skills that a command of the workspace sees besides.
    pub skills: Skills,
    /// What the command may reach; never more than configured.
    pub network: Option<Network>,
    /// Whether the result also carries raw bytes.
    pub encoding: Encoding,
    /// Whether the outcome tells which files it changed.
    pub changes: bool,
}

/// What a run did.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// How the command ended.
    pub result: ExecResult,
    /// What it changed in a merged view.
    pub absorbed: Absorbed,
    /// Which files it changed, when that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// A run that policy has let through.
pub(crate) struct Planned {
    plan: PlannedRun,
    spec: RunSpec,
    /// Its way through the proxy, void when dropped.
    pass: Option<Pass>,
    /// The trees whose changes are to be told.
    watched: Option<Watched>,
}

/// What tells one request from another, so that the same one sent twice is the same run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Feeds what a value hashes into a digest.
#[derive(Default)]
struct Digesting(Sha256);

impl Hasher for Digesting {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // nobody asks: the digest is taken instead
    }
}

impl Fingerprint {
    fn of(request: &RunRequest, recording: &session::Recording) -> Self {
        let mut digest = Digesting::default();
        request.hash(&mut digest);
        (recording.stdin_open, recording.purpose == record::Purpose::Background).hash(&mut digest);
        Self(digest.0.finalize().into())
    }
}

impl Command {
    /// The command for people, shortened.
    fn shown(&self) -> String {
        let whole = match self {
            Self::Program { name, args } => {
                std::iter::once(name).chain(args).fold(String::new(), |mut line, word| {
                    if line.len() < 4 * SHOWN_CHARACTERS {
                        line.push_str(if line.is_empty() { "" } else { " " });
                        line.push_str(word);
                    }
                    line
                })
            }
            Self::Shell(line) => line.clone(),
        };
        whole.chars().take(SHOWN_CHARACTERS).collect()
    }
}

impl RunOutcome {
    /// Everything but the output, as one object.
    fn without_output(&self) -> Value {
        let mut value = serde_json::to_value(&self.result).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            for name in OUTPUT {
                fields.remove(name);
            }
            if let Some(changes) = &self.changes {
                fields.insert("changes".to_owned(), serde_json::to_value(changes).unwrap_or_default());
            }
            if self.absorbed != Absorbed::default() {
                fields
                    .insert("absorbed".to_owned(), serde_json::to_value(&self.absorbed).unwrap_or_default());
            }
        }
        value
    }
}

impl Service {
    /// Runs a command in a tree and waits for its end.
    ///
    /// The run goes on when the caller goes away, because what it does to the tree must be taken in.
    ///
    /// # Errors
    /// [`Error::Refused`] when policy says no; [`Error::Busy`]; [`Error::Stopping`]; [`Error::Storage`] when the
    /// view cannot be made or taken in; [`Error::Exec`].
    pub async fn run(self: &Arc<Self>, id: TreeId, request: RunRequest) -> Result<RunOutcome> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopping);
        }
        let planned = self.plan(&id, request, None).await?;
        let place = self.places.take(id.user()).await?;
        let service = Arc::clone(self);
        let run = self.runs.spawn(async move { service.run_planned(place, planned, None).await });
        run.await.map_err(|_| Error::Panicked)?
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
        let pass = self.pass(id, network)?;
        if let Some(pass) = &pass {
            let proxy = pass.environment();
            environment.retain(|(name, _)| proxy.iter().all(|(own, _)| own != name));
            environment.extend(proxy);
        }
        let spec = RunSpec {
            attachments: Vec::new(),
            leases: Vec::new(),
            program: checked.program,
            arguments: checked.args,
            environment,
            directory: request.dir,
            stdin: request.stdin,
            timeout: limits.deadline(request.timeout_ms),
            limits,
            network,
            minimum: request.isolation,
            encoding: request.encoding,
            halt: None,
            view,
        };
        Ok(Planned { plan, spec, pass, watched })
    }

    async fn run_planned(&self, place: Place, planned: Planned, live: Option<Live>) -> Result<RunOutcome> {
        let outcome = self.carry_out(place, planned, live).await;
        match &outcome {
            Ok(outcome) => self.metrics.ran(&outcome.result),
            Err(_) => self.metrics.ran_without_result(),
        }
        outcome
    }

    async fn carry_out(&self, place: Place, planned: Planned, live: Option<Live>) -> Result<RunOutcome> {
        let Planned { plan, mut spec, pass, watched } = planned;
        let (prepared, gauges);
        (prepared, gauges, spec.attachments, spec.leases) = if self.launcher.mounts() {
            blocking(move || {
                let prepared = plan.prepare()?;
                let gauges = prepared.gauges()?;
                let attachments = prepared.attachments()?.into_iter().map(attachment).collect();
                let leases = prepared.leases()?.into_iter().map(Arc::new).collect();
                Ok((prepared, gauges, attachments, leases))
            })
            .await?
        } else {
            blocking(move || {
                let prepared = plan.prepare()?;
                let gauges = prepared.gauges()?;
                Ok((prepared, gauges, Vec::new(), Vec::new()))
            })
            .await?
        };
        // Through the same door as afterwards: what the run sees is there by now.
        let before = match &watched {
            Some(trees) => Some(changes::look(&self.store, trees).await?),
            None => None,
        };
        let watching = self.disk.watch(gauges);
        spec.halt = Some(watching.halt.clone());
        let result = tokio::select! {
            result = self.launch(spec, live) => Some(result),
            () = self.stop.cancelled() => None,
        };
        drop(watching);
        drop(pass);
        let outcome = match result {
            // The dropped run kills its processes, which may be at it for a moment yet: nothing is taken in.
            None => Err(Error::Stopping),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(mut result)) if prepared.is_copy() => {
                let (absorbed, prepared) = blocking(move || Ok((prepared.absorb()?, prepared))).await?;
                let changes = self.changes(watched, before).await?;
                clean_up(place, prepared);
                if let Some(reason) = &absorbed.refused {
                    result.limit = Some(Limit::Disk);
                    result.hint =
                        Some(format!("nothing that the run changed in the skill was kept: {reason}"));
                }
                return Ok(RunOutcome { result, absorbed, changes });
            }
            Some(Ok(result)) => {
                let changes = self.changes(watched, before).await?;
                Ok(RunOutcome { result, absorbed: Absorbed::default(), changes })
            }
        };
        clean_up(place, prepared);
        outcome
    }

    /// Looks again, where it was looked before.
    async fn changes(
        &self,
        watched: Option<Watched>,
        before: Option<Result<changes::Snapshot, String>>,
    ) -> Result<Option<Changes>> {
        let (Some(trees), Some(before)) = (watched, before) else { return Ok(None) };
        let after = changes::look(&self.store, &trees).await?;
        Ok(Some(changes::compare(&trees, before, after)))
    }

    async fn launch(&self, spec: RunSpec, live: Option<Live>) -> Result<ExecResult, exec::Error> {
        match live {
            None => self.launcher.run(spec).await,
            Some(live) => self.launcher.run_live(spec, live).await,
        }
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
                let (store, user, agent) = (self.store.clone(), id.user().clone(), id.agent().clone());
                let skills = blocking(move || Ok(store.skills(&user, &agent)?)).await?;
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

/// Hands a directory of the one crate to the other.
fn attachment(from: storage::Attachment) -> exec::Attachment {
    exec::Attachment {
        at: from.at,
        directory: Arc::new(from.directory),
        role: match from.role {
            storage::Role::Tree => exec::Role::Tree,
            storage::Role::Skill => exec::Role::Skill,
            storage::Role::Home => exec::Role::Home,
            storage::Role::Temporary => exec::Role::Temporary,
        },
        generation: from.generation,
    }
}

/// Removes what was made for a run while the answer is on its way. The place is free only afterwards, so that no
/// more than a bounded number of runs wait to be cleaned up.
fn clean_up(place: Place, prepared: PreparedRun) {
    tokio::task::spawn_blocking(move || {
        drop(prepared);
        drop(place);
    });
}
