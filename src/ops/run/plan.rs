//! Planning a run: policy decides, and what the command will see is worked out, before it takes a permit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egress::{Pass, Who};
use exec::{Network, NetworkOwner, RunSpec};
use policy::environment::{self, RunDirs};
use policy::{Anchors, RelPath, SkillId, TreeId, View, WorkspaceId};
use storage::{Placement, PlannedRun};

use super::changes::Watched;
use super::request::{Command, Commit, RunRequest, Skills};
use crate::ops::Service;
use crate::ops::admission::permits::Permit;
use crate::ops::error::{Error, Result};
use crate::telemetry::Context;

/// A run that policy has let through.
pub(crate) struct Planned {
    pub(super) plan: PlannedRun,
    pub(super) spec: RunSpec,
    /// Its way through the proxy, void when dropped.
    pub(super) pass: Option<Pass>,
    /// The tree whose run it is.
    pub(super) tree: TreeId,
    /// Whether what it asks of the proxy is to be told.
    pub(super) reached: bool,
    /// The trees whose changes are to be told.
    pub(super) watched: Option<Watched>,
    /// The permit of what is to be decided about later, in a run that works aside.
    pub(super) aside: Option<Permit>,
    /// The bare name of its program, and its place in the trace of its request, where it has a span.
    pub(super) traced: Option<(String, Context)>,
}

impl Service {
    /// Asks policy, works out what the command will see, and lets publications of skills that have to be copied for it pass.
    /// `longest` replaces the latest deadline of [`RunLimits`](policy::RunLimits), in milliseconds.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Invalid`] for what policy and the limits do not let through; [`Error::Unsupported`];
    /// [`Error::Storage`]; [`Error::Busy`] when a publication waits for ten seconds.
    pub(super) async fn plan(
        &self,
        id: &TreeId,
        request: RunRequest,
        longest: Option<u64>,
    ) -> Result<Planned> {
        let policy = self.policy_of(id);
        policy.as_ref().map_or(Ok(()), |policy| policy.check_readable())?;
        let mut limits = self.run_limits_of(id.agent());
        limits.timeout_ms = longest.unwrap_or(limits.timeout_ms);
        if request.stdin.as_ref().is_some_and(|stdin| stdin.len() > self.run_limits.stdin_bytes) {
            let limit = self.run_limits.stdin_bytes;
            return Err(Error::Invalid(format!("`stdin` has more than {limit} bytes: write it to a file")));
        }
        let network = self.network_for(request.network, self.network_of(id.agent()))?;
        let placement = if self.launcher.mounts() { Placement::Mounted } else { Placement::InPlace };
        if request.skills == Skills::Workspace && self.backends.get(&WorkspaceId::of(id)).is_some() {
            let message = "the workspace of this user and agent is elsewhere: run the command in it";
            return Err(Error::Unsupported(message.to_owned()));
        }
        let (id, dir, wanted) = seen_from(id, request.dir, request.skills)?;
        let id = &id;
        let skills = self.skills_of(id, wanted).await?;
        let watched = request.changes.then(|| trees(id, &skills));
        let plan = self.store.runs().plan(id, placement, &skills)?;
        let plan = if request.commit == Commit::Ask { plan.aside()? } else { plan };
        let view = plan.view().clone();
        let tree = text(&view.tree)?;
        let anchors = anchors(&view, plan.temporary(), &request.command)?;
        let own = policy.as_ref().and_then(|policy| policy.commands());
        let commands = own.map_or(&self.commands, |(commands, _)| commands);
        let checked = match &request.command {
            Command::Program { name, args } => commands.check(name, args, &anchors)?,
            Command::Shell(line) => commands.line(line, &anchors)?,
        };
        let traced = Context::current().and_then(|request| request.child());
        let traced = traced.map(|context| (request.command.program().to_owned(), context));
        let pass = self.pass(id, network)?;
        let workdir = if dir.is_root() { tree.to_owned() } else { format!("{tree}/{dir}") };
        let dirs = RunDirs {
            tree,
            dir: &workdir,
            home: text(&view.scratch)?,
            tmp: text(plan.temporary())?,
            programs: &self.search_path,
            system_is_writable: view.owner.is_none() && rustix::process::geteuid().is_root(),
        };
        let environment = self.environment_of(dirs, request.env.into_iter().collect(), pass.as_ref())?;
        let spec = RunSpec {
            attachments: Vec::new(),
            leases: Vec::new(),
            recurs: false,
            allowed: own.map(|(_, allowed)| Arc::clone(allowed)),
            program: checked.program,
            arguments: checked.args,
            environment,
            directory: dir,
            stdin: request.stdin,
            timeout: limits.deadline(request.timeout_ms),
            spent: Duration::ZERO,
            limits,
            network,
            network_of: Some(NetworkOwner { user: id.user().clone(), agent: id.agent().clone() }),
            minimum: request.isolation,
            encoding: request.encoding,
            halt: None,
            view,
        };
        // Before the run takes a permit, which others would wait for meanwhile.
        self.let_publications_pass(|| plan.awaits_publication()).await?;
        Ok(Planned {
            plan,
            spec,
            pass,
            tree: id.clone(),
            reached: request.reached,
            watched,
            aside: None,
            traced,
        })
    }

