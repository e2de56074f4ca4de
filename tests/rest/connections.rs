//! How many connections one address may have: asked from an address of this host that is not loopback, over loopback.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::support::{Service, Settings, digest, granted};

const SHARE: usize = 6;

/// An address of this host that other hosts would see, if it has one. Nothing is sent.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Tells whether a request is answered on an open connection, which stays open.
fn is_served(stream: &mut TcpStream) -> bool {
    let head = b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.is_empty() && stream.write_all(head).is_err() {
            return false;
        }
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => answer.push(byte[0]),
            _ => return false,
        }
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn an_address_beyond_its_share_loses_its_own_idle_connection_and_no_others() {
    let Some(outer) = outer_address() else {
        granted("address", false);
        return;
    };
    let token = digest("secret");
    let service = Service::with(Settings {
        listen: Some("0.0.0.0:0".to_owned()),
        config: Some(format!(
            "[limits.connections]\nper_peer = {SHARE}\n[[tokens]]\nsha256 = \"{token}\"\nrole = \"admin\"\n"
        )),
        ..Settings::default()
    });
    let client = &service.client;
    // Loopback has no share of its own to spend.
    let mut own: Vec<_> = (0..2 * SHARE).map(|_| client.connect()).collect();
    assert!(own.iter_mut().all(is_served));
    let mut theirs = Vec::new();
    for number in 0..3 * SHARE {
        let mut stream = connect_from(outer, client.address);
        assert!(is_served(&mut stream), "connection {number} is served");
        theirs.push(stream);
    }
    // Which of two gives way that began to wait in one millisecond is not told.
    assert!(theirs.last_mut().is_some_and(is_served), "the last one stays");
    assert_eq!(theirs.iter_mut().filter_map(|stream| is_served(stream).then_some(())).count(), SHARE);
    assert!(own.iter_mut().all(is_served), "those of others stay");
}
