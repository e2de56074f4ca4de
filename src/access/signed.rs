//! Signed tokens: what a user's token says, and the keys that prove it.
//!
//! A signed token is `fsb1.KEY.CLAIMS.MAC`: the id of the key, the claims as JSON in base64url without padding, and
//! the HMAC-SHA-256 (RFC 2104) of everything before the last dot, in base64url. Nothing about it is stored: it counts
//! until it expires or until its key is gone.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use policy::{AgentId, UserId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The beginning of every signed token.
pub const PREFIX: &str = "fsb1.";
/// The longest signed token, in bytes: two ids of 128 bytes, escaped and encoded, and the rest.
const TOKEN_BYTES_MAX: usize = 4096;
/// Keys in one file.
const KEYS_MAX: usize = 16;
/// Fewest bytes of a key; RFC 2104 advises no fewer than the hash has.
const KEY_BYTES_MIN: usize = 32;
/// Most bytes of a key file.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// The claims of a signed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The user whose trees its bearer reaches.
    pub user: UserId,
    /// With this agent only, when there is one.
    pub agent: Option<AgentId>,
    /// Names the token in logs.
    pub id: String,
    /// When it was issued, in seconds since the epoch.
    pub issued: u64,
    /// From when it counts no more, in seconds since the epoch.
    pub expires: u64,
}

/// The claims as they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    id: String,
    iat: u64,
    exp: u64,
}

/// Why keys cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("the key file `{path}` cannot be read: make one with `openssl rand -hex 32`, mode 0600")]
    Read {
        /// As configured.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is no list of keys.
    #[error(
        "line {line} of the key file `{path}` is no key: a line is at least {KEY_BYTES_MIN} bytes in hexadecimal, \
         such as `openssl rand -hex 32` prints"
    )]
    Line {
        /// As configured.
        path: String,
        /// Which line, from 1.
        line: usize,
    },
    /// The file has no keys, or too many.
    #[error("the key file `{path}` has {found} keys: it must have 1 to {KEYS_MAX}, the first of which signs")]
    Count {
        /// As configured.
        path: String,
        /// Keys in it.
        found: usize,
    },
    /// The service cannot make a key file of its own.
    #[error("the key file below the data directory cannot be made")]
    Make(#[source] Box<storage::Error>),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Random(#[source] getrandom::Error),
}

/// One key with what tokens call it.
#[derive(Clone)]
struct Key {
    id: String,
    bytes: Vec<u8>,
}

/// Keys, of which the first signs and all verify.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl Keys {
    /// Reads keys from a file: one a line in hexadecimal, the one that signs first; empty lines and lines that begin
    /// with `#` are left out.
    ///
    /// # Errors
    /// [`KeyError::Read`], [`KeyError::Line`], [`KeyError::Count`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        use std::io::Read;
        let shown = path.display().to_string();
        let failed = |source| KeyError::Read { path: shown.clone(), source };
        #[expect(clippy::disallowed_methods, reason = "the operator names the file; it is not stored data")]
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text, &shown)
    }

    fn parse(text: &str, path: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bytes = hex::decode(line).ok().filter(|bytes| bytes.len() >= KEY_BYTES_MIN);
            let bytes = bytes.ok_or_else(|| KeyError::Line { path: path.to_owned(), line: number })?;
            keys.push(Key { id: key_id(&bytes), bytes });
        }
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(KeyError::Count { path: path.to_owned(), found: keys.len() });
        }
        Ok(Self(keys))
    }

    /// A new key as a line of a key file, without its end.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn fresh_line() -> Result<String, KeyError> {
        random_hex::<32>()
    }

    /// Signs claims; `None` without a key.
    #[must_use]
    pub fn sign(&self, claims: &Claims) -> Option<String> {
        let written = Written {
            user: claims.user.to_string(),
            agent: claims.agent.as_ref().map(ToString::to_string),
            id: claims.id.clone(),
            iat: claims.issued,
            exp: claims.expires,
        };
        self.sign_as(PREFIX, &written)
    }

    /// Reads a token that one of these keys signed and that has not expired at `now`, in seconds since the epoch.
    #[must_use]
    pub fn verify(&self, token: &str, now: u64) -> Option<Claims> {
        let written: Written = self.verify_as(PREFIX, token)?;
        let claims = Claims {
            user: UserId::parse(&written.user).ok()?,
            agent: written.agent.as_deref().map(AgentId::parse).transpose().ok()?,
            id: written.id,
            issued: written.iat,
            expires: written.exp,
        };
        (now < claims.expires).then_some(claims)
    }

    /// Signs what is `written`, in a token that begins with `prefix`; `None` without a key.
    pub(super) fn sign_as(&self, prefix: &str, written: &impl Serialize) -> Option<String> {
        let key = self.0.first()?;
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(written).ok()?);
        let signed = format!("{prefix}{}.{payload}", key.id);
        let mac = URL_SAFE_NO_PAD.encode(key.mac(signed.as_bytes())?.finalize().into_bytes());
        Some(format!("{signed}.{mac}"))
    }

    /// Reads what one of these keys signed in a token that begins with `prefix`.
    ///
    /// The comparison of the signature takes a time that does not depend on it.
    pub(super) fn verify_as<T: DeserializeOwned>(&self, prefix: &str, token: &str) -> Option<T> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, mac) = token.rsplit_once('.')?;
        let (id, payload) = signed.strip_prefix(prefix)?.split_once('.')?;
        let key = self.0.iter().find(|key| key.id == id)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        key.mac(signed.as_bytes())?.verify_slice(&mac).ok()?;
        // Only what was signed is read.
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// Keys of one line of a key file.
    #[cfg(test)]
    pub(super) fn of_line(line: &str) -> Self {
        Self::parse(line, "test").unwrap()
    }
}

