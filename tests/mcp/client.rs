//! A client of MCP that sends what it is told, in the words of either era.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{Client, Service};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const PATH: &str = "/mcp/alice/demo";

/// The configuration that switches the server on.
pub(crate) const ON: &str = "[mcp]\nenabled = true\n";

/// A service with the server, which every caller may use.
pub(crate) fn service() -> Service {
    Service::configured(ON)
}

/// The revision of the protocol that messages are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

pub(crate) const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

/// A request being put together.
#[derive(Clone)]
pub(crate) struct Post {
    client: Client,
    path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An answer: its head, and the messages in its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// An answer that is read while it comes.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Post {
    /// A body as it is, with the headers that every request has.
    pub(crate) fn raw(client: &Client, body: impl Into<Vec<u8>>) -> Self {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("host", &client.address.to_string()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { client: client.clone(), path: PATH.to_owned(), headers, body: body.into() }
    }

    /// A method with its parameters, as the era has it.
    pub(crate) fn method(client: &Client, era: Era, method: &str, mut params: Value) -> Self {
        let mut headers = Vec::new();
        match era {
            Era::Modern => {
                params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
                headers.push(("mcp-protocol-version", MODERN.to_owned()));
                headers.push(("mcp-method", method.to_owned()));
                if let Some(name) = params["name"].as_str() {
                    headers.push(("mcp-name", name.to_owned()));
                }
            }
            Era::Legacy if method != "initialize" => {
                headers.push(("mcp-protocol-version", LEGACY.to_owned()));
            }
            Era::Legacy => {}
        }
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let mut post = Self::raw(client, message.to_string());
        post.headers.extend(headers.into_iter().map(|(name, value)| (name.to_owned(), value)));
        post
    }

    pub(crate) fn call(client: &Client, era: Era, tool: &str, arguments: Value) -> Self {
        Self::method(client, era, "tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn to(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    /// The same with another value of a header; without one when it is empty.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sends it, and reads the head of the answer.
    pub(crate) fn begin(&self) -> Stream {
        let mut stream = self.client.connect();
        let mut head = format!("POST {} HTTP/1.1\r\nconnection: close\r\n", self.path);
        if let Some(token) = &self.client.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        // The service may answer before everything is sent.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&self.body));
        Stream::read(stream)
    }

    /// Sends it without waiting for anything.
    pub(crate) fn send_only(&self) -> TcpStream {
        let mut stream = self.client.connect();
        let mut head = format!("POST {} HTTP/1.1\r\n", self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&self.body).unwrap();
        stream
    }

    pub(crate) fn send(&self) -> Answer {
        let mut stream = self.begin();
        let mut body = String::new();
        while let Some(line) = stream.line() {
            body.push_str(&line);
            body.push('\n');
        }
        Answer { status: stream.status, headers: stream.headers, body }
    }

    /// Sends it and expects a result, which is the last message.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let answer = self.send();
        let message = answer.last();
        assert!(answer.status == 200 && message["result"].is_object(), "{answer:?}");
        message["result"].clone()
    }

    /// Sends it and expects an error under this status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        let answer = self.send();
        let message = answer.last();
        assert!(answer.status == status && message["error"].is_object(), "{answer:?}");
        message["error"].clone()
    }
}

impl Stream {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).expect("a status").parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        assert!(is_chunked || headers.iter().any(|(name, _)| name == "content-length"), "{headers:?}");
        Self { reader, status, headers }
    }

    /// The next line of the body that is no frame of a chunk; `None` at the end.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap_or_default() == 0 {
                return None;
            }
            let line = line.trim_end();
            let is_frame = line.len() <= 8 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_frame {
                return Some(line.to_owned());
            }
        }
    }

    /// The next message; `None` at the end.
    pub(crate) fn message(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// All messages, of a stream or a plain body.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let lines = self.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        lines.filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    pub(crate) fn last(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message: {self:?}"))
    }
}

/// Calls a tool and gives its result.
#[track_caller]
pub(crate) fn called(client: &Client, tool: &str, arguments: Value) -> Value {
    Post::call(client, Era::Modern, tool, arguments).result()
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
