//! [`Config`]: how the service behaves. Read from one TOML file, then the environment, then the command line.
//!
//! | File | Holds |
//! | --- | --- |
//! | `tokens` | one static token as it is written down |
//! | `credentials` | where tokens and keys come from, and reading them |
//! | `operation` | settings of access, connections, logs and the audit log |
//! | `devbox` | the devbox dialect |
//! | `compat` | doors for clients of other vendors' registries of skills |
//! | `mcp` | the MCP server |
//! | `shares` | links by which installers read skills |
//! | `prepare` | preparing workspaces, and packages |
//! | `bucket` | the bucket that packages are kept in, and its credentials |
//! | `runners` | what machines get that users lend |
//! | `telemetry` | where spans are sent, and how many |
//! | `environment` | a variable for every setting |

mod bucket;
mod compat;
mod credentials;
mod devbox;
mod environment;
mod error;
mod listen;
mod mcp;
mod operation;
mod prepare;
mod runners;
mod shares;
mod telemetry;
mod tokens;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use exec::Isolation;
use policy::command::{Profile, ScanOf};
use policy::{
    AgentId, AgentNetwork, AgentPolicy, ArchiveLimits, DiskLimits, EventLimits, FileLimits, NetworkLimits,
    PortLimits, RunLimits, SessionLimits, SnapshotLimits, WorkLimits,
};
use serde::Deserialize;

pub use self::bucket::{BucketConfig, BucketCredentials};
pub use self::compat::{CompatConfig, SkillRules};
pub use self::credentials::{CredentialSources, SIGNING_KEY};
pub use self::devbox::DevboxConfig;
pub use self::environment::VARIABLE_PREFIX;
pub use self::error::ConfigError;
pub use self::listen::listen_address;
pub use self::mcp::{McpConfig, SkillNames};
pub use self::operation::{
    AccessConfig, AuditConfig, AuditDurability, ConnectionLimits, LogConfig, LogFormat, WhenFull,
    WorkspacesConfig,
};
pub use self::prepare::{BootstrapStep, PrepareConfig};
pub use self::runners::RunnersConfig;
pub use self::shares::SharesConfig;
pub use self::telemetry::TelemetryConfig;
pub use self::tokens::TokenEntry;
use crate::access::{Role, Token};
use egress::{EgressConfig, Hosts, ProxySettings};

/// A configuration as its file has it. Every field has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port to listen on, or `localhost` and a port; port 0 picks a free one.
    #[serde(deserialize_with = "listen::read")]
    pub listen: SocketAddr,
    /// The data directory: a volume with a local file system that keeps user attributes (ext4, xfs, btrfs).
    pub root: PathBuf,
    /// `strict`: a change is acknowledged when it survives a loss of power; `relaxed`: when the kernel has it.
    pub durability: Durability,
    /// Former versions of a baseline skill that are kept although no overlay began with them.
    pub keep_versions: usize,
    /// Listens on other than loopback addresses without any token. Every caller that reaches the port is an admin.
    pub allow_anonymous: bool,
    /// How long runs under way may go on after SIGTERM, in milliseconds.
    pub shutdown_ms: u64,
    /// Stops, as at SIGTERM, when standard input ends: for a program that starts the service for itself.
    pub stop_with_stdin: bool,
    /// Confinement of commands.
    pub isolation: Isolation,
    /// Which commands may run.
    pub commands: Commands,
    /// Bounds.
    pub limits: Limits,
    /// How long unused workspaces stay.
    pub workspaces: WorkspacesConfig,
    /// Preparing workspaces.
    pub prepare: PrepareConfig,
    /// The machines that users lend.
    pub runners: RunnersConfig,
    /// The devbox dialect.
    pub devbox: DevboxConfig,
    /// The MCP server.
    pub mcp: McpConfig,
    /// The doors for clients of other vendors' registries of skills.
    pub compat: CompatConfig,
    /// Links by which installers read skills without a token.
    pub shares: SharesConfig,
    /// Where tokens and keys are, and how long signed tokens last.
    pub access: AccessConfig,
    /// The level and form of the log.
    pub log: LogConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// Traces for a collector.
    pub telemetry: TelemetryConfig,
    /// What holds for single agents, by their ids. An admin may set something else for one.
    pub agents: BTreeMap<AgentId, AgentPolicy>,
    /// Who may do what; see [`TokenEntry`]. Without any, every caller is an admin.
    pub tokens: Vec<TokenEntry>,
}

/// When a change counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it survives a loss of power.
    Strict,
    /// When the kernel has it.
    Relaxed,
}

