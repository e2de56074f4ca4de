//! Requests that two readers could read differently: one smuggled past the rules behind another.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{Proxy, Script, Server, exchange, http, receive, status_of};

#[test]
fn a_plain_request_is_forwarded_without_what_is_the_proxys() {
    let server = Server::start(http);
    let script = Script::new(&[("web.example", &[&["127.0.0.1"]])]);
    let proxy = Proxy::start(&[server.port()], &script);
    let pass = proxy.admit("plain");
    let port = server.port();
    let answer = exchange(
        &proxy,
        &pass,
        &format!(
            "POST http://web.example:{port}/a?b HTTP/1.1\r\n{{auth}}\r\nHost: other.example\r\n\
             Proxy-Connection: keep-alive\r\nConnection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 1\r\n\
             Content-Length: 4\r\n\r\nbody"
        ),
    );
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nx-kept: 1\r\ncontent-length: 6\r\nvia: 1.1 filesecbox\r\nconnection: close\r\n\r\nhello\n"
    );
    assert_eq!(
        server.heard(1),
        [format!(
            "POST /a?b HTTP/1.1\r\nhost: web.example:{port}\r\nx-keep: 1\r\ncontent-length: 4\r\n\
             via: 1.1 filesecbox\r\nconnection: close\r\n\r\nbody"
        )]
    );
}

#[test]
fn smuggling_by_contradicting_lengths_is_refused_before_anybody_hears_of_it() {
    let server = Server::start(http);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("smuggler");
    let port = server.port();
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 40",
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4, 40",
        "Content-Length: +4",
        "Content-Length: 0x4",
        "Content-Length:\r\n 4",
        "Content-Length : 4",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding:\u{b}chunked",
        "Transfer-Encoding\u{b}: chunked",
        "Transfer-Encoding: gzip",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
    ] {
        let request = format!(
            "POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{{auth}}\r\n{fields}\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
        );
        assert_eq!(status_of(&exchange(&proxy, &pass, &request)), 400, "{fields:?}");
    }
    assert_eq!(server.heard(0), Vec::<String>::new());
}

#[test]
fn a_second_request_behind_the_first_is_never_passed_on() {
    let server = Server::start(http);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("pipeliner");
    let port = server.port();
    let second = "GET http://169.254.169.254/secret HTTP/1.1\r\n\r\n";
    for first in [
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n{{auth}}\r\n\r\n"),
        format!("POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{{auth}}\r\nContent-Length: 2\r\n\r\nab"),
        format!(
            "POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{{auth}}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        ),
    ] {
        let answer = exchange(&proxy, &pass, &format!("{first}{second}"));
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        assert_eq!(status_of(&answer), 200);
    }
    let heard = server.heard(3);
    assert!(heard.len() == 3 && heard.iter().all(|said| !said.contains("secret")), "{heard:?}");
}

#[test]
fn chunks_that_lie_end_the_request() {
    let server = Server::start(http);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("chunker");
    let port = server.port();
    for body in ["2\r\nabc\r\n0\r\n\r\n", "zz\r\n", "-1\r\n", "2\nab\n0\n\n", "ffffffffffffffffff\r\n"] {
        let request = format!(
            "POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{{auth}}\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        assert_eq!(status_of(&exchange(&proxy, &pass, &request)), 400, "{body:?}");
    }
}

#[test]
fn an_answer_is_passed_on_in_one_framing_and_interim_ones_before_it() {
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Fine\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\
              Connection: X-Hop\r\nX-Hop: 1\r\nProxy-Authenticate: Basic\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        );
        Vec::new()
    });
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let answer = exchange(
        &proxy,
        &proxy.admit("answers"),
        &format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\n{{auth}}\r\n\r\n", server.port()),
    );
    assert_eq!(
        answer,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Fine\r\ntransfer-encoding: chunked\r\nvia: 1.1 filesecbox\r\n\
         connection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    );
}

#[test]
fn an_answer_that_is_none_becomes_a_502() {
    for said in ["", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 200 OK\r\nX", "HTTP/1.1 101 Switching\r\n\r\n"]
    {
        let server = Server::start(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(said.as_bytes());
            Vec::new()
        });
        let proxy = Proxy::start(&[server.port()], &Script::default());
        let answer = exchange(
            &proxy,
            &proxy.admit("none"),
            &format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\n{{auth}}\r\n\r\n", server.port()),
        );
        assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway (bad_answer)"), "{said:?}: {answer}");
    }
}

#[test]
fn random_damage_to_a_request_never_reaches_another_host_or_hangs() {
    let server = Server::start(http);
    let proxy = Proxy::with(&[server.port()], &Script::default(), |config| {
        config.head = Duration::from_millis(200);
        config.idle = Duration::from_millis(200);
    });
    let pass = proxy.admit("fuzz");
    let port = server.port();
    let whole = format!(
        "POST http://127.0.0.1:{port}/a HTTP/1.1\r\n{{auth}}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    // A fixed generator (Knuth's), so that a failure comes again.
    let mut state: u64 = 0x5EED;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let odd = [
        "\r", "\n", "\r\n", " ", "\t", ":", "/", "@", "#", "?", "[", "]", "%", ".", "0", "x", "é", "\0", "\\",
    ];
    for _ in 0..300 {
        let mut text = whole.clone();
        for _ in 0..=random(3) {
            let mut at = random(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random(3) {
                0 => text.insert_str(at, odd[random(odd.len())]),
                1 => drop(text.remove(at)),
                _ => text.truncate(at.max(1)),
            }
        }
        let mut stream = proxy.ask(&pass, &text);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let answer = receive(&mut stream);
        let answers = answer.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count();
        assert!(answers <= 1, "{text:?}: {answer}");
    }
    // Each request that the server heard was asked for plainly.
    for said in server.heard(0) {
        assert!(
            said.is_empty() || said.contains(&format!(" HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n")),
            "{said:?}"
        );
    }
}
