//! [`ServeError`]: why the service does not start.

use std::io;
use std::net::SocketAddr;

use policy::environment::ConfiguredError;
use thiserror::Error;

use crate::config::ConfigError;

/// Why the service does not start, or stopped by itself. Each names the step.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A command of the configuration cannot be allowed.
    #[error("the configuration's `commands`: {0}")]
    Commands(#[from] policy::command::PolicyError),
    /// A variable of the configuration cannot be passed.
    #[error(transparent)]
    Environment(#[from] ConfiguredError),
    /// The data directory cannot be used.
    #[error("the data directory `{path}` cannot be used: {source}")]
    Store {
        /// As configured.
        path: String,
        /// Why.
        #[source]
        source: storage::Error,
    },
    /// Commands cannot be run, or not as safely as demanded.
    #[error("commands cannot be run here: {0}")]
    Exec(#[from] exec::Error),
    /// The configuration demands the proxy for commands, and nothing here would keep them to it.
    #[error(
        "the configuration's `commands.network = \"proxy\"` needs a host that can keep commands to the proxy \
         ({reason}): leave it out, or say \"none\" or \"host\""
    )]
    NoProxy {
        /// The missing grant.
        reason: String,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The runtime or a signal handler could not be set up.
    #[error("the service cannot run")]
    Run(#[from] io::Error),
}
