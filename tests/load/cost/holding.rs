//! Spendings that hold what a user may have for as long as possible: runs and what they take, connections, networks, machines.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Arena;
use super::spending::{
    MIB, SKILL, Spending, TREE, client, hold, large_skill, put, refused, repeat, small, text, wait,
};

/// Settings under which these spendings come to an end soon.
pub(super) const SETTINGS: &str = "
[limits.runs]
cpu_seconds = 1
processes = 100
queue_ms = 50
run_memory_bytes = 134217728
[limits.ports]
connections_per_user = 8
[limits.networks]
held_per_user = 8
[commands.proxy]
connections_per_run = 8
allow_private = [\"127.0.0.0/8\"]
[mcp]
enabled = true
calls_per_user = 4
";

/// How long one command of a spender goes on.
const LONG_MS: u64 = 30_000;

pub(super) const HELD: &[Spending] = &[
    Spending { name: "seconds", at_once: 2, prepare: large_tree, spend: seconds, is_spent: refused },
    Spending { name: "background runs", at_once: 1, prepare: small, spend: background, is_spent: refused },
    Spending { name: "terminals", at_once: 1, prepare: small, spend: terminals, is_spent: refused },
    Spending { name: "undecided runs", at_once: 1, prepare: small, spend: undecided, is_spent: refused },
    Spending { name: "memory", at_once: 4, prepare: small, spend: memory, is_spent: refused },
    Spending { name: "bytes that runs write", at_once: 2, prepare: small, spend: writing, is_spent: written },
    Spending { name: "supervised calls", at_once: 4, prepare: small, spend: supervised, is_spent: refused },
    Spending { name: "temporary files", at_once: 4, prepare: small, spend: temporary, is_spent: refused },
    Spending { name: "copies", at_once: 10, prepare: large_skill, spend: copies, is_spent: refused },
    Spending { name: "processor time", at_once: 2, prepare: small, spend: processor, is_spent: refused },
    Spending { name: "connections to ports", at_once: 16, prepare: server, spend: ports, is_spent: refused },
    Spending { name: "calls", at_once: 6, prepare: small, spend: calls, is_spent: refused },
    Spending { name: "machines", at_once: 1, prepare: small, spend: machines, is_spent: refused },
    Spending { name: "network namespaces", at_once: 2, prepare: small, spend: networks, is_spent: refused },
    Spending {
        name: "connections through the proxy",
        at_once: 1,
        prepare: small,
        spend: proxied,
        is_spent: refused,
    },
];

fn spent(arena: &Arena) {
    arena.refused.fetch_add(1, Ordering::Relaxed);
}

fn is_over(arena: &Arena) -> bool {
    arena.is_over.load(Ordering::Relaxed)
}

/// More text than a search gets through in its time.
fn large_tree(arena: &Arena) {
    let text = text(8 * MIB);
    for number in 0..8 {
        put(arena, &format!("{TREE}/raw/large-{number}"), &text);
    }
}

/// Searches that are ended when their time is over.
fn seconds(arena: &Arena, _: usize) {
    let client = client(arena);
    let body = json!({ "pattern": "(a[0-9]+b|c[a-f]+[0-9]d|[0-9a-f]+e){3,6}x$", "path": "" });
    while !is_over(arena) {
        if let Ok(answer) = client.post(&format!("{TREE}/grep"), &body)
            && answer.json()["stopped_by"] == "time"
        {
            spent(arena);
        }
    }
}

/// Starts runs that stay until no more are to be had, and ends them when it is over.
fn stay(arena: &Arena, target: &str, run: &Value, end: &str) {
    let client = client(arena);
    let (mut begun, mut run) = (Vec::new(), run.clone());
    loop {
        let id = format!("held-{}", arena.number.fetch_add(1, Ordering::Relaxed));
        run["exec_id"] = id.as_str().into();
        let answer = client.post(&format!("{TREE}/{target}"), &run).unwrap();
        if answer.status == 429 {
            spent(arena);
            break;
        }
        assert!(answer.is_success() && begun.len() < 64, "{}", answer.text());
        begun.push(id);
    }
    wait(arena);
    for id in begun {
        let ended = match end {
            "" => client.delete(&format!("{TREE}/exec/{id}")),
            end => client.post(&format!("{TREE}/exec/{id}/{end}"), &json!({})),
        };
        assert!(ended.unwrap().is_success());
    }
}

fn background(arena: &Arena, _: usize) {
    let run = json!({ "shell": "while :; do :; done", "timeout_ms": LONG_MS });
    stay(arena, "exec?background=true", &run, "");
}

fn undecided(arena: &Arena, _: usize) {
    stay(arena, "exec", &json!({ "shell": "echo changed > f", "commit": "ask" }), "discard");
}

/// Terminals in which something is at work, until one is refused.
fn terminals(arena: &Arena, _: usize) {
    let mut held = hold(arena, 8, |_| {
        format!(
            "GET {TREE}/terminal HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
    });
    for stream in &mut held {
        let mut begin = [0; 12];
        match stream.read_exact(&mut begin) {
            Ok(()) if begin.ends_with(b"101") => say(stream, 2, b"while :; do :; done\n"),
            Ok(()) if begin.ends_with(b"429") => spent(arena),
            _ => {}
        }
    }
    wait(arena);
    let client = client(arena);
    let runs = client.get(&format!("{TREE}/exec")).unwrap().json();
    for run in runs["data"].as_array().unwrap().iter().filter(|run| run["state"] != "ended") {
        let id = run["exec_id"].as_str().unwrap();
        client.delete(&format!("{TREE}/exec/{id}")).unwrap();
    }
}

/// Sends one whole message of a WebSocket, as clients do: masked (RFC 6455, 5.2), here with zeros.
fn say(stream: &mut TcpStream, kind: u8, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0x80 | kind, 0x80 | 126, length[0], length[1], 0, 0, 0, 0], message].concat();
    let _ = stream.write_all(&frame);
}

