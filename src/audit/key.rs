//! [`Key`]: what proves that the service itself wrote the seals of the log.
//!
//! The key is made at the first start, in the directory of the service's keys, mode 0600: 32 random bytes in
//! hexadecimal. Who can write to the log and cannot read the key cannot forge a seal.

use std::ffi::OsStr;
use std::io::{Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use storage::{Dir, Error, Result};

/// Name of the file in its directory.
const NAME: &str = "audit";
/// Its name until it is whole.
const FRESH: &str = "audit.fresh";
/// Bytes of a key.
const BYTES: usize = 32;

/// The key of the seals of one store.
#[derive(Clone)]
pub struct Key([u8; BYTES]);

impl Key {
    /// Reads the key; `None` when there is none.
    ///
    /// # Errors
    /// Those of reading; [`Error::Io`] when the file holds no key.
    pub fn read(dir: &Dir) -> Result<Option<Self>> {
        let (file, _) = match dir.open_file_entry(OsStr::new(NAME)) {
            Err(Error::NotFound(_)) => return Ok(None),
            opened => opened?,
        };
        let failed = |source| Error::Io { operation: "read", path: NAME.to_owned(), source };
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text).map_err(failed)?;
        let key = parse(text.trim_end()).ok_or_else(|| {
            let problem = "the key of the audit log is damaged: bring it back from a backup, or remove it";
            failed(std::io::Error::new(std::io::ErrorKind::InvalidData, problem))
        })?;
        Ok(Some(key))
    }

    /// Makes a key, which [`Self::keep`] keeps.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn make() -> Result<Self> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| Error::Io {
            operation: "make",
            path: NAME.to_owned(),
            source: std::io::Error::other(error),
        })?;
        Ok(Self(bytes))
    }

    /// Writes the key for later starts, whole or not at all.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn keep(&self, dir: &Dir) -> Result<()> {
        let (name, fresh) = (OsStr::new(NAME), OsStr::new(FRESH));
        match dir.remove_file(fresh) {
            // A file that a crash left was never a key.
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let mut file = dir.create_file(fresh, 0o600)?;
        writeln!(file, "{}", hex::encode(self.0))
            .and_then(|()| file.sync_all())
            .map_err(|source| Error::Io { operation: "write", path: NAME.to_owned(), source })?;
        dir.rename_new(fresh, dir, name)?;
        dir.sync()
    }

    /// The HMAC-SHA-256 (RFC 2104) of `bytes`, in hexadecimal.
    pub(super) fn mac(&self, bytes: &[u8]) -> String {
        self.over(bytes).map_or_else(String::new, |mac| hex::encode(mac.finalize().into_bytes()))
    }

    /// Tells whether `mac` is that of `bytes`, in a time that tells nothing of where it differs.
    pub(super) fn is_mac(&self, bytes: &[u8], mac: &str) -> bool {
        let (Some(mac), Some(over)) = (hex::decode(mac).ok(), self.over(bytes)) else { return false };
        over.verify_slice(&mac).is_ok()
    }

    /// Every length is a key of HMAC, so there always is one.
    fn over(&self, bytes: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0).ok()?;
        mac.update(b"filesecbox audit seals\0");
        mac.update(bytes);
        Some(mac)
    }
}

fn parse(text: &str) -> Option<Key> {
    hex::decode(text).ok()?.try_into().ok().map(Key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test damages its own file")]
    fn a_key_is_kept_and_its_mac_is_no_other_keys() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(place.path()).unwrap();
        assert!(Key::read(&dir).unwrap().is_none());
        let key = Key::make().unwrap();
        key.keep(&dir).unwrap();
        let again = Key::read(&dir).unwrap().unwrap();
        let mac = key.mac(b"seals");
        assert!(again.is_mac(b"seals", &mac));
        assert!(!again.is_mac(b"sealz", &mac) && !Key::make().unwrap().is_mac(b"seals", &mac));
        assert!(!again.is_mac(b"seals", "") && !again.is_mac(b"seals", &mac[1..]));
        std::fs::write(place.path().join(NAME), "short\n").unwrap();
        assert!(Key::read(&dir).is_err());
    }
}
