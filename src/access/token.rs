//! [`Token`]: a static token, known by its digest only.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::role::Role;

/// A token that the configuration names.
#[derive(Clone, Debug)]
pub struct Token {
    digest: [u8; 32],
    role: Role,
    name: String,
    /// Seconds since the epoch, from which it counts no more.
    expires: Option<u64>,
}

/// The digest of a token as a caller sends it.
pub(super) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl Token {
    /// The token `text`, called `name` in logs.
    #[must_use]
    pub fn from_text(text: &str, role: Role, name: impl Into<String>) -> Self {
        Self { digest: digest(text), role, name: name.into(), expires: None }
    }

    /// A token by its SHA-256, as 64 hexadecimal digits; `None` when it is none.
    ///
    /// Until it is given a name it is called by the first digits of its digest.
    #[must_use]
    pub fn from_digest(digits: &str, role: Role) -> Option<Self> {
        let mut digest = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return None;
        }
        for (index, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        let name = format!("sha256:{}", digits.get(..8)?.to_ascii_lowercase());
        Some(Self { digest, role, name, expires: None })
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same, counting until `expires`, in seconds since the epoch.
    #[must_use]
    pub fn expiring(self, expires: u64) -> Self {
        Self { expires: Some(expires), ..self }
    }

    /// The role of its bearer.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Its name in logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// From when it counts no more, in seconds since the epoch; `None` when it always counts.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Tells whether it is the token with this digest, in a time that does not depend on the digest.
    pub(super) fn is(&self, digest: &[u8; 32]) -> bool {
        self.digest.ct_eq(digest).into()
    }

    /// Tells whether it counts at `now`, in seconds since the epoch.
    pub(super) fn counts_at(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}
