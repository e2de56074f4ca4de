//! Large bodies in both directions, with the service's memory watched.

use std::io::{Read, Write};

use crate::support::{
    Entry, Service, memory_peak_bytes, random_bytes, reset_memory_peak, skill, skills, workspace, zip,
};

const MIB: u64 = 1024 * 1024;
/// How much more memory a transfer of any length may take.
const GROWTH_MAX: u64 = 64 * MIB;

/// A body of any length without holding it: one block again and again, each time with its number in front.
struct Blocks {
    block: Vec<u8>,
    length: u64,
    sent: u64,
}

impl Blocks {
    fn new(length: u64) -> Self {
        Self { block: random_bytes(7, 64 * 1024), length, sent: 0 }
    }

    /// The bytes from `offset` on, at most to the end of its block.
    fn at(&mut self, offset: u64) -> &[u8] {
        let size = self.block.len() as u64;
        let number = (offset / size).to_le_bytes();
        self.block[..8].copy_from_slice(&number);
        let from = (offset % size) as usize;
        let to = self.block.len().min(from + (self.length - offset) as usize);
        &self.block[from..to]
    }
}

impl Read for Blocks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let sent = self.sent;
        let bytes = self.at(sent);
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        self.sent += length as u64;
        Ok(length)
    }
}

fn up_and_down(length: u64) {
    let service = Service::start();
    let target = format!("{}/raw/big.bin", workspace("u", "a"));
    // Everything that is made once is made before it counts.
    service.client.put(format!("{target}?parents=true"), "small").bytes(201);
    service.client.get(target.clone()).bytes(200);
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());

    let reply = service.client.request("PUT", &*target).send_stream(length, &mut Blocks::new(length));
    assert_eq!(reply.ok()["size"], length);
    let after_up = memory_peak_bytes(service.pid());
    assert!(after_up < before + GROWTH_MAX, "up: from {before} to {after_up} bytes");

    let mut expected = Blocks::new(length);
    let mut offset = 0_u64;
    let (reply, received) = service.client.request("GET", &*target).receive(&mut |mut piece| {
        while !piece.is_empty() {
            let bytes = expected.at(offset);
            let common = bytes.len().min(piece.len());
            assert!(bytes[..common] == piece[..common], "differs at about byte {offset}");
            offset += common as u64;
            piece = &piece[common..];
        }
    });
    assert_eq!((reply.status, received), (200, length));
    let after_down = memory_peak_bytes(service.pid());
    assert!(after_down < before + GROWTH_MAX, "down: from {before} to {after_down} bytes");
    resume(&service, &target, length);
    let after_all = memory_peak_bytes(service.pid());
    assert!(after_all < before + GROWTH_MAX, "resumed: from {before} to {after_all} bytes");
    let mebibytes = |peak: u64| (peak - before) / MIB;
    eprintln!(
        "{} MiB: the peak of memory grew by {} MiB up, {} MiB down, {} MiB in all",
        length / MIB,
        mebibytes(after_up),
        mebibytes(after_down),
        mebibytes(after_all)
    );
}

/// Breaks a download off and goes on behind what arrived, as long as the file is the same.
fn resume(service: &Service, target: &str, length: u64) {
    let tag = service.client.request("HEAD", target).send().etag();
    let mut stream = service.client.connect();
    let head = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n\r\n", service.client.address);
    stream.write_all(head.as_bytes()).unwrap();
    let arrived = length / 3;
    let mut received = Vec::new();
    Read::by_ref(&mut stream).take(arrived).read_to_end(&mut received).unwrap();
    let body = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let arrived = received[body..].len() as u64;
    drop((stream, received));

    let mut expected = Blocks::new(length);
    let mut offset = arrived;
    let rest = |tag: &str| {
        let request = service.client.request("GET", target).header("range", format!("bytes={arrived}-"));
        request.header("if-range", tag)
    };
    let (reply, received) = rest(&tag).receive(&mut |mut piece| {
        while !piece.is_empty() {
            let bytes = expected.at(offset);
            let common = bytes.len().min(piece.len());
            assert!(bytes[..common] == piece[..common], "differs at about byte {offset}");
            offset += common as u64;
            piece = &piece[common..];
        }
    });
    assert_eq!((reply.status, arrived + received), (206, length));
    let whole = format!("bytes {arrived}-{}/{length}", length - 1);
    assert_eq!(reply.header("content-range"), Some(whole.as_str()));
    // Of another file, the part behind would fit nothing: it comes whole.
    service.client.put(target, "another file").bytes(200);
    assert_eq!(rest(&tag).send().bytes(200), b"another file");
}

#[test]
fn sixty_megabytes_go_up_and_down_through_bounded_memory() {
    up_and_down(60 * MIB);
}

