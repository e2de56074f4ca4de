//! Settings of the machines that users lend.

use std::path::PathBuf;

use policy::{AgentId, RelPath};
use serde::Deserialize;

use super::ConfigError;

/// Directories, or agents, in one list.
const LISTED_MAX: usize = 16;

/// What a machine gets when it registers. Without any source it gets nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunnersConfig {
    /// Directories of this host whose subdirectories with a `SKILL.md` are skills for every machine; of two of one name the later.
    pub global_skills: Vec<PathBuf>,
    /// Directories of this host whose files `*.md` are agents for every machine; of two of one name the later.
    pub global_agents: Vec<PathBuf>,
    /// Agents whose skills, as the machine's user sees them here, the machine gets; of two of one name the later, and each before a
    /// global one.
    pub skills_of: Vec<AgentId>,
    /// Where skills are in the machine's workspace.
    pub skills_directory: RelPath,
    /// Where agents are in the machine's workspace.
    pub agents_directory: RelPath,
}

impl Default for RunnersConfig {
    fn default() -> Self {
        let path = |name| RelPath::parse(name).unwrap_or_else(|_| RelPath::root());
        Self {
            global_skills: Vec::new(),
            global_agents: Vec::new(),
            skills_of: Vec::new(),
            skills_directory: path("skills"),
            agents_directory: path("agents"),
        }
    }
}

impl RunnersConfig {
    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |setting, value: String, advice| Err(ConfigError::Value { setting, value, advice });
        for (setting, count) in [
            ("runners.global_skills", self.global_skills.len()),
            ("runners.global_agents", self.global_agents.len()),
            ("runners.skills_of", self.skills_of.len()),
        ] {
            if count > LISTED_MAX {
                return wrong(setting, format!("{count} entries"), "name 16 at most");
            }
        }
        for (setting, places) in
            [("runners.global_skills", &self.global_skills), ("runners.global_agents", &self.global_agents)]
        {
            if let Some(place) = places.iter().find(|place| !place.is_absolute()) {
                return wrong(setting, format!("`{}`", place.display()), "give an absolute path");
            }
        }
        let (skills, agents) = (&self.skills_directory, &self.agents_directory);
        if skills.is_root() {
            return wrong("runners.skills_directory", "the workspace".to_owned(), "name a directory in it");
        }
        if agents.is_root() || agents.starts_with(skills) || skills.starts_with(agents) {
            return wrong(
                "runners.agents_directory",
                format!("`{agents}`"),
                "name a directory in the workspace, beside that of the skills",
            );
        }
        Ok(())
    }
}
