//! Large files over HTTP, as scripted runners ask for them: honest ones of several ages, and hostile ones.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::founding::registered;
use crate::support::{Client, Message, Service, Socket};

const TREE: &str = "/v1/sandbox/alice/demo";
/// The file that is read, and what comes of it with the answer to `open_read`.
const SIZE: usize = 6 << 20;
const FIRST: usize = 9;

fn file() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7 % 251) as u8).collect()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn moved(bytes: &[u8]) -> Value {
    json!({"type": "moved", "body": {"bytes": bytes.len(), "digest": blake3::hash(bytes).to_hex().to_string()}})
}

fn failed(kind: &str) -> Value {
    json!({"type": "error", "body": {"code": "EIO", "message": "m", "kind": kind}})
}

/// Serves requests until the connection ends; gives their types.
fn serving(
    mut socket: Socket,
    mut carry: impl FnMut(&Value) -> Value + Send + 'static,
) -> JoinHandle<Vec<String>> {
    let whole = file();
    std::thread::spawn(move || {
        let (mut asked, mut at) = (Vec::new(), FIRST);
        while let Message::Text(request) = socket.next() {
            let kind = request["type"].as_str().unwrap().to_owned();
            asked.push(kind.clone());
            let mut answer = match kind.as_str() {
                "stat" | "open_read" if request["body"]["path"] == "/home/u/work" => failed("is_directory"),
                "open_read" => json!({"type": "opened", "body": {
                    "handle": 7, "range": [0, SIZE], "data": base64(&whole[..FIRST]),
                    "info": {"name": "f", "size": SIZE, "mode": 0o644, "mod_time": "2026-03-26T00:00:00Z", "is_dir": false}}}),
                "open_write" => json!({"type": "opened", "body": {"handle": 8}}),
                "write_piece" | "finish_write" => json!({"type": "ok"}),
                "read_piece" => {
                    let end = (at + (512 << 10)).min(SIZE);
                    let piece = json!({"type": "file_content", "body": {"data": base64(&whole[at..end]), "last": end == SIZE}});
                    at = end;
                    if piece["body"]["data"] == "" { failed("invalid") } else { piece }
                }
                "send_file" | "fetch_file" => carry(&request["body"]),
                _ => continue,
            };
            if answer.is_null() {
                continue;
            }
            answer["id"] = request["id"].clone();
            socket.say(&answer);
        }
        asked
    })
}

fn transferring(
    service: &Service,
    carry: impl FnMut(&Value) -> Value + Send + 'static,
) -> JoinHandle<Vec<String>> {
    serving(registered(&service.client, "alice", &json!({"features": ["exact", "transfers"]})), carry)
}

/// A connection for the transfer of which `body` tells.
fn opened(client: &Client, body: &Value) -> (Client, String) {
    let client = client.with_token(body["token"].as_str().unwrap());
    (client, format!("/v1/transfers/{}", body["id"].as_str().unwrap()))
}

/// Fetches what the service gives: status and body without its chunks; a body that breaks off is `None`.
fn fetched(client: &Client, path: &str, from: usize) -> (u16, Option<Vec<u8>>) {
    let mut stream = client.connect();
    let head = format!(
        "GET {path}?from={from} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        client.address,
        client.token.as_deref().unwrap()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap();
    let (mut rest, mut whole) = (&bytes[end + 4..], Vec::new());
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let Ok(length) = usize::from_str_radix(&String::from_utf8_lossy(&rest[..line]), 16) else { break };
        if length == 0 {
            return (status, Some(whole));
        }
        let Some(chunk) = rest.get(line + 2..line + 2 + length) else { break };
        whole.extend_from_slice(chunk);
        rest = rest.get(line + 4 + length..).unwrap_or_default();
    }
    (status, None)
}

fn leave(service: &Service, runner: JoinHandle<Vec<String>>) -> Vec<String> {
    service.client.post("/v1/runners/alice/default/cut", "").ok();
    runner.join().unwrap()
}

/// Reads the file through `carry`; gives what came of it.
fn read(carry: impl FnMut(&Value) -> Value + Send + 'static) -> (Vec<u8>, Vec<String>) {
    let service = Service::start();
    let runner = transferring(&service, carry);
    let read = service.client.get(format!("{TREE}/raw/f"));
    (read.body, leave(&service, runner))
}

#[test]
fn a_token_of_a_transfer_is_good_for_its_own_bytes_in_its_own_direction_once() {
    let service = Service::start();
    let honest = service.client.with_token("");
    let (over, told) = mpsc::channel();
    let runner = transferring(&service, move |body| {
        let (client, path) = opened(&honest, body);
        let rest = &file()[FIRST..];
        let put = |client: &Client, from: usize, bytes: &[u8]| {
            client.request("PUT", format!("{path}?from={from}")).body(bytes).send()
        };
        put(&client.with_token("wrong"), 0, rest).refused(404, "not_found");
        put(&client.with_token(""), 0, rest).refused(404, "not_found");
        assert_eq!(fetched(&client, &path, 0).0, 404, "the other direction");
        client.get(format!("/v1/transfers/{}/received", "0".repeat(32))).refused(404, "not_found");
        // Ranges that lie.
        for from in [1, rest.len(), usize::MAX] {
            put(&client, from, b"x").refused(409, "conflict");
        }
        // Half of it, and the rest when it is known what came.
        let half = rest.len() / 2;
        let head = format!(
            "PUT {path}?from=0 HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
            client.address,
            client.token.as_deref().unwrap(),
            rest.len()
        );
        let mut cut = client.connect();
        cut.write_all(&[head.as_bytes(), &rest[..half]].concat()).unwrap();
        drop(cut);
        let received =
            client.get(format!("{path}/received")).ok()["data"]["bytes"].as_u64().unwrap() as usize;
        assert!(received <= half, "{received}");
        put(&client, received, &rest[received..]).ok();
        // Played again.
        put(&client, 0, rest).refused(409, "conflict");
        over.send((client, path.clone())).unwrap();
        moved(rest)
    });
    assert!(service.client.get(format!("{TREE}/raw/f")).body == file());
    let (client, path) = told.recv().unwrap();
    client.get(format!("{path}/received")).refused(404, "not_found");
    assert!(leave(&service, runner).contains(&"send_file".to_owned()));
    assert!(!service.log().contains(client.token.as_deref().unwrap()), "a token is in the log");
}

