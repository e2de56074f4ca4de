//! Braces in patterns, with the reason of a refusal as a model reads it.

use policy::glob;

/// All patterns that `pattern` stands for, as [`glob::expand`] has them.
///
/// # Errors
/// There would be more than [`glob::ALTERNATIVES_MAX`].
pub fn expand(pattern: &str) -> Result<Vec<String>, String> {
    glob::expand(pattern).map_err(|error| error.to_string())
}
