//! [`Proxy`]: a way to the service that is slow, splits what it carries, and can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The largest piece that is passed on at once, in bytes: WebSocket frames come apart everywhere.
const PIECE_BYTES: usize = 1500;

/// Passes connections on to the service.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Every piece takes `latency` more.
    pub(crate) fn start(to: SocketAddr, latency: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { return };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to, latency));
                }
                kept.lock().unwrap().extend([client, server]);
            }
        });
        Self { address, connections }
    }

    /// Breaks every connection off in the middle of a frame.
    pub(crate) fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, latency: Duration) {
    let mut piece = [0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        std::thread::sleep(latency);
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _gone = to.shutdown(Shutdown::Both);
    let _gone = from.shutdown(Shutdown::Both);
}
