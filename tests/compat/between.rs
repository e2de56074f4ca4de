//! [`Between`]: what stands between a client and the service, counts requests, and breaks connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A request as it came, head and body.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// When it had come.
    pub(crate) at: Instant,
    /// The status that the client got, unless its connection was cut.
    pub(crate) status: Option<u16>,
    /// The answer that the client got, head and body.
    pub(crate) answer: Vec<u8>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is passed on, and the answer back.
    Passed,
    /// It is passed on; when the service has answered, the client's connection is closed without a word.
    Cut,
    /// It is not passed on, but answered so.
    Answered(&'static str),
    /// It is passed on, and the answer back; an archive with another byte in its middle.
    Tampered,
}

/// A proxy with one request a connection, each passed on whole.
pub(crate) struct Between {
    pub(crate) address: SocketAddr,
    passed: Arc<Mutex<Vec<Passed>>>,
}

impl Between {
    /// Starts a proxy in front of `to`. `fate` tells what becomes of a request, by its head and how many came before.
    pub(crate) fn start(to: SocketAddr, fate: impl Fn(&str, usize) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let passed = Arc::new(Mutex::new(Vec::new()));
        let (kept, fate) = (Arc::clone(&passed), Arc::new(fate));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, fate) = (Arc::clone(&kept), Arc::clone(&fate));
                std::thread::spawn(move || pass(stream, to, &kept, &*fate));
            }
        });
        Self { address, passed }
    }

    /// Every request so far, in the order in which they came.
    pub(crate) fn passed(&self) -> Vec<Passed> {
        self.passed.lock().unwrap().clone()
    }
}

impl Passed {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Method and target.
    pub(crate) fn asked(&self) -> (&str, &str) {
        let mut words = self.head.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }
}

/// Passes one request on.
fn pass(
    mut from: TcpStream,
    to: SocketAddr,
    kept: &Mutex<Vec<Passed>>,
    fate: &(dyn Fn(&str, usize) -> Fate + Send + Sync),
) -> Option<()> {
    let head = read_head(&mut from)?;
    let mut request =
        Passed { head: head.clone(), body: Vec::new(), at: Instant::now(), status: None, answer: Vec::new() };
    if request.header("expect").is_some() {
        from.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    request.body = match request.header("content-length") {
        Some(length) => {
            let mut body = vec![0; length.parse().ok()?];
            from.read_exact(&mut body).ok()?;
            body
        }
        None if request.header("transfer-encoding").is_some() => read_chunks(&mut from)?,
        None => Vec::new(),
    };
    let (number, fate) = {
        let mut kept = kept.lock().unwrap();
        let number = kept.len();
        kept.push(Passed { at: Instant::now(), ..request.clone() });
        (number, fate(&head, number))
    };
    let mut answer = match fate {
        Fate::Answered(answer) => answer.as_bytes().to_vec(),
        Fate::Passed | Fate::Cut | Fate::Tampered => ask(to, &head, &request.body)?,
    };
    if fate == Fate::Tampered {
        let body = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        if answer[body..].starts_with(b"PK") {
            // Behind the names and sizes of the first entry: its text.
            let at = body + (answer.len() - body) / 3;
            answer[at] ^= 1;
        }
    }
    if fate == Fate::Cut {
        // As a load balancer that goes away.
        return from.shutdown(Shutdown::Both).ok();
    }
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok();
    {
        let mut kept = kept.lock().unwrap();
        (kept[number].status, kept[number].answer) = (status, answer.clone());
    }
    from.write_all(&answer).ok()
}

/// Sends a request on, its body with a length. Returns the whole answer, after which the connection is closed.
fn ask(to: SocketAddr, head: &str, body: &[u8]) -> Option<Vec<u8>> {
    let dropped = ["connection:", "expect:", "transfer-encoding:", "content-length:"];
    let lines = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.is_empty() && !dropped.iter().any(|name| line.starts_with(name))
    });
    let head: String = lines.flat_map(|line| [line, "\r\n"]).collect();
    let length = format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut server = TcpStream::connect(to).ok()?;
    server.write_all(&[head.as_bytes(), length.as_bytes(), body].concat()).ok()?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).ok()?;
    Some(answer)
}

fn read_head(from: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Reads a body in chunks (RFC 9112, section 7.1).
fn read_chunks(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            from.read_exact(&mut byte).ok()?;
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).ok()?;
        let length = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        let mut chunk = vec![0; length + 2];
        from.read_exact(&mut chunk).ok()?;
        if length == 0 {
            return Some(body);
        }
        chunk.truncate(length);
        body.append(&mut chunk);
    }
}
