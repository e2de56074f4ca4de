//! [`Allowances`]: what the trees of one agent may take, where that is not what all may.

use std::collections::HashMap;

use parking_lot::RwLock;
use policy::AgentId;

/// What each tree with one agent may take. What is not said is as for every agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The room that one tree takes on the disk, in bytes of whole blocks.
    pub bytes: Option<u64>,
    /// Names in one tree.
    pub files: Option<u64>,
}

/// The allowances of agents that have some.
#[derive(Default)]
pub(crate) struct Allowances {
    agents: RwLock<HashMap<AgentId, Allowance>>,
}

impl Allowances {
    /// Says from now on what the trees of an agent may take.
    pub(crate) fn set(&self, agent: &AgentId, allowance: Allowance) {
        let mut agents = self.agents.write();
        match allowance == Allowance::default() {
            true => drop(agents.remove(agent)),
            false => drop(agents.insert(agent.clone(), allowance)),
        }
    }

    /// What the trees of an agent may take.
    pub(crate) fn of(&self, agent: &AgentId) -> Allowance {
        self.agents.read().get(agent).copied().unwrap_or_default()
    }
}
