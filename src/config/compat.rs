//! Settings of the doors for clients of other vendors' registries of skills.

use serde::Deserialize;

/// The doors for clients of other vendors' registries of skills.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompatConfig {
    /// Whether their routes are there.
    pub enabled: bool,
    /// What they do about a skill with warnings.
    pub skill_rules: SkillRules,
}

/// What the doors do about a skill that other programs, or the vendors, would not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillRules {
    /// They take it. Lists of the service have the warnings.
    #[default]
    Warn,
    /// They refuse it.
    Refuse,
}