impl Claims {
    /// Claims for `user` that begin `now`, in seconds since the epoch, and last for `seconds`.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn new(user: UserId, agent: Option<AgentId>, now: u64, seconds: u64) -> Result<Self, KeyError> {
        Ok(Self { user, agent, id: random_hex::<8>()?, issued: now, expires: now.saturating_add(seconds) })
    }
}

impl Key {
    fn mac(&self, text: &[u8]) -> Option<Hmac<Sha256>> {
        // A key of any length will do (RFC 2104, section 2).
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.bytes).ok()?;
        mac.update(text);
        Some(mac)
    }
}

/// The name of a key in tokens: the beginning of a digest, which says nothing about the key.
fn key_id(bytes: &[u8]) -> String {
    let mut id = hex::encode(Sha256::digest(bytes));
    id.truncate(8);
    id
}

pub(crate) fn random_hex<const BYTES: usize>() -> Result<String, KeyError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn keys(lines: &[&str]) -> Keys {
        Keys::parse(&lines.join("\n"), "test").unwrap()
    }

    fn claims(agent: Option<&str>) -> Claims {
        let agent = agent.map(|agent| AgentId::parse(agent).unwrap());
        Claims::new(UserId::parse("张三").unwrap(), agent, NOW, 60).unwrap()
    }

    #[test]
    fn what_was_signed_is_read_until_it_expires() {
        let keys = keys(&["# first", &"ab".repeat(32)]);
        for claims in [claims(None), claims(Some("demo"))] {
            let token = keys.sign(&claims).unwrap();
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()), "a header can carry it: {token}");
            assert_eq!(keys.verify(&token, NOW + 59), Some(claims));
            assert_eq!(keys.verify(&token, NOW + 60), None);
        }
    }

    #[test]
    fn a_token_with_any_character_changed_counts_no_more() {
        let keys = keys(&[&"ab".repeat(32)]);
        let token = keys.sign(&claims(None)).unwrap();
        for at in 0..token.len() {
            for other in ['A', 'b', '.', '-'] {
                let mut changed = token.clone();
                changed.replace_range(at..=at, &other.to_string());
                // The last character of a code holds bits that mean nothing; the decoder refuses them too.
                assert!(changed == token || keys.verify(&changed, NOW).is_none(), "{at} {other}");
            }
        }
        for other in ["", "fsb1", "fsb1.", "fsb1...", "fsb1.a.b.c", &token[1..], &token[..token.len() - 1]] {
            assert_eq!(keys.verify(other, NOW), None, "{other}");
        }
        assert_eq!(keys.verify(&format!("{token}{}", "A".repeat(5000)), NOW), None);
    }

    #[test]
    fn a_key_that_follows_signs_and_the_former_still_verifies_until_it_is_gone() {
        let (former, next) = ("11".repeat(32), "22".repeat(32));
        let token = keys(&[&former]).sign(&claims(None)).unwrap();
        let both = keys(&[&next, &former]);
        assert!(both.verify(&token, NOW).is_some());
        let newer = both.sign(&claims(None)).unwrap();
        let only = keys(&[&next]);
        assert!(only.verify(&newer, NOW).is_some() && only.verify(&token, NOW).is_none());
    }

    #[test]
    fn a_key_file_that_cannot_be_meant_is_refused() {
        for (text, hint) in [("", "0 keys"), ("secret", "line 1"), ("\nabcd", "line 2"), ("zz", "line 1")] {
            assert!(Keys::parse(text, "k").unwrap_err().to_string().contains(hint), "{text}");
        }
        let many = vec!["ab".repeat(32); KEYS_MAX + 1].join("\n");
        assert!(Keys::parse(&many, "k").unwrap_err().to_string().contains("17 keys"));
    }
}
