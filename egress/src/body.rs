//! [`Framing`]: where the body of a request ends, and passing on exactly that.
//!
//! A body that two readers end in different places lets a second request through that no rule has judged. So a request
//! says its length in one way only, and chunks are written anew.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::head::{Field, values};
use super::meter::Meter;
use super::refusal::Refusal;

/// Longest line that says the size of a chunk, and all lines after the last chunk together, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// How the length of a body is told (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body, and no field about one.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Why a body was not passed on to its end.
#[derive(Debug, Error)]
pub(super) enum BodyError {
    /// The client ended or broke.
    #[error("the client went away")]
    Client(#[source] io::Error),
    /// The other side takes no more, which it may do when it answers early.
    #[error("the other side takes no more")]
    Server(#[source] io::Error),
    /// The chunks make no sense.
    #[error("{0}")]
    Malformed(&'static str),
    /// The run has moved all it may; the bound.
    #[error("the run has moved {0} bytes")]
    Spent(u64),
}

impl Framing {
    /// Reads the framing of a request.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] for what is told twice, in two ways, or in any way that is not plain.
    pub(super) fn of(fields: &[Field], is_1_1: bool) -> Result<Self, Refusal> {
        let mut lengths = values(fields, "content-length");
        let mut encodings = values(fields, "transfer-encoding");
        match (lengths.next(), lengths.next(), encodings.next(), encodings.next()) {
            (None, _, None, _) => Ok(Self::None),
            (Some(length), None, None, _) => parse_length(length).map(Self::Length),
            (None, _, Some(encoding), None) if is_1_1 && encoding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Self::Chunked)
            }
            (None, _, Some(_), _) => {
                Err(Refusal::Malformed("`Transfer-Encoding` is not `chunked` alone, in HTTP/1.1"))
            }
            (Some(_), Some(_), None, _) => Err(Refusal::Malformed("`Content-Length` is there twice")),
            (Some(_), _, Some(_), _) => {
                Err(Refusal::Malformed("`Content-Length` and `Transfer-Encoding` contradict each other"))
            }
        }
    }

    /// The line of the head that says so.
    pub(super) fn line(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Length(length) => format!("content-length: {length}\r\n"),
            Self::Chunked => "transfer-encoding: chunked\r\n".to_owned(),
        }
    }
}

fn parse_length(digits: &[u8]) -> Result<u64, Refusal> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).ok_or(Refusal::Malformed("`Content-Length` is no number"))
}

/// Passes a body on and stops exactly at its end.
pub(super) async fn send(
    framing: Framing,
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &Meter,
) -> Result<(), BodyError> {
    match framing {
        Framing::None => Ok(()),
        Framing::Length(length) => send_bytes(length, from, to, meter).await,
        Framing::Chunked => send_chunks(from, to, meter).await,
    }
}

async fn send_bytes(
    mut left: u64,
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &Meter,
) -> Result<(), BodyError> {
    while left > 0 {
        let piece = from.fill_buf().await.map_err(BodyError::Client)?;
        let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Some(piece) = piece.get(..length).filter(|piece| !piece.is_empty()) else {
            return Err(BodyError::Client(io::ErrorKind::UnexpectedEof.into()));
        };
        meter.sent(length).map_err(BodyError::Spent)?;
        to.write_all(piece).await.map_err(BodyError::Server)?;
        from.consume(length);
        left -= length as u64;
    }
    Ok(())
}

async fn send_chunks(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &Meter,
) -> Result<(), BodyError> {
    loop {
        let size = chunk_size(&read_line(from, meter).await?)?;
        if size == 0 {
            break;
        }
        to.write_all(format!("{size:x}\r\n").as_bytes()).await.map_err(BodyError::Server)?;
        send_bytes(size, from, to, meter).await?;
        if !read_line(from, meter).await?.is_empty() {
            return Err(BodyError::Malformed("a chunk is longer than it says"));
        }
        to.write_all(b"\r\n").await.map_err(BodyError::Server)?;
    }
    // Fields after the last chunk may be left out (RFC 9110, section 6.5.1).
    let mut left = LINE_BYTES_MAX;
    loop {
        let line = read_line(from, meter).await?;
        left = left.checked_sub(line.len() as u64).ok_or(BodyError::Malformed("the trailer is too long"))?;
        if line.is_empty() {
            return to.write_all(b"0\r\n\r\n").await.map_err(BodyError::Server);
        }
        // An empty field costs its sender two bytes and us a turn.
        left = left.saturating_sub(1);
    }
}

