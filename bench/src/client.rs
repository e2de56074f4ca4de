//! [`Connection`]: one kept-alive HTTP/1.1 connection, as cheap as a client can be.
//!
//! Requests are bytes that the caller built once. Answers must carry a `Content-Length` (RFC 9112, section 6.3);
//! both services under test send one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use memchr::memmem;

use crate::error::{Failure, Result};

/// Longest silence before a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes asked of the kernel at once.
const READ_BYTES: usize = 256 * 1024;

/// One kept-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// An answer whose body lies in the connection's buffer.
pub(crate) struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, whole.
    pub body: &'a [u8],
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).map_err(Failure::io("connect"))?;
        stream.set_nodelay(true).map_err(Failure::io("set TCP_NODELAY"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(Failure::io("set a timeout"))?;
        Ok(Self { stream, buffer: vec![0; READ_BYTES], filled: 0 })
    }

    /// The socket, to wait for.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request and waits for its answer, of any status.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::Protocol`].
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.send(request)?;
        loop {
            self.receive()?;
            if let Some((status, start, end)) = self.complete(request)? {
                let body = self.buffer.get(start..end).unwrap_or_default();
                return Ok(Answer { status, body });
            }
        }
    }

    /// Sends a request and demands a status below 400. Returns the bytes of the body.
    ///
    /// # Errors
    /// [`Failure::Answer`], else as [`Connection::exchange`].
    pub(crate) fn call(&mut self, request: &[u8]) -> Result<&[u8]> {
        let answer = self.exchange(request)?;
        if answer.status < 400 {
            return Ok(answer.body);
        }
        let (status, body) = (answer.status, text(answer.body));
        Err(Failure::Answer { request: first_line(request), status, body })
    }

    /// The failure that an answer of 400 or above is; `start` and `end` as [`Connection::complete`] told them.
    pub(crate) fn refusal(&self, request: &[u8], status: u16, start: usize, end: usize) -> Failure {
        let body = text(self.buffer.get(start..end).unwrap_or_default());
        Failure::Answer { request: first_line(request), status, body }
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<()> {
        self.filled = 0;
        self.stream.write_all(request).map_err(Failure::io("send"))
    }

    /// Takes what has arrived, waiting for at least one byte.
    ///
    /// # Errors
    /// [`Failure::Io`], also when the service hung up.
    pub(crate) fn receive(&mut self) -> Result<()> {
        if self.buffer.len() < self.filled + READ_BYTES / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        loop {
            match self.stream.read(free) {
                Ok(0) => return Err(Failure::io("receive")(ErrorKind::UnexpectedEof.into())),
                Ok(read) => {
                    self.filled += read;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io("receive")(error)),
            }
        }
    }

    /// Tells whether the answer is complete: status, beginning and end of the body in the buffer.
    pub(crate) fn complete(&self, request: &[u8]) -> Result<Option<(u16, usize, usize)>> {
        let received = self.buffer.get(..self.filled).unwrap_or_default();
        let Some(head_end) = memmem::find(received, b"\r\n\r\n") else { return Ok(None) };
        let head = received.get(..head_end).unwrap_or_default();
        let (Some(status), Some(length)) = (status(head), content_length(head)) else {
            return Err(Failure::Protocol(first_line(request)));
        };
        let (start, end) = (head_end + 4, head_end + 4 + length);
        Ok((self.filled >= end).then_some((status, start, end)))
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let digits = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The value of `Content-Length`; hyper writes header names in lower case.
fn content_length(head: &[u8]) -> Option<usize> {
    let start = memmem::find(head, b"content-length: ")? + b"content-length: ".len();
    let rest = head.get(start..)?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn first_line(request: &[u8]) -> String {
    text(request.split(|byte| *byte == b'\r').next().unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(300)).unwrap_or_default()).into_owned()
}

/// A request without a body.
#[must_use]
pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A request with a body.
#[must_use]
pub(crate) fn with_body(method: &str, target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    request
}

/// An upload of one archive as a form, as browsers and curl send it.
#[must_use]
pub(crate) fn upload(target: &str, file_name: &str, archive: &[u8]) -> Vec<u8> {
    const BOUNDARY: &str = "----bench-boundary-7d1f3a";
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{file_name}\"\r\n\
         Content-Type: application/zip\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(archive);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    with_body("POST", target, &format!("multipart/form-data; boundary={BOUNDARY}"), &body)
}
