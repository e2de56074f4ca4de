//! The list of tools, and results by their schemas.

use serde_json::{Value, json};

use crate::client::{Era, Post, called, service, text};
use crate::support::landlocked;

fn tools(client: &crate::support::Client) -> Vec<Value> {
    let result = Post::method(client, Era::Modern, "tools/list", json!({})).result();
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(3_600_000), &json!("private")));
    assert!(result.get("nextCursor").is_none());
    result["tools"].as_array().unwrap().clone()
}

#[test]
fn every_tool_is_described_as_strict_clients_ask_for() {
    let service = service();
    let tools = tools(&service.client);
    assert_eq!(tools, self::tools(&service.client), "the list keeps its order");
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        let (schema, hints) = (&tool["inputSchema"], &tool["annotations"]);
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false)),
            "{name}"
        );
        assert!(jsonschema::meta::is_valid(schema), "{name}");
        for property in schema["properties"].as_object().unwrap().keys() {
            assert!(
                property.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{name} {property}"
            );
        }
        let takes_directory = schema["properties"].get("directory").is_some();
        assert_eq!(takes_directory, name != "Skill", "{name}");
        assert_eq!(tool["title"], hints["title"], "{name}");
        let changes = matches!(name, "Edit" | "Shell");
        assert_eq!(hints["readOnlyHint"], !changes, "{name}");
        assert_eq!(hints["idempotentHint"], !changes, "{name}");
        assert_eq!(hints.get("destructiveHint"), changes.then_some(&json!(true)), "{name}");
        assert_eq!(tool.get("outputSchema").is_some(), name != "Skill", "{name}");
        let text = tool.to_string();
        assert!(!text.contains("tool Cd"), "{name}: {text}");
    }
}

#[test]
fn data_is_what_the_output_schema_says() {
    let service = service();
    let client = &service.client;
    client.write("/v1/sandbox/alice/demo", "a.txt", "one\ntwo\n");
    let has_commands = landlocked(client);
    for tool in tools(client) {
        let name = tool["name"].as_str().unwrap();
        let calls = match name {
            "Read" => vec![json!({ "path": "a.txt" }), json!({ "path": "a.txt", "offset": 9 })],
            "Glob" => vec![json!({ "pattern": "*" }), json!({ "pattern": "*.none" })],
            "Grep" => vec![json!({ "pattern": "o", "context_lines": 1 }), json!({ "pattern": "none" })],
            "Edit" => vec![
                json!({ "path": "b.txt", "mode": "create", "content": "x" }),
                json!({ "path": "b.txt", "mode": "replace", "old_string": "x", "new_string": "x" }),
            ],
            "Shell" if has_commands => vec![
                json!({ "command": "exit 3" }),
                json!({ "command": "kill -TERM $$" }),
                json!({ "command": "sleep 60", "timeout": 1 }),
            ],
            _ => continue,
        };
        let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        for arguments in calls {
            let result = called(client, name, arguments.clone());
            assert_eq!(result["isError"], false, "{name} {arguments}: {result}");
            let errors: Vec<String> =
                schema.iter_errors(&result["structuredContent"]).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{name} {arguments}: {errors:?} {result}");
        }
    }
    let read = called(client, "Read", json!({ "path": "a.txt", "offset": 2, "max_lines": 1 }));
    let data =
        json!({ "path": "/workspace/a.txt", "text": "two", "first_line": 2, "lines": 1, "total_lines": 3 });
    assert_eq!(read["structuredContent"], data);
    let found = called(client, "Grep", json!({ "pattern": "tw" }));
    let data = json!({ "matches": [{ "path": "a.txt", "line": 2, "text": "two" }], "truncated": false });
    assert_eq!(found["structuredContent"], data);
    let edit = json!({ "path": "b.txt", "mode": "replace", "old_string": "x", "new_string": "y" });
    let data = json!({ "path": "/workspace/b.txt", "created": false, "changed": true });
    assert_eq!(called(client, "Edit", edit)["structuredContent"], data);
}

#[test]
fn a_command_that_fails_is_a_result() {
    let service = service();
    if !landlocked(&service.client) {
        return;
    }
    let result = called(&service.client, "Shell", json!({ "command": "echo out; echo err >&2; exit 3" }));
    let data = &result["structuredContent"];
    assert_eq!(result["isError"], false);
    assert_eq!(
        (&data["exit_code"], &data["stdout"], &data["stderr"]),
        (&json!(3), &json!("out\n"), &json!("err\n"))
    );
    assert!(text(&result).starts_with("[EXIT 3]"), "{result}");
    let late = called(&service.client, "Shell", json!({ "command": "echo part; sleep 600", "timeout": 1 }));
    let data = &late["structuredContent"];
    assert_eq!(
        (&late["isError"], &data["timed_out"], &data["exit_code"]),
        (&json!(false), &json!(true), &Value::Null)
    );
    assert_eq!(data["stdout"], "part\n");
}

#[test]
fn both_ends_of_ten_megabytes_are_there() {
    let service = service();
    if !landlocked(&service.client) {
        return;
    }
    let command = "echo begin; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end";
    let result = called(&service.client, "Shell", json!({ "command": command }));
    let data = &result["structuredContent"];
    assert_eq!((&data["truncated"], &data["exit_code"]), (&json!(true), &json!(0)));
    let stdout = data["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("begin\n") && stdout.ends_with("end\n") && stdout.len() <= 64 * 1024);
    assert!(text(&result).contains("bytes left out"));
}

#[test]
fn a_call_begins_where_it_says_and_leaves_nothing_to_the_next() {
    let service = service();
    let client = &service.client;
    client.write("/v1/sandbox/alice/demo", "sub/a.txt", "x");
    for directory in ["sub", "/workspace/sub", "./sub/../sub"] {
        let read = called(client, "Read", json!({ "path": "a.txt", "directory": directory }));
        assert_eq!(read["structuredContent"]["path"], "/workspace/sub/a.txt", "{directory}");
    }
    assert_eq!(called(client, "Read", json!({ "path": "a.txt" }))["isError"], true);
    if !landlocked(client) {
        return;
    }
    let command = "cat a.txt; export NEXT=1\ncd /";
    let first = called(client, "Shell", json!({ "command": command, "directory": "sub" }));
    assert_eq!(first["structuredContent"]["stdout"], "x");
    assert!(text(&first).ends_with("send `directory` to begin in another directory."), "{first}");
    let next = called(client, "Shell", json!({ "command": "echo ${NEXT:-none}; ls" }));
    assert_eq!(next["structuredContent"]["stdout"], "none\nsub\n");
}
