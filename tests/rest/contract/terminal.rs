//! Terminals over WebSocket: a shell with a size, under the same policy, that can be taken up again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Message, Service, Socket, skill, skill_zip, skills, workspace};

fn open(service: &Service, tree: &str) -> Socket {
    service.client.websocket(&format!("{tree}/terminal?rows=30&cols=100"), "").expect("a WebSocket")
}

#[test]
fn a_terminal_is_one_with_the_size_that_was_asked_for() {
    let service = Service::start();
    service.client.upload(&skills("u", "a"), "baseline", &skill_zip("技能", &[]));
    for tree in [workspace("u", "a"), skill("u", "a", "技能")] {
        let mut socket = open(&service, &tree);
        assert!(socket.told("started")["exec_id"].is_string());
        socket.type_in("python3 -c 'import os; print(os.isatty(0), os.get_terminal_size())'\n");
        socket.shown_until("True os.terminal_size(columns=100, lines=30)");
        socket.say(&json!({"type": "resize", "rows": 50, "cols": 132}));
        socket.type_in("python3 -c 'import os; print(os.get_terminal_size())'\n");
        socket.shown_until("(columns=132, lines=50)");
        // What is typed here is a file there.
        socket.say(&json!({"type": "input", "text": "echo 由终端 > t.txt; echo written$((1+1))\n"}));
        socket.shown_until("written2");
        assert_eq!(service.client.text(&tree, "t.txt"), "由终端\n");
        socket.type_in("exit 7\n");
        let exit = socket.told("exit");
        assert_eq!((&exit["result"]["exit_code"], &exit["idle"]), (&json!(7), &json!(false)), "{exit}");
        assert_eq!(socket.next(), Message::Close);
    }
}

