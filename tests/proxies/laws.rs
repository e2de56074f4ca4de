//! What holds through each proxy as it does without one.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use serde_json::json;

use crate::front::{Front, Proxy, TOKEN};
use crate::support::{Message, encoded, random_bytes, workspace};

/// Larger than what either program buffers in memory, and than nginx's own bound (1 MiB).
const LARGE_BYTES: usize = 24 << 20;

/// Goes through all laws with one service and one proxy, since starting them is most of the work.
fn holds(proxy: Proxy) {
    let Some(front) = Front::start(proxy) else { return };
    refusals_pass_unharmed(&front);
    paths_pass_as_they_are_spelled(&front);
    a_large_body_passes_in_both_directions(&front);
    a_body_that_waits_to_be_asked_for_is_asked_for(&front);
    a_refused_body_has_its_answer(&front);
    the_output_of_a_run_arrives_while_it_runs(&front);
    a_terminal_is_typed_into(&front);
    a_runner_registers_and_answers(&front);
    the_id_of_a_request_is_in_both_logs(&front);
    a_caller_without_a_token_is_refused(&front);
}

#[test]
fn all_of_it_holds_behind_nginx() {
    holds(Proxy::Nginx);
}

#[test]
fn all_of_it_holds_behind_caddy() {
    holds(Proxy::Caddy);
}

fn refusals_pass_unharmed(front: &Front) {
    let stranger = front.client.with_token("unknown");
    let direct = front.service.client.with_token("unknown");
    let refused = stranger.get("/v1/sandbox/alice/demo/files");
    assert_eq!(refused.refused(401, "unauthenticated")["code"], "unauthenticated");
    assert_eq!(
        refused.header("www-authenticate"),
        direct.get("/v1/sandbox/alice/demo/files").header("www-authenticate")
    );
    front.client.get("/v1/sandbox/alice/demo/content?path=none").refused(404, "not_found");
    front.client.get("/v1/no/such/route").refused(404, "not_found");
    let not_modified = {
        front.client.write(&workspace("alice", "demo"), "tagged", "text");
        let tag = front.client.get("/v1/sandbox/alice/demo/raw/tagged").etag();
        front.client.request("GET", "/v1/sandbox/alice/demo/raw/tagged").header("if-none-match", tag).send()
    };
    assert_eq!((not_modified.status, not_modified.body.len()), (304, 0));
}

fn paths_pass_as_they_are_spelled(front: &Front) {
    let tree = workspace("alice", "数据");
    for path in ["目录/表格 一.csv", "a%2Fb", "plus+and&amp", "question?mark#hash"] {
        front.client.write(&tree, path, path);
        assert_eq!(front.client.text(&tree, path), path);
        let segments: Vec<String> = path.split('/').map(encoded).collect();
        let raw = front.client.get(format!("{tree}/raw/{}", segments.join("/")));
        assert_eq!(raw.bytes(200), path.as_bytes(), "{path}");
    }
}

fn a_large_body_passes_in_both_directions(front: &Front) {
    let bytes = random_bytes(1, LARGE_BYTES);
    let target = "/v1/sandbox/alice/demo/raw/large.bin";
    front.client.put(target, &bytes).ok();
    assert!(front.client.get(target).bytes(200) == bytes, "the bytes that came back are others");
}

fn a_body_that_waits_to_be_asked_for_is_asked_for(front: &Front) {
    let mut stream = front.client.connect();
    let head = format!(
        "PUT /v1/sandbox/alice/demo/raw/expected HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\
         connection: close\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
        front.client.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100", "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"body").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 20"), "{rest}");
    assert_eq!(front.client.text("/v1/sandbox/alice/demo", "expected"), "body");
}

/// Its sender sees why, and no failure of the proxy.
fn a_refused_body_has_its_answer(front: &Front) {
    let body = random_bytes(2, 1 << 20);
    front
        .client
        .with_token("unknown")
        .put("/v1/sandbox/alice/demo/raw/refused", body)
        .refused(401, "unauthenticated");
}

/// The command ends only when its output has been seen, so that a proxy which keeps output back never gets to the end.
fn the_output_of_a_run_arrives_while_it_runs(front: &Front) {
    let tree = workspace("alice", "demo");
    let line = "echo first; until [ -e seen ]; do sleep 0.02; done; echo second";
    let events = front.client.stream_run(&tree, &json!({"shell": line}));
    assert_eq!(events.status, 200);
    let mut shown = String::new();
    let mut kinds = BTreeMap::new();
    for event in events {
        let kind = event["event"].as_str().or(event["type"].as_str()).unwrap_or_default().to_owned();
        *kinds.entry(kind).or_insert(0) += 1;
        let before = shown.len();
        shown.push_str(event["text"].as_str().unwrap_or_default());
        if before < "first\n".len() && shown.starts_with("first\n") {
            front.client.write(&tree, "seen", "");
        }
    }
    assert_eq!(shown, "first\nsecond\n", "{kinds:?}");
}

