//! The connections of a run end with the run.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::{Proxy, Script, Server, echo, exchange, receive, status_of};

#[test]
fn a_tunnel_does_not_outlive_its_run() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let (pass, other) = (proxy.admit("leaving"), proxy.admit("staying"));
    let target = format!("127.0.0.1:{}", server.port());
    let (mut tunnel, mut kept) = (proxy.tunnel(&pass, &target), proxy.tunnel(&other, &target));
    tunnel.write_all(b"x").unwrap();
    tunnel.read_exact(&mut [0]).unwrap();
    let began = Instant::now();
    drop(pass);
    assert_eq!(receive(&mut tunnel), "", "the client sees the end");
    server.heard(1);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    kept.write_all(b"y").unwrap();
    kept.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_request_under_way_ends_with_its_run() {
    // The server answers a head and then never ends.
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        said
    });
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("leaving");
    let head = format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\n{{auth}}\r\n\r\n", server.port());
    let mut stream = proxy.ask(&pass, &head);
    stream.read_exact(&mut [0; 15]).unwrap();
    let began = Instant::now();
    drop(pass);
    receive(&mut stream);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_token_is_good_for_its_run_only() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let head = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n{{auth}}\r\n\r\n", server.port());
    // A proxy knows its own runs only.
    let elsewhere = Proxy::start(&[server.port()], &Script::default());
    let foreign = exchange(&proxy, &elsewhere.admit("foreign"), &head);
    assert!(foreign.starts_with("HTTP/1.1 407 "), "{foreign}");
    assert!(foreign.contains("\r\nProxy-Authenticate: Basic realm=\"filesecbox\"\r\n"), "{foreign}");
    let pass = proxy.admit("known");
    for head in ["CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "{auth}\r\n\r\n"] {
        let status = status_of(&exchange(&proxy, &pass, head));
        assert!([407, 400].contains(&status), "{head}: {status}");
    }
    let twice = head.replace("{auth}", "{auth}\r\n{auth}");
    assert_eq!(status_of(&exchange(&proxy, &pass, &twice)), 407);
}

#[test]
fn stopping_ends_every_connection() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("stopping");
    let mut tunnel = proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port()));
    let mut silent = proxy.connect();
    drop(proxy);
    assert_eq!((receive(&mut tunnel), receive(&mut silent)), (String::new(), String::new()));
}
