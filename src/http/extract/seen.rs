//! Which state of a skill a request reads: what its user sees, or a published version.

use serde::Deserialize;
use storage::VersionName;

use super::tree::TreeRequest;
use crate::http::answer::problem::Problem;
use crate::ops::seen::Published;

/// The value of `layer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum SeenLayer {
    /// What the user sees.
    #[default]
    Merged,
    /// The application's current version.
    Baseline,
}

impl TreeRequest {
    /// The same about the state of the skill that `layer` and `version` mean.
    ///
    /// # Errors
    /// `invalid`: both, no name of a version, or another tree than a skill. `not_found`: there is no such version for the caller.
    pub(in crate::http) async fn seeing(
        self,
        layer: Option<SeenLayer>,
        version: Option<&str>,
    ) -> Result<Self, Problem> {
        let meant = match (layer.unwrap_or_default(), version) {
            (SeenLayer::Merged, None) => return Ok(self),
            (SeenLayer::Baseline, None) => Published::Current,
            (SeenLayer::Merged, Some(text)) if layer.is_none() => {
                Published::Named(VersionName::parse(text).ok_or_else(|| {
                    let message =
                        "`version` is none that `versions` lists: send 32 hexadecimal digits or a number";
                    Problem::invalid(message)
                })?)
            }
            (_, Some(_)) => {
                return Err(Problem::invalid("`layer` and `version` go not together: send one of them"));
            }
        };
        Ok(Self { tree: self.tree.published(self.may_publish, meant).await?, ..self })
    }
}
