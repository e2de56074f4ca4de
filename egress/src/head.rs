//! [`RawHead`]: the first lines of a message, read with bounds and taken apart by one parser.
//!
//! Nothing of a head is passed on as it came: what the other side gets is written anew from what was understood, so
//! that two readers cannot understand it differently.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::refusal::Refusal;

/// Longest head, in bytes, of a request and of an answer.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most fields of a head.
const FIELDS_MAX: usize = 100;
/// Bytes asked for at a time; what comes after the head stays small.
const READ_BYTES: usize = 4096;

/// Why there is no head.
#[derive(Debug)]
pub(super) enum HeadError {
    /// The other side ended, or broke, before the head did; `true` when it had sent nothing.
    Ended { was_silent: bool },
    /// It is longer than [`HEAD_BYTES_MAX`].
    TooLarge,
    /// It took too long.
    Timeout,
}

/// A head and the bytes that came after it.
pub(super) struct RawHead {
    bytes: Vec<u8>,
    end: usize,
}

/// Reads up to the empty line that ends a head.
pub(super) async fn read(
    from: &mut (impl AsyncRead + Unpin),
    within: Duration,
) -> Result<RawHead, HeadError> {
    read_from(Vec::new(), from, within).await
}

/// The same, when `bytes` were read before.
pub(super) async fn read_from(
    mut bytes: Vec<u8>,
    from: &mut (impl AsyncRead + Unpin),
    within: Duration,
) -> Result<RawHead, HeadError> {
    let reading = async {
        let mut seen = 0;
        loop {
            // Only new bytes are looked through, and the parser runs once: a byte at a time costs no more.
            let from_here = seen.max(3) - 3;
            let tail = bytes.get(from_here..).unwrap_or_default();
            if let Some(at) = tail.windows(4).position(|window| window == b"\r\n\r\n") {
                let end = from_here + at + 4;
                return if end > HEAD_BYTES_MAX { Err(HeadError::TooLarge) } else { Ok(end) };
            }
            if bytes.len() >= HEAD_BYTES_MAX {
                return Err(HeadError::TooLarge);
            }
            seen = bytes.len();
            bytes.reserve(READ_BYTES);
            let count = (&mut *from).take(READ_BYTES as u64).read_buf(&mut bytes).await.unwrap_or(0);
            if count == 0 {
                return Err(HeadError::Ended { was_silent: bytes.is_empty() });
            }
        }
    };
    let end = tokio::time::timeout(within, reading).await.map_err(|_| HeadError::Timeout)??;
    Ok(RawHead { bytes, end })
}

/// A field as it came: the name in lower case, the value without white space around it.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
}

/// A request as it came.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: String,
    pub(super) target: String,
    /// HTTP/1.1 rather than 1.0.
    pub(super) is_1_1: bool,
    pub(super) fields: Vec<Field>,
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) fields: Vec<Field>,
}

impl RawHead {
    /// Takes a request apart; also gives the bytes after it.
    ///
    /// # Errors
    /// [`Refusal::Malformed`], [`Refusal::HeadTooLarge`].
    pub(super) fn into_request(mut self) -> Result<(RequestHead, Vec<u8>), Refusal> {
        let rest = self.bytes.split_off(self.end);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(&self.bytes);
        check_lines(parsed, &self.bytes)?;
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version)
        else {
            return Err(Refusal::Malformed("the request line is not complete"));
        };
        let head = RequestHead {
            method: method.to_owned(),
            target: target.to_owned(),
            is_1_1: version == 1,
            fields: own(request.headers),
        };
        Ok((head, rest))
    }

    /// Takes an answer apart; also gives the bytes after it.
    ///
    /// # Errors
    /// [`Refusal::BadAnswer`].
    pub(super) fn into_answer(mut self) -> Result<(AnswerHead, Vec<u8>), Refusal> {
        let rest = self.bytes.split_off(self.end);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        let parsed = answer.parse(&self.bytes);
        check_lines(parsed, &self.bytes).map_err(|_| Refusal::BadAnswer("its head is no HTTP/1.1"))?;
        let head = AnswerHead {
            status: answer.code.unwrap_or_default(),
            reason: answer.reason.unwrap_or_default().to_owned(),
            fields: own(answer.headers),
        };
        Ok((head, rest))
    }
}

/// Refuses what the parser did not understand, and what it takes and others do not: it also ends a line at a bare
/// line feed (RFC 9112, section 2.2), which would move a field into the value of the one before, or the end.
fn check_lines(parsed: httparse::Result<usize>, head: &[u8]) -> Result<(), Refusal> {
    let ends_plainly = |line: &[u8]| line.ends_with(b"\r\n");
    match parsed {
        Ok(httparse::Status::Complete(end))
            if end == head.len() && head.split_inclusive(|byte| *byte == b'\n').all(ends_plainly) =>
        {
            Ok(())
        }
        Ok(_) => Err(Refusal::Malformed("lines end with a carriage return and a line feed")),
        Err(httparse::Error::TooManyHeaders) => Err(Refusal::HeadTooLarge(HEAD_BYTES_MAX)),
        Err(_) => Err(Refusal::Malformed("the head is no HTTP/1.1")),
    }
}

fn own(fields: &[httparse::Header<'_>]) -> Vec<Field> {
    let owned = |field: &httparse::Header<'_>| Field {
        name: field.name.to_ascii_lowercase(),
        value: field.value.into(),
    };
    fields.iter().map(owned).collect()
}