fn a_terminal_is_typed_into(front: &Front) {
    let tree = workspace("alice", "demo");
    let mut socket =
        front.client.websocket(&format!("{tree}/terminal?rows=30&cols=100"), "").expect("a WebSocket");
    socket.told("started");
    socket.type_in("echo typed-$((1+1))\n");
    socket.shown_until("typed-2");
    socket.type_in("exit 7\n");
    assert_eq!(socket.told("exit")["result"]["exit_code"], 7);
    assert_eq!(socket.next(), Message::Close);
    // A refusal comes in place of the WebSocket.
    let refused = front.client.with_token("unknown").websocket(&format!("{tree}/terminal"), "");
    assert_eq!(refused.err(), Some(401));
}

fn a_runner_registers_and_answers(front: &Front) {
    let mut socket = front.client.websocket("/ws/carol", "").expect("a WebSocket");
    let body = json!({ "user_id": "carol", "auth_token": TOKEN, "workspace": "/home/carol/work" });
    socket.say(&json!({ "type": "register", "user_id": "carol", "body": body }));
    assert_eq!(socket.told("register_ok")["type"], "register_ok");
    let listed = front.client.get("/v1/runners/carol").ok();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
}

/// So that who asked, which the proxy alone knows, is found for a record of the service. A caller's own id passes.
fn the_id_of_a_request_is_in_both_logs(front: &Front) {
    let target = format!("{}/edit?path=named", workspace("alice", "demo"));
    let reply = front.client.request("PUT", target).header("x-request-id", "job-19").body("x").send();
    reply.ok();
    let id = reply.header("x-request-id").expect("an id").to_owned();
    let records = front.client.get("/v1/audit?user=alice").ok();
    let record = records["data"].as_array().unwrap().iter().find(|record| record["request"] == json!(id));
    let record = record.unwrap_or_else(|| panic!("no record of {id}: {records}"));
    assert_eq!((&record["caller_request"], &record["paths"]), (&json!("job-19"), &json!(["named"])));
    front.await_log(&id);
}

/// A server in the sandbox, which gets all that the service passes on, sees HTTPS and nothing that the caller made up.
fn a_caller_without_a_token_is_refused(front: &Front) {
    let tree = workspace("dora", "demo");
    let server = "import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n def do_GET(self):\n  \
                  body = str(self.headers).encode()\n  self.send_response(200)\n  \
                  self.send_header('content-length', str(len(body)))\n  self.end_headers()\n  self.wfile.write(body)\n\
                  http.server.HTTPServer(('127.0.0.1', 8000), H).serve_forever()\n";
    front.client.write(&tree, "server.py", server);
    let spec = json!({"command": "python3", "args": ["server.py"], "exec_id": "web"});
    front.client.post_json(format!("{tree}/exec?background=true"), &spec);
    let asked = || {
        let request = front.client.request("GET", format!("{tree}/ports/8000/"));
        request.header("x-forwarded-proto", "gopher").header("x-forwarded-for", "192.0.2.7").send()
    };
    let mut reply = asked();
    for _ in 0..600 {
        if reply.status == 200 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        reply = asked();
    }
    let seen = String::from_utf8_lossy(&reply.body).to_ascii_lowercase();
    front.client.delete(format!("{tree}/exec/web"));
    if reply.status != 200 {
        // Where the host grants no networks of commands, there are no ports.
        reply.refused(501, "unsupported");
        return;
    }
    assert!(seen.contains("x-forwarded-proto: https"), "{seen}");
    assert!(
        !seen.contains("gopher") && !seen.contains("192.0.2.7") && !seen.contains("authorization"),
        "{seen}"
    );
}

#[test]
fn an_example_waits_longer_than_any_run_is_silent() {
    let nginx = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/nginx.conf")).unwrap();
    let limits = filesecbox::config::Config::default().limits;
    let (_, after) = nginx.split_once("proxy_read_timeout ").unwrap();
    let seconds: u64 = after.split('s').next().unwrap().parse().unwrap();
    for longest_ms in [
        limits.runs.timeout_ms + limits.runs.queue_ms,
        limits.sessions.background_ms,
        limits.sessions.terminal_ms,
    ] {
        assert!(seconds * 1000 > longest_ms, "proxy_read_timeout {seconds}s, and {longest_ms} ms may pass");
    }
}
