//! Settings of the doors for clients of other vendors' registries of skills.

use serde::Deserialize;

/// The doors for clients of other vendors' registries of skills.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompatConfig {
    /// Whether their routes are there.
    pub enabled: bool,
}
