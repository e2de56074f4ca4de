//! [`Spending`]: the things that one user may have, and how each is spent to the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::Arena;
use crate::client::{Answer, Broken, Client};
use crate::skill;

pub(super) const TREE: &str = "/v1/sandbox/spender/agent";
pub(super) const SKILL: &str = "/v1/skills/spender/agent/own";
pub(super) const MIB: usize = 1024 * 1024;

/// One thing that is bounded for each user.
pub(super) struct Spending {
    pub(super) name: &'static str,
    /// Threads that spend it.
    pub(super) at_once: usize,
    /// The preparation of the arena.
    pub(super) prepare: fn(&Arena),
    /// Spends until it is over.
    pub(super) spend: fn(&Arena, usize),
    /// Whether nothing more is to be had.
    pub(super) is_spent: fn(&Arena) -> bool,
}

/// Whether a request was refused at the limit.
pub(super) fn refused(arena: &Arena) -> bool {
    arena.refused.load(Ordering::Relaxed) > 0
}

pub(super) const ALL: &[Spending] = &[
    Spending { name: "requests", at_once: 16, prepare: small, spend: requests, is_spent: refused },
    Spending { name: "large texts", at_once: 6, prepare: large, spend: texts, is_spent: refused },
    Spending { name: "searches", at_once: 6, prepare: larger, spend: searches, is_spent: refused },
    Spending { name: "downloads", at_once: 6, prepare: large_skill, spend: downloads, is_spent: refused },
    Spending { name: "bodies", at_once: 6, prepare: small, spend: bodies, is_spent: refused },
    Spending { name: "bytes of a tree", at_once: 2, prepare: small, spend: bytes, is_spent: refused },
    Spending { name: "files of a tree", at_once: 1, prepare: many_files, spend: files, is_spent: refused },
    Spending { name: "bytes of all trees", at_once: 3, prepare: small, spend: all_bytes, is_spent: refused },
    Spending {
        name: "files of all trees",
        at_once: 1,
        prepare: many_files_twice,
        spend: all_files,
        is_spent: refused,
    },
    Spending { name: "uploads on their way", at_once: 1, prepare: small, spend: uploads, is_spent: refused },
    Spending { name: "connections", at_once: 1, prepare: small, spend: connections, is_spent: refused },
    Spending { name: "streams of events", at_once: 1, prepare: small, spend: streams, is_spent: refused },
    Spending { name: "audit records", at_once: 4, prepare: small, spend: audit, is_spent: refused },
    Spending { name: "commands", at_once: 10, prepare: small, spend: commands, is_spent: refused },
    Spending { name: "short commands", at_once: 10, prepare: small, spend: short_commands, is_spent: many },
    Spending { name: "processes", at_once: 8, prepare: small, spend: processes, is_spent: refused },
];

/// The token of a user.
pub(super) fn token(user: &str) -> String {
    format!("a-token-of-the-user-{user}")
}

pub(super) fn digest(user: &str) -> String {
    hex::encode(Sha256::digest(token(user)))
}

pub(super) fn client(arena: &Arena) -> Client {
    Client::with_token(&arena.url, arena.token.clone())
}

/// Asks again and again until it is over.
pub(super) fn repeat(arena: &Arena, mut ask: impl FnMut() -> Result<Answer, Broken>) {
    while !arena.is_over.load(Ordering::Relaxed) {
        if let Ok(answer) = ask()
            && matches!(answer.status, 413 | 429 | 507)
        {
            arena.refused.fetch_add(1, Ordering::Relaxed);
            // As soon as a caller is told to wait, asking is its own time.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(super) fn put(arena: &Arena, target: &str, body: &[u8]) {
    let answer = client(arena).put(target, body).unwrap();
    assert!(answer.is_success(), "{target}: {}", answer.text());
}

pub(super) fn small(arena: &Arena) {
    put(arena, &format!("{TREE}/raw/f"), &[b'x'; 4096]);
}

/// Lines that compress badly.
pub(super) fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut line = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{state:016x}\n")
    };
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        text.push_str(&line());
    }
    text.into_bytes()
}

