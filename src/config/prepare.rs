//! Settings of preparing workspaces, and of the packages that are deployed in them.

use std::collections::BTreeMap;

use policy::RelPath;
use serde::Deserialize;

use super::{BucketConfig, ConfigError};

/// Longest name of a step, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Preparing workspaces.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrepareConfig {
    /// The time that each script has where a request does not say, in seconds; 1 to 600.
    pub timeout_seconds: u64,
    /// The size of all packages together, in bytes: for a further one, those go that were used longest ago.
    pub packages_bytes: u64,
    /// The room that unpacked files of packages may take, in bytes, equal ones once; 0 keeps none.
    pub unpacked_bytes: u64,
    /// The Redis or PostgreSQL whose leases services share that prepare the same machines, such as `redis://HOST:6379/0` or
    /// `postgres://USER@HOST:5432/DATABASE`; empty for leases within this process.
    pub lease_url: String,
    /// The bucket that packages are kept in.
    pub bucket: BucketConfig,
    /// Steps that a request may name, and that come before everything else.
    pub bootstrap: Vec<BootstrapStep>,
}

/// A step of a platform: files, then a command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootstrapStep {
    /// The name that requests ask for it by.
    pub name: String,
    /// A line for the shell, which runs in the workspace; empty for none.
    pub command: String,
    /// Files that are written first, by their paths in the workspace.
    pub files: BTreeMap<String, String>,
}

impl Default for PrepareConfig {
    fn default() -> Self {
        Self {
            timeout_seconds: 30,
            packages_bytes: 10 * 1024 * 1024 * 1024,
            unpacked_bytes: 2 * 1024 * 1024 * 1024,
            lease_url: String::new(),
            bucket: BucketConfig::default(),
            bootstrap: Vec::new(),
        }
    }
}

impl PrepareConfig {
    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.bucket.check()?;
        let wrong = |setting, value: &str, advice| {
            Err(ConfigError::Value { setting, value: format!("`{}`", value.escape_debug()), advice })
        };
        for (number, step) in self.bootstrap.iter().enumerate() {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if step.name.is_empty() || step.name.len() > NAME_BYTES_MAX || !step.name.bytes().all(is_name) {
                let advice = "choose a name of 1 to 64 letters, digits and `-_.`";
                return wrong("prepare.bootstrap.name", &step.name, advice);
            }
            if self.bootstrap.iter().take(number).any(|other| other.name == step.name) {
                return wrong(
                    "prepare.bootstrap.name",
                    &step.name,
                    "choose another name for one of the two steps",
                );
            }
            if step.command.trim().is_empty() && step.files.is_empty() {
                return wrong("prepare.bootstrap.command", &step.command, "give the step a command or files");
            }
            for path in step.files.keys() {
                if !RelPath::parse(path).is_ok_and(|parsed| !parsed.is_root() && parsed.as_str() == path) {
                    return wrong(
                        "prepare.bootstrap.files",
                        path,
                        "name a file by its path below the workspace",
                    );
                }
            }
        }
        Ok(())
    }
}
