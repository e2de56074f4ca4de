//! The cost of a tunnel, beside the same bytes without one: `cargo test --release --test egress figures -- --ignored
//! --nocapture`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Proxy, Script, Server, echo};

const ROUNDS: usize = 2000;
const CONNECTIONS: usize = 500;
const BYTES: usize = 1 << 30;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn round_trip(stream: &mut TcpStream) -> Duration {
    let began = Instant::now();
    stream.write_all(&[1; 64]).unwrap();
    stream.read_exact(&mut [0; 64]).unwrap();
    began.elapsed()
}

/// Bytes a second, downwards.
fn rate(mut stream: TcpStream) -> f64 {
    let (began, mut left, mut piece) = (Instant::now(), BYTES, vec![0; 256 * 1024]);
    while left > 0 {
        left = left.saturating_sub(stream.read(&mut piece).unwrap().max(1));
    }
    BYTES as f64 / began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "measures: run it by name, in a release build"]
fn figures_of_a_tunnel() {
    let server = Server::start(echo);
    let source = Server::start(|mut stream| {
        let piece = vec![7; 256 * 1024];
        let mut left = BYTES;
        while left > 0 && stream.write_all(&piece).is_ok() {
            left -= piece.len();
        }
        Vec::new()
    });
    let proxy = Proxy::start(&[server.port(), source.port()], &Script::default());
    let pass = proxy.admit("figures");
    let direct = || {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    let target = format!("127.0.0.1:{}", server.port());

    let (mut plain, mut tunnelled) = (direct(), proxy.tunnel(&pass, &target));
    tunnelled.set_nodelay(true).unwrap();
    // Interleaved, so that what else runs here falls on both.
    let trips = (0..ROUNDS).map(|_| (round_trip(&mut plain), round_trip(&mut tunnelled)));
    let (plain, tunnelled): (Vec<_>, Vec<_>) = trips.unzip();
    eprintln!(
        "64 bytes there and back: {:?} direct, {:?} through a tunnel",
        median(plain),
        median(tunnelled)
    );

    let opened = (0..CONNECTIONS).map(|_| {
        let began = Instant::now();
        round_trip(&mut direct());
        let plain = began.elapsed();
        let began = Instant::now();
        round_trip(&mut proxy.tunnel(&pass, &target));
        (plain, began.elapsed())
    });
    let (plain, tunnelled): (Vec<_>, Vec<_>) = opened.unzip();
    eprintln!("connect and one round trip: {:?} direct, {:?} by `CONNECT`", median(plain), median(tunnelled));

    for _ in 0..3 {
        let plain = rate(TcpStream::connect(source.address).unwrap());
        let tunnelled = rate(proxy.tunnel(&pass, &format!("127.0.0.1:{}", source.port())));
        eprintln!(
            "1 GiB downwards: {:.2} GB/s direct, {:.2} GB/s through a tunnel",
            plain / 1e9,
            tunnelled / 1e9
        );
    }
}