fn large(arena: &Arena) {
    put(arena, &format!("{TREE}/raw/large"), &text(2 * MIB));
}

/// Enough that those who wait for a search to end are refused on a fast machine, too.
fn larger(arena: &Arena) {
    put(arena, &format!("{TREE}/raw/large"), &text(8 * MIB));
}

pub(super) fn large_skill(arena: &Arena) {
    let made = client(arena).upload("spender/agent", "overlay", &skill::archive(&["own"], 1)).unwrap();
    assert!(made.is_success(), "{}", made.text());
    for number in 0..4 {
        put(arena, &format!("{SKILL}/raw/large-{number}"), &text(2 * MIB));
    }
}

fn many_files(arena: &Arena) {
    small(arena);
    make_files(arena, TREE, 1990);
}

fn many_files_twice(arena: &Arena) {
    small(arena);
    make_files(arena, TREE, 1900);
    put(arena, &format!("{}/raw/f?parents=true", tree(1)), b"x");
    make_files(arena, &tree(1), 1050);
}

fn make_files(arena: &Arena, tree: &str, count: usize) {
    let line = format!("for i in $(seq 1 {count}); do : > f$i; done");
    let ran = client(arena).shell(tree, &line).unwrap();
    assert!(ran.is_success(), "{}", ran.text());
}

/// One of several workspaces.
fn tree(number: usize) -> String {
    format!("/v1/sandbox/spender/agent-{number}")
}

fn requests(arena: &Arena, number: usize) {
    let client = client(arena);
    repeat(arena, || match number % 2 {
        0 => client.get(&format!("{TREE}/stat?path=f")),
        _ => client.put(&format!("{TREE}/raw/own-{number}"), &[b'y'; 512]),
    });
}

fn texts(arena: &Arena, _: usize) {
    let client = client(arena);
    repeat(arena, || client.get(&format!("{TREE}/content?path=large")));
}

fn searches(arena: &Arena, _: usize) {
    let client = client(arena);
    let body = json!({ "pattern": "(a[0-9]+b|c[a-f]+[0-9]d){3}x$", "path": "" });
    repeat(arena, || client.post(&format!("{TREE}/grep"), &body));
}

fn downloads(arena: &Arena, _: usize) {
    let client = client(arena);
    repeat(arena, || client.get(&format!("{SKILL}/download")));
}

fn bodies(arena: &Arena, _: usize) {
    let client = client(arena);
    let long = "a".repeat(11 * MIB);
    let body = format!("{{\"path\":\"f\",\"edits\":[{{\"old_string\":\"{long}\",\"new_string\":\"\"}}]}}");
    repeat(arena, || client.send("POST", &format!("{TREE}/replace"), None, body.as_bytes()));
}

fn bytes(arena: &Arena, number: usize) {
    let (client, body) = (client(arena), vec![b'z'; 8 * MIB]);
    let mut next = 0;
    repeat(arena, || {
        next += 1;
        client.put(&format!("{TREE}/raw/bytes-{number}-{next}"), &body)
    });
}

fn files(arena: &Arena, _: usize) {
    let client = client(arena);
    let mut next = 0;
    repeat(arena, || {
        next += 1;
        client.put(&format!("{TREE}/raw/file-{next}"), b"")
    });
}

/// Into several trees, none of which is full.
fn all_bytes(arena: &Arena, number: usize) {
    let (client, body) = (client(arena), vec![b'z'; 8 * MIB]);
    let mut next = 0;
    repeat(arena, || {
        next += 1;
        client.put(&format!("{}/raw/bytes-{next}", tree(number)), &body)
    });
}

fn all_files(arena: &Arena, _: usize) {
    let client = client(arena);
    let mut next = 0;
    repeat(arena, || {
        next += 1;
        client.put(&format!("{}/raw/file-{next}", tree(next % 2 + 1)), b"")
    });
}

