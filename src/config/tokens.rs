//! [`TokenEntry`]: one static token as the configuration or a file of tokens has it.

use policy::{AgentId, UserId};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::access::{Role, Token};

/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// One token. Only its digest is written down.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// SHA-256 of the token, as 64 hexadecimal digits (`printf %s "$TOKEN" | sha256sum`).
    pub sha256: String,
    /// `admin`, `manager`, `engine`, `user` or `monitor`.
    pub role: String,
    /// The agent whose baseline a manager manages, or that a user token is bound to.
    pub agent: Option<String>,
    /// The user that a user token is for.
    pub user: Option<String>,
    /// Its name in logs: 1 to 64 visible ASCII characters; the first digits of its digest unless given.
    pub name: Option<String>,
    /// From when it counts no more, as RFC 3339 has it: `2027-01-31T00:00:00Z`.
    pub expires: Option<String>,
}

impl TokenEntry {
    /// The token as it is checked, or what is wrong with it.
    pub(super) fn parse(&self) -> Result<Token, String> {
        let token = Token::from_digest(&self.sha256, self.parsed_role()?)
            .ok_or("`sha256` is 64 hexadecimal digits: `printf %s \"$TOKEN\" | sha256sum`")?;
        let token = match &self.name {
            None => token,
            Some(name) if is_name(name) => token.named(name),
            Some(_) => {
                return Err(format!("`name` has 1 to {NAME_BYTES_MAX} visible ASCII characters"));
            }
        };
        let Some(expires) = &self.expires else { return Ok(token) };
        let moment = OffsetDateTime::parse(expires, &Rfc3339).map_err(|_| {
            format!("`expires` is `{expires}`: write a moment such as `2027-01-31T00:00:00Z`")
        })?;
        Ok(token.expiring(u64::try_from(moment.unix_timestamp()).unwrap_or(0)))
    }

    fn parsed_role(&self) -> Result<Role, String> {
        let agent = |text: &String| AgentId::parse(text).map_err(|error| error.to_string());
        match (self.role.as_str(), &self.agent, &self.user) {
            ("admin", None, None) => Ok(Role::Admin),
            ("engine", None, None) => Ok(Role::Engine),
            ("monitor", None, None) => Ok(Role::Monitor),
            ("manager", Some(managed), None) => Ok(Role::Manager(agent(managed)?)),
            ("user", bound, Some(user)) => Ok(Role::User {
                user: UserId::parse(user).map_err(|error| error.to_string())?,
                agent: bound.as_ref().map(agent).transpose()?,
            }),
            ("manager", ..) => Err("a manager token names its `agent` and nothing else".to_owned()),
            ("user", ..) => Err("a user token names its `user`, and may name an `agent`".to_owned()),
            ("admin" | "engine" | "monitor", ..) => {
                Err(format!("a token of role `{}` names no `agent` and no `user`", self.role))
            }
            _ => Err("`role` is `admin`, `manager`, `engine`, `user` or `monitor`".to_owned()),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(role: &str, agent: Option<&str>, user: Option<&str>) -> TokenEntry {
        TokenEntry {
            sha256: "0".repeat(64),
            role: role.into(),
            agent: agent.map(Into::into),
            user: user.map(Into::into),
            name: None,
            expires: None,
        }
    }

    #[test]
    fn a_token_entry_fits_its_role() {
        for right in [
            entry("admin", None, None),
            entry("monitor", None, None),
            entry("manager", Some("a"), None),
            entry("user", None, Some("u")),
            entry("user", Some("a"), Some("u")),
        ] {
            assert!(right.parse().is_ok(), "{right:?}");
        }
        for wrong in [
            entry("manager", None, None),
            entry("user", None, None),
            entry("user", Some("a"), None),
            entry("admin", None, Some("u")),
            entry("monitor", Some("a"), None),
            TokenEntry { sha256: "abc".into(), ..entry("admin", None, None) },
            TokenEntry { name: Some(String::new()), ..entry("admin", None, None) },
            TokenEntry { name: Some("two words".into()), ..entry("admin", None, None) },
            TokenEntry { expires: Some("tomorrow".into()), ..entry("admin", None, None) },
            TokenEntry { expires: Some("2027-01-31".into()), ..entry("admin", None, None) },
        ] {
            assert!(wrong.parse().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_called_by_its_name_or_by_the_beginning_of_its_digest() {
        let named = TokenEntry { name: Some("ci".into()), ..entry("admin", None, None) };
        assert_eq!(named.parse().unwrap().name(), "ci");
        assert_eq!(entry("admin", None, None).parse().unwrap().name(), "sha256:00000000");
    }
}
