//! A variable of the environment for every setting.
//!
//! `FILESECBOX_` and the dotted name in capitals, with two underscores for each dot:
//! `FILESECBOX_LIMITS__RUNS__TIMEOUT_MS=60000` is `limits.runs.timeout_ms = 60000`. The value is read as TOML writes
//! it (`5`, `true`, `["a", "b"]`); what is none is text. Text that looks like something else is put in quotes.
//!
//! A name without two underscores is a setting of the file's top level or none at all: where the service is called
//! `filesecbox`, Kubernetes itself sets variables such as `FILESECBOX_PORT`.

use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, ConfigError};

/// The beginning of every variable's name.
pub const VARIABLE_PREFIX: &str = "FILESECBOX_";
/// Settings of the top level that are no tables.
const TOP_LEVEL: [&str; 7] =
    ["listen", "root", "durability", "keep_versions", "allow_anonymous", "shutdown_ms", "stop_with_stdin"];

/// Settings that the environment has.
pub(super) struct Overrides(Vec<(String, Vec<String>, Value)>);

impl Overrides {
    /// Picks the variables that are settings.
    pub(super) fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        let settings = variables.filter_map(|(name, text)| {
            let dotted = name.strip_prefix(VARIABLE_PREFIX)?.to_ascii_lowercase();
            let path: Vec<String> = dotted.split("__").map(str::to_owned).collect();
            (path.len() > 1 || TOP_LEVEL.contains(&dotted.as_str())).then(|| (name, path, value(&text)))
        });
        let mut settings: Vec<_> = settings.collect();
        settings.sort_by(|one, other| one.0.cmp(&other.0));
        Self(settings)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the settings over those of a file. One after the other, so that a wrong one is told by name.
    ///
    /// # Errors
    /// [`ConfigError::Variable`].
    pub(super) fn over(self, mut table: Table) -> Result<Config, ConfigError> {
        let mut config = None;
        for (name, path, value) in self.0 {
            let wrong = |problem: String| ConfigError::Variable { name: name.clone(), problem };
            set(&mut table, &path, value)
                .map_err(|inner| wrong(format!("`{inner}` is a setting, not a table of settings")))?;
            let read = Config::deserialize(table.clone());
            config = Some(read.map_err(|error| wrong(error.to_string().trim_end().replace('\n', " ")))?);
        }
        Ok(config.unwrap_or_default())
    }
}

/// Reads a value as TOML has it, or as text.
fn value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets what `path` names; returns the name on the way that is no table.
fn set(table: &mut Table, path: &[String], value: Value) -> Result<(), String> {
    match path {
        [] => Ok(()),
        [name] => {
            table.insert(name.clone(), value);
            Ok(())
        }
        [name, rest @ ..] => match table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => set(inner, rest, value),
            _ => Err(name.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Overrides::of(variables).over(file.parse().unwrap())
    }

    #[test]
    fn a_variable_wins_over_the_file_and_leaves_the_rest() {
        let file = "keep_versions = 5\n[limits.runs]\nruns = 7\ntimeout_ms = 1000";
        let config = config(
            file,
            &[
                ("FILESECBOX_LIMITS__RUNS__TIMEOUT_MS", "2000"),
                ("FILESECBOX_COMMANDS__EXTRA", "[\"node\"]"),
                ("FILESECBOX_COMMANDS__NETWORK", "none"),
                ("FILESECBOX_LISTEN", "127.0.0.1:0"),
                ("FILESECBOX_COMMANDS__PROXY__UPSTREAM", "http://proxy:3128"),
                ("FILESECBOX_LOG__REQUESTS", "false"),
            ],
        )
        .unwrap();
        assert_eq!((config.keep_versions, config.limits.runs.runs), (5, 7));
        assert_eq!(config.limits.runs.deadline(None), Duration::from_millis(2000));
        assert_eq!(config.commands.extra, ["node"]);
        assert_eq!(config.listen.port(), 0);
        assert!(!config.log.requests);
    }

    #[test]
    fn a_variable_that_fits_no_setting_is_told_by_name() {
        for (name, text) in [
            ("FILESECBOX_LIMITS__RUNS__NO_SUCH", "1"),
            ("FILESECBOX_LIMITS__RUNS__TIMEOUT_MS", "soon"),
            ("FILESECBOX_NO__SUCH", "1"),
            ("FILESECBOX_LISTEN__PORT", "1"),
        ] {
            let told = config("listen = \"127.0.0.1:1\"", &[(name, text)]).unwrap_err().to_string();
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn what_others_call_alike_is_no_setting() {
        let others =
            [("FILESECBOX_PORT", "tcp://10.0.0.1:80"), ("FILESECBOX_SERVICE_HOST", "x"), ("PATH", "/")];
        let variables = others.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert!(Overrides::of(variables).is_empty());
    }
}
