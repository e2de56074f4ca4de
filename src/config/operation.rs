//! Settings of operation: the life of workspaces, allowed origins, connections, and the audit log.

use std::path::PathBuf;
use std::time::Duration;

use policy::PortLimits;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// How long unused workspaces stay.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspacesConfig {
    /// The time without use after which a workspace and its home are set aside, in milliseconds; 0: never.
    pub idle_ms: u64,
    /// For how long more they are kept aside for the next use before they are removed, in milliseconds.
    pub keep_ms: u64,
}

/// Where tokens and keys are, and how long signed tokens last.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// A TOML file with further `[[tokens]]`; empty means none.
    pub tokens_file: PathBuf,
    /// The file with the keys of signed tokens; empty means `.filesecbox/keys/signing` below the data directory,
    /// which is made at the first start.
    pub key_file: PathBuf,
    /// The longest time for which a signed token can be issued, in seconds.
    pub token_seconds_max: u64,
    /// Origins of web pages that may ask, besides the service's own, such as `https://ide.example`.
    pub allowed_origins: Vec<String>,
}

/// Connections of callers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionLimits {
    /// Connections at once. For a further one the one goes that has been idle longest; when none is, it is told `busy`.
    pub connections: usize,
    /// Connections of one address at once, but for callers on this host; 0 for no bound but `connections`.
    pub per_peer: usize,
    /// Further connections, for callers on this host only.
    pub reserved: usize,
    /// How long a head may take to arrive, from its first byte or the start of the connection, in milliseconds.
    pub head_ms: u64,
    /// How long a connection is kept for its next request, in milliseconds.
    pub idle_ms: u64,
    /// The largest head of a request, in bytes, 8192 or more.
    pub head_bytes: usize,
    /// The bytes that all unfinished heads may have together; for more the largest goes.
    pub heads_bytes: usize,
    /// How long a body may bring nothing, in milliseconds.
    pub body_idle_ms: u64,
    /// The least average rate of a body, in bytes a second, from `body_idle_ms` of waiting on; 0 is no floor.
    pub body_bytes_per_second: u64,
    /// How long a caller may take nothing of an answer, in milliseconds.
    pub send_idle_ms: u64,
}

/// The level and form of the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` for people, `json` for machines.
    pub format: LogFormat,
    /// Whether each request has a line.
    pub requests: bool,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The audit log.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// When a record counts as written, and the change it is about is acknowledged.
    pub durability: AuditDurability,
    /// The size from which a file is followed by another, in bytes.
    pub file_bytes: u64,
    /// The size of all files together; the oldest go, but never the one that is written, in bytes.
    pub total_bytes: u64,
    /// How old a file is at least when it goes, in days; 0 for any age.
    pub keep_days: u32,
    /// The reaction when all files together have more than they may and none is old enough to go.
    pub when_full: WhenFull,
    /// The bytes that the changes of one caller may add in a day; 0 for any number.
    pub account_bytes: u64,
    /// Records that may wait to be written; further changes are refused meanwhile.
    pub queue: usize,
}

/// The reaction when the audit log is too large and its files are too young to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// It grows, and the log and the figures say so: no caller can stop the others by filling it.
    #[default]
    Grow,
    /// Changes are refused until files may go.
    Refuse,
}

/// When an audit record counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditDurability {
    /// As what the record is about: with strict durability of the service changes are waited for, runs are not.
    Same,
    /// When it survives a loss of power, for every kind of record.
    Strict,
    /// When the kernel has it. With strict durability of the service it is on the disk a second later: a second wait
    /// for the disk would cost every change a third of its time.
    #[default]
    Relaxed,
}

impl AuditConfig {
    /// How old a file of the log is at least when it goes.
    #[must_use]
    pub fn least_age(&self) -> Duration {
        Duration::from_hours(u64::from(self.keep_days) * 24)
    }
}

impl WorkspacesConfig {
    /// The time without use after which a workspace goes; `None` for ever.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        (self.idle_ms > 0).then(|| Duration::from_millis(self.idle_ms))
    }

    /// For how long more it is kept aside.
    #[must_use]
    pub fn keep(&self) -> Duration {
        Duration::from_millis(self.keep_ms)
    }
}

