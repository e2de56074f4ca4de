//! Records of calls, and calls beside each other.

use serde_json::{Value, json};

use crate::client::{Era, ON, Post, called, service};
use crate::support::{Client, Service, digest, landlocked};

const TREE: &str = "/v1/sandbox/alice/demo";

fn records(client: &Client) -> Vec<Value> {
    let page = client.get("/v1/audit?limit=1000").ok();
    let records = page["data"].as_array().unwrap().iter();
    records.filter(|record| record["action"].as_str().unwrap().contains("mcp")).cloned().collect()
}

#[test]
fn each_call_that_may_change_something_has_one_record_without_secrets() {
    let config = format!(
        "{ON}[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\nname = \"boss\"\n[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"alice\"\nname = \"hers\"\n",
        digest("boss"),
        digest("alice")
    );
    let service = Service::configured(&config);
    let (boss, alice) = (service.client.with_token("boss"), service.client.with_token("alice"));
    let edit = json!({ "path": "f.md", "directory": "数据", "mode": "create", "content": "secret content" });
    called(&alice, "Edit", edit.clone());
    called(&alice, "Edit", edit);
    called(&alice, "Read", json!({ "path": "数据/f.md" }));
    Post::method(&alice, Era::Modern, "tools/list", json!({})).result();
    Post::call(&alice, Era::Modern, "Nope", json!({})).error(200);
    let has_commands = landlocked(&alice);
    if has_commands {
        called(&alice, "Shell", json!({ "command": "echo secret-argument; exit 3" }));
    }
    assert_eq!(
        Post::method(&alice, Era::Modern, "tools/list", json!({})).to("/mcp/bob/demo").send().status,
        404
    );
    let records = records(&boss);
    let told: Vec<(&str, &str)> = records
        .iter()
        .map(|record| (record["action"].as_str().unwrap(), record["outcome"].as_str().unwrap()))
        .collect();
    let mut expected = vec![("mcp Edit", "ok"), ("mcp Edit", "refused")];
    if has_commands {
        expected.push(("mcp Shell", "ok"));
    }
    expected.push(("POST /mcp/{u}/{a}", "not_found"));
    assert_eq!(told, expected);
    for record in records.iter().filter(|record| record["action"].as_str().unwrap().starts_with("mcp")) {
        assert_eq!(
            (&record["user"], &record["role"], &record["token"], &record["tree"]),
            (&json!("alice"), &json!("user"), &json!("hers"), &json!("sandbox/alice/demo"))
        );
        assert!(record["request"].is_string(), "{record}");
    }
    assert_eq!(records[0]["paths"], json!(["数据/f.md"]));
    let text = records.iter().map(ToString::to_string).collect::<String>();
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn calls_are_counted_by_tool_and_outcome() {
    let service = Service::configured("[mcp]\nenabled = true\ncalls_per_user = 1\n");
    let client = &service.client;
    client.write(TREE, "f", "x");
    for path in ["f", "f", "none"] {
        called(client, "Read", json!({ "path": path }));
    }
    Post::call(client, Era::Modern, "No\"such{}", json!({})).error(200);
    let figures = || String::from_utf8(client.get("/metrics").bytes(200).to_vec()).unwrap();
    let has = |line: &str| figures().lines().any(|found| found == line);
    assert!(has("filesecbox_mcp_calls_total{tool=\"Read\",outcome=\"ok\"} 2"), "{}", figures());
    assert!(has("filesecbox_mcp_calls_total{tool=\"Read\",outcome=\"refused\"} 1"), "{}", figures());
    assert!(has("filesecbox_mcp_call_duration_seconds_count{tool=\"Read\"} 3"), "{}", figures());
    assert!(!figures().contains("such"), "no name of a caller's is a label");
    if !landlocked(client) {
        return;
    }
    let command = json!({ "command": "touch begun; sleep 600" });
    let stream = Post::call(client, Era::Legacy, "Shell", command).begin();
    while client.get(format!("{TREE}/raw/begun")).status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Post::call(client, Era::Modern, "Read", json!({ "path": "f" })).error(200);
    assert!(has("filesecbox_mcp_calls_total{tool=\"Read\",outcome=\"failed\"} 1"), "{}", figures());
    drop(stream);
    while !has("filesecbox_mcp_calls_total{tool=\"Shell\",outcome=\"unanswered\"} 1") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn edits_of_one_file_at_once_are_all_made() {
    let service = service();
    let client = &service.client;
    client.write(TREE, "f", "begin\n");
    std::thread::scope(|scope| {
        for number in 0..16 {
            let edit = json!({ "path": "f", "mode": "line", "action": "insert", "position": "end", "content": format!("line {number}\n") });
            scope.spawn(move || assert_eq!(called(client, "Edit", edit)["isError"], false));
        }
    });
    let text = client.text(TREE, "f");
    assert_eq!(text.lines().filter(|line| line.starts_with("line ")).count(), 16, "{text}");
}

#[test]
fn nothing_of_messages_is_in_the_log() {
    let service = Service::with(crate::support::Settings {
        config: Some(ON.to_owned()),
        env: vec![("FILESECBOX_LOG".to_owned(), "trace".to_owned())],
        ..Default::default()
    });
    let edit = json!({ "path": "a", "mode": "create", "content": "secret content" });
    called(&service.client, "Edit", edit);
    let read = called(&service.client, "Read", json!({ "path": "a" }));
    assert_eq!(read["structuredContent"]["text"], "secret content");
    assert!(!service.log().contains("secret content"));
}

#[test]
fn a_stop_of_the_service_ends_a_call_with_its_result() {
    let mut service = Service::configured("shutdown_ms = 200\n[mcp]\nenabled = true\n");
    let client = service.client.clone();
    if !landlocked(&client) {
        return;
    }
    let command = json!({ "command": "touch begun; sleep 600" });
    let mut stream = Post::call(&client, Era::Legacy, "Shell", command).begin();
    while client.get(format!("{TREE}/raw/begun")).status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    service.terminate();
    let last = stream.message().expect("an answer");
    assert!(last.get("result").is_some() || last["error"]["data"]["code"] == "stopping", "{last}");
    assert!(service.wait().success());
}
