//! Which requests reach a backend, which callers may send them, and what they leave on this host.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use filesecbox::local::LocalSandbox;
use sandbox::{AgentId, ErrorKind, ExecSpec, MemSandbox, Sandbox, SandboxExt, SandboxPath, UserId};
use serde_json::{Value, json};

use super::{exec, in_memory, on_the_host};
use crate::client::promise::PROMISE;
use crate::client::{Client, Reply};
use crate::server::{Server, id};

/// What the paths of the routes begin with that a backend may answer.
const WORKSPACE: &str = "/v1/sandbox/{u}/{a}/";

pub(super) fn another_user_beside_it_reaches_the_own_store(server: &Server) {
    let (client, theirs) = (&server.client, in_memory(server, "lent"));
    let own = "/v1/sandbox/kept/memory";
    for tree in [theirs.as_str(), own] {
        client.put(format!("{tree}/raw/%E6%96%87.txt"), tree).ok();
        assert_eq!(client.get(format!("{tree}/raw/%E6%96%87.txt")).bytes(200), tree.as_bytes());
    }
    assert_eq!(fs::read(server.root.join("sandbox/kept/memory/文.txt")).unwrap(), own.as_bytes());
    client.get(format!("{own}/raw/%E6%96%87.txt")).etag();
    assert_eq!(client.get(format!("{own}/info")).ok()["data"]["backend"], "local");
    let ran = exec(client, own, json!({"command": "ls"})).ok();
    assert_ne!(ran["data"]["enforcement"]["tier"], "elsewhere");
    // The same user with another agent, and the user's skills, are no business of the backend either.
    client.put("/v1/sandbox/lent/other/raw/file", "own").ok();
    assert!(server.root.join("sandbox/lent/other/file").exists());
    client.get("/v1/skills/lent/memory/list").ok();
}

pub(super) fn without_the_backend_the_own_workspace_is_there_again(server: &Server) {
    let (client, tree) = (&server.client, "/v1/sandbox/borrowed/memory");
    client.put(format!("{tree}/raw/file"), "here").ok();
    let memory: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
    server.lend(&["borrowed"], "memory", &memory);
    client.get(format!("{tree}/raw/file")).refused(404, "not_found");
    client.put(format!("{tree}/raw/file"), "there").ok();
    assert!(server.service.backends().remove(&id("borrowed", "memory"), &memory));
    assert_eq!(client.get(format!("{tree}/raw/file")).bytes(200), b"here");
    assert_eq!(client.get(format!("{tree}/info")).ok()["data"]["backend"], "local");
}

/// Every operation that a backend may answer for, by its method and the route's name.
fn operations() -> BTreeSet<(String, String)> {
    let paths = PROMISE.document["paths"].as_object().unwrap();
    let below = paths.iter().filter_map(|(path, item)| Some((path.strip_prefix(WORKSPACE)?, item)));
    let each = |(name, item): (&str, &Value)| {
        let methods = item.as_object().unwrap().keys().map(|method| method.to_uppercase());
        methods.map(|method| (method, name.to_owned())).collect::<Vec<_>>()
    };
    let found: BTreeSet<_> = below.flat_map(each).collect();
    assert!(found.len() >= 30, "{found:?}");
    found
}

/// Asks for an operation in a way that the service understands.
fn ask(client: &Client, tree: &str, method: &str, name: &str) -> Reply {
    let names =
        [("{path}", "file"), ("{exec_id}", "run"), ("{snapshot}", &"0".repeat(20)), ("{port}", "8000")];
    let name = names.iter().fold(name.to_owned(), |name, (named, value)| name.replace(named, value));
    let body = if method == "GET" || method == "HEAD" { None } else { Some("{}") };
    let request = client.request(method, format!("{tree}/{name}"));
    body.into_iter().fold(request, |request, body| request.body(body)).send()
}

