//! [`Config`]: how the service behaves. Read from one TOML file, then the environment, then the command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use exec::Isolation;
use policy::command::Profile;
use policy::{AgentId, ArchiveLimits, DiskLimits, FileLimits, RunLimits, SessionLimits, UserId};
use serde::Deserialize;
use thiserror::Error;

use crate::access::{Role, Token};
use crate::egress::{EgressConfig, ProxySettings, SettingsError};

/// A configuration as its file has it. Every field has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The data directory: a volume with a local file system that keeps user attributes (ext4, xfs, btrfs).
    pub root: PathBuf,
    /// `strict`: a change is acknowledged when it survives a loss of power; `relaxed`: when the kernel has it.
    pub durability: Durability,
    /// Former versions of a baseline skill that are kept although no overlay began with them.
    pub keep_versions: usize,
    /// Listens on other than loopback addresses without any token. Everybody who reaches the port is an admin.
    pub allow_anonymous: bool,
    /// How long runs under way may go on after SIGTERM, in milliseconds.
    pub shutdown_ms: u64,
    /// Confinement of commands.
    pub isolation: Isolation,
    /// Which commands may run.
    pub commands: Commands,
    /// Bounds.
    pub limits: Limits,
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
    /// `strict`, `default` or `open`: which further programs a running command may start.
    pub profile: Profile,
    /// Programs that callers may start besides the 17.
    pub extra: Vec<String>,
    /// Variables that every command gets.
    pub environment: BTreeMap<String, String>,
    /// Where programs are looked for, in order; empty means `/usr/local/bin`, `/usr/bin`, `/bin`.
    pub search_path: Vec<PathBuf>,
    /// Host directories that every command may read, besides the system's libraries.
    pub read_only: Vec<PathBuf>,
    /// What every command may reach at most.
    pub network: Reach,
    /// What commands reach through the egress proxy.
    pub proxy: ProxySettings,
}

/// What commands may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// `proxy` where commands have a network of their own, `none` elsewhere.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// What the egress proxy lets pass; the service does not start where commands could not reach it.
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
    /// What lies on the disk.
    pub disk: DiskLimits,
    /// Runs of commands.
    pub runs: RunLimits,
    /// Runs that are remembered, in the background, or in a terminal.
    pub sessions: SessionLimits,
    /// Mounted skills that are held while nobody runs a command in them, 1 or more.
    pub views: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive: ArchiveLimits::default(),
            files: FileLimits::default(),
            disk: DiskLimits::default(),
            runs: RunLimits::default(),
            sessions: SessionLimits::default(),
            views: 256,
        }
    }
}

/// One token. Only its digest is written down.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// SHA-256 of the token, as 64 hexadecimal digits (`printf %s "$TOKEN" | sha256sum`).
    pub sha256: String,
    /// `admin`, `manager`, `engine` or `user`.
    pub role: String,
    /// The agent whose baseline a manager manages.
    pub agent: Option<String>,
    /// The user that a user token is for.
    pub user: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8003)),
            root: "./data".into(),
            durability: Durability::Strict,
            keep_versions: 3,
            allow_anonymous: false,
            shutdown_ms: 8_000,
            isolation: Isolation::default(),
            commands: Commands::default(),
            limits: Limits::default(),
            tokens: Vec::new(),
        }
    }
}

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
    /// A token entry makes no sense.
    #[error("token {number}: {problem}")]
    Token {
        /// Which entry, from 1.
        number: usize,
        /// What is wrong.
        problem: String,
    },
    /// The token of the environment or the command line is one that no request can carry.
    #[error(
        "FILESECBOX_TOKEN (`--token`) is empty or has other than visible ASCII characters, so nobody could send it: \
         unset it, or make one with `openssl rand -hex 32`"
    )]
    Unsendable,
    /// The service would be open to everybody.
    #[error(
        "`{0}` is not a loopback address and there is no token: set FILESECBOX_TOKEN, add `[[tokens]]`, or set \
         `allow_anonymous = true` (`--allow-anonymous`) when something else guards the port"
    )]
    Open(SocketAddr),
    /// The egress proxy cannot work as configured.
    #[error(transparent)]
    Proxy(#[from] SettingsError),
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        #[expect(clippy::disallowed_methods, reason = "the operator names the file; it is not stored data")]
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: shown.clone(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse { path: shown, source: Box::new(source) })
    }

    /// The tokens as they are checked.
    ///
    /// # Errors
    /// [`ConfigError::Token`].
    pub fn parsed_tokens(&self) -> Result<Vec<Token>, ConfigError> {
        let parsed =
            self.tokens.iter().zip(1..).map(|(entry, number)| {
                entry.parse().map_err(|problem| ConfigError::Token { number, problem })
            });
        parsed.collect()
    }

    /// Reads the admin token of the environment or the command line, which is in the clear.
    ///
    /// # Errors
    /// [`ConfigError::Unsendable`]: a header could not carry it (RFC 6750, section 2.1), and a service that is
    /// closed to everybody looks as if it worked.
    pub fn admin_token(text: &str) -> Result<Token, ConfigError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Unsendable);
        }
        Ok(Token::from_text(text, Role::Admin))
    }

    /// How the egress proxy behaves, of a service that listens on `listen`. With port 0 the true address is for
    /// [`crate::egress::Egress::protect`] to add.
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

impl TokenEntry {
    fn parse(&self) -> Result<Token, String> {
        let role = match (self.role.as_str(), &self.agent, &self.user) {
            ("admin", None, None) => Role::Admin,
            ("engine", None, None) => Role::Engine,
            ("manager", Some(agent), None) => {
                Role::Manager(AgentId::parse(agent).map_err(|error| error.to_string())?)
            }
            ("user", None, Some(user)) => Role::User(UserId::parse(user).map_err(|error| error.to_string())?),
            ("manager", ..) => return Err("a manager token names its `agent` and nothing else".to_owned()),
            ("user", ..) => return Err("a user token names its `user` and nothing else".to_owned()),
            ("admin" | "engine", ..) => {
                return Err(format!("a token of role `{}` names no `agent` and no `user`", self.role));
            }
            _ => return Err("`role` is `admin`, `manager`, `engine` or `user`".to_owned()),
        };
        Token::from_digest(&self.sha256, role)
            .ok_or_else(|| "`sha256` is 64 hexadecimal digits: `printf %s \"$TOKEN\" | sha256sum`".to_owned())
    }
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
    fn a_token_entry_fits_its_role() {
        let entry = |role: &str, agent: Option<&str>, user: Option<&str>| TokenEntry {
            sha256: "0".repeat(64),
            role: role.into(),
            agent: agent.map(Into::into),
            user: user.map(Into::into),
        };
        assert!(entry("admin", None, None).parse().is_ok());
        assert!(entry("manager", Some("a"), None).parse().is_ok());
        assert!(entry("user", None, Some("u")).parse().is_ok());
        for wrong in
            [entry("manager", None, None), entry("user", None, None), entry("admin", None, Some("u"))]
        {
            assert!(wrong.parse().is_err());
        }
        assert!(TokenEntry { sha256: "abc".into(), ..entry("admin", None, None) }.parse().is_err());
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
