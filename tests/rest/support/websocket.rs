//! A WebSocket client (RFC 6455) that sends exactly what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Client;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
/// How long output is waited for. Only a terminal that hangs ever reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A message from the service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Text(Value),
    Binary(Vec<u8>),
    Close,
}

pub(crate) struct Socket {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Asks for a WebSocket; the status and what follows the head.
    pub(crate) fn websocket(&self, target: &str, headers: &str) -> Result<Socket, u16> {
        let mut stream = self.connect();
        let token =
            self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let host =
            if headers.contains("host:") { String::new() } else { format!("host: {}\r\n", self.address) };
        let head = format!(
            "GET {target} HTTP/1.1\r\n{host}{token}{headers}connection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        if status == 101 { Ok(Socket { stream }) } else { Err(status) }
    }
}

impl Socket {
    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match u16::try_from(payload.len()) {
            Ok(length) if length < 126 => frame.push(0x80 | length as u8),
            Ok(length) => {
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
            Err(_) => {
                frame.push(0x80 | 127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        // A mask of zeros is a mask.
        frame.extend([0; 4]);
        frame.extend_from_slice(payload);
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.send(BINARY, text.as_bytes());
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send(TEXT, message.to_string().as_bytes());
    }

    /// The next message; [`Message::Close`] also when the connection is gone.
    pub(crate) fn next(&mut self) -> Message {
        let mut head = [0; 2];
        if self.stream.read_exact(&mut head).is_err() {
            return Message::Close;
        }
        assert_eq!(head[1] & 0x80, 0, "a server does not mask");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length).unwrap();
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        match head[0] & 0x0F {
            TEXT => Message::Text(serde_json::from_slice(&payload).unwrap()),
            BINARY => Message::Binary(payload),
            CLOSE => Message::Close,
            _ => self.next(),
        }
    }

    /// Reads what is shown until `wanted` is part of it; everything shown.
    #[track_caller]
    pub(crate) fn shown_until(&mut self, wanted: &str) -> String {
        let mut shown = Vec::new();
        let begun = Instant::now();
        while !String::from_utf8_lossy(&shown).contains(wanted) {
            assert!(begun.elapsed() < PATIENCE, "no `{wanted}` in {}", String::from_utf8_lossy(&shown));
            match self.next() {
                Message::Binary(bytes) => shown.extend(bytes),
                Message::Text(_) => {}
                Message::Close => panic!("closed before `{wanted}`: {}", String::from_utf8_lossy(&shown)),
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Reads up to the text message of this type.
    #[track_caller]
    pub(crate) fn told(&mut self, kind: &str) -> Value {
        loop {
            match self.next() {
                Message::Text(value) if value["type"] == kind => return value,
                Message::Close => panic!("closed before `{kind}`"),
                _ => {}
            }
        }
    }
}
