//! A blocking HTTP/1.1 client that neither normalises a path nor corrects a header: one request a connection.

// A test that uses the client also uses the promise that its answers are compared with.
#[path = "answered.rs"]
pub(crate) mod answered;
#[path = "pace.rs"]
pub(crate) mod pace;
#[path = "promise.rs"]
pub(crate) mod promise;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::answered::Answered;
use self::promise::PROMISE;

/// Longest wait for anything to arrive. Only a service that hangs ever reaches it.
const PATIENCE: Duration = Duration::from_secs(330);

/// A service and the caller's token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The host path that no failure may tell.
    pub(crate) root: String,
    pub(crate) token: Option<String>,
}

/// A request being put together.
pub(crate) struct Request<'a> {
    client: &'a Client,
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The request line, for messages.
    asked: String,
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn encoded(text: impl AsRef<[u8]>) -> String {
    let one = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.as_ref().iter().map(one).collect()
}

impl Client {
    /// The same service, asked with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn request(&self, method: &str, target: impl Into<String>) -> Request<'_> {
        Request {
            client: self,
            method: method.to_owned(),
            target: target.into(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(&self, target: impl Into<String>) -> Reply {
        self.request("GET", target).send()
    }

    pub(crate) fn put(&self, target: impl Into<String>, body: impl AsRef<[u8]>) -> Reply {
        self.request("PUT", target).body(body).send()
    }

    pub(crate) fn delete(&self, target: impl Into<String>) -> Reply {
        self.request("DELETE", target).send()
    }

    pub(crate) fn post(&self, target: impl Into<String>, body: impl AsRef<[u8]>) -> Reply {
        self.request("POST", target).body(body).send()
    }

    pub(crate) fn post_json(&self, target: impl Into<String>, body: &Value) -> Reply {
        self.request("POST", target).header("content-type", "application/json").body(body.to_string()).send()
    }

    /// Uploads an archive as the raw body and expects success.
    pub(crate) fn upload(&self, skills: &str, scope: &str, archive: &[u8]) -> Value {
        self.try_upload(skills, scope, archive).ok()
    }

    /// Uploads an archive as the raw body.
    pub(crate) fn try_upload(&self, skills: &str, scope: &str, archive: &[u8]) -> Reply {
        self.request("POST", format!("{skills}/upload?scope={scope}"))
            .header("content-type", "application/zip")
            .body(archive)
            .send()
    }

    /// Runs a direct command and expects that it ran, well or not. Returns the whole answer.
    pub(crate) fn execute(&self, tree: &str, command: &str, args: &[&str]) -> Value {
        self.try_execute(tree, command, args).ok()
    }

    /// Asks for a direct command.
    pub(crate) fn try_execute(&self, tree: &str, command: &str, args: &[&str]) -> Reply {
        self.post_json(format!("{tree}/execute?command={}", encoded(command)), &args.into())
    }

    /// The text of a file, which must be there.
    pub(crate) fn text(&self, tree: &str, path: &str) -> String {
        let answer = self.get(format!("{tree}/content?path={}", encoded(path))).ok();
        answer["data"].as_str().expect("the text").to_owned()
    }

    /// Every file of a tree.
    pub(crate) fn files(&self, tree: &str) -> Vec<String> {
        let answer = self.get(format!("{tree}/files")).ok();
        answer["data"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
    }

    /// Writes a whole text, which must succeed.
    pub(crate) fn write(&self, tree: &str, path: &str, text: &str) -> Value {
        self.put(format!("{tree}/edit?path={}", encoded(path)), text).ok()
    }

    /// Opens a connection for bytes that are no proper request.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(pace::paced(PATIENCE))).unwrap();
        stream.set_write_timeout(Some(pace::paced(PATIENCE))).unwrap();
        stream
    }

    /// Sends bytes as they are, closes the sending side and reads what comes back; `None` for no answer at all.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Option<Reply> {
        let mut stream = self.connect();
        // The service may answer and close before everything is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let asked = String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned();
        self.read_reply(&mut stream, &asked, bytes)
    }

    /// Reads one answer and everything behind it; `None` for no answer at all.
    ///
    /// No failure may tell where the data directory is, unless `sent` told it first.
    pub(crate) fn read_reply(&self, stream: &mut TcpStream, asked: &str, sent: &[u8]) -> Option<Reply> {
        self.try_reply(stream, asked, sent).ok()
    }

    /// As [`Client::read_reply`]; the error tells what came instead of an answer, and when.
    fn try_reply(&self, stream: &mut TcpStream, asked: &str, sent: &[u8]) -> Result<Reply, String> {
        let (begun, mut bytes) = (Instant::now(), Vec::new());
        // A reset after the answer is how a service refuses a body that it does not want.
        let ended = stream.read_to_end(&mut bytes);
        let reply = parse(&bytes, asked).ok_or_else(|| {
            format!(
                "{asked}: no answer but {} bytes after {:?}, then {ended:?}",
                bytes.len(),
                begun.elapsed()
            )
        })?;
        if reply.status >= 400 && !String::from_utf8_lossy(sent).contains(&self.root) {
            let told = String::from_utf8_lossy(&reply.body);
            assert!(!told.contains(&self.root), "{asked}: a failure tells the host path: {told}");
        }
        reply.check_promised();
        Ok(reply)
    }
}

fn parse(bytes: &[u8], asked: &str) -> Option<Reply> {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    if status == 100 {
        return parse(&bytes[head_end + 4..], asked);
    }
    let reply = Reply { status, headers, body: bytes[head_end + 4..].to_vec(), asked: asked.to_owned() };
    assert_eq!(reply.header("transfer-encoding"), None, "{asked}: every answer announces its length");
    Some(reply)
}

impl Request<'_> {
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Some(body.as_ref().to_vec());
        self
    }

    /// The head of the request, `length` being what the body is announced to have.
    fn head(&self, length: Option<u64>) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.extend_from_slice(format!("host: {}\r\n", self.client.address).as_bytes());
        }
        head.extend_from_slice(b"connection: close\r\n");
        if let Some(token) = &self.client.token {
            head.extend_from_slice(format!("authorization: Bearer {token}\r\n").as_bytes());
        }
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        if let Some(length) = length {
            head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    fn asked(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    /// Sends the request and reads the answer.
    pub(crate) fn send(self) -> Reply {
        let mut stream = self.client.connect();
        let announces = self.headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
        });
        let length = self.body.as_ref().filter(|_| !announces).map(|body| body.len() as u64);
        let mut bytes = self.head(length);
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        let _ = stream.write_all(&bytes);
        let asked = self.asked();
        self.client.try_reply(&mut stream, &asked, &bytes).unwrap_or_else(|none| panic!("{none}"))
    }

    /// Sends a body of `length` bytes piece by piece.
    pub(crate) fn send_stream(self, length: u64, body: &mut dyn Read) -> Reply {
        let mut stream = self.client.connect();
        stream.write_all(&self.head(Some(length))).unwrap();
        let mut piece = vec![0; 256 * 1024];
        loop {
            let read = body.read(&mut piece).unwrap();
            // A refusal in the middle is an answer, not an accident.
            if read == 0 || stream.write_all(&piece[..read]).is_err() {
                break;
            }
        }
        let asked = self.asked();
        self.client.try_reply(&mut stream, &asked, b"").unwrap_or_else(|none| panic!("{none}"))
    }

    /// Sends the request and hands the answer's body to `take` piece by piece. Returns head and body length.
    pub(crate) fn receive(self, take: &mut dyn FnMut(&[u8])) -> (Reply, u64) {
        let mut stream = self.client.connect();
        stream.write_all(&self.head(None)).unwrap();
        let mut head = Vec::new();
        let mut piece = vec![0; 256 * 1024];
        let mut received = 0_u64;
        let mut reply: Option<Reply> = None;
        loop {
            let read = stream.read(&mut piece).unwrap();
            if read == 0 {
                break;
            }
            let mut body = &piece[..read];
            if reply.is_none() {
                head.extend_from_slice(body);
                let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                let rest = head.split_off(end + 4);
                reply = parse(&head, &self.asked());
                received += rest.len() as u64;
                take(&rest);
                body = &[];
            }
            received += body.len() as u64;
            take(body);
        }
        (reply.expect("an answer"), received)
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The tag, without which the answer to a read is incomplete.
    pub(crate) fn etag(&self) -> String {
        self.header("etag").unwrap_or_else(|| panic!("{}: no ETag", self.asked)).to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{}: {} with no JSON ({error}): {}", self.asked, self.status, self.shown())
        })
    }

    /// Holds the answer against the document, when it came whole.
    fn check_promised(&self) {
        let mut words = self.asked.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
        let announced = self.header("content-length").and_then(|length| length.parse::<usize>().ok());
        let is_whole = method == "HEAD" || announced.is_none_or(|length| length == self.body.len());
        if !is_whole || !target.starts_with('/') {
            return;
        }
        let answered =
            Answered { method, target, status: self.status, headers: &self.headers, body: &self.body };
        let complaints = PROMISE.broken_by(&answered);
        assert!(
            complaints.is_empty(),
            "{}: {} {}\nis not what the OpenAPI document promises: {complaints:#?}",
            self.asked,
            self.status,
            self.shown()
        );
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(2000).collect()
    }

    /// Expects success in the envelope and returns it whole.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{}: {} {}", self.asked, self.status, self.shown());
        let answer = self.json();
        assert_eq!(answer["status"], "success", "{}", self.asked);
        assert!(answer.get("data").is_some(), "{}: no data", self.asked);
        answer
    }

    /// Expects bytes without an envelope.
    #[track_caller]
    pub(crate) fn bytes(&self, status: u16) -> &[u8] {
        assert_eq!(self.status, status, "{}: {}", self.asked, self.shown());
        &self.body
    }

    /// Expects a failure, its envelope complete, and returns it.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.asked, self.shown());
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.asked);
        let answer = self.json();
        assert_eq!(answer["status"], "error", "{}", self.asked);
        assert_eq!(answer["code"], code, "{}: {answer}", self.asked);
        let sentence =
            answer["data"].as_str().unwrap_or_else(|| panic!("{}: no sentence: {answer}", self.asked));
        assert!(!sentence.is_empty(), "{}: an empty sentence", self.asked);
        let id = answer["request_id"].as_str().expect("a request id");
        assert_eq!(self.header("x-request-id"), Some(id), "{}", self.asked);
        answer
    }
}
