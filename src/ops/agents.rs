//! [`AgentTable`]: what holds for the runs and trees of single agents, as the configuration says or an admin has set it.
//!
//! What is set stands in the place of what the configuration says about the same agent, whole, and is kept in the data
//! directory. It holds for each run that is planned afterwards; which hosts are reached also for runs under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use exec::{Allowed, Launcher, Network, Whitelist};
use parking_lot::RwLock;
use policy::command::ScanOf;
use policy::{
    AgentId, AgentNetwork, AgentPolicy, CommandPolicy, DiskLimits, Profile, RunLimits, SessionLimits, TreeId,
    UserId,
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use storage::{Allowance, Store};

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use egress::{Egress, Hosts};

/// What holds for every agent, where its own policy does not say otherwise.
#[derive(Clone, Debug)]
pub struct Common {
    /// How far the whitelist reaches.
    pub profile: Profile,
    /// Further programs that callers may start.
    pub extra: Vec<String>,
    /// What is scanned for paths that lead out.
    pub scan: ScanOf,
    /// All arguments together, in bytes.
    pub arguments_bytes: usize,
    /// The network that runs may reach at most.
    pub network: Network,
}

/// Where the policy of an agent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// There is none: the agent is like every other.
    None,
    /// The configuration.
    Configuration,
    /// An admin has set it.
    Set,
    /// An admin has set it, and this version cannot read it: no command runs until it is set anew.
    Unreadable,
}

/// The policy of an agent, with what follows from it.
#[derive(Debug)]
pub struct InForce {
    /// As it was written.
    pub policy: AgentPolicy,
    /// Where it comes from.
    pub source: Source,
    /// Which commands may run, where those are others than with every agent.
    commands: Option<(CommandPolicy, Arc<Allowed>)>,
}

/// The policies of agents.
pub struct AgentTable {
    common: Common,
    configured: BTreeMap<AgentId, AgentPolicy>,
    in_force: RwLock<HashMap<AgentId, Arc<InForce>>>,
    /// Held while a policy is changed: what is kept and what is in force are one.
    changing: tokio::sync::Mutex<()>,
}

/// A policy as it holds now.
#[derive(Debug)]
pub struct Effective {
    /// Where it comes from.
    pub source: Source,
    /// As it was written.
    pub policy: AgentPolicy,
    /// How far the whitelist reaches.
    pub profile: Profile,
    /// The programs that callers may start.
    pub commands: Vec<String>,
    /// Those of them that this host lacks.
    pub missing: Vec<String>,
    /// The network that runs may reach at most.
    pub network: Network,
    /// Limits on runs.
    pub runs: RunLimits,
    /// Limits on runs in the background and on terminals.
    pub sessions: SessionLimits,
    /// What each tree may take.
    pub disk: DiskLimits,
}

/// A change of a policy: the digests of the one before and the one after, where there is one.
#[derive(Debug)]
pub struct Changed {
    /// Of the policy that was set before.
    pub before: Option<String>,
    /// Of the one that is set now.
    pub after: Option<String>,
    /// Where the policy that holds now comes from.
    pub source: Source,
}

impl AgentTable {
    /// The policies that the configuration says, and those that were set, which `store` has kept.
    ///
    /// # Errors
    /// Those of [`Store::agent_policies`].
    pub fn open(
        common: Common,
        configured: BTreeMap<AgentId, AgentPolicy>,
        store: &Store,
        egress: &Egress,
    ) -> storage::Result<Self> {
        let table =
            Self { common, configured, in_force: RwLock::default(), changing: tokio::sync::Mutex::default() };
        let kept = store.agent_policies()?;
        for (agent, policy) in &table.configured {
            if !kept.texts.contains_key(agent) {
                table.put(agent, policy.clone(), Source::Configuration, store, egress);
            }
        }
        for (agent, text) in &kept.texts {
            match serde_json::from_str::<AgentPolicy>(text) {
                Ok(policy) => table.put(agent, policy, Source::Set, store, egress),
                // Written by another version.
                Err(error) => {
                    tracing::error!(%agent, %error, "the policy that was set for an agent cannot be read: its commands do not run until it is set anew");
                    table.in_force.write().insert(agent.clone(), Arc::new(InForce::unreadable()));
                }
            }
        }
        Ok(table)
    }

    fn of(&self, agent: &AgentId) -> Option<Arc<InForce>> {
        self.in_force.read().get(agent).cloned()
    }