#[test]
fn an_interrupt_typed_into_a_terminal_reaches_the_program() {
    let service = Service::start();
    let mut socket = open(&service, &workspace("u", "a"));
    socket.type_in("sleep 1000; echo status-$?\n");
    socket.shown_until("sleep 1000");
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    socket.type_in("\u{3}");
    socket.type_in("echo after-$((2+3))\n");
    socket.shown_until("after-5");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_terminal_is_held_by_the_same_walls() {
    let service = Service::start();
    let mut socket = open(&service, &workspace("u", "a"));
    socket.type_in("perl -e 'print 6*7'; echo perl-$?\n");
    let shown = socket.shown_until("perl-12");
    assert!(!shown.contains("42"), "{shown}");
    socket.type_in("cat /proc/1/environ /etc/shadow; echo read-$((1+0))\n");
    let shown = socket.shown_until("read-1");
    assert!(!shown.contains("root:"), "{shown}");
}

/// Waits until the run of a tree that was asked for first has ended.
fn until_ended(service: &Service, tree: &str) {
    let begun = Instant::now();
    while service.client.get(format!("{tree}/exec")).ok()["data"][0]["state"] != "ended" {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_terminal_goes_on_without_its_connection_and_is_taken_up_again() {
    let service =
        Service::configured("[limits.sessions]\nterminal_resume_ms = 2000\nterminals_per_user = 1\n");
    let (client, tree) = (&service.client, workspace("u", "a"));
    let mut socket = open(&service, &tree);
    let id = socket.told("started")["exec_id"].as_str().unwrap().to_owned();
    socket.type_in("stty -echo; x=remem; python3 -c 'print(\"y\" * 600000 + \"last\")'; echo up-$((1+1))\n");
    socket.shown_until("up-2");
    drop(socket);
    // It counts as open meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.websocket(&format!("{tree}/terminal"), "").err(), Some(429));
    let again = |query: &str| client.websocket(&format!("{tree}/terminal?exec_id={id}{query}"), "");
    let mut first = again("&rows=40&cols=90").expect("a WebSocket");
    assert_eq!(first.told("started")["exec_id"], id);
    first.type_in("echo ${x}bered; python3 -c 'import os; print(os.get_terminal_size())'\n");
    let shown = first.shown_until("(columns=90, lines=40)");
    assert!(shown.contains("remembered") && shown.contains("last"), "{}", shown.len());
    let old = shown.matches('y').count();
    assert!((150_000..=262_144).contains(&old), "{old}");
    // The caller who comes last has it.
    let mut second = again("").expect("a WebSocket");
    first.told("taken");
    assert_eq!(first.next(), Message::Close);
    second.type_in("echo second-$((1+1))\n");
    second.shown_until("second-2");
    // The first one's time ends nothing.
    std::thread::sleep(Duration::from_millis(2500));
    second.type_in("echo still-$((1+1))\n");
    second.shown_until("still-2");
    drop(second);
    let begun = Instant::now();
    until_ended(&service, &tree);
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    // What it showed last can still be seen, and nothing else be done.
    let mut after = again("").expect("a WebSocket");
    after.shown_until("still-2");
    assert_eq!(after.told("exit")["result"]["signal"], "SIGKILL");
    for (other, status) in [("none", 404), ("-", 400)] {
        let target = format!("{tree}/terminal?exec_id={other}");
        assert_eq!(client.websocket(&target, "").err(), Some(status), "{other}");
    }
    assert_eq!(
        client.websocket(&format!("{}/terminal?exec_id={id}", workspace("v", "a")), "").err(),
        Some(404)
    );
    let run = json!({"command": "echo", "exec_id": "no-terminal"});
    client.post_json(format!("{tree}/exec"), &run).ok();
    assert_eq!(client.websocket(&format!("{tree}/terminal?exec_id=no-terminal"), "").err(), Some(409));
}

#[test]
fn a_terminal_ends_with_its_connection_where_it_is_not_to_wait() {
    let service = Service::configured("[limits.sessions]\nterminal_resume_ms = 0\n");
    let (client, tree) = (&service.client, workspace("u", "a"));
    let mut socket = open(&service, &tree);
    socket.type_in("echo up-$((1+1)); sleep 1000\n");
    socket.shown_until("up-2");
    let listed = client.get(format!("{tree}/exec")).ok()["data"].clone();
    assert_eq!(
        (&listed[0]["kind"], &listed[0]["state"]),
        (&json!("terminal"), &json!("running")),
        "{listed}"
    );
    drop(socket);
    until_ended(&service, &tree);
    // And it can be ended from elsewhere.
    let mut socket = open(&service, &tree);
    let id = socket.told("started")["exec_id"].as_str().unwrap().to_owned();
    client.delete(format!("{tree}/exec/{id}")).ok();
    assert_eq!(socket.told("exit")["result"]["signal"], "SIGKILL");
}

#[test]
fn a_terminal_in_which_nothing_happens_is_closed() {
    let service = Service::configured("[limits.sessions]\nterminal_idle_ms = 1000\nterminals_per_user = 1\n");
    let tree = workspace("u", "a");
    let mut socket = open(&service, &tree);
    socket.type_in("echo $((40+2))\n");
    socket.shown_until("42");
    assert_eq!(service.client.websocket(&format!("{tree}/terminal"), "").err(), Some(429));
    let begun = Instant::now();
    assert_eq!(socket.told("exit")["idle"], true);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Its place is free again.
    let begun = Instant::now();
    while service.client.websocket(&format!("{tree}/terminal"), "").is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_no_proper_request_for_a_terminal_gets_none() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    client.get(format!("{tree}/terminal")).refused(400, "invalid");
    for query in ["rows=0", "cols=1001", "rows=-1", "size=1", "rows=x"] {
        assert_eq!(client.websocket(&format!("{tree}/terminal?{query}"), "").err(), Some(400), "{query}");
    }
    // A page of another site, and a name that resolves to this machine.
    let target = format!("{tree}/terminal");
    assert_eq!(client.websocket(&target, "origin: http://evil.example\r\n").err(), Some(403));
    assert_eq!(client.websocket(&target, "host: evil.example\r\n").err(), Some(403));
    let mut socket = open(&service, &tree);
    for message in [json!({"type": "resize", "rows": 0, "cols": 1}), json!({"type": "other"}), json!(5)] {
        socket.say(&message);
        assert!(socket.told("error")["data"].is_string());
    }
    socket.type_in("echo still-$((1+1))\n");
    socket.shown_until("still-2");
}

#[test]
fn a_flood_of_output_passes_a_terminal_whole() {
    let service = Service::start();
    let mut socket = open(&service, &workspace("u", "a"));
    socket.type_in("stty -echo 2>/dev/null; python3 -c 'print(\"x\" * 3000000)'; echo end-$((1+1))\n");
    let shown = socket.shown_until("end-2");
    assert!(shown.matches('x').count() >= 3_000_000, "{}", shown.len());
}

#[test]
fn a_command_can_have_a_terminal_without_a_connection() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let run = |body: serde_json::Value| client.post_json(format!("{tree}/exec"), &body).ok()["data"].clone();
    let looks = "import os, sys; print([os.isatty(n) for n in range(3)], os.get_terminal_size(), os.environ['TERM']); \
                 print('to error', file=sys.stderr); print(repr(sys.stdin.read()))";
    let seen = run(json!({"command": "python3", "args": ["-c", looks], "tty": true, "stdin": "typed"}));
    let told = seen["stdout"].as_str().unwrap();
    for part in [
        "[True, True, True] os.terminal_size(columns=80, lines=24) xterm-256color\r\n",
        "to error\r\n",
        "'typed'\r\n",
    ] {
        assert!(told.contains(part), "{part}: {seen}");
    }
    assert_eq!((&seen["stderr"], &seen["exit_code"]), (&json!(""), &json!(0)));
    let seen = run(json!({"shell": "test -t 1; echo $?", "tty": true, "env": {"TERM": "dumb"}}));
    assert_eq!(seen["stdout"], "0\r\n");
    assert_eq!(run(json!({"shell": "test -t 1; echo $?"}))["stdout"], "1\n");
    // In the background it takes what is typed later.
    let body = json!({"shell": "read x; echo got-$x", "tty": true, "stdin_open": true, "exec_id": "t"});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &body).status, 201);
    client.post(format!("{tree}/exec/t/stdin"), "later\n").ok();
    let end = client.get(format!("{tree}/exec/t?follow")).ok();
    assert!(end["result"]["stdout"].as_str().unwrap().contains("got-later\r\n"), "{end}");
}
