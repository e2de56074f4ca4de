//! [`Server`]: a host behind the proxy, a thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::proxy::PATIENCE;

/// A listening server and what was said to it, connection by connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    /// Serves each connection with `serve`, which gives what it heard.
    pub(crate) fn start(serve: impl Fn(TcpStream) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", serve)
    }

    pub(crate) fn at(address: &str, serve: impl Fn(TcpStream) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, serve) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::new(serve));
        let record = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), serve, record) = (stream, Arc::clone(&serve), Arc::clone(&record)) else {
                    return;
                };
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                std::thread::spawn(move || {
                    let said = serve(stream);
                    record.lock().push(said);
                });
            }
        });
        Self { address, heard }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The bytes received on the connections that have ended, of which there must be `count` sooner or later.
    pub(crate) fn heard(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        while self.heard.lock().len() < count {
            assert!(Instant::now() < deadline, "{} of {count} connections", self.heard.lock().len());
            std::thread::sleep(Duration::from_millis(1));
        }
        self.heard.lock().iter().map(|said| String::from_utf8_lossy(said).into_owned()).collect()
    }
}

/// Sends back all that it receives, until the end.
pub(crate) fn echo(mut stream: TcpStream) -> Vec<u8> {
    let (mut said, mut piece) = (Vec::new(), [0; 65536]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if stream.write_all(&piece[..count]).is_err() {
            break;
        }
        said.extend_from_slice(&piece[..count.min(1024)]);
    }
    said
}

/// Answers what looks like one request: reads a head and as much body as it says, then answers `hello`.
pub(crate) fn http(mut stream: TcpStream) -> Vec<u8> {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        said.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&said).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        let mut body = vec![0; length.trim().parse().unwrap()];
        if stream.read_exact(&mut body).is_ok() {
            said.extend_from_slice(&body);
        }
    } else if head.contains("transfer-encoding: chunked") {
        while !said.ends_with(b"0\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
            said.push(byte[0]);
        }
    }
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: keep-alive\r\nX-Kept: 1\r\n\r\nhello\n";
    let _ = stream.write_all(answer.as_bytes());
    said
}