impl Default for WorkspacesConfig {
    fn default() -> Self {
        Self { idle_ms: 0, keep_ms: 30 * 24 * 3600 * 1000 }
    }
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            tokens_file: PathBuf::new(),
            key_file: PathBuf::new(),
            token_seconds_max: 30 * 24 * 3600,
            allowed_origins: Vec::new(),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 2048,
            per_peer: 1024,
            reserved: 16,
            head_ms: 10_000,
            idle_ms: 75_000,
            head_bytes: 64 * 1024,
            heads_bytes: 32 * 1024 * 1024,
            body_idle_ms: 30_000,
            body_bytes_per_second: 1024,
            send_idle_ms: 60_000,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, requests: true }
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            durability: AuditDurability::Relaxed,
            file_bytes: 16 * 1024 * 1024,
            total_bytes: 1024 * 1024 * 1024,
            keep_days: 90,
            when_full: WhenFull::Grow,
            account_bytes: 128 * 1024 * 1024,
            queue: 4096,
        }
    }
}

/// Checks what the types do not say.
///
/// # Errors
/// [`ConfigError::Value`].
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let connections = &config.limits.connections;
    let least = |setting, value: u64, least: u64, advice| {
        if value < least {
            return Err(ConfigError::Value { setting, value: value.to_string(), advice });
        }
        Ok(())
    };
    let number = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
    least("limits.connections.connections", number(connections.connections), 1, "set 1 or more")?;
    // The least buffer that hyper takes.
    least("limits.connections.head_bytes", number(connections.head_bytes), 8192, "set 8192 or more")?;
    least(
        "limits.connections.heads_bytes",
        number(connections.heads_bytes),
        number(connections.head_bytes),
        "set `limits.connections.head_bytes` or more",
    )?;
    for (setting, value) in [
        ("limits.connections.head_ms", connections.head_ms),
        ("limits.connections.idle_ms", connections.idle_ms),
        ("limits.connections.body_idle_ms", connections.body_idle_ms),
        ("limits.connections.send_idle_ms", connections.send_idle_ms),
    ] {
        least(setting, value, 1, "set 1 or more")?;
    }
    // Without one, no command finds its network.
    let networks = &config.limits.networks;
    least("limits.networks.held", number(networks.held), 1, "set 1 or more")?;
    least("limits.networks.held_per_user", number(networks.held_per_user), 1, "set 1 or more")?;
    let ports = &config.limits.ports;
    least("limits.ports.connections", number(ports.connections), 1, "set 1 or more")?;
    least("limits.ports.connections_per_user", number(ports.connections_per_user), 1, "set 1 or more")?;
    least("limits.ports.head_ms", ports.head_ms, 1, "set 1 or more")?;
    least("limits.ports.idle_ms", ports.idle_ms, 1, "set 1 or more")?;
    if !(1..=PortLimits::LINK_SECONDS_MAX).contains(&ports.link_seconds_max) {
        let (setting, value) = ("limits.ports.link_seconds_max", ports.link_seconds_max.to_string());
        return Err(ConfigError::Value { setting, value, advice: "set 1 to 86400, which is a day" });
    }
    least("limits.snapshots.at_once", number(config.limits.snapshots.at_once), 1, "set 1 or more")?;
    least("access.token_seconds_max", config.access.token_seconds_max, 1, "set 1 or more")?;
    if let Some(origin) = config.access.allowed_origins.iter().find(|origin| !is_origin(origin)) {
        let advice = "write an origin as browsers do, `https://ide.example` or `http://10.0.0.1:8080`";
        return Err(ConfigError::Value { setting: "access.allowed_origins", value: origin.clone(), advice });
    }
    least("audit.file_bytes", config.audit.file_bytes, 65_536, "set 65536 or more")?;
    least(
        "audit.total_bytes",
        config.audit.total_bytes,
        config.audit.file_bytes,
        "set `audit.file_bytes` or more",
    )?;
    least("audit.queue", number(config.audit.queue), 1, "set 1 or more")
}

/// Whether a text is an origin as a browser sends it: scheme and host, no path.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*".contains(&byte))
    })
}
