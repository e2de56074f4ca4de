//! Callers who are slow, many, or send heads that are too large.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::Service;

fn bounded(limits: &str) -> Service {
    Service::configured(&format!("[limits.connections]\n{limits}\n"))
}

/// What comes until the connection is closed, and after how long.
fn read_all(stream: &mut TcpStream) -> (String, Duration) {
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), begun.elapsed())
}

#[test]
fn a_head_that_does_not_end_closes_the_connection_in_time() {
    let service = bounded("head_ms = 500");
    for sent in ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut stream = service.client.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        let (told, took) = read_all(&mut stream);
        assert!(!told.contains("200 OK"), "{told}");
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(30), "{sent:?}: {took:?}");
    }
    // A kept connection that is used goes on; one that waits longer than that is closed.
    let mut stream = service.client.connect();
    for _ in 0..4 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    let (told, _) = read_all(&mut stream);
    assert_eq!(told.matches("200 OK").count(), 4, "{told}");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let service = bounded("head_bytes = 8192");
    let ask =
        |bytes: usize| service.client.request("GET", "/healthz").header("x-fill", "a".repeat(bytes)).send();
    assert_eq!(ask(4000).status, 200);
    assert_eq!(ask(20_000).status, 431);
    let mut many = service.client.request("GET", "/healthz");
    for number in 0..150 {
        many = many.header(&format!("x-{number}"), "1");
    }
    assert_eq!(many.send().status, 431);
}

#[test]
fn a_body_that_stalls_or_trickles_is_too_slow_and_changes_nothing() {
    let service = bounded("body_idle_ms = 400\nbody_bytes_per_second = 1000");
    for (route, pieces) in [
        ("PUT /v1/sandbox/u/a/edit?path=f", 1),
        ("PUT /v1/sandbox/u/a/raw/f", 40),
        ("POST /v1/sandbox/u/a/exec", 1),
        ("POST /v1/skills/u/a/upload", 40),
    ] {
        let mut stream = service.client.connect();
        write!(stream, "{route} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n").unwrap();
        for _ in 0..pieces {
            // Answered and closed in the middle of it.
            if stream.write_all(b"0123456789").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let (told, took) = read_all(&mut stream);
        assert!(told.starts_with("HTTP/1.1 408") && told.contains("\"too_slow\""), "{route}: {told}");
        assert!(told.to_ascii_lowercase().contains("x-request-id"), "{told}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    service.client.get("/v1/sandbox/u/a/content?path=f").refused(404, "not_found");
    // Who is only thoughtful is served.
    let mut stream = service.client.connect();
    write!(stream, "PUT /v1/sandbox/u/a/edit?path=g HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
        .unwrap();
    write!(stream, "content-length: 4\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(b"text").unwrap();
    assert!(read_all(&mut stream).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn one_connection_too_many_is_told_busy_and_the_next_after_it_is_served() {
    let service = bounded("connections = 3");
    let mut held: Vec<TcpStream> = (0..3).map(|_| service.client.connect()).collect();
    for stream in &mut held {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }
    let reply = service.client.get("/healthz");
    assert_eq!(reply.status, 429);
    assert_eq!((reply.json()["code"].as_str(), reply.header("retry-after")), (Some("busy"), Some("1")));
    drop(held);
    let begun = Instant::now();
    while service.client.get("/healthz").status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_caller_who_takes_nothing_of_an_answer_loses_the_connection() {
    let service = bounded("send_idle_ms = 500");
    let big = "x".repeat(16 * 1024 * 1024);
    service.client.write("/v1/sandbox/u/a", "big", &big);
    let mut stream = service.client.connect();
    write!(stream, "GET /v1/sandbox/u/a/raw/big HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(2000));
    // What is in the buffers of both sides still comes, and then no more.
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.starts_with(b"HTTP/1.1 200") && bytes.len() < big.len(), "{}", bytes.len());
    // One who pauses, but not for so long, gets it all.
    let mut stream = service.client.connect();
    write!(stream, "GET /v1/sandbox/u/a/raw/big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut received = 0;
    let mut piece = vec![0; 1024 * 1024];
    loop {
        let read = stream.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        if received < 4 * 1024 * 1024 {
            std::thread::sleep(Duration::from_millis(100));
        }
        received += read;
    }
    assert!(received > big.len());
}
