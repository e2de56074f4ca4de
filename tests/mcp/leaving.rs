//! Callers who leave, and progress for those who stay.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{ERAS, Era, Post, called, service};
use crate::support::{Client, Service, assert_gone, children_of, landlocked};

const TREE: &str = "/v1/sandbox/alice/demo";

/// Longest wait for something that happens. Only a service that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait(what: &str, until: impl Fn() -> bool) {
    let begin = Instant::now();
    while !until() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn exists(client: &Client, name: &str) -> bool {
    client.get(format!("{TREE}/raw/{name}")).status == 200
}

/// Runs under way, as the service tells.
fn runs(client: &Client) -> usize {
    client.get("/v1/runs").ok()["data"].as_array().unwrap().len()
}

#[test]
fn a_caller_who_leaves_ends_its_command() {
    let service = service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    for (round, era) in ERAS.into_iter().enumerate() {
        let before = children_of(service.pid());
        // It goes on only when a file is there that comes after its end.
        let command =
            format!("touch begun{round}; while ! test -e go; do sleep 0.05; done; touch late{round}");
        let stream = Post::call(client, era, "Shell", json!({ "command": command })).send_only();
        wait("it begins", || exists(client, &format!("begun{round}")));
        drop(stream);
        wait("it ends", || runs(client) == 0);
        client.write(TREE, "go", "");
        let left: Vec<u32> =
            children_of(service.pid()).into_iter().filter(|child| !before.contains(child)).collect();
        let commands: Vec<u32> = left
            .into_iter()
            .filter(|child| {
                let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains("begun")
            })
            .collect();
        assert_gone(&commands);
        assert!(!exists(client, &format!("late{round}")), "{era:?}");
        client.delete(format!("{TREE}/file?path=go")).ok();
    }
}

#[test]
fn a_call_whose_caller_has_left_is_recorded_and_gives_back_its_place() {
    let service = Service::configured("[mcp]\nenabled = true\ncalls_per_user = 1\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let command = json!({ "command": "touch begun; sleep 600" });
    let stream = Post::call(client, Era::Modern, "Shell", command).send_only();
    wait("it begins", || exists(client, "begun"));
    drop(stream);
    wait("its record", || {
        let page = client.get("/v1/audit?action=mcp%20Shell").ok();
        page["data"].as_array().unwrap().iter().any(|record| record["outcome"] == "unanswered")
    });
    wait("its place", || {
        let answer = Post::call(client, Era::Modern, "Read", json!({ "path": "begun" })).send();
        answer.last().get("result").is_some()
    });
}

#[test]
fn a_caller_who_takes_nothing_of_its_answer_holds_no_run() {
    let service = Service::configured("[mcp]\nenabled = true\ncalls_per_user = 2\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let command = "touch begun; head -c 10000000 /dev/zero | tr '\\0' x";
    let stream = Post::call(client, Era::Legacy, "Shell", json!({ "command": command })).send_only();
    wait("it begins", || exists(client, "begun"));
    wait("it ends", || runs(client) == 0);
    called(client, "Read", json!({ "path": "begun" }));
    drop(stream);
}

#[test]
fn a_caller_who_takes_one_byte_a_second_holds_no_run_beyond_its_deadline() {
    let service = service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    // It writes more than any answer has, until its deadline.
    let arguments = json!({ "command": "touch begun; yes 数据", "timeout": 2 });
    for (round, era) in ERAS.into_iter().enumerate() {
        let params = json!({ "name": "Shell", "arguments": arguments, "_meta": { "progressToken": "p1" } });
        let mut stream = Post::method(client, era, "tools/call", params).send_only();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
        wait("it begins", || exists(client, "begun"));
        let mut taken = Vec::new();
        while runs(client) > 0 {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            taken.push(byte[0]);
            std::thread::sleep(Duration::from_secs(1));
            assert!(taken.len() < 60, "the run goes on: {}", String::from_utf8_lossy(&taken));
        }
        // The run has ended, and its caller has not taken the head of the answer; the rest is there when it goes on.
        assert!(!taken.ends_with(b"\r\n\r\n"), "round {round}: {}", String::from_utf8_lossy(&taken));
        let mut rest = [0; 4096];
        while !String::from_utf8_lossy(&taken).contains("\"timed_out\":true") {
            let read = stream.read(&mut rest).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&taken));
            taken.extend_from_slice(&rest[..read]);
        }
        client.delete(format!("{TREE}/file?path=begun")).ok();
    }
}

#[test]
fn progress_rises_and_comes_only_with_a_token() {
    let service = service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let command = "while ! test -e go; do sleep 0.05; done; echo done";
    let params = json!({
        "name": "Shell",
        "arguments": { "command": command, "timeout": 300 },
        "_meta": { "progressToken": "p1" },
    });
    for era in ERAS {
        let mut stream = Post::method(client, era, "tools/call", params.clone()).begin();
        let mut told = Vec::new();
        let result = loop {
            let message = stream.message().unwrap();
            if message["method"] != "notifications/progress" {
                break message;
            }
            let progress = &message["params"];
            assert_eq!((&progress["progressToken"], progress["total"].as_f64()), (&json!("p1"), Some(300.0)));
            told.push(progress["progress"].as_f64().unwrap());
            if told.len() == 2 {
                client.write(TREE, "go", "");
            }
        };
        assert_eq!(result["result"]["structuredContent"]["stdout"], "done\n", "{result}");
        assert!(told.len() >= 2 && told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
        assert_eq!(stream.message(), None, "nothing after the answer");
        client.delete(format!("{TREE}/file?path=go")).ok();
    }
    // Longer than the first progress would take.
    let silent = Post::call(client, Era::Modern, "Shell", json!({ "command": "sleep 1.5" })).send();
    assert_eq!(silent.messages().len(), 1, "{silent:?}");
}
