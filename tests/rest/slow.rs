//! Callers who are slow, many, or send heads that are too large.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::Service;

fn bounded(limits: &str) -> Service {
    Service::configured(&format!("[limits.connections]\n{limits}\n"))
}

/// The bytes that come until the connection is closed, and the time until then.
fn read_all(stream: &mut TcpStream) -> (String, Duration) {
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), begun.elapsed())
}

#[test]
fn a_head_that_does_not_end_closes_the_connection_in_time() {
    let service = bounded("head_ms = 500\nidle_ms = 500");
    for sent in ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut stream = service.client.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        let (told, took) = read_all(&mut stream);
        assert!(!told.contains("200 OK"), "{told}");
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(30), "{sent:?}: {took:?}");
    }
    // Bytes that trickle make a head no longer.
    let mut stream = service.client.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-fill: ").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) && stream.write_all(b"a").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "a head of single bytes");
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
fn a_refusal_comes_whole_while_its_body_is_still_sent_and_the_connection_serves_again() {
    let service = bounded("");
    let mut stream = service.client.connect();
    let (first, rest) = (vec![b'x'; 1 << 20], vec![b'x'; 2 << 20]);
    let head = format!(
        "PUT /v1/sandbox/u/a/raw/../f HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        first.len() + rest.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&first).unwrap();
    let mut told = vec![0; 12];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(String::from_utf8_lossy(&told), "HTTP/1.1 403");
    stream.write_all(&rest).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let (told, _) = read_all(&mut stream);
    assert!(told.contains("HTTP/1.1 200 OK"), "{told}");
}

#[test]
fn a_sender_who_waits_to_be_told_to_go_on_is_not_when_nothing_is_wanted() {
    let service = bounded("");
    let mut stream = service.client.connect();
    let head = "PUT /v1/sandbox/u/a/raw/../f HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\
                expect: 100-continue\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let (told, _) = read_all(&mut stream);
    assert!(told.starts_with("HTTP/1.1 403"), "{told}");
}

#[test]
fn the_largest_head_is_what_is_configured() {
    for limit in [8192, 100_000, 600_000] {
        let service = bounded(&format!("head_bytes = {limit}"));
        // In one piece, and in pieces with pauses in between, so that buffers fill in different ways.
        let status = |bytes: usize, piece: usize| {
            let mut head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close".to_owned();
            let line = "\r\nx-fill: ";
            while bytes - head.len() > 4 {
                // Lines of 30 000 bytes, and what is left is enough for another one, or none.
                let left = bytes - head.len() - 4;
                let fill = if left > 40_000 { 30_000 } else { left };
                head.push_str(line);
                head.push_str(&"a".repeat(fill - line.len()));
            }
            head.push_str("\r\n\r\n");
            assert_eq!(head.len(), bytes);
            let mut stream = service.client.connect();
            for part in head.as_bytes().chunks(piece) {
                if stream.write_all(part).is_err() {
                    break;
                }
                if piece < head.len() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            let told = read_all(&mut stream).0;
            told.split(' ').nth(1).unwrap_or("none").to_owned()
        };
        for piece in [usize::MAX, 5000] {
            assert_eq!(status(limit, piece), "200", "{limit} bytes of {limit}");
            assert_eq!(status(limit + 1, piece), "431", "{} bytes of {limit}", limit + 1);
        }
    }
    let service = bounded("head_bytes = 8192");
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

/// A connection with a request under way that has no end: what becomes of the files of a tree.
fn busy(service: &Service) -> TcpStream {
    let mut stream = service.client.connect();
    write!(stream, "GET /v1/sandbox/u/a/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains("ready") {
        let mut piece = [0; 512];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..read]);
    }
    stream
}

#[test]
fn one_connection_too_many_is_told_busy_and_the_next_after_it_is_served() {
    let service = bounded("connections = 3\nreserved = 0");
    service.client.write("/v1/sandbox/u/a", "f", "x");
    let held: Vec<TcpStream> = (0..3).map(|_| busy(&service)).collect();
    for _ in 0..100 {
        let reply = service.client.get("/v1/info");
        assert_eq!(reply.status, 429);
        assert_eq!((reply.json()["code"].as_str(), reply.header("retry-after")), (Some("busy"), Some("1")));
    }
    // A body that the service does not read takes nothing of the answer away.
    let put = service.client.put("/v1/sandbox/u/a/raw/g", vec![b'x'; 30_000]);
    assert_eq!(put.refused(429, "busy")["retry_after_seconds"], 1);
    // Whether the service is well is told in any case.
    for route in ["/healthz", "/readyz"] {
        service.client.get(route).ok();
    }
    drop(held);
    let begun = Instant::now();
    while service.client.get("/v1/info").status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_caller_on_this_host_has_a_place_when_all_are_busy() {
    let service = bounded("connections = 3\nreserved = 1");
    service.client.write("/v1/sandbox/u/a", "f", "x");
    let _held: Vec<TcpStream> = (0..3).map(|_| busy(&service)).collect();
    service.client.get("/v1/info").ok();
}

#[test]
fn the_connection_that_has_been_idle_longest_gives_way_and_none_that_is_busy() {
    let service = bounded("connections = 4\nreserved = 0");
    service.client.write("/v1/sandbox/u/a", "f", "x");
    let mut busy = busy(&service);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        // The rest of the answer ends with the envelope.
        let mut rest = Vec::new();
        while !rest.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    };
    let [mut first, mut second, mut third] = [0; 3].map(|_| {
        let mut stream = service.client.connect();
        ask(&mut stream);
        std::thread::sleep(Duration::from_millis(20));
        stream
    });
    // The first is used once more, so that the second has been idle longest.
    ask(&mut first);
    service.client.get("/v1/info").ok();
    let mut piece = [0; 16];
    assert_eq!(second.read(&mut piece).unwrap_or(0), 0, "it has been closed");
    ask(&mut third);
    ask(&mut first);
    service.client.write("/v1/sandbox/u/a", "g", "y");
    assert!(busy.read(&mut piece).unwrap() > 0, "the stream goes on");
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
    // A caller that pauses, never for so long and longer in all, gets it all.
    let service = bounded("send_idle_ms = 3000");
    service.client.write("/v1/sandbox/u/a", "big", &big);
    let mut stream = service.client.connect();
    write!(stream, "GET /v1/sandbox/u/a/raw/big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut received = 0;
    let mut piece = vec![0; 256 * 1024];
    loop {
        let read = stream.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        if received < 9 * 1024 * 1024 {
            std::thread::sleep(Duration::from_millis(100));
        }
        received += read;
    }
    assert!(received > big.len());
}
