//! Clients that dawdle, flood, or never finish.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Proxy, Script, Server, echo, exchange, receive, status_of};

#[test]
fn slow_loris_a_head_that_never_ends_is_ended() {
    let proxy = Proxy::with(&[80], &Script::default(), |config| config.head = Duration::from_millis(500));
    let began = Instant::now();
    let mut stream = proxy.connect();
    stream.write_all(b"GET http://a.example/ HTTP/1.1\r\n").unwrap();
    // A byte now and then does not buy time: the bound is on the head, not on the pause.
    while began.elapsed() < Duration::from_secs(5) && stream.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
        stream.set_nonblocking(true).unwrap();
        let has_answer = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        if has_answer {
            break;
        }
    }
    let took = began.elapsed();
    assert_eq!(status_of(&receive(&mut stream)), 408);
    assert!((Duration::from_millis(450)..Duration::from_secs(20)).contains(&took), "{took:?}");
}

#[test]
fn slow_loris_in_numbers_does_not_keep_others_out() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("crowd");
    let crowd: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = proxy.connect();
            stream.write_all(b"GET http").unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    drop(proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port())));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The oldest had to go, long before their time was up.
    let mut oldest = crowd.into_iter().next().unwrap();
    assert_eq!(receive(&mut oldest), "");
}

#[test]
fn refused_clients_that_do_not_leave_do_not_keep_others_out() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("flood");
    // Each is answered at once, and then stays for as long as it is let.
    let crowd: Vec<TcpStream> = (0..600)
        .map(|number| {
            let auth = if number % 2 == 0 { "{auth}" } else { "X: y" };
            proxy.ask(&pass, &format!("CONNECT user@host:1 HTTP/1.1\r\n{auth}\r\n\r\n"))
        })
        .collect();
    let began = Instant::now();
    drop(proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port())));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(crowd);
}

#[test]
fn huge_heads_are_refused_after_their_bound() {
    let proxy = Proxy::start(&[80], &Script::default());
    let pass = proxy.admit("huge");
    let long_field =
        format!("GET http://a.example/ HTTP/1.1\r\n{{auth}}\r\nX: {}\r\n\r\n", "a".repeat(16 * 1024));
    let long_target = format!("GET http://a.example/{} HTTP/1.1\r\n{{auth}}\r\n\r\n", "a".repeat(16 * 1024));
    let many = format!("GET http://a.example/ HTTP/1.1\r\n{{auth}}\r\n{}\r\n", "a: b\r\n".repeat(200));
    for head in [&long_field, &long_target, &many] {
        assert_eq!(status_of(&exchange(&proxy, &pass, head)), 431, "{}", &head[..60]);
    }
    // A head that fits is judged by its content.
    let fits = format!("GET http://127.1/ HTTP/1.1\r\n{{auth}}\r\nX: {}\r\n\r\n", "a".repeat(15 * 1024));
    assert_eq!(status_of(&exchange(&proxy, &pass, &fits)), 403);
    // And a megabyte without an end is neither kept nor waited for.
    let mut stream = proxy.connect();
    let _ = stream.write_all(&vec![b'a'; 1 << 20]);
    let answer = receive(&mut stream);
    assert!(answer.is_empty() || status_of(&answer) == 431, "{answer}");
}

#[test]
fn a_half_closed_tunnel_goes_on_the_other_way() {
    let server = Server::start(|mut stream| {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        stream.write_all(b"after the end: ").unwrap();
        stream.write_all(&said).unwrap();
        said
    });
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("half");
    let mut tunnel = proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port()));
    tunnel.write_all(b"question").unwrap();
    tunnel.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive(&mut tunnel), "after the end: question");
}

#[test]
fn a_half_open_peer_is_dropped_when_nothing_moves() {
    // Accepts, says nothing, and never closes: what a host without power looks like.
    let server = Server::start(|mut stream| {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        said
    });
    let proxy =
        Proxy::with(&[server.port()], &Script::default(), |config| config.idle = Duration::from_millis(400));
    let pass = proxy.admit("idle");
    let began = Instant::now();
    let mut tunnel = proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port()));
    assert_eq!(receive(&mut tunnel), "");
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    // The client of a plain request without an answer is told so.
    let answer = exchange(
        &proxy,
        &pass,
        &format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\n{{auth}}\r\n\r\n", server.port()),
    );
    assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout (idle)"), "{answer}");
}

#[test]
fn two_hundred_tunnels_at_once_all_carry() {
    let server = Server::start(echo);
    let proxy = Proxy::with(&[server.port()], &Script::default(), |config| config.connections_per_run = 200);
    let pass = proxy.admit("many");
    let target = format!("127.0.0.1:{}", server.port());
    let mut tunnels: Vec<TcpStream> = (0..200).map(|_| proxy.tunnel(&pass, &target)).collect();
    assert_eq!(proxy.verdict(&pass, &target), "429 connections_per_run");
    // Another run is not concerned.
    drop(proxy.tunnel(&proxy.admit("other"), &target));
    for (number, tunnel) in tunnels.iter_mut().enumerate() {
        tunnel.write_all(format!("{number:08}").as_bytes()).unwrap();
    }
    for (number, tunnel) in tunnels.iter_mut().enumerate() {
        let mut back = [0; 8];
        tunnel.read_exact(&mut back).unwrap();
        assert_eq!(String::from_utf8_lossy(&back), format!("{number:08}"));
    }
    // A connection that ends makes room for another.
    drop(tunnels.pop());
    let deadline = Instant::now() + Duration::from_secs(10);
    while proxy.verdict(&pass, &target) != "200 " {
        assert!(Instant::now() < deadline, "the place never came free");
    }
}

#[test]
fn a_run_moves_no_more_bytes_than_it_may_and_is_told() {
    let server = Server::start(echo);
    let proxy =
        Proxy::with(&[server.port()], &Script::default(), |config| config.bytes_per_run = Some(100_000));
    let pass = proxy.admit("bytes");
    let target = format!("127.0.0.1:{}", server.port());
    let mut tunnel = proxy.tunnel(&pass, &target);
    let mut moved = 0;
    let mut piece = [7; 1000];
    while tunnel.write_all(&piece).is_ok() && tunnel.read_exact(&mut piece).is_ok() {
        moved += 2 * piece.len();
        assert!(moved <= 100_000, "{moved}");
    }
    assert_eq!(moved, 100_000);
    assert_eq!(proxy.verdict(&pass, &target), "403 bytes_per_run");
    drop(proxy.tunnel(&proxy.admit("other"), &target));
}

#[test]
fn a_resolver_that_hangs_holds_up_only_the_run_that_asked() {
    let server = Server::start(echo);
    let script = Script::new(&[("slow.example", &[&["127.0.0.1"]])]).slow(Duration::from_secs(3));
    let proxy = Proxy::with(&[server.port()], &script, |config| config.resolve = Duration::from_millis(300));
    let pass = proxy.admit("dns");
    let slow = format!("slow.example:{}", server.port());
    let waiting: Vec<TcpStream> =
        (0..20).map(|_| proxy.ask(&pass, &format!("CONNECT {slow} HTTP/1.1\r\n{{auth}}\r\n\r\n"))).collect();
    for mut stream in waiting {
        assert!(receive(&mut stream).starts_with("HTTP/1.1 504 Gateway Timeout (name_timeout)"));
    }
    // Four were asked and are still at it; the others never reached the resolver.
    assert!(script.asked().len() <= 4, "{:?}", script.asked());
    drop(proxy.tunnel(&pass, &format!("127.0.0.1:{}", server.port())));
}
