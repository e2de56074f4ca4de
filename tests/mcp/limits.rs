//! Limits: calls at once, large and hostile messages.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Era, PATH, Post, called, service};
use crate::support::{Service, landlocked, memory_peak_bytes, reset_memory_peak};

const TREE: &str = "/v1/sandbox/alice/demo";

#[test]
fn one_call_more_than_a_user_may_have_is_told_busy() {
    let service = Service::configured("[mcp]\nenabled = true\ncalls_per_user = 2\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let begin = |number: usize| {
        let command = format!("touch begun{number}; while ! test -e go; do sleep 0.05; done");
        Post::call(client, Era::Legacy, "Shell", json!({ "command": command })).begin()
    };
    let mut streams = [begin(0), begin(1)];
    let waited = Instant::now();
    while client.files(TREE) != ["begun0", "begun1"] {
        assert!(waited.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = || Post::call(client, Era::Modern, "Read", json!({ "path": "begun0" }));
    let busy = read().error(200);
    assert_eq!((&busy["code"], &busy["data"]["code"]), (&json!(-32603), &json!("busy")));
    assert!(busy["data"]["retry_after_ms"].as_u64().unwrap() > 0);
    assert!(busy["message"].as_str().unwrap().contains("mcp.calls_per_user"), "{busy}");
    // Other users have places of their own, and what is no call needs none.
    let other = read().to("/mcp/bob/demo").result();
    assert_eq!(other["isError"], true);
    Post::method(client, Era::Modern, "tools/list", json!({})).result();
    client.write(TREE, "go", "");
    for stream in &mut streams {
        assert_eq!(stream.message().unwrap()["result"]["structuredContent"]["exit_code"], 0);
    }
    read().result();
}

#[test]
fn of_thirty_three_calls_at_once_one_is_told_busy() {
    // As it is configured by default, but that all calls have a run at once.
    let service = Service::configured("[mcp]\nenabled = true\n[limits.runs]\nruns_per_user = 40\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let call = |number: usize| {
        let command = format!("touch begun{number}; while ! test -e go; do sleep 0.2; done");
        Post::call(client, Era::Legacy, "Shell", json!({ "command": command }))
    };
    let mut streams: Vec<_> = (0..32).map(|number| call(number).begin()).collect();
    let waited = Instant::now();
    while client.files(TREE).len() < 32 {
        assert!(waited.elapsed() < Duration::from_secs(120), "{:?}", client.files(TREE));
        std::thread::sleep(Duration::from_millis(50));
    }
    let busy = call(32).error(200);
    assert_eq!((&busy["code"], &busy["data"]["code"]), (&json!(-32603), &json!("busy")));
    client.write(TREE, "go", "");
    for stream in &mut streams {
        assert_eq!(stream.message().unwrap()["result"]["structuredContent"]["exit_code"], 0);
    }
    assert!(!client.files(TREE).contains(&"begun32".to_owned()));
}

#[test]
fn a_message_of_four_megabytes_is_taken_and_a_larger_one_is_not() {
    let service = service();
    let client = &service.client;
    let edit = |bytes: usize| {
        let content = "数".repeat(bytes / 3);
        json!({ "path": "large", "mode": "create", "content": content, "rewrite": true })
    };
    let result = called(client, "Edit", edit(4 * 1024 * 1024 - 4096));
    assert_eq!(result["isError"], false, "{result}");
    let post = Post::call(client, Era::Modern, "Edit", edit(5 * 1024 * 1024));
    assert_eq!(post.send().status, 413);
    // Announced, it is refused before it comes.
    let reply = client.request("POST", PATH).header("content-length", "5000000").send();
    reply.refused(413, "too_large");
}

#[test]
fn a_message_of_many_small_values_is_refused_before_it_takes_memory() {
    let service = service();
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());
    for small in ["0,", "\"\",", "[],", "{},", "[[[[],0],0],0],"] {
        let many = small.repeat(4_000_000 / small.len());
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"a":[{many}0]}}}}"#);
        let answer = Post::raw(&service.client, body).send();
        assert_eq!(answer.status, 413, "{small}: {answer:?}");
    }
    let taken = memory_peak_bytes(service.pid()) - before;
    assert!(taken < 64 << 20, "{taken}");
    // Deep ones are no message.
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}"#, "[".repeat(10_000));
    assert_eq!(Post::raw(&service.client, deep).send().status, 415);
}

#[test]
fn a_body_that_ends_early_or_never_comes_is_no_message() {
    let service = service();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{\"json");
    let reply = service.client.raw(head.as_bytes());
    if let Some(reply) = reply {
        reply.refused(400, "invalid");
    }
    called(&service.client, "Glob", json!({ "pattern": "*" }));
}