    /// Has a policy hold from now on.
    fn put(&self, agent: &AgentId, policy: AgentPolicy, source: Source, store: &Store, egress: &Egress) {
        let hosts = Hosts::new(policy.hosts.allow.as_deref(), &policy.hosts.deny);
        let hosts = match hosts {
            _ if policy.hosts.is_empty() => None,
            Ok(hosts) => Some(hosts),
            Err(error) => {
                tracing::error!(%agent, %error, "a host of an agent's policy cannot be read: its runs reach none");
                Hosts::new(Some(&["nothing.invalid".to_owned()]), &[]).ok()
            }
        };
        egress.restrict(agent, hosts);
        store.allow(agent, Allowance { bytes: policy.disk.bytes, files: policy.disk.files });
        let commands = policy.changes_programs().then(|| self.commands(&policy));
        let in_force = InForce { policy, source, commands };
        self.in_force.write().insert(agent.clone(), Arc::new(in_force));
    }

    /// The commands of an agent that may run others than every agent.
    fn commands(&self, policy: &AgentPolicy) -> (CommandPolicy, Arc<Allowed>) {
        let common = &self.common;
        let profile = policy.profile.unwrap_or(common.profile);
        let extra: Vec<String> = common.extra.iter().chain(&policy.extra).cloned().collect();
        let made = CommandPolicy::new(profile, &extra).or_else(|error| {
            tracing::error!(%error, "a program of an agent's policy cannot be: it gets the strictest profile");
            CommandPolicy::new(Profile::Strict, &[])
        });
        // The rules are built in, and the tests read them.
        let commands = made.unwrap_or_else(|error| unreachable!("built-in rules: {error}"));
        let commands = commands.with_arguments_bytes(common.arguments_bytes).with_scan(common.scan);
        let allowed = Allowed {
            whitelist: Whitelist::from(&commands),
            code_in_trees: commands.profile() != Profile::Strict,
        };
        (commands, Arc::new(allowed))
    }

    fn take(&self, agent: &AgentId, store: &Store, egress: &Egress) {
        egress.restrict(agent, None);
        store.allow(agent, Allowance::default());
        self.in_force.write().remove(agent);
    }
}

impl InForce {
    /// The policy in the place of one that cannot be read.
    fn unreadable() -> Self {
        Self { policy: AgentPolicy::default(), source: Source::Unreadable, commands: None }
    }

    /// Refuses to run anything by a policy that cannot be read: it may have been there to narrow.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(super) fn check_readable(&self) -> Result<()> {
        match self.source {
            Source::Unreadable => Err(Error::Unsupported(
                "the policy of this agent cannot be read, so that no command runs: an admin has to set it anew"
                    .to_owned(),
            )),
            Source::None | Source::Configuration | Source::Set => Ok(()),
        }
    }

    /// Which commands may run, and what the kernel holds them to, where those are others than with every agent.
    pub(super) fn commands(&self) -> Option<(&CommandPolicy, &Arc<Allowed>)> {
        self.commands.as_ref().map(|(commands, allowed)| (commands, allowed))
    }
}

impl Service {
    /// The policy of the agent of a tree.
    pub(super) fn policy_of(&self, id: &TreeId) -> Option<Arc<InForce>> {
        self.agents.of(id.agent())
    }

    /// The limits of runs with an agent.
    #[must_use]
    pub fn run_limits_of(&self, agent: &AgentId) -> RunLimits {
        let policy = self.agents.of(agent);
        policy.map_or_else(|| self.run_limits.clone(), |policy| policy.policy.runs.over(&self.run_limits))
    }

    /// The limits of background runs and terminals with an agent.
    #[must_use]
    pub fn session_limits_of(&self, agent: &AgentId) -> SessionLimits {
        let (policy, limits) = (self.agents.of(agent), self.table.limits());
        policy.map_or_else(|| limits.clone(), |policy| policy.policy.runs.over_sessions(limits))
    }

    /// The network that runs with an agent may reach at most.
    #[must_use]
    pub fn network_of(&self, agent: &AgentId) -> Network {
        let own = self.agents.of(agent).and_then(|policy| policy.policy.network);
        least(own, self.network, &self.launcher)
    }

    /// What each tree with an agent may take on the disk.
    #[must_use]
    pub fn disk_limits_of(&self, agent: &AgentId) -> DiskLimits {
        let limits = self.store.limits_with(agent);
        DiskLimits { bytes: limits.bytes, files: limits.files, ..self.store.options().disk.clone() }
    }