/// Which commands may run and what they get.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Commands {
    /// `strict`, `default`, `developer` or `open`: which further programs a running command may start.
    pub profile: Profile,
    /// `founding` or `all`: what is scanned for paths that lead out of the tree, before the kernel judges.
    pub scan: ScanOf,
    /// Programs that callers may start besides the 17.
    pub extra: Vec<String>,
    /// Variables that every command gets.
    pub environment: BTreeMap<String, String>,
    /// Where programs are looked for, in order; empty means `/usr/local/bin`, `/usr/bin`, `/bin`.
    pub search_path: Vec<PathBuf>,
    /// Host directories that every command may read, besides the system's libraries.
    pub read_only: Vec<PathBuf>,
    /// The network that every command may reach at most.
    pub network: Reach,
    /// The hosts that commands reach through the egress proxy.
    pub proxy: ProxySettings,
}

/// The network that commands may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// `proxy` where commands can be kept to it, `none` elsewhere.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// The hosts that the egress proxy lets pass; the service does not start where commands could not reach it.
    Proxy,
    /// Everything the host reaches, the service's own port included.
    Host,
}

/// Every bound; see the `policy` crate for units and defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Uploaded archives.
    pub archive: ArchiveLimits,
    /// File operations.
    pub files: FileLimits,
    /// The room on the disk.
    pub disk: DiskLimits,
    /// Snapshots of workspaces.
    pub snapshots: SnapshotLimits,
    /// Runs of commands.
    pub runs: RunLimits,
    /// Runs that are remembered, in the background, or in a terminal.
    pub sessions: SessionLimits,
    /// Streams of what becomes of files.
    pub events: EventLimits,
    /// Work that requests make in threads.
    pub work: WorkLimits,
    /// Connections of callers.
    pub connections: ConnectionLimits,
    /// Network namespaces of users and agents.
    pub networks: NetworkLimits,
    /// Connections to what commands serve.
    pub ports: PortLimits,
    /// Mounted skills that are held while no command runs in them, 1 or more.
    pub views: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive: ArchiveLimits::default(),
            files: FileLimits::default(),
            disk: DiskLimits::default(),
            snapshots: SnapshotLimits::default(),
            runs: RunLimits::default(),
            sessions: SessionLimits::default(),
            events: EventLimits::default(),
            work: WorkLimits::default(),
            connections: ConnectionLimits::default(),
            networks: NetworkLimits::default(),
            ports: PortLimits::default(),
            views: 256,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8003)),
            root: "./data".into(),
            durability: Durability::Strict,
            keep_versions: 20,
            allow_anonymous: false,
            shutdown_ms: 8_000,
            stop_with_stdin: false,
            isolation: Isolation::default(),
            commands: Commands::default(),
            limits: Limits::default(),
            workspaces: WorkspacesConfig::default(),
            prepare: PrepareConfig::default(),
            runners: RunnersConfig::default(),
            devbox: DevboxConfig::default(),
            mcp: McpConfig::default(),
            compat: CompatConfig::default(),
            shares: SharesConfig::default(),
            access: AccessConfig::default(),
            log: LogConfig::default(),
            audit: AuditConfig::default(),
            telemetry: TelemetryConfig::default(),
            agents: BTreeMap::new(),
            tokens: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the configuration file, when there is one, and puts `variables` of the environment over it.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Parse`], [`ConfigError::Variable`].
    pub fn read(
        path: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = path.map_or_else(|| Ok(String::new()), read_text)?;
        let shown = || path.map_or_else(String::new, |path| path.display().to_string());
        let wrong = |source| ConfigError::Parse { path: shown(), source: Box::new(source) };
        let overrides = environment::Overrides::of(variables);
        if overrides.is_empty() {
            // Messages have line and column only when the text itself is read.
            return toml::from_str(&text).map_err(wrong);
        }
        drop(toml::from_str::<Self>(&text).map_err(wrong)?);
        overrides.over(text.parse().map_err(wrong)?)
    }

    /// The tokens of `[[tokens]]` as they are checked.
    ///
    /// # Errors
    /// [`ConfigError::Token`].
    pub fn parsed_tokens(&self) -> Result<Vec<Token>, ConfigError> {
        credentials::parsed(&self.tokens)
    }

    /// Checks the values that make no sense however they are spelled.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn check_values(&self) -> Result<(), ConfigError> {
        operation::check(self)?;
        self.prepare.check()?;
        self.runners.check()?;
        self.devbox.check()?;
        self.mcp.check()?;
        self.shares.check()?;
        for (agent, policy) in &self.agents {
            self.check_agent(policy)
                .map_err(|problem| ConfigError::Agent { agent: agent.clone(), problem })?;
        }
        self.telemetry.check()
    }

    /// Checks what the configuration says about one agent.
    fn check_agent(&self, policy: &AgentPolicy) -> Result<(), String> {
        policy.check().map_err(|error| error.to_string())?;
        Hosts::new(policy.hosts.allow.as_deref(), &policy.hosts.deny)
            .map_err(|error| format!("`hosts`: {error}"))?;
        let most = match self.commands.network {
            Reach::None => AgentNetwork::None,
            Reach::Auto | Reach::Proxy => AgentNetwork::Proxy,
            Reach::Host => AgentNetwork::Host,
        };
        match policy.network.is_some_and(|network| network > most) {
            true => Err("`network` is more than `commands.network` grants any agent".to_owned()),
            false => Ok(()),
        }
    }

    /// Reads the admin token of the environment or the command line, which is in the clear.
    ///
    /// # Errors
    /// [`ConfigError::Unsendable`]: a header could not carry it (RFC 6750, section 2.1), and a service that is closed
    /// to every caller looks as if it worked.
    pub fn admin_token(text: &str) -> Result<Token, ConfigError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Unsendable);
        }
        Ok(Token::from_text(text, Role::Admin, "FILESECBOX_TOKEN"))
    }

    /// How the egress proxy behaves, of a service that listens on `listen`. With port 0 the true address is for
    /// [`egress::Egress::protect`] to add.
    ///
    /// # Errors
    /// [`ConfigError::Proxy`].
    pub fn egress(&self) -> Result<EgressConfig, ConfigError> {
        Ok(EgressConfig::new(&self.commands.proxy, vec![self.listen])?)
    }

    /// Checks that the address and the tokens fit together.
    ///
    /// # Errors
    /// [`ConfigError::Open`].
    pub fn check_open(&self, has_token: bool) -> Result<(), ConfigError> {
        if has_token || self.allow_anonymous || self.listen.ip().is_loopback() {
            return Ok(());
        }
        Err(ConfigError::Open(self.listen))
    }
}

/// Reads a file that the operator names.
fn read_text(path: &Path) -> Result<String, ConfigError> {
    #[expect(clippy::disallowed_methods, reason = "the operator names the file; it is not stored data")]
    std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let error = toml::from_str::<Config>("lissten = \"127.0.0.1:1\"").unwrap_err();
        assert!(error.to_string().contains("lissten"), "{error}");
        let error = toml::from_str::<Config>("[limits.runs]\ntimeout = 5").unwrap_err();
        assert!(error.to_string().contains("timeout"), "{error}");
    }

    #[test]
    fn no_networks_for_commands_at_all_are_refused_at_start() {
        for setting in ["held", "held_per_user"] {
            let text = format!("[limits.networks]\n{setting} = 0");
            let config: Config = toml::from_str(&text).unwrap();
            let error = config.check_values().unwrap_err().to_string();
            assert!(error.contains(&format!("limits.networks.{setting}")), "{error}");
        }
        assert!(Config::default().check_values().is_ok());
    }

    #[test]
    fn the_policy_of_an_agent_is_read_and_grants_no_more_network_than_there_is() {
        let config = |text: &str| toml::from_str::<Config>(text).map_err(|error| error.to_string());
        let text = "[agents.\"研究\"]\nprofile = \"strict\"\nnetwork = \"none\"\n[agents.\"研究\".runs]\ntimeout_ms = 5\n";
        let read = config(text).unwrap();
        assert!(read.check_values().is_ok());
        assert_eq!(read.agents.values().next().unwrap().runs.timeout_ms, Some(5));
        for (text, told) in [
            ("[agents.a]\nnetwork = \"host\"", "agents.a"),
            ("[commands]\nnetwork = \"none\"\n[agents.a]\nnetwork = \"proxy\"", "network"),
            ("[agents.a]\nextra = [\"/bin/x\"]", "extra"),
            ("[agents.a.hosts]\ndeny = [\"http://x\"]", "hosts"),
            ("[agents.a.runs]\nopen_files = 1", "runs.open_files"),
        ] {
            let error = config(text).unwrap().check_values().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        for text in ["[agents.a]\nprofil = \"strict\"", "[agents.\"a/b\"]", "[agents.a]\nprofile = \"all\""] {
            assert!(config(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_public_address_needs_a_token_or_the_explicit_flag() {
        let config = Config { listen: SocketAddr::from(([0, 0, 0, 0], 1)), ..Config::default() };
        assert!(config.check_open(false).is_err());
        assert!(config.check_open(true).is_ok());
        assert!(Config { allow_anonymous: true, ..config }.check_open(false).is_ok());
        assert!(Config::default().check_open(false).is_ok());
    }
}
