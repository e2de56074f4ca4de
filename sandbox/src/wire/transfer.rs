//! [`Transfer`]: the rest of a large open file over an HTTP connection that the runner opens.
//!
//! The frames say which file and which transfer; the bytes go over `PUT` and `GET /v1/transfers/{id}` of the service. A transfer that is
//! cut goes on where it stopped. Both ends make a digest (BLAKE3) of what went, and the service compares them.

use serde::{Deserialize, Serialize};

/// Files with more bytes than this that are still to come go over HTTP.
pub const TRANSFER_BYTES_MIN: u64 = 4 << 20;

/// The longest that a transfer may take, in seconds.
pub const TRANSFER_SECONDS_MAX: u64 = 3600;

/// The hexadecimal digits of the name of a transfer.
pub const TRANSFER_ID_DIGITS: usize = 32;

/// Which transfer carries the rest of an open file.
///
/// Its `Debug` shows no token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The open file.
    pub handle: u64,
    /// The name of the transfer: [`TRANSFER_ID_DIGITS`] hexadecimal digits.
    pub id: String,
    /// The right to this transfer and to nothing else, until it is over.
    pub token: String,
}

impl Transfer {
    /// Whether [`Transfer::id`] has the digits of a name: then it is one segment of a path.
    #[must_use]
    pub fn has_plain_id(&self) -> bool {
        self.id.len() == TRANSFER_ID_DIGITS && self.id.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Transfer")
            .field("handle", &self.handle)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a transfer has carried, as the runner saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// How many bytes.
    pub bytes: u64,
    /// Their BLAKE3 digest, in hexadecimal digits.
    pub digest: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, Request};

    #[test]
    fn a_transfer_is_written_as_it_is_read_and_its_token_is_not_shown() {
        let transfer = Transfer { handle: 7, id: "0".repeat(TRANSFER_ID_DIGITS), token: "secret".to_owned() };
        assert!(!format!("{transfer:?}").contains("secret"));
        for request in [Request::SendFile(transfer.clone()), Request::FetchFile(transfer.clone())] {
            let text = request.to_text(Some("r"), "u");
            assert_eq!(Request::read(&Frame::parse(&text).unwrap()), Ok(request));
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_not_plain() {
        let named = |id: &str| Transfer { handle: 0, id: id.to_owned(), token: String::new() };
        assert!(named(&"a".repeat(TRANSFER_ID_DIGITS)).has_plain_id());
        for id in ["", "..", &"/".repeat(TRANSFER_ID_DIGITS), &"a".repeat(TRANSFER_ID_DIGITS + 1)] {
            assert!(!named(id).has_plain_id(), "{id}");
        }
    }
}
