//! [`ProxySettings`] as an operator writes them, and [`EgressConfig`] as the proxy uses them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use thiserror::Error;

use super::address::{Standing, standing};
use super::pattern::{Pattern, PatternError};
use super::target::{Host, Target};

/// Connections of all runs of one user at once, unless one run may have more.
const CONNECTIONS_PER_USER: usize = 512;

/// The table `commands.proxy` of the configuration. Every field has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxySettings {
    /// Hosts that commands may reach: names, `*.` before a name for everything below it, addresses, ranges. Empty
    /// means every public host.
    pub allow: Vec<String>,
    /// Hosts that commands may not reach, in the same spellings; wins over `allow`. Ranges also hold for the
    /// addresses that names resolve to.
    pub deny: Vec<String>,
    /// Ports that commands may reach.
    pub ports: Vec<u16>,
    /// Ranges of addresses that are not public and may be reached all the same.
    pub allow_private: Vec<String>,
    /// `http://host:port` of a proxy through which everything goes; empty means none.
    pub upstream: String,
    /// Connections of one run at once.
    pub connections_per_run: usize,
    /// Bytes that one run may send and receive together; 0 means no bound.
    pub bytes_per_run: u64,
    /// Milliseconds without a byte in either direction after which a connection is ended.
    pub idle_ms: u64,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            ports: vec![80, 443],
            allow_private: Vec::new(),
            upstream: String::new(),
            connections_per_run: 64,
            bytes_per_run: 0,
            idle_ms: 120_000,
        }
    }
}

/// How the proxy behaves, with every text read and every bound in its type.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// Hosts that may be reached; empty means every public one.
    pub allow: Vec<Pattern>,
    /// Hosts that may not be reached.
    pub deny: Vec<Pattern>,
    /// Ports that may be reached.
    pub ports: Vec<u16>,
    /// Ranges that may be reached although they are not public.
    pub allow_private: Vec<IpNet>,
    /// The operator's own proxy, which is trusted and resolves names itself.
    pub upstream: Option<Target>,
    /// Addresses that the service listens on; never connected to. More may follow with
    /// [`super::Egress::protect`].
    pub own: Vec<SocketAddr>,
    /// Connections of one run at once; at least 1.
    pub connections_per_run: usize,
    /// Connections of all runs of one user at once; no fewer than those of one run.
    pub connections_per_user: usize,
    /// Connections of all runs at once; at least 1. Each takes two descriptors and 32 KiB.
    pub connections: usize,
    /// Bytes that one run may send and receive together.
    pub bytes_per_run: Option<u64>,
    /// How long the head of a request may take.
    pub head: Duration,
    /// How long resolving a name may take, waiting for a place included.
    pub resolve: Duration,
    /// How long connecting may take, all addresses of a name together.
    pub connect: Duration,
    /// How long a connection may be without a byte in either direction.
    pub idle: Duration,
}

/// Why settings of the proxy cannot be used.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// An entry of `allow` or `deny` is no host.
    #[error("`commands.proxy.{list}`: {source}")]
    Pattern {
        /// Which list.
        list: &'static str,
        /// The fault.
        #[source]
        source: PatternError,
    },
    /// An entry of `allow_private` is no range of addresses.
    #[error(
        "`commands.proxy.allow_private`: `{0}` is no range: write `10.1.2.0/24`, or `10.1.2.3/32` for one address"
    )]
    Range(String),
    /// An entry of `allow_private` that would do nothing.
    #[error("`commands.proxy.allow_private`: `{range}` is {kind}, which no setting opens: remove it")]
    Never {
        /// As configured.
        range: String,
        /// Which kind of address.
        kind: &'static str,
    },
    /// `upstream` is no `http://host:port`.
    #[error(
        "`commands.proxy.upstream`: `{0}` is no proxy: write `http://host:port`, without a path or a user"
    )]
    Upstream(String),
    /// A port that does not exist, a bound of nothing.
    #[error("`commands.proxy.{0}` is 0: choose at least 1")]
    Zero(&'static str),
}

