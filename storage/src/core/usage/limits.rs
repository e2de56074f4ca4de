//! How much each tree may take: as every agent's, or as its agent's [allowance](Allowance) says.

use policy::{AgentId, TreeId};

use crate::core::allowances::Allowance;
use crate::core::store::Store;
use crate::stat::Use;

impl Store {
    /// Says from now on what the trees of an agent may take. Runs under way keep what they began with.
    pub fn allow(&self, agent: &AgentId, allowance: Allowance) {
        self.inner.allowances.set(agent, allowance);
    }

    /// What the tree `id` may take.
    #[must_use]
    pub fn limits_of(&self, id: &TreeId) -> Use {
        self.limits_with(id.agent())
    }

    /// What each tree with an agent may take.
    #[must_use]
    pub fn limits_with(&self, agent: &AgentId) -> Use {
        let (all, own) = (Use::from(self.disk_limits()), self.inner.allowances.of(agent));
        Use { bytes: own.bytes.unwrap_or(all.bytes), files: own.files.unwrap_or(all.files) }
    }

    /// The names of the settings that limit the bytes and the files of the tree `id`.
    pub(crate) fn settings_of(&self, id: &TreeId) -> [&'static str; 2] {
        let own = self.inner.allowances.of(id.agent());
        [
            if own.bytes.is_some() { "agents.disk.bytes" } else { "limits.disk.bytes" },
            if own.files.is_some() { "agents.disk.files" } else { "limits.disk.files" },
        ]
    }
}
