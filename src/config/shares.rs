//! Settings of share links.

use policy::AgentId;
use serde::Deserialize;

use super::ConfigError;

/// Links by which installers read skills without a token.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SharesConfig {
    /// Whether their routes are there.
    pub enabled: bool,
    /// Where callers outside reach the service, such as `https://skills.example.com`; links begin with it. Where it is
    /// empty they begin with `/`, and with the name by which a caller asked where they must be whole.
    pub public_url: String,
    /// The agents whose skills for all users everybody may install, without a link.
    pub public_agents: Vec<AgentId>,
}

impl SharesConfig {
    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let rest = ["https://", "http://"].iter().find_map(|scheme| self.public_url.strip_prefix(scheme));
        let is_url = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(|byte| byte.is_ascii_graphic())
        });
        if self.public_url.is_empty() || (is_url && !self.public_url.contains(['?', '#', '"'])) {
            return Ok(());
        }
        Err(ConfigError::Value {
            setting: "shares.public_url",
            value: format!("`{}`", self.public_url.escape_debug()),
            advice: "write the beginning of a URL, such as `https://skills.example.com`, or nothing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_begin_with_a_url_or_with_nothing() {
        let check = |url: &str| {
            SharesConfig { enabled: true, public_url: url.to_owned(), ..SharesConfig::default() }
                .check()
                .is_ok()
        };
        for url in ["", "https://skills.example.com", "http://127.0.0.1:8003/base/"] {
            assert!(check(url), "{url}");
        }
        for url in [
            "skills.example.com",
            "ftp://x",
            "https://",
            "https:///x",
            "https://a b",
            "https://a/?x=",
            "https://a#",
        ] {
            assert!(!check(url), "{url}");
        }
    }
}
