//! Who may do what: tokens, roles, and finding out who a caller is.
//!
//! | File | Holds |
//! | --- | --- |
//! | `role` | roles and the one function that decides |
//! | `token` | static tokens, known by their digest |
//! | `signed` | signed tokens of users, and keys |
//! | `port_link` | signed rights to one port, for browsers |
//! | `key_file` | the key file that the service makes for itself |
//! | `reload` | noticing that the files behind all that have changed |

pub mod key_file;
pub mod port_link;
mod reload;
mod role;
pub mod signed;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

use self::port_link::PortLink;
use self::reload::Watch;
pub use self::reload::{Credentials, Sources};
pub use self::role::{Action, Reach, Refused, Role};
use self::signed::{Claims, Keys};
pub use self::token::Token;

/// The name in logs of the token of a caller who needs none.
const NO_TOKEN: &str = "-";

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The caller's role.
    pub role: Role,
    /// The token's name in logs: its name, or `signed:` and an id; of a caller who needs none, `-`.
    pub token: String,
}

impl Caller {
    /// What logs call the caller's token; none where no token is needed.
    #[must_use]
    pub fn token_name(&self) -> Option<&str> {
        Some(self.token.as_str()).filter(|token| *token != NO_TOKEN)
    }

    /// Who it is, as it is written down with what it publishes: the user of a user's token, the name of another token, or
    /// `anonymous` where none is needed.
    #[must_use]
    pub fn subject(&self) -> &str {
        match &self.role {
            Role::User { user, .. } => user.as_str(),
            _ if self.token == NO_TOKEN => "anonymous",
            _ => &self.token,
        }
    }
}

/// The tokens and keys of a service.
#[derive(Debug)]
pub struct Access {
    current: RwLock<Arc<Credentials>>,
    /// Once closed, a service stays so, even when its files change later.
    is_closed: AtomicBool,
    watch: Option<Watch>,
}

impl Access {
    /// Knows `credentials`; without any static token, every caller without a signed one is an admin.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        let is_closed = AtomicBool::new(!credentials.tokens.is_empty());
        Self { current: RwLock::new(Arc::new(credentials)), is_closed, watch: None }
    }

    /// Knows what `sources` hold, and notices when they change.
    #[must_use]
    pub fn watching(credentials: Credentials, sources: Sources) -> Self {
        Self { watch: Some(Watch::new(sources)), ..Self::new(credentials) }
    }

    /// Tells whether callers need a token.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Finds the caller who sent `token`.
    ///
    /// # Errors
    /// [`Refused::Unauthenticated`].
    pub fn caller(&self, token: Option<&str>) -> Result<Caller, Refused> {
        self.look(false);
        let known = Arc::clone(&self.current.read());
        if let Some(text) = token.filter(|text| text.starts_with(signed::PREFIX)) {
            // Also where no token is needed: a signed token names its user.
            let claims = known.keys.verify(text, now()).ok_or(Refused::Unauthenticated)?;
            let role = Role::User { user: claims.user, agent: claims.agent };
            return Ok(Caller { role, token: format!("signed:{}", claims.id) });
        }
        if !self.is_closed() {
            return Ok(Caller { role: Role::Admin, token: NO_TOKEN.to_owned() });
        }
        let digest = token::digest(token.ok_or(Refused::Unauthenticated)?);
        // Every token is compared, and each in constant time: the time taken tells nothing.
        let found =
            known.tokens.iter().fold(None, |found, token| token.is(&digest).then_some(token).or(found));
        let found = found.filter(|token| token.counts_at(now())).ok_or(Refused::Unauthenticated)?;
        Ok(Caller { role: found.role().clone(), token: found.name().to_owned() })
    }

    /// Signs a token; `None` when the service has no key.
    #[must_use]
    pub fn issue(&self, claims: &Claims) -> Option<String> {
        self.look(false);
        self.current.read().keys.sign(claims)
    }

    /// When the token that a caller sent expires, in seconds since the epoch; `None` for one that does not.
    #[must_use]
    pub fn expiry(&self, token: Option<&str>) -> Option<u64> {
        let known = Arc::clone(&self.current.read());
        let text = token?;
        if text.starts_with(signed::PREFIX) {
            return known.keys.verify(text, now()).map(|claims| claims.expires);
        }
        let digest = token::digest(text);
        known.tokens.iter().find(|token| token.is(&digest))?.expires()
    }

    /// Signs a link to a port; `None` when the service has no key.
    #[must_use]
    pub fn issue_link(&self, link: &PortLink) -> Option<String> {
        self.look(false);
        link.sign(&self.current.read().keys)
    }

    /// Reads the token of a link to a port.
    ///
    /// # Errors
    /// [`Refused::Unauthenticated`]: no key of the service signed it, or it has expired.
    pub fn link(&self, token: &str) -> Result<PortLink, Refused> {
        self.look(false);
        let known = Arc::clone(&self.current.read());
        PortLink::verify(&known.keys, token, now()).ok_or(Refused::Unauthenticated)
    }

    /// Reads the sources again if they have changed, or in any case when `is_asked`.
    ///
    /// A file that cannot be read changes nothing but the log. Reading blocks for some tens of microseconds, once for
    /// each change of a file.
    pub fn look(&self, is_asked: bool) {
        let Some(found) = self.watch.as_ref().and_then(|watch| watch.changed(is_asked)) else { return };
        match found {
            Ok(credentials) => {
                tracing::info!(
                    tokens = credentials.tokens.len(), keys = ?credentials.keys,
                    "tokens and keys were read again"
                );
                if !credentials.tokens.is_empty() {
                    self.is_closed.store(true, Ordering::Relaxed);
                }
                *self.current.write() = Arc::new(credentials);
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "tokens and keys stay as they were: the files that hold them cannot be used"
                );
            }
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::new(Credentials { tokens: Vec::new(), keys: Keys::default() })
    }
}

/// Seconds since the epoch.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(tokens: Vec<Token>) -> Access {
        Access::new(Credentials { tokens, keys: Keys::default() })
    }

    fn role(access: &Access, token: Option<&str>) -> Result<Role, Refused> {
        access.caller(token).map(|caller| caller.role)
    }

    #[test]
    fn without_tokens_everybody_is_admin_and_with_one_nobody_else_is() {
        assert_eq!(role(&Access::default(), None), Ok(Role::Admin));
        assert_eq!(role(&Access::default(), Some("anything")), Ok(Role::Admin));
        let access = closed(vec![Token::from_text("秘密", Role::Engine, "e")]);
        assert_eq!(role(&access, Some("秘密")), Ok(Role::Engine));
        assert_eq!(role(&access, Some("秘")), Err(Refused::Unauthenticated));
        assert_eq!(role(&access, None), Err(Refused::Unauthenticated));
    }

    #[test]
    fn a_token_counts_until_it_expires() {
        let token = |expires| Token::from_text("t", Role::Engine, "t").expiring(expires);
        assert_eq!(role(&closed(vec![token(now() + 60)]), Some("t")), Ok(Role::Engine));
        assert_eq!(role(&closed(vec![token(now())]), Some("t")), Err(Refused::Unauthenticated));
    }

    #[test]
    fn a_signed_token_that_does_not_count_is_refused_even_where_none_is_needed() {
        assert_eq!(role(&Access::default(), Some("fsb1.x.y.z")), Err(Refused::Unauthenticated));
    }
}
