//! [`Whitelist`]: the programs that may run, and how their arguments are read.

use serde::{Deserialize, Serialize};

use super::refusal::{CommandHint, Refusal, excerpt};
use super::rules::Rules;

/// How far the whitelist reaches below the command itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Descendants may execute the direct commands only.
    Strict,
    /// Descendants may execute the direct commands and the helpers.
    #[default]
    Default,
    /// As [`Profile::Default`], and the programs of developers where the host has them, which callers may start, too.
    Developer,
    /// Descendants may execute anything in the read-only system directories.
    Open,
}

/// The programs that a caller may start, those that descendants may execute, and the grammar of each.
#[derive(Clone, Debug)]
pub(super) struct Whitelist {
    pub(super) profile: Profile,
    pub(super) rules: Rules,
    /// Direct commands that the configuration adds.
    pub(super) extra: Vec<String>,
}

impl Whitelist {
    /// Names of the programs that a caller may start, configured ones last.
    pub(super) fn direct(&self) -> impl Iterator<Item = &str> {
        let listed = self.rules.direct.iter().map(|program| program.name.as_str());
        listed.chain(self.extra.iter().map(String::as_str))
    }

    /// Names of the further programs that descendants may execute; none in [`Profile::Strict`].
    pub(super) fn helpers(&self) -> impl Iterator<Item = &str> {
        let is_listed = self.profile != Profile::Strict;
        self.rules.helpers.iter().filter(move |_| is_listed).map(|program| program.name.as_str())
    }

    /// The canonical name of a direct command.
    pub(super) fn program<'a>(&'a self, command: &'a str) -> Result<&'a str, Refusal> {
        let listed =
            self.rules.direct.iter().find(|program| {
                program.name == command || program.aliases.iter().any(|alias| alias == command)
            });
        match listed {
            Some(program) => Ok(&program.name),
            None if self.extra.iter().any(|name| name == command) => Ok(command),
            None => Err(self.not_allowed(command)),
        }
    }

    /// Tells whether a descendant may execute the program `name` of a system directory.
    pub(super) fn permits(&self, name: &str) -> bool {
        self.profile == Profile::Open
            || self.direct().chain(self.helpers()).any(|allowed| allowed == name)
            || self.program(name).is_ok()
    }

    /// The refusal of `command`, which names what is allowed and what was probably meant.
    pub(super) fn not_allowed(&self, command: &str) -> Refusal {
        let hint = if command.contains('/') || command.contains(char::is_whitespace) {
            CommandHint::NotABareName
        } else if self.helpers().any(|name| name == command) {
            CommandHint::Helper
        } else {
            CommandHint::Unknown
        };
        let allowed = self.direct().map(str::to_owned).collect();
        Refusal::CommandNotAllowed { command: excerpt(command), allowed, hint }
    }
}