pub(super) fn who_may_not_ask_is_told_the_same_as_of_an_own_workspace(server: &Server) {
    in_memory(server, "guarded");
    let (theirs, own) = ("/v1/sandbox/guarded/memory", "/v1/sandbox/unguarded/memory");
    for (method, name) in operations() {
        let code = |token: &str, tree: &str| {
            let reply = ask(&server.client.with_token(token), tree, &method, &name);
            (reply.status, if method == "HEAD" { Value::Null } else { reply.json()["code"].clone() })
        };
        for token in ["mallory", "monitor", "nobody-knows"] {
            let (status, told) = code(token, theirs);
            assert_eq!(
                (status, &told),
                (code(token, own).0, &code(token, own).1),
                "{token}: {method} {name}"
            );
            assert!(matches!(status, 401 | 403 | 404), "{token}: {method} {name}: {status}");
        }
        // The agent's manager may read what users have, and change nothing of it.
        let runs = name == "terminal" || name.starts_with("ports/{port}/");
        let changes = !(method == "GET" || method == "HEAD" || name == "grep") || runs;
        let (status, told) = code("manager", theirs);
        let is_denied = if method == "HEAD" { status == 403 } else { told == "denied" };
        assert_eq!(is_denied, changes, "{method} {name}: {status} {told}");
        assert!(status != 401, "{method} {name}: {status} {told}");
    }
}

/// The operations that the contract of backends has something for.
const ANSWERED: [&str; 22] = [
    "GET info",
    "GET stat",
    "GET dir",
    "GET files",
    "GET content",
    "PUT edit",
    "POST replace",
    "POST mkdir",
    "DELETE file",
    "GET raw/{path}",
    "HEAD raw/{path}",
    "PUT raw/{path}",
    "DELETE raw/{path}",
    "POST execute",
    "POST exec",
    "GET exec",
    "GET exec/{exec_id}",
    "DELETE exec/{exec_id}",
    "POST exec/{exec_id}/stdin",
    "POST exec/{exec_id}/signal",
    "GET terminal",
    "POST prepare",
];

pub(super) fn what_no_backend_can_be_asked_for_is_refused_with_its_name(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "modest"));
    let mut refused = 0;
    for (method, name) in operations() {
        let reply = ask(client, &tree, &method, &name);
        if ANSWERED.contains(&format!("{method} {name}").as_str()) {
            assert!(
                method == "HEAD" || reply.json()["code"] != "unsupported" || name.starts_with("exec"),
                "{method} {name}"
            );
            continue;
        }
        assert_eq!(reply.status, 501, "{method} {name}");
        if method != "HEAD" {
            let told = reply.refused(501, "unsupported");
            assert!(told["data"].as_str().unwrap().contains("`memory`"), "{method} {name}: {told}");
        }
        refused += 1;
    }
    assert_eq!(refused, operations().len() - ANSWERED.len());
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let told = client.post_json(tree.replace("/v1/sandbox", "/mcp"), &message).refused(501, "unsupported");
    assert!(told["data"].as_str().unwrap().contains("`memory`"), "{told}");
    // Where no caller takes part in commands.
    assert_eq!(client.websocket(&format!("{tree}/terminal"), "").err(), Some(501));
    client.request("PUT", format!("{tree}/stat")).body("").send().refused(405, "method_not_allowed");
    client.get(format!("{tree}/nothing")).refused(404, "not_found");
}

pub(super) fn an_unknown_parameter_is_refused(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "misspelt"));
    for operation in ANSWERED.iter().filter(|operation| !operation.starts_with("HEAD")) {
        let (method, name) = operation.split_once(' ').unwrap();
        let told = ask(client, &tree, method, &format!("{name}?strat=1")).refused(400, "invalid");
        assert!(told["data"].as_str().unwrap().contains("`strat`"), "{operation}: {told}");
    }
    for route in ["mkdir", "replace", "exec"] {
        client.post_json(format!("{tree}/{route}"), &json!({"strat": 1})).refused(400, "invalid");
    }
}

/// Every path below a directory of the host, but for the audit log and what the registry keeps.
fn below(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            found.insert(entry.path().display().to_string());
            if entry.file_type().unwrap().is_dir() && entry.file_name() != ".filesecbox" {
                waiting.push(entry.path());
            }
        }
    }
    found
}

pub(super) fn nothing_of_it_is_on_the_disk_of_the_service(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "traceless"));
    let is_theirs = |path: &String| path.contains("traceless");
    client.put(format!("{tree}/raw/a/b.txt?parents=true"), "text").ok();
    client.put(format!("{tree}/edit?path=c/d.txt"), "text\n").ok();
    client.post_json(format!("{tree}/mkdir"), &json!({"path": "e"})).ok();
    exec(client, &tree, json!({"shell": "echo made > f; head -c 100000 /dev/zero", "exec_id": "r"})).ok();
    client.get(format!("{tree}/files")).ok();
    client.get(format!("{tree}/stat?path=a")).ok();
    client.delete(format!("{tree}/file?path=a&recursive=true")).ok();
    let found: Vec<_> = below(&server.root).into_iter().filter(is_theirs).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(!server.service.store().workspaces().is_noted(&id("traceless", "host")));
    let listed = client.with_token("admin").get("/v1/sandbox/traceless").ok();
    assert_eq!(listed["data"], json!([]));
}