/// Runs commands, each of which the limit of this name ends.
fn until_limited(arena: &Arena, run: &Value, limit: &str) {
    let client = client(arena);
    while !is_over(arena) {
        if let Ok(answer) = client.post(&format!("{TREE}/exec"), run)
            && answer.status == 200
            && answer.json()["data"]["limit"] == limit
        {
            spent(arena);
        }
    }
}

fn memory(arena: &Arena, _: usize) {
    let line = "exec python3 -c 'held = []\nwhile True: held.append(bytearray(1 << 20))'";
    until_limited(arena, &json!({ "shell": line, "timeout_ms": LONG_MS }), "memory");
}

/// Over and over the same 32 MiB, whose writing counts each time.
fn writing(arena: &Arena, number: usize) {
    let client = client(arena);
    let line = format!(
        "while :; do dd if=/dev/zero of=w{number} bs=1M count=32 conv=notrunc status=none; printf x; done"
    );
    let run = json!({ "shell": line, "timeout_ms": 1_500 });
    while !is_over(arena) {
        if let Ok(answer) = client.post(&format!("{TREE}/exec"), &run)
            && answer.status == 200
        {
            let times = answer.json()["data"]["stdout"].as_str().map_or(0, str::len);
            arena.refused.fetch_add(times, Ordering::Relaxed);
        }
    }
}

/// More than may be written at once, 128 MiB.
fn written(arena: &Arena) -> bool {
    arena.refused.load(Ordering::Relaxed) > 4
}

/// Calls that a supervisor answers at tier `landlock`, by several processes without end.
const SUPERVISED: &str = "
import os
os.fork()
os.fork()
while True: os.chmod('f', 0o600)
";

