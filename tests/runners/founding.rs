//! Machines that users lend, as the service sees them: scripted runners of the founding dialects, and hostile ones.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Message, Service, Settings, Socket, digest};

const TREE: &str = "/v1/sandbox/alice/demo";

/// A runner that has registered, and the frame that took it.
fn register(client: &Client, user: &str, body: &Value) -> (Socket, Value) {
    let mut socket = client.websocket(&format!("/ws/{user}"), "").unwrap();
    socket.say(&json!({ "type": "register", "user_id": user, "body": body }));
    match socket.next() {
        Message::Text(told) => (socket, told),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn registered(client: &Client, user: &str, more: &Value) -> Socket {
    let mut body = json!({ "user_id": user, "auth_token": "", "workspace": "/home/u/work" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (socket, told) = register(client, user, &body);
    assert_eq!(told["type"], "register_ok", "{told}");
    socket
}

/// Answers every request by `answer` until the connection ends; gives the requests.
fn answering(
    mut socket: Socket,
    answer: impl Fn(&Value) -> Vec<Value> + Send + 'static,
) -> JoinHandle<Vec<Value>> {
    std::thread::spawn(move || {
        let mut asked = Vec::new();
        while let Message::Text(request) = socket.next() {
            for mut frame in answer(&request) {
                if frame.get("id").is_none() {
                    frame["id"] = request["id"].clone();
                }
                socket.say(&frame);
            }
            asked.push(request);
        }
        asked
    })
}

/// What a runner of the first generation answers.
fn founding(request: &Value) -> Vec<Value> {
    let body = &request["body"];
    let path = body["path"].as_str().unwrap_or_default();
    let info = |name: &str, size: usize, mode: u32| json!({"type": "file_info", "body": {"name": name, "size": size, "mode": mode, "mod_time": "2026-03-26T00:00:00Z", "is_dir": mode > 0o777}});
    let missing = json!({"type": "error", "body": {"message": format!("stat {path}: no such file or directory"), "code": "ENOENT"}});
    vec![match (request["type"].as_str().unwrap(), path) {
        ("stat", "/home/u/work/a.txt") => info("a.txt", 6, 0o644),
        ("stat", "/home/u/work") => info("work", 4096, 2_147_484_141),
        ("read_file", "/home/u/work/a.txt") => json!({"type": "file_content", "body": {"data": "aGVsbG8K"}}),
        ("read_dir", "/home/u/work") => json!({"type": "dir_entries", "body": {"entries": [
            {"name": "d", "is_dir": true, "size": 4096}, {"name": "a.txt", "is_dir": false, "size": 6}]}}),
        ("write_file" | "mkdir_all" | "remove_all", _) => json!({"type": "ok"}),
        ("remove", _) => {
            json!({"type": "error", "body": {"message": "remove W/d: directory not empty", "code": "EEXIST"}})
        }
        ("exec", _) => {
            json!({"type": "exec_result", "body": {"stdout": "hi\n", "stderr": "err\n", "exit_code": 3, "timed_out": false}})
        }
        _ => missing,
    }]
}

#[test]
fn a_founding_runner_answers_for_all_workspaces_of_its_user() {
    let service = Service::start();
    let client = &service.client;
    client.write(TREE, "own.txt", "of the service");
    let runner = answering(registered(client, "alice", &json!({})), founding);
    assert_eq!(client.text(TREE, "a.txt"), "hello\n");
    assert_eq!(client.text("/v1/sandbox/alice/another", "a.txt"), "hello\n");
    client.get(format!("{TREE}/content?path=own.txt")).refused(404, "not_found");
    let listed = client.get(format!("{TREE}/dir?path=.")).ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    client.put(format!("{TREE}/raw/new.txt"), "new").ok();
    client.delete(format!("{TREE}/file?path=d")).refused(409, "not_empty");
    let ran =
        client.post_json(format!("{TREE}/exec"), &json!({ "shell": "echo hi", "timeout_ms": 2500 })).ok();
    assert_eq!((&ran["data"]["exit_code"], &ran["data"]["stdout"]), (&json!(3), &json!("hi\n")), "{ran}");
    // Another user's workspaces are where they were.
    client.write("/v1/sandbox/bob/demo", "b.txt", "here");
    let told = client.get("/v1/runners/alice").ok();
    assert_eq!(told["data"][0]["name"], "default");
    assert_eq!(told["data"][0]["workspace"], "/home/u/work");
    assert_eq!((&told["data"][0]["connected"], &told["data"][0]["exact"]), (&json!(true), &json!(false)));
    client.post("/v1/runners/alice/default/cut", "").ok();
    let asked = runner.join().unwrap();
    let exec = asked.iter().find(|request| request["type"] == "exec").unwrap();
    assert_eq!(exec["body"]["timeout"], 3, "whole seconds, never less than were asked for");
    assert_eq!((&exec["user_id"], &exec["body"]["dir"]), (&json!("alice"), &json!("/home/u/work")));
    let id = exec["id"].as_str().unwrap();
    assert!(id.len() == 20 && id.starts_with("req_"), "{id}");
    let written = asked.iter().find(|request| request["type"] == "write_file").unwrap();
    assert_eq!(written["body"], json!({"path": "/home/u/work/new.txt", "data": "bmV3", "perm": 0o644}));
}

/// The ninth of one user; those that are known come back, and another user has as many.
#[test]
fn a_user_lends_eight_machines() {
    let service = Service::start();
    let client = &service.client;
    let named = |user: &str, number: usize| {
        let body = json!({ "user_id": user, "auth_token": "", "workspace": "/home/u/work", "name": format!("machine-{number}") });
        register(client, user, &body)
    };
    let mut lent = Vec::new();
    for number in 0..8 {
        let (socket, told) = named("alice", number);
        assert_eq!(told["type"], "register_ok", "{told}");
        lent.push(socket);
    }
    let (_, told) = named("alice", 8);
    assert_eq!((&told["type"], &told["body"]["code"]), (&json!("error"), &json!("EBUSY")), "{told}");
    assert_eq!(named("alice", 3).1["type"], "register_ok");
    assert_eq!(named("bob", 8).1["type"], "register_ok");
    let listed = client.get("/v1/runners/alice").ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 8, "{listed}");
}

#[test]
fn a_registration_is_refused_by_token_then_by_user_and_the_first_frame_must_be_one() {
    let config = [
        ("admin", "role = \"admin\""),
        ("alice", "role = \"user\"\nuser = \"alice\""),
        ("bound", "role = \"user\"\nuser = \"alice\"\nagent = \"demo\""),
        ("monitor", "role = \"monitor\""),
    ]
    .map(|(name, role)| format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(name)))
    .concat();
    let service = Service::configured(&config);
    let told = |user: &str, body: Value| {
        let (mut socket, told) = register(&service.client, user, &body);
        if told["type"] == "error" {
            assert_eq!(socket.next(), Message::Close);
        }
        told["body"]["code"].as_str().unwrap_or("ok").to_owned()
    };
    let body = |token: &str, user: &str| json!({"user_id": user, "auth_token": token, "workspace": "/w"});
    for wrong in ["", "wrong", "bound", "monitor"] {
        assert_eq!(told("alice", body(wrong, "alice")), "AUTH_FAILED", "{wrong}");
    }
    assert_eq!(told("bob", body("alice", "bob")), "AUTH_FAILED");
    assert_eq!(told("alice", body("alice", "")), "INVALID");
    assert_eq!(told("alice", body("alice", "bob")), "FORBIDDEN");
    assert_eq!(
        told("alice", json!({"user_id": "alice", "auth_token": "alice", "workspace": "w"})),
        "INVALID"
    );
    assert_eq!(
        told("alice", json!({"user_id": "alice", "auth_token": "alice", "workspace": "/w", "name": "a/b"})),
        "INVALID"
    );
    for token in ["alice", "admin"] {
        assert_eq!(told("alice", body(token, "alice")), "ok", "{token}");
    }
    let mut early = service.client.websocket("/ws/alice", "").unwrap();
    early.say(&json!({"id": "x", "type": "ok"}));
    assert_eq!(early.told("error")["body"]["code"], "INVALID");
    // A token in the head has to count as well, and a page of another site gets nowhere.
    assert_eq!(service.client.with_token("wrong").websocket("/ws/alice", "").err(), Some(401));
    assert_eq!(service.client.with_token("alice").websocket("/ws/bob", "").err(), Some(404));
    assert_eq!(service.client.websocket("/ws/alice", "origin: https://evil.example\r\n").err(), Some(403));
    // Nothing of a token is logged.
    assert!(!service.log().contains("wrong"), "{}", service.log());
}

#[test]
fn what_waits_when_a_connection_ends_fails_at_once_and_the_next_connection_is_not_hurt() {
    let service = Service::start();
    let client = &service.client;
    // It hears everything and says nothing.
    let mut silent = registered(client, "alice", &json!({}));
    let (heard, hears) = mpsc::channel();
    let listening = std::thread::spawn(move || {
        while let Message::Text(request) = silent.next() {
            heard.send(request["type"].clone()).unwrap();
        }
    });
    let waiting = {
        let client = client.with_token("any");
        std::thread::spawn(move || {
            let begun = Instant::now();
            (client.get(format!("{TREE}/content?path=a.txt")), begun)
        })
    };
    assert_eq!(hears.recv_timeout(Duration::from_secs(20)).unwrap(), "stat");
    // The same machine, once more: it takes the place of its old connection.
    let runner = answering(registered(client, "alice", &json!({})), founding);
    let (reply, begun) = waiting.join().unwrap();
    reply.refused(503, "disconnected");
    assert!(begun.elapsed() < Duration::from_secs(20), "a runner is waited for 30 s");
    listening.join().unwrap();
    assert_eq!(client.text(TREE, "a.txt"), "hello\n");
    client.post("/v1/runners/alice/default/cut", "").ok();
    runner.join().unwrap();
}

#[test]
fn while_the_machine_is_away_nothing_is_done_here_and_a_revoked_one_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = [
        ("admin", "role = \"admin\""),
        ("alice", "role = \"user\"\nuser = \"alice\""),
        ("other", "role = \"user\"\nuser = \"alice\""),
    ]
    .map(|(name, role)| format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\n{role}\n", digest(name)))
    .concat();
    let start = || {
        Service::with(Settings {
            root: Some(dir.path().join("data")),
            config: Some(config.clone()),
            ..Settings::default()
        })
    };
    let body = json!({ "auth_token": "alice" });
    let service = start();
    let alice = service.client.with_token("alice");
    alice.write(TREE, "own.txt", "of the service");
    drop(registered(&service.client, "alice", &body));
    let away = |client: &Client| {
        client.get(format!("{TREE}/content?path=own.txt")).refused(503, "disconnected");
        client.put(format!("{TREE}/edit?path=own.txt"), "changed").refused(503, "disconnected");
        client.try_execute(TREE, "cat", &["own.txt"]).refused(503, "disconnected");
    };
    away(&alice);
    drop(service);
    let service = start();
    let alice = service.client.with_token("alice");
    away(&alice);
    let told = alice.get("/v1/runners/alice").ok();
    assert_eq!((&told["data"][0]["name"], &told["data"][0]["connected"]), (&json!("default"), &json!(false)));
    service.client.with_token("alice").delete("/v1/runners/alice/default").ok();
    assert_eq!(alice.text(TREE, "own.txt"), "of the service");
    let taken = |token: &str| {
        let body = json!({"user_id": "alice", "auth_token": token, "workspace": "/w"});
        register(&service.client, "alice", &body).1["type"].clone()
    };
    assert_eq!((taken("alice"), taken("other")), (json!("error"), json!("register_ok")));
    alice.delete("/v1/runners/alice/none").refused(404, "not_found");
}

#[test]
fn of_several_machines_one_answers_until_another_is_chosen() {
    let service = Service::start();
    let client = &service.client;
    let with = |name: &str| registered(client, "alice", &json!({ "name": name }));
    let first = answering(with("first"), founding);
    let second = answering(with("第二"), |request| {
        let mut answers = founding(request);
        if request["type"] == "read_file" {
            answers = vec![json!({"type": "file_content", "body": {"data": "c2Vjb25k"}})];
        }
        answers
    });
    assert_eq!(client.text(TREE, "a.txt"), "hello\n");
    client.post("/v1/runners/alice/%E7%AC%AC%E4%BA%8C/choose", "").ok();
    assert_eq!(client.text(TREE, "a.txt"), "second");
    client.post("/v1/runners/alice/third/choose", "").refused(404, "not_found");
    // Without the chosen one, the other does not step in: its files are others.
    client.post("/v1/runners/alice/%E7%AC%AC%E4%BA%8C/cut", "").ok();
    second.join().unwrap();
    client.get(format!("{TREE}/content?path=a.txt")).refused(503, "disconnected");
    client.post("/v1/runners/alice/first/choose", "").ok();
    assert_eq!(client.text(TREE, "a.txt"), "hello\n");
    client.delete("/v1/runners/alice/first").ok();
    first.join().unwrap();
    for number in 0..7 {
        drop(with(&format!("more-{number}")));
    }
    let body = json!({"user_id": "alice", "auth_token": "", "workspace": "/w", "name": "one-too-many"});
    assert_eq!(register(client, "alice", &body).1["body"]["code"], "EBUSY");
}

#[test]
fn a_hostile_runner_harms_its_own_user_alone() {
    let service = Service::start();
    let client = &service.client;
    let honest = answering(registered(client, "bob", &json!({})), founding);
    let mut other = None;
    let answer = move |request: &Value| {
        let id = request["id"].clone();
        let mut frames = vec![
            // Answers to questions that were not asked, of other types, without an id, and notices of later versions.
            json!({"id": "req_0000000000000000", "type": "ok"}),
            json!({"id": null, "type": "error", "body": {"code": "EINVAL", "message": "unknown request type: register_ok"}}),
            json!({"id": id, "type": "pty_data", "body": {}}),
            json!({"id": id, "type": "exec_output", "body": {"stream": "stdout", "data": "eA=="}}),
        ];
        frames.push(match request["body"]["path"].as_str().unwrap_or_default() {
            // A size that is a lie, another type than was asked for, and what cannot be read.
            "/home/u/work/lie" if request["type"] == "stat" => {
                json!({"type": "file_info", "body": {"name": "x", "size": u64::MAX, "mode": 0o644, "is_dir": false}})
            }
            "/home/u/work/other" => json!({"type": "exec_result", "body": {}}),
            "/home/u/work/broken" => json!({"type": "file_info", "body": {"size": "many"}}),
            "/home/u/work/path" => json!({"type": "error", "body": {"code": "EIO", "message": "/home/u/.ssh/id: secret"}}),
            _ => json!({"type": "dir_entries", "body": {"entries": [
                {"name": "..", "is_dir": true}, {"name": "a/b", "is_dir": false}, {"name": "", "is_dir": false}, {"name": "fine", "is_dir": false}]}}),
        });
        frames
    };
    other.replace(answering(registered(client, "alice", &json!({ "shell": "\u{1b}[2J" })), answer));
    client.get(format!("{TREE}/content?path=lie")).refused(413, "too_large");
    for (path, answered) in [("other", 500), ("broken", 500), ("path", 500)] {
        let reply = client.get(format!("{TREE}/content?path={path}"));
        reply.refused(answered, "internal");
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
    }
    let listed = client.get(format!("{TREE}/dir?path=.")).ok();
    let names: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["fine"], "{listed}");
    assert_eq!(client.text("/v1/sandbox/bob/demo", "a.txt"), "hello\n");
    // Connections that never register have a bounded number of places, and keep other machines out for seconds only.
    let silent: Vec<_> = (0..16).map(|_| client.websocket("/ws/mallory", "").unwrap()).collect();
    assert_eq!(client.websocket("/ws/mallory", "").err(), Some(429));
    // Who brings a token in the head has places of its own.
    let known = client.with_token("any");
    let waiting: Vec<_> = (0..4).map(|_| known.websocket("/ws/carol", "").unwrap()).collect();
    assert_eq!(known.websocket("/ws/carol", "").err(), Some(429));
    drop(waiting);
    drop(silent);
    client.post("/v1/runners/bob/default/cut", "").ok();
    client.post("/v1/runners/alice/default/cut", "").ok();
    honest.join().unwrap();
    other.unwrap().join().unwrap();
}

#[test]
fn a_runner_that_registers_without_end_does_not_wash_the_audit_log_away() {
    let config = [("admin", "role = \"admin\""), ("alice", "role = \"user\"\nuser = \"alice\"")]
        .map(|(name, role)| format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\n{role}\n", digest(name)))
        .concat();
    let service = Service::configured(&format!("[audit]\naccount_bytes = 65536\n{config}"));
    let register = |user: &str, token: &str| {
        let body = json!({ "user_id": user, "auth_token": token, "workspace": "/w" });
        register(&service.client, user, &body).1
    };
    let refused = (0..2000).map(|_| register("alice", "alice")).find(|told| told["type"] == "error");
    let refused = refused.expect("registrations without end");
    assert_eq!(refused["body"]["code"], "EBUSY", "{refused}");
    assert_eq!(register("bob", "admin")["type"], "register_ok");
}

#[test]
fn a_user_who_is_removed_lends_nothing_any_more() {
    let service = Service::start();
    let client = &service.client;
    let runner = answering(registered(client, "alice", &json!({})), founding);
    client.write("/v1/sandbox/alice/demo", "a.txt", "there");
    client.delete("/v1/users/alice").ok();
    runner.join().unwrap();
    assert_eq!(client.get("/v1/runners/alice").ok()["data"], json!([]));
    client.write("/v1/sandbox/alice/demo", "here.txt", "here");
    assert_eq!(client.files("/v1/sandbox/alice/demo"), ["here.txt"]);
}

#[test]
fn a_command_that_outlives_its_deadline_and_one_without_end_are_told() {
    let service = Service::start();
    let client = &service.client;
    let runner = answering(registered(client, "alice", &json!({})), |request| {
        // The second generation tells no deadline that has passed.
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(request["type"], "exec");
        vec![
            json!({"type": "exec_result", "body": {"stdout": "part\n", "stderr": "", "exit_code": -1, "timed_out": false}}),
        ]
    });
    let ran =
        client.post_json(format!("{TREE}/exec"), &json!({ "shell": "sleep 5", "timeout_ms": 1000 })).ok();
    assert_eq!(
        (&ran["data"]["timed_out"], &ran["data"]["stdout"]),
        (&json!(true), &json!("part\n")),
        "{ran}"
    );
    client.post("/v1/runners/alice/default/cut", "").ok();
    runner.join().unwrap();
}
