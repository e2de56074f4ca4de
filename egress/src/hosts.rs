//! [`Hosts`]: the hosts that the runs of one agent reach, where those are not the ones of every agent.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use policy::AgentId;

use super::pattern::{Pattern, PatternError};
use super::target::Host;

/// The hosts of one agent. Private ranges, ports and what is never reached are as for every agent.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// In the place of the hosts that all may reach, when there is one; empty means every public host.
    allow: Option<Vec<Pattern>>,
    /// Besides those that all are refused.
    deny: Vec<Pattern>,
}

impl Hosts {
    /// Reads hosts as the operator writes them.
    ///
    /// # Errors
    /// The fault of the first that is none.
    pub fn new(allow: Option<&[String]>, deny: &[String]) -> Result<Self, PatternError> {
        let patterns = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
        Ok(Self { allow: allow.map(patterns).transpose()?, deny: patterns(deny)? })
    }

    /// The hosts that may be reached, where those of all are `all`.
    pub(super) fn allowed<'a>(&'a self, all: &'a [Pattern]) -> &'a [Pattern] {
        self.allow.as_deref().unwrap_or(all)
    }

    /// Tells whether the agent is refused `host` by itself.
    pub(super) fn denies(&self, host: &Host) -> bool {
        self.deny.iter().any(|pattern| pattern.matches(host))
    }

    /// Tells whether the agent is refused the address by itself.
    pub(super) fn denies_address(&self, address: std::net::IpAddr) -> bool {
        self.deny.iter().any(|pattern| pattern.has_address(address))
    }
}

/// The hosts of agents that have some of their own.
#[derive(Default)]
pub(super) struct HostTable {
    agents: RwLock<HashMap<AgentId, Arc<Hosts>>>,
}

impl HostTable {
    pub(super) fn set(&self, agent: &AgentId, hosts: Option<Hosts>) {
        let mut agents = self.agents.write();
        match hosts {
            Some(hosts) => drop(agents.insert(agent.clone(), Arc::new(hosts))),
            None => drop(agents.remove(agent)),
        }
    }

    pub(super) fn of(&self, agent: &AgentId) -> Arc<Hosts> {
        self.agents.read().get(agent).cloned().unwrap_or_default()
    }
}
