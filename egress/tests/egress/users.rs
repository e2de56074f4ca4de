//! The acts of one user at its own listener, and their effects on others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::support::{PATIENCE, Proxy, Script, Server, credentials, echo, receive};

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks for a tunnel; the connection, and the status and rule of the answer.
fn tunnel(address: SocketAddr, credentials: &str, target: &str) -> (TcpStream, String) {
    let mut stream = connect(address);
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\n{credentials}\r\n\r\n").as_bytes()).unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") && stream.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    (stream, line.trim_end().replacen("HTTP/1.1 ", "", 1))
}

const GRANTED: &str = "200 Connection established";

#[test]
fn a_token_is_good_only_at_the_listener_of_its_own_user() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let target = format!("127.0.0.1:{}", server.port());
    let [ours, theirs] = ["ours", "theirs"].map(|user| (proxy.listen_for(user), proxy.admit(user)));
    assert_eq!(tunnel(ours.0, &credentials(&ours.1), &target).1, GRANTED);
    assert_eq!(tunnel(theirs.0, &credentials(&theirs.1), &target).1, GRANTED);
    let refused = "407 Proxy Authentication Required (unauthenticated)";
    assert_eq!(tunnel(ours.0, &credentials(&theirs.1), &target).1, refused);
    assert_eq!(tunnel(theirs.0, &credentials(&ours.1), &target).1, refused);
}

#[test]
fn all_runs_of_a_user_share_its_connections_and_another_has_its_own() {
    let server = Server::start(echo);
    let proxy = Proxy::with(&[server.port()], &Script::default(), |config| {
        (config.connections_per_run, config.connections_per_user) = (4, 10);
    });
    let target = format!("127.0.0.1:{}", server.port());
    let address = proxy.listen_for("many");
    let mut passes: Vec<_> = (0..4).map(|_| proxy.admit("many")).collect();
    let mut open = Vec::new();
    for number in 0..10 {
        let (stream, answer) = tunnel(address, &credentials(&passes[number / 4]), &target);
        assert_eq!(answer, GRANTED);
        open.push(stream);
    }
    let last = credentials(&passes[3]);
    assert_eq!(tunnel(address, &last, &target).1, "429 Too Many Requests (connections_per_user)");
    let other = proxy.admit("other");
    assert_eq!(tunnel(proxy.listen_for("other"), &credentials(&other), &target).1, GRANTED);
    // The places of a run that has ended are the next one's.
    drop(passes.remove(0));
    let began = Instant::now();
    while tunnel(address, &last, &target).1 != GRANTED {
        assert!(began.elapsed() < PATIENCE, "the places never came free");
    }
}

#[test]
fn a_flood_at_one_listener_pushes_nobody_out_at_another() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let target = format!("127.0.0.1:{}", server.port());
    let (flooded, quiet) = (proxy.listen_for("flood"), proxy.listen_for("quiet"));
    let pass = proxy.admit("quiet");
    // Half of a head: no connection is older.
    let mut waiting = connect(quiet);
    waiting.write_all(format!("CONNECT {target} HTTP/1.1\r\n").as_bytes()).unwrap();
    let mut first = connect(flooded);
    let crowd: Vec<TcpStream> = (0..300).map(|_| connect(flooded)).collect();
    assert_eq!(receive(&mut first), "", "the flood pushes out its own");
    waiting.write_all(format!("{}\r\n\r\n", credentials(&pass)).as_bytes()).unwrap();
    let mut head = [0; 12];
    waiting.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    drop(crowd);
}
