//! The error table: what is refused, under which status and code.

use serde_json::{Value, json};

use crate::client::{ERAS, Era, MODERN, PATH, Post, service};
use crate::support::Service;

#[test]
fn without_the_setting_the_routes_are_not_there() {
    let service = Service::start();
    for path in [PATH, "/mcp"] {
        service.client.post(path, "{}").refused(404, "not_found");
        service.client.get(path).refused(404, "not_found");
    }
}

#[test]
fn only_post_is_a_method_of_the_endpoint() {
    let service = service();
    for path in [PATH, "/mcp"] {
        for method in ["GET", "DELETE", "PUT"] {
            let reply = service.client.request(method, path).send();
            reply.refused(405, "method_not_allowed");
            assert_eq!(reply.header("allow"), Some("POST"));
        }
    }
}

#[test]
fn each_fault_of_a_modern_request_has_its_code() {
    let service = service();
    let list = || Post::method(&service.client, Era::Modern, "tools/list", json!({}));
    let call = || Post::call(&service.client, Era::Modern, "Read", json!({ "path": "a" }));
    let other = |method: &str| Post::method(&service.client, Era::Modern, method, json!({}));
    let with_meta = |meta: Value| {
        let params = json!({ "_meta": meta });
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": params });
        let post = Post::raw(&service.client, message.to_string());
        post.header("mcp-protocol-version", MODERN).header("mcp-method", "tools/list")
    };
    let version = "io.modelcontextprotocol/protocolVersion";
    let unknown = || {
        let meta = json!({ version: "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {} });
        with_meta(meta).header("mcp-protocol-version", "2099-01-01")
    };
    for (what, post, status, code) in [
        ("no method header", list().header("mcp-method", ""), 400, -32020),
        ("another method header", list().header("mcp-method", "tools/call"), 400, -32020),
        ("no name header", call().header("mcp-name", ""), 400, -32020),
        ("another name header", call().header("mcp-name", "Edit"), 400, -32020),
        ("no version header", list().header("mcp-protocol-version", ""), 400, -32020),
        ("another version header", list().header("mcp-protocol-version", "2025-11-25"), 400, -32020),
        ("no meta", with_meta(json!({})), 400, -32602),
        ("no capabilities", with_meta(json!({ version: MODERN })), 400, -32602),
        ("a version that is not served", unknown(), 400, -32022),
        ("an unknown method", other("nope/nope"), 404, -32601),
        ("no method of this era", other("ping"), 404, -32601),
        ("what is not declared", other("completion/complete"), 404, -32601),
        ("the handshake of the other era", other("initialize"), 404, -32601),
        ("what is not declared either", other("prompts/get"), 404, -32601),
        ("no extension", other("tasks/get"), 404, -32601),
        (
            "a cursor of nobody",
            Post::method(&service.client, Era::Modern, "tools/list", json!({ "cursor": "x" })),
            200,
            -32602,
        ),
        ("an unknown tool", Post::call(&service.client, Era::Modern, "Nope", json!({})), 200, -32602),
        (
            "a tool that is not offered",
            Post::call(&service.client, Era::Modern, "Cd", json!({ "path": "." })),
            200,
            -32602,
        ),
        (
            "arguments that are no object",
            Post::call(&service.client, Era::Modern, "Read", json!([1])),
            200,
            -32602,
        ),
    ] {
        let answer = post.send();
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        let message = answer.last();
        assert_eq!(
            (&message["error"]["code"], &message["id"]),
            (&json!(code), &json!(7)),
            "{what}: {answer:?}"
        );
    }
    let told = unknown().error(400);
    assert_eq!(told["data"]["requested"], "2099-01-01");
    assert!(told["data"]["supported"].as_array().unwrap().contains(&MODERN.into()));
}

#[test]
fn what_is_no_message_is_refused() {
    let service = service();
    let post = |body: &str| Post::raw(&service.client, body);
    let list = || Post::method(&service.client, Era::Modern, "tools/list", json!({}));
    for (what, post, status) in [
        ("nothing", post(""), 415),
        ("broken JSON", post("{\"jsonrpc\":"), 415),
        ("no message", post("{}"), 415),
        ("no JSON", list().header("content-type", "text/plain"), 415),
        ("JSON alone", list().header("accept", "application/json"), 406),
        ("a stream alone", list().header("accept", "text/event-stream"), 406),
        ("nothing accepted", list().header("accept", ""), 406),
    ] {
        let answer = post.send();
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.header("content-type").is_some(), "{what}: {answer:?}");
    }
    let batch = post(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).error(400);
    assert_eq!(batch["code"], -32600);
}

#[test]
fn a_refusal_of_a_tool_is_a_result_that_says_what_to_do() {
    let service = service();
    let outside = service.outside().to_str().unwrap().to_owned();
    for era in ERAS {
        for (tool, arguments, expected) in [
            ("Read", json!({ "path": "none" }), "no such file: none"),
            ("Read", json!({}), "path is required"),
            ("Read", json!({ "path": "a", "nope": 1 }), "unknown field `nope`"),
            ("Read", json!({ "path": "/etc/passwd" }), "outside the workspace `/workspace`"),
            ("Read", json!({ "path": outside }), "outside the workspace `/workspace`"),
            ("Read", json!({ "path": "a", "directory": "../.." }), "outside the workspace `/workspace`"),
            ("Read", json!({ "path": "a", "directory": 7 }), "send a path in the workspace"),
            ("Skill", json!({ "name": "none", "directory": "a" }), "unknown field `directory`"),
            ("Glob", json!({ "pattern": "*", "directory": "none" }), "does not exist"),
            (
                "Edit",
                json!({ "path": "n", "mode": "replace", "old_string": "a", "new_string": "b" }),
                "use mode create",
            ),
            ("Shell", json!({ "command": "" }), "command is required"),
            ("Shell", json!({ "command": "ls", "timeout": 601 }), "1 to 600 are possible"),
        ] {
            let result = Post::call(&service.client, era, tool, arguments.clone()).result();
            let text = crate::client::text(&result);
            assert_eq!(result["isError"], true, "{tool} {arguments}: {text}");
            assert!(text.contains(expected), "{tool} {arguments}: {text}");
            assert!(result.get("structuredContent").is_none());
            assert!(!text.contains(&service.client.root), "{text}");
        }
    }
}
