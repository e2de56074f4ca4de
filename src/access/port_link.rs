//! [`PortLink`]: a signed right to one port of one user and agent, for browsers, which can send no token.
//!
//! A link is a token that stands in a path: `fsbp1.KEY.CLAIMS.MAC`, signed as the tokens of users are and with the same
//! keys, but under a prefix of its own, so that neither counts as the other.

use policy::{AgentId, UserId};
use serde::{Deserialize, Serialize};

use super::signed::{KeyError, Keys, random_hex};

/// The beginning of every link's token.
const PREFIX: &str = "fsbp1.";

/// What a link is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// The user in whose network the port is.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
    /// The port.
    pub port: u16,
    /// Names the link in logs.
    pub id: String,
    /// The id of the signed token that asked for it, if it was one.
    pub by: Option<String>,
    /// When it was issued, in seconds since the epoch.
    pub issued: u64,
    /// From when it counts no more, in seconds since the epoch.
    pub expires: u64,
}

/// A link as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    user: String,
    agent: String,
    port: u16,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// Links of earlier versions say nothing about it.
    #[serde(default)]
    iat: u64,
    exp: u64,
}

impl PortLink {
    /// A link that counts from `issued` until `expires`, in seconds since the epoch.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn new(
        user: UserId,
        agent: AgentId,
        port: u16,
        [issued, expires]: [u64; 2],
    ) -> Result<Self, KeyError> {
        Ok(Self { user, agent, port, id: random_hex::<8>()?, by: None, issued, expires })
    }

    /// The same link, asked for with the signed token of this id: it ends with that token.
    #[must_use]
    pub fn asked_by(self, token: Option<&str>) -> Self {
        Self { by: token.map(str::to_owned), ..self }
    }

    /// The token; `None` without a key.
    pub(super) fn sign(&self, keys: &Keys) -> Option<String> {
        let written = Written {
            user: self.user.to_string(),
            agent: self.agent.to_string(),
            port: self.port,
            id: self.id.clone(),
            by: self.by.clone(),
            iat: self.issued,
            exp: self.expires,
        };
        keys.sign_as(PREFIX, &written)
    }

    /// Reads a token that one of `keys` signed and that has not expired at `now`, in seconds since the epoch.
    pub(super) fn verify(keys: &Keys, token: &str, now: u64) -> Option<Self> {
        let written: Written = keys.verify_as(PREFIX, token)?;
        let link = Self {
            user: UserId::parse(&written.user).ok()?,
            agent: AgentId::parse(&written.agent).ok()?,
            port: written.port,
            id: written.id,
            by: written.by,
            issued: written.iat,
            expires: written.exp,
        };
        (now < link.expires).then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::super::signed::Claims;
    use super::*;

    #[test]
    fn a_link_is_good_for_what_it_says_until_it_expires_and_no_token_of_a_user_is_one() {
        let keys = Keys::of_line(&"ab".repeat(32));
        let (user, agent) = (UserId::parse("张三").unwrap(), AgentId::parse("a").unwrap());
        let link = PortLink::new(user.clone(), agent.clone(), 8000, [40, 100]).unwrap();
        let token = link.sign(&keys).unwrap();
        let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        assert!(token.bytes().all(in_path), "a path can carry it: {token}");
        assert_eq!(PortLink::verify(&keys, &token, 99), Some(link));
        assert_eq!(PortLink::verify(&keys, &token, 100), None);
        for at in 0..token.len() {
            let mut changed = token.clone();
            changed.replace_range(at..=at, if token.as_bytes()[at] == b'A' { "B" } else { "A" });
            assert_eq!(PortLink::verify(&keys, &changed, 0), None, "{at}");
        }
        let of_user = keys.sign(&Claims::new(user, Some(agent), 0, 100).unwrap()).unwrap();
        assert_eq!(PortLink::verify(&keys, &of_user, 0), None);
        assert_eq!(keys.verify(&token, 0), None);
        // Nor when the beginning is exchanged, which is signed as well.
        assert_eq!(PortLink::verify(&keys, &of_user.replacen("fsb1.", PREFIX, 1), 0), None);
        assert_eq!(PortLink::verify(&Keys::of_line(&"cd".repeat(32)), &token, 0), None);
    }
}
