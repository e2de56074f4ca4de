//! Settings of the devbox dialect, for platforms whose adapter speaks it.

use policy::{AgentId, RelPath};
use serde::Deserialize;

use super::ConfigError;

/// The devbox dialect.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevboxConfig {
    /// Whether the routes of the dialect are there.
    pub enabled: bool,
    /// The agent whose workspaces the devboxes are.
    pub agent: String,
    /// The absolute path by which the platform knows the workspace of a devbox.
    pub work_directory: String,
}

impl Default for DevboxConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            agent: "devbox".to_owned(),
            work_directory: policy::tree::WORKSPACE.to_owned(),
        }
    }
}

impl DevboxConfig {
    /// The agent.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: it is no id.
    pub fn agent(&self) -> Result<AgentId, ConfigError> {
        let wrong =
            |_| Self::wrong("devbox.agent", &self.agent, "write the id of an agent, such as `devbox`");
        AgentId::parse(&self.agent).map_err(wrong)
    }

    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.agent()?;
        let below = self.work_directory.strip_prefix('/').and_then(|below| RelPath::parse(below).ok());
        match below {
            Some(below) if !below.is_root() && self.work_directory == format!("/{below}") => Ok(()),
            _ => {
                let advice = "write an absolute path without `.`, `..` and a final `/`, such as `/workspace`";
                Err(Self::wrong("devbox.work_directory", &self.work_directory, advice))
            }
        }
    }

    fn wrong(setting: &'static str, value: &str, advice: &'static str) -> ConfigError {
        ConfigError::Value { setting, value: format!("`{}`", value.escape_debug()), advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_is_absolute_and_plain_and_the_agent_an_id() {
        let is_good = |agent: &str, work_directory: &str| {
            let (agent, work_directory) = (agent.to_owned(), work_directory.to_owned());
            DevboxConfig { agent, work_directory, ..DevboxConfig::default() }.check().is_ok()
        };
        for good in ["/workspace", "/home/devbox/workspace", "/home/数据"] {
            assert!(is_good("devbox", good), "{good}");
        }
        for bad in ["", "/", "workspace", "/a/", "//a", "/a/../b", "/a/./b", "/a//b", "/a\nb"] {
            assert!(!is_good("devbox", bad), "{bad}");
        }
        for bad in ["", "..", "a/b", " a"] {
            assert!(!is_good(bad, "/workspace"), "{bad}");
        }
    }
}