/// Sends heads without waiting for answers, and keeps the connections.
pub(super) fn hold(arena: &Arena, count: usize, head: impl Fn(usize) -> String) -> Vec<TcpStream> {
    let address = arena.url.trim_start_matches("http://");
    let mut held = Vec::new();
    for number in 0..count {
        let Ok(mut stream) = TcpStream::connect(address) else { break };
        let head = head(number).replace(
            "\r\n\r\n",
            &format!("\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\r\n", arena.token),
        );
        if stream.write_all(head.as_bytes()).is_err() {
            break;
        }
        held.push(stream);
    }
    held
}

pub(super) fn wait(arena: &Arena) {
    while !arena.is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bodies that lack their last byte, until one is refused.
fn uploads(arena: &Arena, _: usize) {
    let length = 4 * MIB;
    let mut held = hold(arena, 12, |number| {
        format!("PUT {TREE}/raw/held-{number} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n")
    });
    let body = vec![b'x'; length - 1];
    for stream in &mut held {
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        if stream.write_all(&body).is_err() {
            arena.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    for stream in &mut held {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        if stream.read(&mut [0; 512]).is_ok_and(|read| read > 0) {
            arena.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    wait(arena);
}

/// Idle connections, more than there are.
fn connections(arena: &Arena, _: usize) {
    let held = hold(arena, 450, |_| format!("GET {TREE}/stat?path=f HTTP/1.1\r\n\r\n"));
    for stream in &held {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    }
    // The first have given way to the last.
    let gone = held.iter().take(20).any(|mut stream| {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).is_ok()
    });
    arena.refused.fetch_add(usize::from(gone), Ordering::Relaxed);
    wait(arena);
}

fn streams(arena: &Arena, _: usize) {
    let mut held = hold(arena, 20, |_| format!("GET {TREE}/events HTTP/1.1\r\n\r\n"));
    for stream in &mut held {
        let mut begin = [0; 12];
        if stream.read_exact(&mut begin).is_ok() && begin.ends_with(b"429") {
            arena.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    // Something to tell all of them.
    let client = client(arena);
    repeat(arena, || client.put(&format!("{TREE}/raw/told"), b"x"));
}

/// Changes that are recorded until the part of the log is spent; refused ones have a part of their own.
fn audit(arena: &Arena, number: usize) {
    let client = client(arena);
    let name = format!("{number}-{}", "n".repeat(240));
    repeat(arena, || client.put(&format!("{TREE}/raw/{name}"), b"x"));
}

fn commands(arena: &Arena, _: usize) {
    let client = client(arena);
    let body = json!({ "shell": "while :; do :; done", "timeout_ms": 300 });
    repeat(arena, || client.post(&format!("{TREE}/exec"), &body));
}

/// Commands that end at once, one after the other.
fn short_commands(arena: &Arena, _: usize) {
    let client = client(arena);
    while !arena.is_over.load(Ordering::Relaxed) {
        if client.post(&format!("{TREE}/exec"), &json!({ "shell": ":" })).is_ok_and(|ran| ran.is_success()) {
            arena.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// So many of them that their user has been noticed.
fn many(arena: &Arena) -> bool {
    arena.refused.load(Ordering::Relaxed) > 300
}

/// Forks until that is refused, and only then has all of them at work, so that they do not keep each other from being made.
const FORKING: &str = r#"
import os, sys
ready, told = os.pipe()
for _ in range(150):
    try:
        child = os.fork()
    except BlockingIOError:
        print("fork: refused", file=sys.stderr, flush=True)
        break
    if child == 0:
        os.close(told)
        os.read(ready, 1)
        while True: pass
os.close(told)
while True: pass
"#;

/// More processes than one may have, as many of them at work as there may be.
fn processes(arena: &Arena, _: usize) {
    let client = client(arena);
    let body = json!({ "command": "python3", "args": ["-ISc", FORKING], "timeout_ms": 500 });
    while !arena.is_over.load(Ordering::Relaxed) {
        let answer = client.post(&format!("{TREE}/exec"), &body);
        if answer.is_ok_and(|answer| answer.text().contains("fork: ")) {
            arena.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
