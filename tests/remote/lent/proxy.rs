//! [`Proxy`]: a way to the service that is slow, splits what it carries, can be cut, and tells what went over HTTP.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The largest piece that is passed on at once, in bytes: WebSocket frames come apart everywhere.
const PIECE_BYTES: usize = 1500;

/// Passes connections on to the service.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    transfers: Arc<Transfers>,
}

/// Connections that carry a file.
#[derive(Default)]
struct Transfers {
    connections: Mutex<Vec<TcpStream>>,
    /// Bytes to the service, and from it.
    sent: AtomicU64,
    fetched: AtomicU64,
}

impl Proxy {
    /// Every piece takes `latency` more.
    pub(crate) fn start(to: SocketAddr, latency: Duration) -> Self {
        Self::with(to, latency, PIECE_BYTES)
    }

    /// One that splits less, for files.
    pub(crate) fn wide(to: SocketAddr) -> Self {
        Self::with(to, Duration::ZERO, 64 << 10)
    }

    fn with(to: SocketAddr, latency: Duration, piece_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let transfers = Arc::new(Transfers::default());
        let (kept, noted) = (Arc::clone(&connections), Arc::clone(&transfers));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { return };
                kept.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || carry(client, server, latency, piece_bytes, &noted));
            }
        });
        Self { address, connections, transfers }
    }

    /// Breaks every connection off in the middle of a frame.
    pub(crate) fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    /// Breaks the connections off that carry a file, and tells how many there were.
    pub(crate) fn cut_transfers(&self) -> usize {
        let cut: Vec<_> = self.transfers.connections.lock().unwrap().drain(..).collect();
        cut.iter().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }

    /// Bytes that connections which carry a file had to the service so far.
    pub(crate) fn sent(&self) -> u64 {
        self.transfers.sent.load(Ordering::Relaxed)
    }

    /// The same from the service.
    pub(crate) fn fetched(&self) -> u64 {
        self.transfers.fetched.load(Ordering::Relaxed)
    }
}

/// Carries one connection, which shows with its first bytes whether it is for a file.
fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    latency: Duration,
    piece_bytes: usize,
    noted: &Arc<Transfers>,
) {
    let mut first = vec![0; PIECE_BYTES];
    let Ok(read @ 1..) = client.read(&mut first) else { return };
    let head = String::from_utf8_lossy(&first[..read]);
    let is_file = head.contains("/v1/transfers/");
    if is_file {
        noted.connections.lock().unwrap().push(client.try_clone().unwrap());
    }
    if server.write_all(&first[..read]).is_err() {
        return;
    }
    let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let back = Arc::clone(noted);
    std::thread::spawn(move || pass(from, to, latency, piece_bytes, is_file.then_some(&back.fetched)));
    pass(client, server, latency, piece_bytes, is_file.then_some(&noted.sent));
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    latency: Duration,
    piece_bytes: usize,
    count: Option<&AtomicU64>,
) {
    let mut piece = vec![0; piece_bytes];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        std::thread::sleep(latency);
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
        if let Some(count) = count {
            count.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
    let _gone = to.shutdown(Shutdown::Both);
    let _gone = from.shutdown(Shutdown::Both);
}
