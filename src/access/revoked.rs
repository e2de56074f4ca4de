//! [`Revocations`]: signed tokens and links that count no more although they have not expired.

use std::collections::HashMap;

use parking_lot::RwLock;
use policy::UserId;
use serde::{Deserialize, Serialize};

/// What stands before the user in the key of a revocation; no token has it in its id.
const OF_USER: char = '/';
/// Longest id of a token, in bytes.
const ID_BYTES_MAX: usize = 64;

/// The tokens that a revocation is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// The token or link with this id.
    Token(String),
    /// All tokens and links of this user that were issued until the moment of the revocation.
    User(UserId),
}

/// When tokens were revoked, and from when the revocation means nothing because they have all expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Seconds since the epoch.
    pub at: u64,
    /// Seconds since the epoch.
    pub until: u64,
}

/// The revocations that are in force.
#[derive(Debug, Default)]
pub struct Revocations(RwLock<HashMap<Revoked, Revocation>>);

impl Revoked {
    /// The tokens that a caller names by an id; `None` when no token has such an id.
    #[must_use]
    pub fn token(id: &str) -> Option<Self> {
        let is_id =
            (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_id.then(|| Self::Token(id.to_owned()))
    }

    /// The key under which the revocation is kept.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Token(id) => id.clone(),
            Self::User(user) => format!("{OF_USER}{user}"),
        }
    }

    /// What a key stands for; `None` for one that no version has written.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        match key.strip_prefix(OF_USER) {
            Some(user) => UserId::parse(user).ok().map(Self::User),
            None => Self::token(key),
        }
    }
}

impl Revocations {
    /// Puts a revocation in force, in the place of one before of the same tokens.
    pub fn put(&self, revoked: Revoked, revocation: Revocation) {
        self.0.write().insert(revoked, revocation);
    }

    /// Forgets revocations of tokens that have all expired at `now`; which.
    pub fn expire(&self, now: u64) -> Vec<Revoked> {
        let mut known = self.0.write();
        known.extract_if(|_, revocation| revocation.until <= now).map(|(revoked, _)| revoked).collect()
    }

    /// The revocations in force at `now`, sorted by their keys.
    #[must_use]
    pub fn all(&self, now: u64) -> Vec<(Revoked, Revocation)> {
        let known = self.0.read();
        let mut all: Vec<_> = known
            .iter()
            .filter(|(_, revocation)| now < revocation.until)
            .map(|(revoked, revocation)| (revoked.clone(), *revocation))
            .collect();
        all.sort_unstable_by_key(|(revoked, _)| revoked.key());
        all
    }

    /// Whether a token with this id, issued to `user` at `issued` (seconds since the epoch), counts no more.
    #[must_use]
    pub fn revoke(&self, id: &str, user: &UserId, issued: u64) -> bool {
        let known = self.0.read();
        if known.is_empty() {
            return false;
        }
        let of_user = known.get(&Revoked::User(user.clone()));
        known.contains_key(&Revoked::Token(id.to_owned()))
            || of_user.is_some_and(|revocation| issued <= revocation.at)
    }

    /// The moment that a token which is issued `now` has to bear: after the last revocation of the user's tokens.
    #[must_use]
    pub fn issued_at(&self, user: &UserId, now: u64) -> u64 {
        let of_user = self.0.read().get(&Revoked::User(user.clone())).map(|revocation| revocation.at);
        of_user.map_or(now, |at| now.max(at.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[test]
    fn a_revocation_is_about_its_tokens_and_those_issued_until_then() {
        let revocations = Revocations::default();
        assert!(!revocations.revoke("a1", &user("张三"), 100));
        revocations.put(Revoked::token("a1").unwrap(), Revocation { at: 100, until: 200 });
        revocations.put(Revoked::User(user("张三")), Revocation { at: 100, until: 300 });
        assert!(revocations.revoke("a1", &user("u"), 999));
        assert!(!revocations.revoke("a2", &user("u"), 99));
        assert!(revocations.revoke("a2", &user("张三"), 100));
        assert!(!revocations.revoke("a2", &user("张三"), 101));
        // A token that is issued in the second of the revocation counts.
        assert_eq!(revocations.issued_at(&user("张三"), 100), 101);
        assert_eq!(revocations.issued_at(&user("张三"), 500), 500);
        assert_eq!(revocations.issued_at(&user("u"), 100), 100);

        let keys: Vec<String> = revocations.all(0).iter().map(|(revoked, _)| revoked.key()).collect();
        assert_eq!(keys, ["/张三", "a1"]);
        assert_eq!(revocations.expire(200), [Revoked::Token("a1".to_owned())]);
        assert_eq!(revocations.all(300), []);
    }

    #[test]
    fn what_is_kept_under_a_key_is_found_again() {
        for revoked in [Revoked::token("9f86d081884c7d65").unwrap(), Revoked::User(user("a.b"))] {
            assert_eq!(Revoked::of_key(&revoked.key()), Some(revoked));
        }
        for wrong in ["", "/", "/../x", "a/b", "a b", &"a".repeat(65)] {
            assert_eq!(Revoked::of_key(wrong), None, "{wrong}");
        }
    }
}