pub(super) fn every_change_elsewhere_is_in_the_audit_log(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "watched"));
    client.put(format!("{tree}/raw/%E6%96%87"), "not to be recorded").ok();
    client.get(format!("{tree}/raw/%E6%96%87")).bytes(200);
    exec(client, &tree, json!({"command": "echo", "args": ["nor this"], "exec_id": "said"})).ok();
    client.delete(format!("{tree}/file?path=%E6%96%87")).ok();
    client.delete(format!("{tree}/file?path=%E6%96%87")).refused(404, "not_found");
    client.post_json(format!("{tree}/move"), &json!({"from": "a", "to": "b"})).refused(501, "unsupported");
    let route = |name: &str| format!("{}{name}", WORKSPACE);
    let expected = [
        (format!("PUT {}", route("raw/{*path}")), "文", "ok"),
        ("run ended".to_owned(), "", "succeeded"),
        (format!("POST {}", route("exec")), "echo", "ok"),
        (format!("DELETE {}", route("file")), "文", "ok"),
        (format!("DELETE {}", route("file")), "文", "not_found"),
        (format!("POST {}", route("move")), "", "unsupported"),
    ];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut log = String::new();
    for file in fs::read_dir(server.root.join(".filesecbox/audit")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            log.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_user = records.filter(|record| record["tree"] == "sandbox/watched/host");
    let found: BTreeSet<_> = of_user
        .map(|record| {
            let what =
                text(if record["program"].is_null() { &record["paths"][0] } else { &record["program"] });
            (text(&record["action"]), what, text(&record["outcome"]))
        })
        .collect();
    let expected = expected.map(|(action, what, outcome)| (action, what.to_owned(), outcome.to_owned()));
    assert_eq!(found, expected.into_iter().collect());
    assert!(!log.contains("not to be recorded") && !log.contains("nor this"));
}

pub(super) fn a_snapshot_is_not_forked_to_a_workspace_elsewhere(server: &Server) {
    let (client, own) = (&server.client, "/v1/sandbox/giver/memory");
    in_memory(server, "taker");
    client.put(format!("{own}/raw/file"), "text").ok();
    let snapshot =
        client.post(format!("{own}/snapshots"), "").ok()["data"]["id"].as_str().unwrap().to_owned();
    let fork = format!("{own}/snapshots/{snapshot}/fork");
    client.post_json(&fork, &json!({"user": "taker", "agent": "memory"})).refused(501, "unsupported");
    assert!(!server.root.join("sandbox/taker").exists());
    client.post_json(&fork, &json!({"user": "taker", "agent": "other"})).ok();
}

pub(super) fn who_asks_in_this_process_does_not_mistake_the_own_workspace_for_it(server: &Server) {
    let (client, tree) = (&server.client, "/v1/sandbox/linked/memory");
    client.put(format!("{tree}/raw/file"), "here").ok();
    let agent = AgentId::parse("memory").unwrap();
    let local = LocalSandbox::new(Arc::clone(&server.service), agent, true);
    let (user, file) = (UserId::parse("linked").unwrap(), SandboxPath::workspace().join("file").unwrap());
    assert_eq!(server.runtime.block_on(local.read(&user, &file)).unwrap(), "here");
    in_memory(server, "linked");
    let asked = async {
        let skills = SandboxPath::workspace().join("skills").unwrap();
        assert!(local.read_dir(&user, &skills).await.is_ok());
        [
            local.read(&user, &file).await.map(drop),
            local.write(&user, &file, "changed".into()).await,
            local.stat(&user, &SandboxPath::workspace()).await.map(drop),
            local.read_dir(&user, &SandboxPath::workspace()).await.map(drop),
            local.mkdir_all(&user, &file, 0o755).await,
            local.remove_all(&user, &file).await,
            local.exec(&user, ExecSpec::argv("true", [] as [&str; 0])).await.map(drop),
        ]
    };
    for told in server.runtime.block_on(asked) {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("`memory`"), "{error}");
    }
    assert_eq!(fs::read(server.root.join("sandbox/linked/memory/file")).unwrap(), b"here");
}
