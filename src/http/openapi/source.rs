//! Reading the files of this folder.

use serde::de::DeserializeOwned;
use serde_yaml_ng::Value as Yaml;
use thiserror::Error;

/// The fault of the files that the document is made of. Tests build it, so that no service meets this.
#[derive(Debug, Error)]
#[error("the description of {what} is wrong: {problem}")]
pub struct Wrong {
    what: String,
    problem: String,
}

impl Wrong {
    pub(super) fn new(what: &str, problem: impl ToString) -> Self {
        Self { what: what.to_owned(), problem: problem.to_string() }
    }
}

/// The content of the file about `what`; merge keys (`<<`) are followed.
///
/// # Errors
/// [`Wrong`]: the text is not as it must be.
pub(super) fn read<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, Wrong> {
    let mut yaml: Yaml = serde_yaml_ng::from_str(text).map_err(|error| Wrong::new(what, error))?;
    yaml.apply_merge().map_err(|error| Wrong::new(what, error))?;
    serde_yaml_ng::from_value(yaml).map_err(|error| Wrong::new(what, error))
}
