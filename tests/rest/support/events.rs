//! A reader of streams: events one by one as they arrive, and a connection that can be dropped at any of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::Client;
use super::client::promise::PROMISE;

/// A stream of events, `application/x-ndjson`.
pub(crate) struct Events {
    pub(crate) status: u16,
    /// The promise of each event.
    schema: &'static str,
    reader: BufReader<Chunks>,
}

/// The body of an answer with `Transfer-Encoding: chunked` (RFC 9112, section 7.1).
struct Chunks {
    stream: BufReader<TcpStream>,
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                line.clear();
                self.stream.read_line(&mut line)?;
            }
            self.left = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = into.len().min(self.left);
        let read = self.stream.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}

impl Client {
    /// Starts a run and streams it.
    pub(crate) fn stream_run(&self, tree: &str, spec: &Value) -> Events {
        self.stream("POST", &format!("{tree}/exec"), "application/x-ndjson", &spec.to_string())
    }

    /// Streams the events of a run from `after` on.
    pub(crate) fn resume(&self, tree: &str, id: &str, after: u64) -> Events {
        let target = format!("{tree}/exec/{id}?after={after}&follow");
        self.stream("GET", &target, "application/x-ndjson", "")
    }

    /// Asks for a stream and reads the head of the answer.
    pub(crate) fn stream(&self, method: &str, target: &str, accept: &str, body: &str) -> Events {
        let mut stream = self.connect();
        let token =
            self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\naccept: {accept}\r\n{token}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        let schema = match target.split('?').next().and_then(|path| path.rsplit('/').next()) {
            Some("events") => "/components/schemas/FileEvent",
            Some("prepare") => "/components/schemas/PreparationEvent",
            _ => "/components/schemas/Event",
        };
        Events { status, schema, reader: BufReader::new(Chunks { stream, left: 0 }) }
    }
}

impl Events {
    /// The next line as it is; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).unwrap();
        (read > 0).then_some(line)
    }
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            // An empty line only shows that the stream lives.
            if line != "\n" {
                let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if self.status == 200 {
                    let complaints = PROMISE.complaints(self.schema, &event);
                    assert!(complaints.is_empty(), "no event as promised: {complaints:#?} {event}");
                }
                return Some(event);
            }
        }
    }
}
