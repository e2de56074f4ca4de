//! Who may send messages, from where, and what each role is offered.

use serde_json::{Value, json};

use crate::client::{Era, ON, PATH, Post, called, text};
use crate::support::{Client, Service, digest, skill_zip};

/// A service that knows a caller of each role by a token of the same text.
fn closed(further: &str) -> Service {
    let mut config = format!("{ON}{further}");
    for (name, role) in [
        ("admin", "role = \"admin\""),
        ("engine", "role = \"engine\""),
        ("manager", "role = \"manager\"\nagent = \"demo\""),
        ("alice", "role = \"user\"\nuser = \"alice\""),
        ("bound", "role = \"user\"\nuser = \"alice\"\nagent = \"demo\""),
        ("bob", "role = \"user\"\nuser = \"bob\""),
        ("monitor", "role = \"monitor\""),
    ] {
        config.push_str(&format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name)));
    }
    Service::configured(&config)
}

fn list(client: &Client) -> Post {
    Post::method(client, Era::Modern, "tools/list", json!({}))
}

fn names(result: &Value) -> Vec<&str> {
    result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

const ALL: [&str; 6] = ["Read", "Glob", "Grep", "Edit", "Shell", "Skill"];
const READING: [&str; 4] = ["Read", "Glob", "Grep", "Skill"];

#[test]
fn unless_it_is_switched_on_its_paths_are_as_any_that_are_not_there() {
    let with_token =
        format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"alice\"\n", digest("alice"));
    let (open, closed) = (Service::start(), Service::configured(&with_token));
    for client in [open.client.clone(), closed.client.clone(), closed.client.with_token("alice")] {
        // The whole answer, but for the id of the request, its time, and the path where it is told.
        let answer = |method: &str, root: &str, rest: &str| {
            let post = Post::method(&client, Era::Modern, "tools/list", json!({}));
            let mut request = client.request(method, format!("{root}{rest}"));
            for (name, value) in post.headers.iter().filter(|(name, _)| name != "host") {
                request = request.header(name, value);
            }
            let reply = request.body(&post.body).send();
            let id = reply.header("x-request-id").unwrap().to_owned();
            let plain = |text: &str| text.replace(&id, "ID").replace(root, "/ROOT");
            let headers = reply.headers.iter().filter(|(name, _)| name != "date" && name != "content-length");
            let headers: Vec<_> = headers.map(|(name, value)| (name.clone(), plain(value))).collect();
            (reply.status, headers, plain(&String::from_utf8_lossy(&reply.body)))
        };
        for method in ["POST", "GET", "DELETE", "OPTIONS", "PUT"] {
            for rest in ["", "/alice/demo", "/alice/demo/", "/alice", "/..", "/alice/demo/more"] {
                let (there, nowhere) = (answer(method, "/mcp", rest), answer(method, "/nowhere", rest));
                assert_eq!(there, nowhere, "{method} /mcp{rest}");
                assert!(there.0 == 404 || there.0 == 401, "{method} /mcp{rest}: {there:?}");
            }
        }
    }
}

#[test]
fn without_a_valid_token_nothing_is_answered() {
    let service = closed("");
    for client in [service.client.clone(), service.client.with_token("wrong")] {
        for path in [PATH, "/mcp"] {
            let answer = list(&client).to(path).send();
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")));
        }
    }
}

#[test]
fn each_role_is_offered_what_it_may_do() {
    let service = closed("");
    for (token, expected) in
        [("admin", &ALL[..]), ("engine", &ALL), ("alice", &ALL), ("bound", &ALL), ("manager", &READING)]
    {
        let client = service.client.with_token(token);
        assert_eq!(names(&list(&client).result()), expected, "{token}");
    }
    assert_eq!(list(&service.client.with_token("monitor")).send().status, 403);
    // A hidden tool is an unknown one, and does nothing.
    let manager = service.client.with_token("manager");
    for (tool, arguments) in [
        ("Edit", json!({ "path": "a", "mode": "create", "content": "x" })),
        ("Shell", json!({ "command": "touch a" })),
    ] {
        let error = Post::call(&manager, Era::Modern, tool, arguments).error(200);
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains("there is no tool"), "{error}");
    }
    assert_eq!(service.client.with_token("alice").files("/v1/sandbox/alice/demo"), Vec::<String>::new());
}

#[test]
fn a_caller_who_may_only_read_runs_nothing() {
    let service = closed("");
    let admin = service.client.with_token("admin");
    admin.write("/v1/sandbox/alice/demo", "d/a.txt", "one\ntwo\n");
    let manager = service.client.with_token("manager");
    for (tool, arguments, expected) in [
        ("Glob", json!({ "pattern": "**/*.txt" }), "d/a.txt"),
        ("Grep", json!({ "pattern": "tw" }), "2: two"),
        ("Read", json!({ "path": "d/a.txt" }), "one"),
    ] {
        let result = called(&manager, tool, arguments);
        assert!(text(&result).contains(expected), "{result}");
    }
    let figures = String::from_utf8(admin.get("/metrics").bytes(200).to_vec()).unwrap();
    let runs = figures.lines().filter(|line| line.starts_with("filesecbox_runs_total"));
    let ended: f64 = runs.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert_eq!(ended, 0.0, "{figures}");
    admin.post_json("/v1/sandbox/alice/demo/exec", &json!({ "command": "ls" }));
    let figures = String::from_utf8(admin.get("/metrics").bytes(200).to_vec()).unwrap();
    assert!(
        figures.lines().any(|line| line.starts_with("filesecbox_runs_total") && !line.ends_with(" 0")),
        "the control"
    );
}

