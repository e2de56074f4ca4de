//! Settings of the MCP server.

use policy::AgentId;
use serde::Deserialize;

use super::ConfigError;

/// The MCP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Whether its routes are there.
    pub enabled: bool,
    /// The agent of requests that name none; empty for none.
    pub agent: String,
    /// Whether only tools that change nothing are offered.
    pub read_only: bool,
    /// Calls of one user at once.
    pub calls_per_user: usize,
    /// Which names skills may have that are served.
    pub skill_names: SkillNames,
}

/// Which names skills may have that are served by the skills extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillNames {
    /// Small letters of any script, as the format of skills allows.
    #[default]
    Unicode,
    /// Those of ASCII, for clients that take no others.
    Ascii,
}

impl Default for McpConfig {
    fn default() -> Self {
        let skill_names = SkillNames::default();
        Self { enabled: false, agent: String::new(), read_only: false, calls_per_user: 32, skill_names }
    }
}

impl McpConfig {
    /// The agent of requests that name none.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: it is no id.
    pub fn agent(&self) -> Result<Option<AgentId>, ConfigError> {
        if self.agent.is_empty() {
            return Ok(None);
        }
        AgentId::parse(&self.agent).map(Some).map_err(|_| ConfigError::Value {
            setting: "mcp.agent",
            value: format!("`{}`", self.agent.escape_debug()),
            advice: "write the id of an agent, or nothing",
        })
    }

    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.agent()?;
        if self.calls_per_user == 0 {
            let (setting, value) = ("mcp.calls_per_user", "0".to_owned());
            return Err(ConfigError::Value { setting, value, advice: "set 1 or more" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_an_id_or_nothing_and_some_calls_are_possible() {
        let is_good = |agent: &str, calls_per_user| {
            McpConfig { agent: agent.to_owned(), calls_per_user, ..McpConfig::default() }.check().is_ok()
        };
        assert!(is_good("", 1) && is_good("demo", 32));
        for (agent, calls) in [("..", 1), ("a/b", 1), (" a", 1), ("demo", 0)] {
            assert!(!is_good(agent, calls), "{agent} {calls}");
        }
    }
}