#[test]
fn five_hundred_megabytes_go_up_and_down_through_bounded_memory() {
    if std::env::var_os("FILESECBOX_LARGE").is_none() {
        eprintln!("SKIPPED: set FILESECBOX_LARGE=1 to move 500 MiB");
        return;
    }
    up_and_down(500 * MIB);
}

#[test]
fn a_large_archive_goes_up_as_a_form_and_down_again_through_bounded_memory() {
    let service = Service::start();
    let parts: Vec<Vec<u8>> = (1..4).map(|seed| random_bytes(seed, 20 * MIB as usize)).collect();
    let mut entries = vec![Entry::file("大/SKILL.md", "# 大\n")];
    entries
        .extend(parts.iter().enumerate().map(|(index, part)| Entry::file(&format!("大/{index}.bin"), part)));
    let archive = zip(&entries);
    drop(entries);
    let head = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.zip\"\r\n\r\n";
    let body = [head.as_bytes(), &archive, b"\r\n--B--\r\n"].concat();
    service.client.get("/healthz").ok();
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());
    let request = service.client.request("POST", format!("{}/upload", skills("u", "a")));
    let request = request.header("content-type", "multipart/form-data; boundary=B");
    request.send_stream(body.len() as u64, &mut body.as_slice()).ok();
    let tree = skill("u", "a", "大");
    for (index, part) in parts.iter().enumerate() {
        let read = service.client.get(format!("{tree}/raw/{index}.bin"));
        assert!(read.bytes(200) == part, "file {index} differs");
    }
    let mut received = Vec::new();
    service
        .client
        .request("GET", format!("{tree}/download"))
        .receive(&mut |piece| received.extend_from_slice(piece));
    assert!(received.len() > 60 * MIB as usize);
    let after = memory_peak_bytes(service.pid());
    assert!(after < before + GROWTH_MAX, "from {before} to {after} bytes");
    service.client.upload(&skills("v", "a"), "overlay", &received);
    assert_eq!(service.client.files(&skill("v", "a", "大")), service.client.files(&tree));
}

#[test]
fn a_form_that_never_reaches_its_archive_is_refused_in_bounded_memory() {
    let service = Service::start();
    service.client.get("/healthz").ok();
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());
    for head in ["", "--B\r\nContent-Disposition: form-data; name=\"file\"\r\nX: "] {
        let length = 150 * MIB;
        let body = head.as_bytes().chain(std::io::repeat(b'x').take(length - head.len() as u64));
        let request = service.client.request("POST", format!("{}/upload", skills("u", "a")));
        let request = request.header("content-type", "multipart/form-data; boundary=B");
        request.send_stream(length, &mut { body }).refused(400, "invalid");
    }
    let after = memory_peak_bytes(service.pid());
    assert!(after < before + GROWTH_MAX, "from {before} to {after} bytes");
}

#[test]
fn a_body_larger_than_its_limit_is_refused_with_and_without_a_length() {
    let service = Service::configured(
        "[limits.files]\nraw_bytes = 1000000\ntext_bytes = 1000\n[limits.archive]\nupload_bytes = 1000000\n",
    );
    let client = &service.client;
    let tree = workspace("u", "a");
    let chunked = |method: &str, target: &str, length: usize| {
        let mut body = format!("{length:x}\r\n").into_bytes();
        body.extend(vec![b'x'; length]);
        body.extend(b"\r\n0\r\n\r\n");
        client.request(method, target).header("transfer-encoding", "chunked").body(body).send()
    };
    for (method, target, length) in [
        ("PUT", format!("{tree}/raw/f?parents=true"), 1_000_001),
        ("PUT", format!("{tree}/edit?path=f"), 1001),
        ("PUT", format!("{tree}/edit?path=f&start=1"), 1001),
        ("POST", format!("{}/upload", skills("u", "a")), 1_000_001),
        ("POST", format!("{tree}/execute?command=ls"), 1024 * 1024 + 1),
        ("POST", format!("{tree}/replace"), 64 * 1024 * 1024 + 1),
        ("POST", format!("{tree}/mkdir"), 64 * 1024 * 1024 + 1),
    ] {
        let body = vec![b'x'; length];
        let sent = client.request(method, &*target).send_stream(length as u64, &mut body.as_slice());
        assert!(sent.refused(413, "too_large")["limit_bytes"].is_u64(), "{method} {target}");
        chunked(method, &target, length).refused(413, "too_large");
    }
    assert_eq!(client.files(&tree), Vec::<String>::new());
    // At the limit it is taken, either way.
    client.put(format!("{tree}/raw/f?parents=true"), vec![b'x'; 1_000_000]).ok();
    assert_eq!(chunked("PUT", &format!("{tree}/raw/f"), 1_000_000).ok()["size"], 1_000_000);
    client.put(format!("{tree}/edit?path=g"), "x".repeat(1000)).ok();
    client.put(format!("{tree}/edit?path=g&start=2"), "y").refused(413, "too_large");
}
