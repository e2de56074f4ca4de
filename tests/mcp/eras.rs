//! Both eras at one place, in the words that clients of each have.

use serde_json::json;

use crate::client::{ERAS, Era, LEGACY, MODERN, Post, called, service, text};

#[test]
fn a_modern_client_discovers_the_server_and_what_it_can() {
    let service = service();
    let answer = Post::method(&service.client, Era::Modern, "server/discover", json!({})).send();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("mcp-session-id"), None);
    let message = answer.last();
    assert_eq!((&message["jsonrpc"], &message["id"]), (&json!("2.0"), &json!(7)));
    let result = &message["result"];
    assert_eq!(result["resultType"], "complete");
    assert!(result["supportedVersions"].as_array().unwrap().contains(&MODERN.into()));
    assert_eq!(
        result["capabilities"],
        json!({
            "tools": {},
            "prompts": {},
            "resources": { "subscribe": true, "listChanged": true },
            "extensions": { "io.modelcontextprotocol/skills": { "directoryRead": true } },
        }),
        "what is not there is not declared"
    );
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "filesecbox");
}

#[test]
fn a_legacy_client_begins_without_a_session() {
    let service = service();
    let hello = |version: &str| {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        Post::method(&service.client, Era::Legacy, "initialize", params).send()
    };
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        (LEGACY, LEGACY),
        ("2099-01-01", LEGACY),
    ] {
        let answer = hello(asked);
        assert_eq!(answer.header("mcp-session-id"), None);
        let result = &answer.last()["result"];
        assert_eq!(result["protocolVersion"], given, "{asked}");
        let extensions = json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } });
        let expected = json!({ "tools": {}, "prompts": {}, "resources": {}, "extensions": extensions });
        assert_eq!(result["capabilities"], expected);
        assert!(result.get("resultType").is_none());
    }
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let begun = Post::raw(&service.client, begun.to_string()).send();
    assert_eq!((begun.status, begun.body.as_str()), (202, ""));
    assert_eq!(Post::method(&service.client, Era::Legacy, "ping", json!({})).result(), json!({}));
}

#[test]
fn a_tool_is_called_alike_in_both_eras() {
    let service = service();
    service.client.write("/v1/sandbox/alice/demo", "a.txt", "one\ntwo\n");
    for era in ERAS {
        let result = Post::call(&service.client, era, "Read", json!({ "path": "a.txt" })).result();
        assert_eq!(text(&result), "1\tone\n2\ttwo\n3\t");
        assert_eq!(result["structuredContent"]["total_lines"], 3);
        assert_eq!(result.get("resultType").is_some(), era == Era::Modern);
    }
}

#[test]
fn names_of_any_script_are_written_read_and_found() {
    let service = service();
    let path = "目录/你好 \"x\" %2F.txt";
    let edit = json!({ "path": path, "mode": "create", "content": "数据\n" });
    assert_eq!(called(&service.client, "Edit", edit)["isError"], false);
    assert_eq!(service.client.text("/v1/sandbox/alice/demo", path), "数据\n");
    let read = called(&service.client, "Read", json!({ "path": path }));
    assert_eq!(read["structuredContent"]["text"], "数据\n");
    let found = called(&service.client, "Glob", json!({ "pattern": "**/*.txt" }));
    assert_eq!(found["structuredContent"], json!({ "paths": [path], "truncated": false }));
}
