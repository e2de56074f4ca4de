//! [`Fingerprint`]: whether two requests ask for the same run.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

use super::RunRequest;
use super::record::Purpose;
use super::session::Recording;

/// A digest that tells one request from another, so that the same one sent twice is the same run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Feeds what a value hashes into a digest.
#[derive(Default)]
struct Digesting(Sha256);

impl Hasher for Digesting {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // not used: the digest is taken instead
    }
}

impl Fingerprint {
    /// The digest of a request.
    pub(super) fn of(request: &RunRequest, recording: &Recording) -> Self {
        let mut digest = Digesting::default();
        request.hash(&mut digest);
        (recording.stdin_open, recording.purpose == Purpose::Background).hash(&mut digest);
        Self(digest.0.finalize().into())
    }
}