    /// The policy of an agent as it holds now, for a user, or for an operator.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Panicked`].
    pub async fn agent_policy(&self, agent: AgentId, user: Option<&UserId>) -> Result<Effective> {
        let in_force = self.agents.of(&agent);
        let commands = in_force.as_ref().and_then(|policy| policy.commands());
        let direct: Vec<String> =
            commands.map_or(&self.commands, |(commands, _)| commands).direct().map(str::to_owned).collect();
        let allowed = commands.map(|(_, allowed)| Arc::clone(allowed));
        let launcher = Arc::clone(&self.launcher);
        let look = self.work(Job::about(user, Weight::Light), move || {
            let programs = match &allowed {
                Some(allowed) => launcher.programs_of(allowed),
                None => launcher.programs(),
            };
            Ok(programs.missing().into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        let missing = look.await?.into_iter().filter(|name| direct.contains(name)).collect();
        let (source, policy) = match &in_force {
            Some(in_force) => (in_force.source, in_force.policy.clone()),
            None => (Source::None, AgentPolicy::default()),
        };
        Ok(Effective {
            source,
            profile: policy.profile.unwrap_or(self.agents.common.profile),
            policy,
            commands: direct,
            missing,
            network: self.network_of(&agent),
            runs: self.run_limits_of(&agent),
            sessions: self.session_limits_of(&agent),
            disk: self.disk_limits_of(&agent),
        })
    }

    /// Sets the policy of an agent, or with `None` has what the configuration says hold again. When this returns, it is on
    /// the disk and holds.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a policy that cannot be, or grants more of the network than the service;
    /// [`Error::Storage`] when it cannot be kept. Then nothing has changed.
    pub async fn set_agent_policy(
        self: &Arc<Self>,
        agent: AgentId,
        policy: Option<AgentPolicy>,
    ) -> Result<Changed> {
        if let Some(policy) = &policy {
            self.check_policy(policy)?;
        }
        // A task of its own: a caller who leaves must not leave another policy on the disk than in force.
        let service = Arc::clone(self);
        let changing = self.runs.spawn(async move { service.change_policy(agent, policy).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn change_policy(&self, agent: AgentId, policy: Option<AgentPolicy>) -> Result<Changed> {
        let text = policy.as_ref().map(text_of);
        let _changing = self.agents.changing.lock().await;
        let set =
            self.agents.of(&agent).filter(|policy| matches!(policy.source, Source::Set | Source::Unreadable));
        let before = set.map(|policy| digest_of(&text_of(&policy.policy)));
        let after = text.as_deref().map(digest_of);
        let (store, of) = (self.store.clone(), agent.clone());
        let job = Job::about(None, Weight::Light).going_on();
        self.work(job, move || Ok(store.keep_agent_policy(&of, text.as_deref())?)).await?;
        let agents = &self.agents;
        let source = match policy
            .map(|policy| (policy, Source::Set))
            .or_else(|| agents.configured.get(&agent).map(|policy| (policy.clone(), Source::Configuration)))
        {
            Some((policy, source)) => {
                agents.put(&agent, policy, source, &self.store, &self.egress);
                source
            }
            None => {
                agents.take(&agent, &self.store, &self.egress);
                Source::None
            }
        };
        Ok(Changed { before, after, source })
    }

    fn check_policy(&self, policy: &AgentPolicy) -> Result<()> {
        policy.check().map_err(|error| Error::Invalid(error.to_string()))?;
        Hosts::new(policy.hosts.allow.as_deref(), &policy.hosts.deny)
            .map_err(|error| Error::Invalid(format!("`hosts`: {error}")))?;
        match policy.network.map(mode) {
            Some(asked) if asked > self.network => Err(Error::Invalid(format!(
                "`network` is more than the service grants any agent: send `{}` or less, or ask the operator to set \
                 `commands.network`",
                super::run::word(self.network)
            ))),
            _ => Ok(()),
        }
    }
}

/// The lesser of what the agent and the service grant.
fn least(own: Option<AgentNetwork>, all: Network, launcher: &Launcher) -> Network {
    match own.map_or(all, |own| mode(own).min(all)) {
        // Where the proxy cannot be reached, no more than it would let pass is nothing.
        Network::Proxy if !launcher.offers_proxy() => Network::None,
        network => network,
    }
}

fn mode(network: AgentNetwork) -> Network {
    match network {
        AgentNetwork::None => Network::None,
        AgentNetwork::Proxy => Network::Proxy,
        AgentNetwork::Host => Network::Host,
    }
}

fn text_of(policy: &AgentPolicy) -> String {
    // Texts and numbers always become JSON.
    serde_json::to_string(policy).unwrap_or_default()
}

/// The SHA-256 of a policy as it is kept, in hexadecimal.
fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}