fn supervised(arena: &Arena, _: usize) {
    let client = client(arena);
    let run = json!({ "command": "python3", "args": ["-ISc", SUPERVISED], "timeout_ms": 500 });
    while !is_over(arena) {
        if let Ok(answer) = client.post(&format!("{TREE}/exec"), &run)
            && answer.status == 200
            && answer.json()["data"]["timed_out"] == true
        {
            spent(arena);
        }
    }
}

fn processor(arena: &Arena, _: usize) {
    until_limited(arena, &json!({ "shell": "while :; do :; done", "timeout_ms": LONG_MS }), "cpu");
}

/// A server that takes its time over each request. It needs little of the second of processor time that a run has here, and
/// who waits for a place waits longer than `queue_ms`.
fn server(arena: &Arena) {
    small(arena);
    let program = "import http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(1)
        self.send_response(200)
        self.send_header('content-length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Slow).serve_forever()";
    let run = json!({ "command": "python3", "args": ["-c", program], "timeout_ms": 300_000 });
    let client = client(arena);
    assert!(client.post(&format!("{TREE}/exec?background=true"), &run).unwrap().is_success());
    let begun = Instant::now();
    while client.get(&format!("{TREE}/ports/8000/")).unwrap().status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "no server");
        thread::sleep(Duration::from_millis(20));
    }
}

fn ports(arena: &Arena, _: usize) {
    let client = client(arena);
    repeat(arena, || client.get(&format!("{TREE}/ports/8000/")));
}