/// Reads a line without its end, which is a carriage return and a line feed and nothing less.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin), meter: &Meter) -> Result<Vec<u8>, BodyError> {
    let mut line = Vec::new();
    let count = from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await.map_err(BodyError::Client)?;
    meter.sent(count).map_err(BodyError::Spent)?;
    if count == 0 {
        return Err(BodyError::Client(io::ErrorKind::UnexpectedEof.into()));
    }
    match line.strip_suffix(b"\r\n") {
        Some(line) if !line.contains(&b'\r') => Ok(line.to_vec()),
        _ => Err(BodyError::Malformed("a line between chunks is too long or has no proper end")),
    }
}

/// The size that a line before a chunk says; an extension after `;` is left out.
fn chunk_size(line: &[u8]) -> Result<u64, BodyError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_plain = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain);
    let size = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    size.ok_or(BodyError::Malformed("the size of a chunk is no hexadecimal number"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn framing(lines: &[(&str, &str)], is_1_1: bool) -> Result<Framing, &'static str> {
        let field = |(name, value): &(&str, &str)| Field { name: (*name).into(), value: (*value).into() };
        let fields: Vec<Field> = lines.iter().map(field).collect();
        Framing::of(&fields, is_1_1).map_err(|refusal| refusal.rule())
    }

    #[test]
    fn a_length_told_twice_or_in_two_ways_or_oddly_is_refused() {
        let (length, encoding) = ("content-length", "transfer-encoding");
        assert_eq!(framing(&[], true), Ok(Framing::None));
        assert_eq!(framing(&[(length, "12")], true), Ok(Framing::Length(12)));
        assert_eq!(framing(&[(encoding, "Chunked")], true), Ok(Framing::Chunked));
        assert_eq!(framing(&[(encoding, "chunked")], false), Err("malformed"));
        for odd in ["", "+1", "-1", "1 2", "1,1", "0x1", "1.0", "18446744073709551616", "١"] {
            assert_eq!(framing(&[(length, odd)], true), Err("malformed"), "{odd}");
        }
        for odd in [
            "",
            "identity",
            "gzip, chunked",
            "chunked, chunked",
            "chunked, identity",
            "xchunked",
            "chunked;a",
        ] {
            assert_eq!(framing(&[(encoding, odd)], true), Err("malformed"), "{odd}");
        }
        assert_eq!(framing(&[(length, "1"), (length, "1")], true), Err("malformed"));
        assert_eq!(framing(&[(length, "1"), (encoding, "chunked")], true), Err("malformed"));
        assert_eq!(framing(&[(encoding, "chunked"), (encoding, "chunked")], true), Err("malformed"));
    }

    async fn passed(framing: Framing, mut text: &[u8]) -> Result<(String, usize), String> {
        let (meter, mut to) = (Meter::unbounded(Duration::from_secs(5)), Vec::new());
        match send(framing, &mut text, &mut to, &meter).await {
            Ok(()) => Ok((String::from_utf8_lossy(&to).into_owned(), text.len())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn a_body_ends_where_its_length_says_and_nothing_after_it_is_passed_on() {
        let after = b"12345GET http://b/ HTTP/1.1\r\n\r\n";
        assert_eq!(passed(Framing::Length(5), after).await, Ok(("12345".into(), after.len() - 5)));
        assert_eq!(passed(Framing::None, after).await, Ok((String::new(), after.len())));
        assert!(passed(Framing::Length(99), after).await.is_err());
    }

    #[tokio::test]
    async fn chunks_are_written_anew_and_odd_ones_end_the_request() {
        let taken =
            passed(Framing::Chunked, b"5;x=y\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest").await;
        assert_eq!(taken, Ok(("5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n".into(), 4)));
        for odd in [
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "-5\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "\r\n0\r\n\r\n",
            "5\r;\r\nhello\r\n0\r\n\r\n",
            "fffffffffffffffff\r\n",
            "5\r\nhel",
            "",
        ] {
            assert!(passed(Framing::Chunked, odd.as_bytes()).await.is_err(), "{odd:?}");
        }
        let endless = format!("0\r\n{}\r\n", "X: y\r\n".repeat(5000));
        assert!(passed(Framing::Chunked, endless.as_bytes()).await.is_err());
    }
}
