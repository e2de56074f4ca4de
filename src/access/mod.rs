//! Who may do what: tokens, roles, and finding out who a caller is.
//!
//! | File | Holds |
//! | --- | --- |
//! | `role` | roles and the one function that decides |
//! | `token` | static tokens, known by their digest |
//! | `signed` | signed tokens of users, and keys |
//! | `port_link` | signed rights to one port, for browsers |
//! | `key_file` | the key file that the service makes for itself |
//! | `revoked` | signed tokens that count no more although they have not expired |
//! | `reload` | noticing that the files behind all that have changed |

pub mod key_file;
pub mod port_link;
mod reload;
pub mod revoked;
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
use self::revoked::Revocations;
pub use self::role::{Action, Reach, Refused, Role};
use self::signed::{Claims, Keys};
pub use self::token::Token;

/// The name in logs of the token of a caller who needs none.
const NO_TOKEN: &str = "-";
/// What stands before the id of a signed token in its name in logs.
const SIGNED: &str = "signed:";

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

    /// The id of the caller's token, if it is a signed one.
    #[must_use]
    pub fn signed_id(&self) -> Option<&str> {
        self.token.strip_prefix(SIGNED)
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
    revocations: Arc<Revocations>,
}

impl Access {
    /// Knows `credentials`; without any static token, every caller without a signed one is an admin.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        let is_closed = AtomicBool::new(!credentials.tokens.is_empty());
        let current = RwLock::new(Arc::new(credentials));
        Self { current, is_closed, watch: None, revocations: Arc::default() }
    }

    /// Knows what `sources` hold, and notices when they change.
    #[must_use]
    pub fn watching(credentials: Credentials, sources: Sources) -> Self {
        Self { watch: Some(Watch::new(sources)), ..Self::new(credentials) }
    }

    /// The same, refusing the tokens that `revocations` are about.
    #[must_use]
    pub fn revoking(self, revocations: Revocations) -> Self {
        Self { revocations: Arc::new(revocations), ..self }
    }

    /// The tokens that count no more.
    #[must_use]
    pub fn revocations(&self) -> &Arc<Revocations> {
        &self.revocations
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
            let claims = self.claims(&known, text).ok_or(Refused::Unauthenticated)?;
            let role = Role::User { user: claims.user, agent: claims.agent };
            return Ok(Caller { role, token: format!("{SIGNED}{}", claims.id) });
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

    /// What a signed token says; `None` for one that does not count.
    fn claims(&self, known: &Credentials, text: &str) -> Option<Claims> {
        let claims = known.keys.verify(text, now())?;
        (!self.revocations.revoke(&claims.id, &claims.user, claims.issued)).then_some(claims)
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
            return self.claims(&known, text).map(|claims| claims.expires);
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
    /// [`Refused::Unauthenticated`]: no key of the service signed it, it has expired, or it was revoked.
    pub fn link(&self, token: &str) -> Result<PortLink, Refused> {
        self.look(false);
        let known = Arc::clone(&self.current.read());
        let link = PortLink::verify(&known.keys, token, now()).ok_or(Refused::Unauthenticated)?;
        let mut ids = std::iter::once(&link.id).chain(&link.by);
        if ids.any(|id| self.revocations.revoke(id, &link.user, link.issued)) {
            Err(Refused::Unauthenticated)
        } else {
            Ok(link)
        }
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
    use policy::{AgentId, UserId};

    use super::revoked::{Revocation, Revoked};
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

    #[test]
    fn a_link_to_a_port_ends_with_itself_with_its_user_and_with_the_token_that_asked_for_it() {
        let keys = Keys::of_line(&"ab".repeat(32));
        let access = Access::new(Credentials { tokens: Vec::new(), keys });
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let link = |by| {
            let link = PortLink::new(user.clone(), agent.clone(), 8000, [now(), now() + 60]).unwrap();
            let link = link.asked_by(by);
            (access.issue_link(&link).unwrap(), link)
        };
        let (of_token, of_admin) = (link(Some("a1")), link(None));
        let count = || [&of_token, &of_admin].map(|(token, link)| access.link(token).as_ref() == Ok(link));
        assert_eq!(count(), [true, true]);
        let in_force = Revocation { at: now(), until: now() + 60 };
        access.revocations().put(Revoked::token("a1").unwrap(), in_force);
        assert_eq!(count(), [false, true]);
        access.revocations().put(Revoked::token(&of_admin.1.id).unwrap(), in_force);
        assert_eq!(count(), [false, false]);
        let later = link(None);
        assert!(access.link(&later.0).is_ok());
        access.revocations().put(Revoked::User(user.clone()), Revocation { at: now() + 1, ..in_force });
        assert!(access.link(&later.0).is_err());
    }
}