#[test]
fn another_users_workspace_is_not_there() {
    let service = closed("");
    let (alice, bob) = (service.client.with_token("alice"), service.client.with_token("bob"));
    alice.write("/v1/sandbox/alice/demo", "a.txt", "secret");
    for path in [PATH, "/mcp/nobody/demo"] {
        for post in [
            list(&bob),
            Post::call(&bob, Era::Legacy, "Read", json!({ "path": "a.txt" })),
            Post::call(&bob, Era::Modern, "Shell", json!({ "command": "cat a.txt" })),
        ] {
            let answer = post.to(path).send();
            assert_eq!(answer.status, 404, "{answer:?}");
            assert!(answer.body.contains("there is nothing here for this token"), "{answer:?}");
        }
    }
    let bound = service.client.with_token("bound");
    assert_eq!(list(&bound).to("/mcp/alice/other").send().status, 404);
    // Their own sees nothing of the other's.
    let read = Post::call(&bob, Era::Modern, "Read", json!({ "path": "a.txt" })).to("/mcp/bob/demo").result();
    assert_eq!(read["isError"], true);
}

#[test]
fn a_signed_token_is_taken_and_revoked() {
    let service = closed("");
    let admin = service.client.with_token("admin");
    let issued = admin.post_json("/v1/tokens", &json!({ "user": "alice", "agent": "demo" })).ok();
    let client = service.client.with_token(issued["data"].as_str().unwrap());
    assert_eq!(names(&list(&client).to("/mcp").result()), ALL);
    admin.delete(format!("/v1/tokens/{}", issued["id"].as_str().unwrap())).ok();
    assert_eq!(list(&client).to("/mcp").send().status, 401);
}

#[test]
fn a_users_token_finds_its_own_workspace_by_header_token_or_setting() {
    let service = closed("agent = \"usual\"\n");
    let admin = service.client.with_token("admin");
    for agent in ["usual", "demo", "other"] {
        admin.write(&format!("/v1/sandbox/alice/{agent}"), "agent", agent);
    }
    let read = |token: &str, header: &str| {
        let client = service.client.with_token(token);
        let post = Post::call(&client, Era::Modern, "Read", json!({ "path": "agent" })).to("/mcp");
        post.header("x-filesecbox-agent", header).send()
    };
    for (token, header, agent) in [
        ("alice", "", "usual"),
        ("alice", "other", "other"),
        ("bound", "", "demo"),
        ("bound", "demo", "demo"),
    ] {
        let answer = read(token, header);
        let result = &answer.last()["result"];
        assert_eq!(result["structuredContent"]["text"], agent, "{token} {header}: {answer:?}");
    }
    assert_eq!(read("bound", "other").status, 404);
    for (token, header) in [("alice", ".."), ("admin", "demo"), ("engine", ""), ("monitor", "")] {
        assert_eq!(read(token, header).status, 400, "{token} {header}");
    }
    let service = closed("");
    let answer = list(&service.client.with_token("alice")).to("/mcp").send();
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("x-filesecbox-agent"), "{answer:?}");
}

#[test]
fn pages_of_other_sites_are_refused_with_and_without_tokens() {
    let (open, closed) = (crate::client::service(), closed(""));
    for client in [open.client.clone(), closed.client.with_token("alice")] {
        let own = format!("http://{}", client.address);
        for (header, value, status) in [
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("sec-fetch-site", "cross-site", 403),
            ("origin", own.as_str(), 200),
        ] {
            assert_eq!(list(&client).header(header, value).send().status, status, "{header}: {value}");
        }
    }
    // A name that leads here is refused where no token is asked for.
    assert_eq!(list(&open.client).header("host", "evil.example").send().status, 403);
    assert_eq!(list(&open.client).header("host", "localhost").send().status, 200);
}

#[test]
fn read_only_offers_nothing_that_changes() {
    let service = Service::configured(&format!("{ON}read_only = true\n"));
    assert_eq!(names(&list(&service.client).result()), READING);
    let edit = json!({ "path": "a", "mode": "create", "content": "x" });
    assert_eq!(Post::call(&service.client, Era::Modern, "Edit", edit).error(200)["code"], -32602);
}

#[test]
fn each_user_sees_the_skills_of_its_own_overlay() {
    let service = closed("");
    let admin = service.client.with_token("admin");
    let skill = |text: &str| skill_zip("notes", &[("more.md", text)]);
    admin.upload("/v1/skills/alice/demo", "baseline", &skill("for all"));
    service.client.with_token("bob").upload("/v1/skills/bob/demo", "overlay", &skill("of bob"));
    for (token, path, expected) in [("alice", PATH, "for all"), ("bob", "/mcp/bob/demo", "of bob")] {
        let client = service.client.with_token(token);
        let post =
            Post::call(&client, Era::Modern, "Skill", json!({ "name": "notes", "file": "more.md" })).to(path);
        let result = post.result();
        assert!(text(&result).contains(expected), "{result}");
        let found =
            Post::call(&client, Era::Modern, "Glob", json!({ "pattern": "**/*.md", "directory": "skills" }));
        let found = found.to(path).result();
        assert_eq!(found["structuredContent"]["paths"], json!(["notes/SKILL.md", "notes/more.md"]));
        let read = json!({ "path": "skills/notes/more.md" });
        let result = Post::call(&client, Era::Modern, "Read", read).to(path).result();
        assert!(text(&result).contains(expected), "{result}");
    }
}