#[test]
fn a_runner_that_sends_other_bytes_than_it_told_gives_no_whole_file() {
    for lie in ["more", "fewer", "damaged", "nothing", "early"] {
        let service_address = std::sync::Arc::new(std::sync::Mutex::new(None::<Client>));
        let service = Service::start();
        *service_address.lock().unwrap() = Some(service.client.with_token(""));
        let runner = transferring(&service, move |body| {
            let (client, path) = opened(service_address.lock().unwrap().as_ref().unwrap(), body);
            let mut rest = file()[FIRST..].to_vec();
            let put = |bytes: &[u8]| {
                client
                    .request("PUT", format!("{path}?from=0"))
                    .header("transfer-encoding", "chunked")
                    .body([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n0\r\n\r\n"].concat())
                    .send()
            };
            let honest = moved(&rest);
            match lie {
                "more" => drop(put(&[&rest[..], b"x"].concat()).refused(413, "too_large")),
                "fewer" => drop(put(&rest[1..]).refused(400, "invalid")),
                "damaged" => {
                    rest[SIZE / 2] ^= 1;
                    put(&rest).ok();
                }
                "nothing" => return failed("internal"),
                _ => {}
            }
            honest
        });
        let read = service.client.get(format!("{TREE}/raw/f"));
        let is_refused = read.status != 200;
        assert!(is_refused || read.body.len() < SIZE, "{lie}: {} {}", read.status, read.body.len());
        // The connection is not hurt.
        assert_eq!(service.client.get("/v1/runners/alice").ok()["data"][0]["connected"], true);
        leave(&service, runner);
    }
}

#[test]
fn a_file_that_did_not_arrive_as_it_was_sent_is_not_put_in_its_place() {
    for lie in ["damaged", "fewer", "nothing", "honest", "cut"] {
        let service = Service::start();
        let client = service.client.with_token("");
        let runner = transferring(&service, move |body| {
            let (client, path) = opened(&client, body);
            if lie == "nothing" {
                return failed("quota");
            }
            let (status, whole) = fetched(&client, &path, 0);
            let mut whole = whole.unwrap();
            assert_eq!(status, 200);
            if lie == "cut" {
                // As if the second half had not come.
                let half = whole.len() / 2;
                let (_, rest) = fetched(&client, &path, half);
                assert!(rest.unwrap() == whole[half..]);
                assert_eq!(fetched(&client, &path, whole.len() + 1).0, 409);
            }
            match lie {
                "damaged" => whole[5] ^= 1,
                "fewer" => drop(whole.pop()),
                _ => {}
            }
            moved(&whole)
        });
        let written = service.client.put(format!("{TREE}/raw/g"), file());
        let asked = leave(&service, runner);
        let is_finished = asked.contains(&"finish_write".to_owned());
        match lie {
            "honest" | "cut" => assert!(written.status == 200 && is_finished, "{}", written.status),
            "nothing" => drop(written.refused(507, "quota")),
            _ => drop(written.refused(500, "internal")),
        }
        assert!(is_finished == matches!(lie, "honest" | "cut"), "{lie}: {asked:?}");
        assert!(is_finished || asked.last().unwrap() == "close", "{lie}: {asked:?}");
    }
}

#[test]
fn a_runner_without_transfers_or_without_a_way_carries_large_files_in_pieces() {
    let service = Service::start();
    for features in [json!(["exact"]), json!(["exact", "transfers"])] {
        let socket = registered(&service.client, "alice", &json!({ "features": features }));
        let runner = serving(socket, |_| failed("unsupported"));
        assert!(service.client.get(format!("{TREE}/raw/f")).body == file());
        service.client.put(format!("{TREE}/raw/g"), file()).ok();
        let asked = leave(&service, runner);
        let carried = asked.iter().filter(|kind| kind.ends_with("_file")).count();
        // One that has no way is asked once.
        assert_eq!(carried, features.as_array().unwrap().len() - 1, "{asked:?}");
    }
}

#[test]
fn transfers_alone_are_not_agreed_on() {
    let service = Service::start();
    let mut socket = service.client.websocket("/ws/alice", "").unwrap();
    socket.say(&json!({"type": "register", "user_id": "alice", "body":
        {"user_id": "alice", "auth_token": "", "workspace": "/w", "features": ["transfers"]}}));
    let told = socket.told("register_ok");
    assert_eq!(told["body"].get("features"), None, "{told}");
}