/// Calls of a tool over MCP, more than one user may have under way.
fn calls(arena: &Arena, _: usize) {
    let address = arena.url.trim_start_matches("http://");
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "Shell", "arguments": { "command": "sleep 0.2" } },
    })
    .to_string();
    let head = format!(
        "POST /mcp/spender/agent HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{call}",
        arena.token,
        call.len()
    );
    while !is_over(arena) {
        let mut answer = String::new();
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(head.as_bytes())?;
            stream.read_to_string(&mut answer)
        });
        if asked.is_ok() && answer.contains("busy") {
            spent(arena);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A machine that never answers, and more requests for it than wait.
fn machines(arena: &Arena, _: usize) {
    let mut machine = hold(arena, 1, |_| {
        "GET /ws/spender HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".to_owned()
    });
    let [stream] = machine.as_mut_slice() else { panic!("no connection") };
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    let body = json!({ "user_id": "spender", "auth_token": arena.token, "workspace": "/home/spender" });
    let register = json!({ "type": "register", "user_id": "spender", "body": body });
    say(stream, 1, register.to_string().as_bytes());
    let client = client(arena);
    let begun = Instant::now();
    let is_lent =
        || !client.get("/v1/runners/spender").unwrap().json()["data"].as_array().unwrap().is_empty();
    while !is_lent() {
        assert!(begun.elapsed() < Duration::from_secs(10), "no machine");
        thread::sleep(Duration::from_millis(10));
    }
    let mut waiting = Vec::new();
    while !is_over(arena) {
        if waiting.len() < 400 {
            waiting.extend(hold(arena, 10, |_| format!("GET {TREE}/stat?path=f HTTP/1.1\r\n\r\n")));
        }
        // A request that is answered at once found no place any more.
        if let Some(stream) = waiting.last_mut() {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
            let mut begin = [0; 12];
            if stream.read_exact(&mut begin).is_ok() && begin.ends_with(b"429") {
                spent(arena);
            }
        }
        if refused(arena) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Commands of more agents in turn than networks are kept.
fn networks(arena: &Arena, number: usize) {
    let client = client(arena);
    let mut next = 0;
    while !is_over(arena) {
        let agent = format!("agent-{number}-{}", next % 12);
        let ran = client.post(&format!("/v1/sandbox/spender/{agent}/exec"), &json!({ "shell": ":" }));
        let answer = ran.expect("an answer");
        assert!(answer.is_success(), "{}", answer.text());
        next += 1;
        if next > 12 {
            spent(arena);
        }
    }
}

/// Writes as fast as it can; with an argument it has each file on the disk before the next one.
const WRITING: &str = r#"
import os, sys
block = bytes(4 << 20)
os.chdir(os.environ["TMPDIR"])
for name in os.listdir():
    if name.startswith("block-"):
        try: os.unlink(name)
        except FileNotFoundError: pass
number = 0
while True:
    with open(f"block-{os.getpid()}-{number}", "wb") as file:
        file.write(block)
        file.flush()
        if sys.argv[1:]: os.fsync(file.fileno())
    number += 1
"#;

/// Runs that fill the room for temporary files until they are ended, and a new workspace when no run may begin any more.
fn temporary(arena: &Arena, number: usize) {
    let client = client(arena);
    let waits: &[&str] = if number % 2 == 1 { &["waits"] } else { &[] };
    let args: Vec<&str> = [&["-Ic", WRITING], waits].concat();
    let run = json!({ "command": "python3", "args": args, "timeout_ms": LONG_MS });
    while !is_over(arena) {
        match client.post(&format!("{TREE}/exec"), &run) {
            // Another one's run may be there still.
            Ok(refused) if refused.status == 507 => drop(client.delete(TREE)),
            Ok(ran) if ran.text().contains("\"limit\":\"disk\"") => spent(arena),
            _ => {}
        }
    }
}

/// Runs in a skill that has just been changed, so that each one needs a copy where commands work on copies.
fn copies(arena: &Arena, number: usize) {
    let client = client(arena);
    while !is_over(arena) {
        client.put(&format!("{SKILL}/raw/changed-{number}"), b"x").unwrap();
        if client.post(&format!("{SKILL}/exec"), &json!({ "shell": ":" })).is_ok_and(|ran| ran.is_success()) {
            spent(arena);
        }
    }
}

/// Tunnels of one run, more than it may have.
fn proxied(arena: &Arena, _: usize) {
    // The proxy leads to these ports only, and not everybody may listen there.
    let outside = TcpListener::bind("127.0.0.1:443").or_else(|_| TcpListener::bind("127.0.0.1:80"));
    let outside =
        outside.expect("port 443 or 80: `net.ipv4.ip_unprivileged_port_start`, where the test is not root");
    let port = outside.local_addr().unwrap().port();
    let program = format!(
        "import base64, os, socket, time, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
secret = base64.b64encode(f'{{proxy.username}}:{{proxy.password}}'.encode()).decode()
held = []
while True:
    tunnel = socket.create_connection((proxy.hostname, proxy.port))
    tunnel.sendall(f'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nProxy-Authorization: Basic {{secret}}\\r\\n\\r\\n'.encode())
    told = tunnel.recv(64)
    if b' 200' in told:
        held.append(tunnel)
    elif b' 429' in told:
        open('refused', 'w').close()
        time.sleep(0.05)
    else:
        open('failed', 'wb').write(told)
        break
"
    );
    let run = json!({ "command": "python3", "args": ["-c", program], "timeout_ms": LONG_MS });
    let client = client(arena);
    let begun = client.post(&format!("{TREE}/exec?background=true"), &run).unwrap();
    assert!(begun.is_success(), "{}", begun.text());
    let id = begun.json()["data"]["exec_id"].as_str().unwrap().to_owned();
    outside.set_nonblocking(true).unwrap();
    let mut taken = Vec::new();
    while !is_over(arena) {
        taken.extend(outside.accept().ok());
        if !refused(arena) && client.get(&format!("{TREE}/raw/refused")).unwrap().status == 200 {
            spent(arena);
        }
        let failed = client.get(&format!("{TREE}/raw/failed")).unwrap();
        assert_ne!(failed.status, 200, "{}", failed.text());
        thread::sleep(Duration::from_millis(5));
    }
    client.delete(&format!("{TREE}/exec/{id}")).unwrap();
    client.delete(&format!("{TREE}/raw/refused")).unwrap();
}
