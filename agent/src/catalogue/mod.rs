//! The catalogue for a model: the skills and the agents of a user, and those that all share.
//!
//! * [`SkillStore`], [`AgentStore`]: read, kept for five minutes for each user, and rendered for a prompt.
//! * [`Watched`]: a sandbox whose changes make them forget at once.
//! * [`Agent::parse`]: an agent from its file. What a skill says of itself is read as the service reads it.

mod agents;
mod cache;
pub(crate) mod described;
mod render;
mod skills;
mod watched;

pub use agents::{Agent, AgentStore, Agents};
pub use cache::{Clock, TTL, system_clock};
pub use skills::{Skill, SkillStore, Skills};
pub use watched::{Forget, Watched};

/// The file that makes a directory a skill, in any case of letters; without one a `README.md` does.
pub const SKILL_FILE: &str = "SKILL.md";
/// Where a workspace has its skills.
pub const SKILLS_DIRECTORY: &str = "skills";
/// Where it has further ones, which those in [`SKILLS_DIRECTORY`] come before.
pub const HIDDEN_SKILLS_DIRECTORY: &str = ".skills";
/// Where it has its agents.
pub const AGENTS_DIRECTORY: &str = "agents";
/// The most skills, or agents, of one directory.
pub const ENTRIES_MAX: usize = 500;
/// How much of a file is read for its head, in bytes.
pub(crate) const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Files read at once.
const READS_MAX: usize = 8;