impl EgressConfig {
    /// Reads `settings`; `own` are the addresses that the service listens on.
    ///
    /// # Errors
    /// Every [`SettingsError`].
    pub fn new(settings: &ProxySettings, own: Vec<SocketAddr>) -> Result<Self, SettingsError> {
        let patterns = |list, texts: &[String]| -> Result<Vec<Pattern>, SettingsError> {
            let parsed = texts.iter().map(|text| text.parse());
            parsed.collect::<Result<_, _>>().map_err(|source| SettingsError::Pattern { list, source })
        };
        for (name, is_zero) in [
            ("ports", settings.ports.contains(&0)),
            ("connections_per_run", settings.connections_per_run == 0),
            ("idle_ms", settings.idle_ms == 0),
        ] {
            if is_zero {
                return Err(SettingsError::Zero(name));
            }
        }
        Ok(Self {
            allow: patterns("allow", &settings.allow)?,
            deny: patterns("deny", &settings.deny)?,
            ports: settings.ports.clone(),
            allow_private: settings.allow_private.iter().map(|text| range(text)).collect::<Result<_, _>>()?,
            upstream: upstream(&settings.upstream)?,
            own,
            connections_per_run: settings.connections_per_run,
            connections_per_user: settings.connections_per_run.max(CONNECTIONS_PER_USER),
            connections: 4096,
            bytes_per_run: (settings.bytes_per_run > 0).then_some(settings.bytes_per_run),
            head: Duration::from_secs(10),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_millis(settings.idle_ms),
        })
    }
}

/// A range that may be opened. One that only contains addresses never opened is taken for a mistake.
fn range(text: &str) -> Result<IpNet, SettingsError> {
    let net: IpNet = text.parse().map_err(|_| SettingsError::Range(text.to_owned()))?;
    let (first, last) = (standing(net.network()), standing(net.broadcast()));
    match (first, last) {
        (Standing::Never(kind), Standing::Never(other)) if kind == other => {
            Err(SettingsError::Never { range: text.to_owned(), kind })
        }
        _ => Ok(net.trunc()),
    }
}

fn upstream(text: &str) -> Result<Option<Target>, SettingsError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || SettingsError::Upstream(without_user(text));
    let authority = text.strip_prefix("http://").ok_or_else(wrong)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    Target::parse(authority, None).map(Some).map_err(|_| wrong())
}

/// The text before an `@` may be a secret, and messages are logged.
fn without_user(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, host)| format!("…@{host}"))
}

impl EgressConfig {
    /// Tells whether `address` is in a range that the operator has opened.
    pub(super) fn opens(&self, address: IpAddr) -> bool {
        self.allow_private.iter().any(|net| net.contains(&address))
    }

    /// Tells whether the operator has named `host` itself, and not by a range.
    pub(super) fn names(&self, host: &Host) -> bool {
        self.allow.iter().any(|pattern| pattern.is_name_of(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut ProxySettings)) -> Result<EgressConfig, String> {
        let mut settings = ProxySettings::default();
        change(&mut settings);
        EgressConfig::new(&settings, Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_every_public_host_on_the_ports_of_the_web() {
        let config = with(|_| ()).unwrap();
        assert!(config.allow.is_empty() && config.deny.is_empty() && config.allow_private.is_empty());
        assert_eq!((config.ports, config.upstream, config.bytes_per_run), (vec![80, 443], None, None));
    }

    #[test]
    fn a_range_that_is_never_opened_is_a_mistake_and_a_wider_one_is_not() {
        for text in ["169.254.0.0/16", "169.254.169.254/32", "fe80::/10", "168.63.129.16/32", "224.0.0.0/4"] {
            let error = with(|settings| settings.allow_private = vec![text.into()]).unwrap_err();
            assert!(error.contains("which no setting opens"), "{error}");
        }
        for text in ["10.1.2.0/24", "10.1.2.3/24", "127.0.0.0/8", "0.0.0.0/0", "fc00::/7", "::1/128"] {
            with(|settings| settings.allow_private = vec![text.into()]).unwrap();
        }
        for text in ["10.1.2.3", "10.0.0.0/33", "intranet", ""] {
            let error = with(|settings| settings.allow_private = vec![text.into()]).unwrap_err();
            assert!(error.contains("is no range"), "{error}");
        }
    }

    #[test]
    fn an_upstream_is_a_plain_http_proxy_and_no_secret_is_printed() {
        let config = with(|settings| settings.upstream = "http://proxy.corp:3128/".into()).unwrap();
        assert_eq!(config.upstream.map(|target| target.to_string()), Some("proxy.corp:3128".into()));
        for text in
            ["proxy.corp:3128", "https://proxy.corp:3128", "http://proxy.corp", "http://u:secret@proxy:1"]
        {
            let error = with(|settings| settings.upstream = text.into()).unwrap_err();
            assert!(error.contains("is no proxy") && !error.contains("secret"), "{error}");
        }
    }
}