/// All values of the field `name`.
pub(super) fn values<'a>(fields: &'a [Field], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name == name).map(|field| field.value.as_slice())
}

/// Fields that are for one connection, and not for the server behind it (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// Fields that say where a message goes and where it ends. The proxy writes its own.
const FRAMING: [&str; 3] = ["content-length", "host", "transfer-encoding"];

/// The fields that are passed on: neither for one connection, nor named by `Connection`, nor framing.
pub(super) fn passed_on(fields: &[Field]) -> impl Iterator<Item = &Field> {
    let named: Vec<String> = values(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
        .collect();
    fields.iter().filter(move |field| {
        let name = field.name.as_str();
        !HOP_BY_HOP.contains(&name) && !FRAMING.contains(&name) && !named.iter().any(|other| other == name)
    })
}

/// Writes fields as lines.
pub(super) fn write_fields<'a>(fields: impl Iterator<Item = &'a Field>, to: &mut Vec<u8>) {
    for Field { name, value } in fields {
        to.extend_from_slice(name.as_bytes());
        to.extend_from_slice(b": ");
        to.extend_from_slice(value);
        to.extend_from_slice(b"\r\n");
    }
}

impl RequestHead {
    /// The token that the request carries: the user name of one `Proxy-Authorization: Basic` (RFC 7617).
    pub(super) fn token(&self) -> Option<String> {
        let mut sent = values(&self.fields, "proxy-authorization");
        let (only, None) = (sent.next()?, sent.next()) else { return None };
        let (scheme, credentials) = std::str::from_utf8(only).ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(credentials.trim_ascii()).ok()?;
        let (user, _) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
        Some(user.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(text: &str) -> Result<(RequestHead, Vec<u8>), Refusal> {
        let raw = read(&mut text.as_bytes(), Duration::from_secs(5)).await.unwrap();
        raw.into_request()
    }

    #[tokio::test]
    async fn a_head_ends_with_its_empty_line_and_what_follows_is_kept() {
        let (head, rest) = request("POST http://a/ HTTP/1.1\r\nX-A:  b \r\n\r\nbody").await.unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str(), head.is_1_1), ("POST", "http://a/", true));
        assert_eq!(values(&head.fields, "x-a").collect::<Vec<_>>(), [b"b"]);
        assert_eq!(rest, b"body");
    }

    #[tokio::test]
    async fn heads_that_two_readers_could_read_differently_are_refused() {
        for text in [
            "GET http://a/ HTTP/1.1\nHost: a\n\nGET http://b/ HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\n\nGET http://b/ HTTP/1.1\r\n\r\n",
            "\nGET http://a/ HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nContent-Length : 5\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET http://a/ HTTP/2.0\r\n\r\n",
            "GET http://a/\r\n\r\n",
            "GET  http://a/ HTTP/1.1\r\n\r\n",
            "GET http://a/ b HTTP/1.1\r\n\r\n",
            "G\u{e9}T http://a/ HTTP/1.1\r\n\r\n",
            "\u{16}\u{3}\u{1}\r\n\r\n",
        ] {
            let refused = request(text).await;
            assert!(matches!(refused, Err(Refusal::Malformed(_))), "{text:?} became {refused:?}");
        }
        let many = format!("GET http://a/ HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(matches!(request(&many).await, Err(Refusal::HeadTooLarge(_))));
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_read_no_further_than_its_bound() {
        let endless = tokio::io::repeat(b'a');
        let mut endless = endless.take(1 << 30);
        assert!(matches!(read(&mut endless, Duration::from_secs(5)).await, Err(HeadError::TooLarge)));
        let taken = (1 << 30) - endless.limit();
        assert!(taken <= (HEAD_BYTES_MAX + READ_BYTES) as u64, "{taken}");
    }

    #[tokio::test]
    async fn only_one_basic_user_name_is_a_token() {
        for (fields, token) in [
            ("Proxy-Authorization: Basic dG9rOg==\r\n", Some("tok")),
            ("proxy-authorization: bASIC dG9rOnJ1bg==\r\n", Some("tok")),
            ("", None),
            ("Authorization: Basic dG9rOg==\r\n", None),
            ("Proxy-Authorization: Bearer dG9rOg==\r\n", None),
            ("Proxy-Authorization: Basic dG9r\r\n", None),
            ("Proxy-Authorization: Basic %%%\r\n", None),
            ("Proxy-Authorization: Basic dG9rOg==\r\nProxy-Authorization: Basic dG9rOg==\r\n", None),
        ] {
            let (head, _) = request(&format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n")).await.unwrap();
            assert_eq!(head.token().as_deref(), token, "{fields}");
        }
    }

    #[tokio::test]
    async fn fields_of_one_connection_and_those_it_names_stay_behind() {
        let (head, _) = request(
            "GET http://a/ HTTP/1.1\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nProxy-Authorization: x\r\n\
             TE: trailers\r\nUpgrade: h2c\r\nHost: b\r\nContent-Length: 1\r\nAccept: */*\r\nKeep-Alive: 1\r\n\r\n",
        )
        .await
        .unwrap();
        let mut lines = Vec::new();
        write_fields(passed_on(&head.fields), &mut lines);
        assert_eq!(String::from_utf8_lossy(&lines), "accept: */*\r\n");
    }
}
