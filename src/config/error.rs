//! [`ConfigError`]: what is wrong with a configuration, and what to set instead.

use std::net::SocketAddr;

use egress::SettingsError;
use policy::AgentId;
use thiserror::Error;

use crate::access::signed::KeyError;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file `{path}` cannot be read")]
    Read {
        /// As named on the command line.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML, or has a field that does not exist.
    #[error("the configuration file `{path}` is wrong: {source}")]
    Parse {
        /// As named on the command line.
        path: String,
        /// The cause, with line and column.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A variable of the environment does not fit its setting.
    #[error("the variable `{name}` is wrong: {problem}")]
    Variable {
        /// Its name.
        name: String,
        /// The fault.
        problem: String,
    },
    /// A file with tokens is no TOML, or has something else in it.
    #[error("the file of tokens `{path}` is wrong: {source}")]
    TokenFile {
        /// As configured.
        path: String,
        /// The cause, with line and column.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The keys of signed tokens cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file with a secret cannot be used.
    #[error("the file `{path}` cannot be used as a secret: {problem}")]
    Secret {
        /// As configured.
        path: String,
        /// The fault.
        problem: String,
    },
    /// A setting has a value that cannot be meant.
    #[error("`{setting}` is {value}: {advice}")]
    Value {
        /// Its dotted name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The advice what to set instead.
        advice: &'static str,
    },
    /// The policy of an agent cannot be.
    #[error("`agents.{agent}`: {problem}")]
    Agent {
        /// The agent.
        agent: AgentId,
        /// The fault.
        problem: String,
    },
    /// A token entry makes no sense.
    #[error("token {number}: {problem}")]
    Token {
        /// Which entry, from 1.
        number: usize,
        /// The fault.
        problem: String,
    },
    /// The token of the environment or the command line is one that no request can carry.
    #[error(
        "FILESECBOX_TOKEN (`--token`) is empty or has other than visible ASCII characters, so no caller could send it: \
         unset it, or make one with `openssl rand -hex 32`"
    )]
    Unsendable,
    /// The service would be open to every caller.
    #[error(
        "`{0}` is not a loopback address and there is no token: set FILESECBOX_TOKEN, add `[[tokens]]`, or set \
         `allow_anonymous = true` (`--allow-anonymous`) when something else guards the port"
    )]
    Open(SocketAddr),
    /// The egress proxy cannot work as configured.
    #[error(transparent)]
    Proxy(#[from] SettingsError),
}