    /// The variables of a run: those of its directories and the configuration, the requested ones, and those of the proxy,
    /// which no request replaces.
    fn environment_of(
        &self,
        dirs: RunDirs<'_>,
        requested: Vec<(String, String)>,
        pass: Option<&Pass>,
    ) -> Result<Vec<(String, String)>> {
        let most = self.run_limits.arguments_bytes;
        let mut environment = environment::build(dirs, &self.environment, &requested, most)?;
        if let Some(pass) = pass {
            let proxy = pass.environment();
            environment.retain(|(name, _)| proxy.iter().all(|(own, _)| own != name));
            environment.extend(proxy);
        }
        Ok(environment)
    }

    /// A request may ask for less network than `most`, which is configured for its agent, never for more.
    fn network_for(&self, requested: Option<Network>, most: Network) -> Result<Network> {
        match requested {
            Some(more) if more > most && more <= self.network => {
                let (more, most) = (word(more), word(most));
                Err(Error::Unsupported(format!(
                    "network `{more}` is not for this agent: leave `network` out for `{most}`, or ask the operator to change \
                     the agent's policy"
                )))
            }
            Some(more) if more > most => {
                let (more, most) = (word(more), word(most));
                Err(Error::Unsupported(format!(
                    "network `{more}` is not enabled here: leave `network` out for `{most}`, or ask the operator to \
                     set `commands.network = \"{more}\"`"
                )))
            }
            // The proxy is no less than the host's network where it cannot be reached.
            Some(Network::Proxy) if let Some(reason) = self.launcher.without_proxy() => {
                Err(exec::Error::NoProxy { reason }.into())
            }
            requested => Ok(requested.unwrap_or(most)),
        }
    }

    pub(super) async fn skills_of(&self, id: &TreeId, wanted: Skills) -> Result<Vec<SkillId>> {
        match wanted {
            Skills::None | Skills::Workspace => Ok(Vec::new()),
            Skills::Named(skills) => Ok(skills),
            Skills::All => self.skill_ids(id.user().clone(), id.agent().clone()).await,
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

/// The tree that a run stands in, its working directory there, and the skills that it sees: a run of a skill that is to see
/// the workspace stands in the workspace, in the directory of that skill.
fn seen_from(id: &TreeId, dir: RelPath, wanted: Skills) -> Result<(TreeId, RelPath, Skills)> {
    match (id, wanted) {
        (TreeId::Skill(user, agent, skill), Skills::Workspace) => {
            let place = format!("skills/{skill}");
            let place = if dir.is_root() { place } else { format!("{place}/{dir}") };
            let workspace = TreeId::Workspace(user.clone(), agent.clone());
            Ok((workspace, RelPath::parse(&place)?, Skills::Named(vec![skill.clone()])))
        }
        (id, wanted) => Ok((id.clone(), dir, wanted)),
    }
}

/// The trees that a run may change, each with the beginning that its paths get.
fn trees(id: &TreeId, skills: &[SkillId]) -> Watched {
    let skill = |skill: &SkillId| {
        let tree = TreeId::Skill(id.user().clone(), id.agent().clone(), skill.clone());
        (format!("skills/{skill}/"), tree)
    };
    std::iter::once((String::new(), id.clone())).chain(skills.iter().map(skill)).collect()
}

/// The spellings of the tree's directory that arguments may have. A line for the shell may name temporary files, too.
fn anchors(view: &View, temporary: &Path, command: &Command) -> Result<Anchors> {
    let mut aliases = vec![view.sandbox_path.clone()];
    for alias in &view.aliases {
        aliases.push(text(alias)?.to_owned());
    }
    let temporary = match command {
        Command::Shell(_) => Some(text(temporary)?.to_owned()),
        Command::Program { .. } => None,
    };
    Ok(Anchors { inside: text(&view.tree)?.to_owned(), aliases, temporary })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::Unsupported("commands need a data directory whose path is UTF-8".to_owned()))
}

/// A network mode as requests and configuration spell it.
pub(in crate::ops) fn word(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Proxy => "proxy",
        Network::Host => "host",
    }
}
