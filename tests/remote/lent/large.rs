//! Large files: over HTTP connections that the runner opens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::proxy::Proxy;
use super::{await_connected, lend};
use crate::server::Server;

const LARGE: usize = 100_000_000;
/// What goes before the rest goes over HTTP, at most, and some more.
const BEFORE: u64 = 6 << 20;

/// Bytes that are nowhere the same as a megabyte further.
pub(super) fn bytes(length: usize) -> Vec<u8> {
    let words = length.div_ceil(8) as u64;
    let mut bytes: Vec<u8> =
        (0..words).flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

pub(super) fn a_large_file_goes_over_http_both_ways(server: &Server) {
    let proxy = Proxy::wide(server.client.address);
    let machine = server.place("large");
    let _runner = lend(&proxy.address.to_string(), "large", &machine);
    await_connected(&server.client, "large");
    let tree = "/v1/sandbox/large/lent";
    let large = bytes(LARGE);
    server.client.put(format!("{tree}/raw/up"), &large).ok();
    assert!(std::fs::read(machine.join("up")).unwrap() == large);
    assert!(proxy.fetched() > LARGE as u64 - BEFORE, "{} bytes were fetched over HTTP", proxy.fetched());
    let read = server.client.get(format!("{tree}/raw/up")).body;
    assert!(read == large);
    assert!(proxy.sent() > LARGE as u64 - BEFORE, "{} bytes were sent over HTTP", proxy.sent());
    let part = server
        .client
        .request("GET", format!("{tree}/raw/up"))
        .header("range", "bytes=10000000-30000000")
        .send();
    assert!(part.bytes(206) == &large[10_000_000..30_000_001]);
    // A small file makes no connection.
    let before = (proxy.sent(), proxy.fetched());
    server.client.put(format!("{tree}/raw/small"), &large[..4_000_000]).ok();
    assert!(server.client.get(format!("{tree}/raw/small")).body == large[..4_000_000]);
    assert_eq!((proxy.sent(), proxy.fetched()), before);
    // Nothing is left aside.
    let mut names: Vec<_> =
        std::fs::read_dir(&machine).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["small", "up"]);
}

pub(super) fn a_transfer_that_is_cut_goes_on_where_it_stopped(server: &Server) {
    let proxy = Proxy::wide(server.client.address);
    let machine = server.place("resumed");
    let _runner = lend(&proxy.address.to_string(), "resumed", &machine);
    await_connected(&server.client, "resumed");
    let path = "/v1/sandbox/resumed/lent/raw/file";
    let large = bytes(LARGE);
    let cut_at = |count: &dyn Fn() -> u64| {
        let (mut cuts, begun) = (0, Instant::now());
        for at in [20_000_000, 50_000_000] {
            while count() < at && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            cuts += proxy.cut_transfers();
        }
        cuts
    };
    let (written, cuts) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| server.client.put(path, &large));
        let cuts = cut_at(&|| proxy.fetched());
        (writing.join().unwrap(), cuts)
    });
    written.ok();
    assert!(cuts > 0);
    assert!(std::fs::read(machine.join("file")).unwrap() == large);
    let (read, cuts) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| server.client.get(path));
        let cuts = cut_at(&|| proxy.sent());
        (reading.join().unwrap(), cuts)
    });
    assert!(cuts > 0 && read.body == large, "{cuts} cuts, {} bytes", read.body.len());
    println!("{} bytes went to the service and {} from it", proxy.sent(), proxy.fetched());
    assert!(proxy.sent() < 2 * LARGE as u64 && proxy.fetched() < 2 * LARGE as u64, "it began anew");
}

pub(super) fn a_caller_who_leaves_ends_the_transfer(server: &Server) {
    let proxy = Proxy::wide(server.client.address);
    let machine = server.place("left");
    let _runner = lend(&proxy.address.to_string(), "left", &machine);
    await_connected(&server.client, "left");
    let tree = "/v1/sandbox/left/lent";
    let large = bytes(LARGE);
    std::fs::write(machine.join("old"), &large).unwrap();
    // More often than one user may have transfers: each place is given back.
    for _ in 0..6 {
        let mut caller = TcpStream::connect(server.client.address).unwrap();
        let head = format!(
            "GET {tree}/raw/old HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer engine\r\n\r\n",
            server.client.address
        );
        caller.write_all(head.as_bytes()).unwrap();
        caller.read_exact(&mut vec![0; 5_000_000]).unwrap();
        drop(caller);
        let mut caller = TcpStream::connect(server.client.address).unwrap();
        let head = format!(
            "PUT {tree}/raw/old HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer engine\r\ncontent-length: {LARGE}\r\n\r\n",
            server.client.address
        );
        caller.write_all(head.as_bytes()).unwrap();
        caller.write_all(&large[..20_000_000]).unwrap();
    }
    let before = proxy.sent();
    assert!(
        server.client.get(format!("{tree}/raw/old")).body == large,
        "nothing half written is in its place"
    );
    assert!(proxy.sent() - before > LARGE as u64 - BEFORE, "the places were given back");
    let names = std::fs::read_dir(&machine).unwrap().count();
    assert_eq!(names, 1);
}
