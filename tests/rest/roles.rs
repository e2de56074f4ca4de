//! Every route with every role and no role: a table of the exact answers, compared with the router's own list.

use std::collections::BTreeSet;

use filesecbox::http::operations;

use crate::support::{Client, Reply, Service, digest, skill_zip};

/// The callers: one without a token, and one for each role; users `u` with any agent, and with agent `a` only.
const CALLERS: [&str; 7] = ["", "admin", "engine", "manager", "user", "bound", "monitor"];
/// The user of the tree that is asked for, and the agent.
const TREES: [(&str, &str); 3] = [("u", "a"), ("u", "b"), ("v", "a")];
/// The id of a snapshot that is not there.
const SNAPSHOT: &str = "00000000000000000000";
/// The answer to a caller that may not know of a thing.
const HIDDEN: &str = "there is nothing here for this token";

/// The answer to a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gets {
    /// The answer of the row.
    It,
    /// 401.
    Unknown,
    /// 403.
    Denied,
    /// 404, and nothing more.
    Nothing,
}

use Gets::{Denied, It, Nothing, Unknown};

/// The roles that a route needs: for each caller, the answer for each tree.
type Needs = [[Gets; 3]; 7];

const READ: Needs = [
    [Unknown; 3],
    [It; 3],
    [It; 3],
    [It, Nothing, It],
    [It, It, Nothing],
    [It, Nothing, Nothing],
    [Denied; 3],
];
const CHANGE: Needs = [
    [Unknown; 3],
    [It; 3],
    [It; 3],
    [Denied, Nothing, Denied],
    [It, It, Nothing],
    [It, Nothing, Nothing],
    [Denied; 3],
];
/// The baseline of the agent, asked for among the skills of the user.
const BASELINE: Needs = [
    [Unknown; 3],
    [It; 3],
    [Denied; 3],
    [It, Nothing, It],
    [Denied, Denied, Nothing],
    [Denied, Nothing, Nothing],
    [Denied; 3],
];
/// What those may end who may change what it is about, and those who look after the agent.
const REVOKE: Needs = [
    [Unknown; 3],
    [It; 3],
    [It; 3],
    [It, Nothing, It],
    [It, It, Nothing],
    [It, Nothing, Nothing],
    [Denied; 3],
];
/// The baseline of the agent, asked for at a door that names no user.
const SHARED: Needs =
    [[Unknown; 3], [It; 3], [Denied; 3], [It, Nothing, It], [Nothing; 3], [Nothing; 3], [Denied; 3]];
const ANYBODY: Needs = [[It; 3]; 7];
const ANY_TOKEN: Needs = [[Unknown; 3], [It; 3], [It; 3], [It; 3], [It; 3], [It; 3], [It; 3]];
const ISSUE: Needs = [[Unknown; 3], [It; 3], [It; 3], [Denied; 3], [Denied; 3], [Denied; 3], [Denied; 3]];
/// All agents of one user.
const OF_USER: Needs =
    [[Unknown; 3], [It; 3], [It; 3], [Denied; 3], [It, It, Nothing], [Denied, Denied, Nothing], [Denied; 3]];
/// All agents of one user; a token may come later.
const OF_USER_OR_NO_TOKEN: Needs =
    [[It; 3], [It; 3], [It; 3], [Denied; 3], [It, It, Nothing], [Denied, Denied, Nothing], [Denied; 3]];
/// The tree of the path, and the workspace of `u` with `a`.
const FORK: Needs = CHANGE;
/// A list of what the caller may see, which the path does not say.
const ANY_BUT_MONITOR: Needs = [[Unknown; 3], [It; 3], [It; 3], [It; 3], [It; 3], [It; 3], [Denied; 3]];
const ADMIN: Needs = [[Unknown; 3], [It; 3], [Denied; 3], [Denied; 3], [Denied; 3], [Denied; 3], [Denied; 3]];
const OBSERVE: Needs = [[Unknown; 3], [It; 3], [Denied; 3], [Denied; 3], [Denied; 3], [Denied; 3], [It; 3]];

/// One request: the operation as the router has it, the rest of its path, the body, the status for callers that may.
struct Row(&'static str, &'static str, &'static str, u16, Needs);

/// Every operation has at least one row. Requests may be made again and again with the same answer.
const ROWS: &[Row] = &[
    Row("GET /healthz", "", "", 200, ANYBODY),
    Row("GET /readyz", "", "", 200, ANYBODY),
    Row("GET /metrics", "", "", 200, OBSERVE),
    Row("GET /openapi.json", "", "", 200, ANYBODY),
    Row("GET /", "", "", 307, ANYBODY),
    Row("GET /docs", "", "", 200, ANYBODY),
    Row("GET /v1/info", "", "", 200, ANY_TOKEN),
    Row("GET /v1/whoami", "", "", 200, ANY_TOKEN),
    Row("GET /v1/tokens", "", "", 200, ISSUE),
    Row("DELETE /v1/tokens", "?user=w", "", 200, ISSUE),
    Row("DELETE /v1/tokens/{id}", "", "", 200, ISSUE),
    Row("POST /v1/tokens", "", r#"{"user":"w"}"#, 200, ISSUE),
    Row("GET /v1/registry", "", "", 200, ANY_BUT_MONITOR),
    Row("POST /v1/registry/rebuild", "", "", 200, ADMIN),
    Row("GET /v1/audit", "?limit=1", "", 200, ADMIN),
    Row("GET /v1/users", "", "", 200, ISSUE),
    Row("GET /v1/users/{u}", "", "", 200, OF_USER),
    Row("GET /v1/agents", "", "", 200, ANY_BUT_MONITOR),
    Row("GET /v1/runs", "", "", 200, ANY_BUT_MONITOR),
    Row("GET /v1/usage", "", "", 200, ANY_BUT_MONITOR),
    Row("GET /v1/runners/{u}", "", "", 200, OF_USER),
    Row("POST /v1/runners/{u}/{runner}/choose", "", "", 404, OF_USER),
    Row("POST /v1/runners/{u}/{runner}/cut", "", "", 404, OF_USER),
    Row("DELETE /v1/runners/{u}/{runner}", "", "", 404, OF_USER),
    Row("GET /v1/transfers/{transfer}", "?from=0", "", 404, ANYBODY),
    Row("PUT /v1/transfers/{transfer}", "?from=0", "x", 404, ANYBODY),
    Row("GET /v1/transfers/{transfer}/received", "", "", 404, ANYBODY),
    Row("GET /ws/{u}", "", "", 400, OF_USER_OR_NO_TOKEN),
    Row("GET /v1/agents/{a}/policy", "", "", 200, ADMIN),
    Row("PUT /v1/agents/{a}/policy", "", "{}", 200, ADMIN),
    Row("DELETE /v1/agents/{a}/policy", "", "", 200, ADMIN),
    Row("GET /v1/packages/{version}", "", "", 404, ISSUE),
    Row("HEAD /v1/packages/{version}", "", "", 404, ISSUE),
    Row("PUT /v1/packages/{version}", "", "none", 422, ISSUE),
    Row("POST /api/v1/devbox", "", r#"{"name":"x"}"#, 200, ISSUE),
    Row("GET /api/v1/devbox/{name}", "", "", 200, ISSUE),
    Row("POST /api/v1/devbox/{name}/pause", "", "", 200, ISSUE),
    Row("POST /api/v1/devbox/{name}/stop", "", "", 200, ISSUE),
    Row("POST /api/v1/devbox/{name}/resume", "", "", 200, ISSUE),
    Row("POST /api/v1/devbox/{name}/exec", "", r#"{"command":["ls"]}"#, 200, ISSUE),
    Row("POST /api/v1/devbox/{name}/files/upload", "?path=f", "x", 200, ISSUE),
    Row("GET /api/v1/devbox/{name}/files/download", "?path=f", "", 200, ISSUE),
    // What a message is answered is another test's.
    // Any method but those that read is a change; the path behind it is looked at when the role is known.
    Row("ANY /compat/anthropic/a/{a}/{path}", "v1/none", "", 404, SHARED),
    Row("ANY /compat/anthropic/u/{u}/a/{a}/{path}", "v1/none", "", 404, CHANGE),
    Row("ANY /compat/openai/a/{a}/v1/{path}", "none", "", 404, SHARED),
    Row("ANY /compat/openai/u/{u}/a/{a}/v1/{path}", "none", "", 404, CHANGE),
    Row("GET /v1/shares/{u}/{a}", "", "", 200, READ),
    Row("POST /v1/shares/{u}/{a}", "", r#"{"ttl_seconds":1}"#, 201, CHANGE),
    Row("POST /v1/shares/{u}/{a}", "", r#"{"view":"baseline","ttl_seconds":1}"#, 201, BASELINE),
    Row("DELETE /v1/shares/{u}/{a}/{share}", "", "", 404, REVOKE),
    // The link is the right: here there is none.
    Row("ANY /s/{share}/", "", "", 404, ANYBODY),
    Row("ANY /s/{share}/{path}", "f", "", 404, ANYBODY),
    Row("ANY /catalog/{a}/", "", "", 404, ANYBODY),
    Row("ANY /catalog/{a}/{path}", "f", "", 404, ANYBODY),
    Row("POST /mcp/{u}/{a}", "?none=1", "", 400, READ),
    Row("POST /mcp", "?none=1", "", 400, ANY_TOKEN),
    Row("DELETE /api/v1/devbox/{name}", "?none=1", "", 400, ISSUE),
    Row("POST /v1/skills/{u}/{a}/upload", "", "ZIP", 200, CHANGE),
    Row("POST /v1/skills/{u}/{a}/upload", "?scope=baseline", "ZIP", 200, BASELINE),
    Row("GET /v1/skills/{u}/{a}/list", "", "", 200, READ),
    Row("DELETE /v1/skills/{u}/{a}/{s}", "none", "", 404, CHANGE),
    Row("DELETE /v1/skills/{u}/{a}/{s}", "none?scope=baseline", "", 404, BASELINE),
    Row("POST /v1/skills/{u}/{a}/{s}/reset", "", "", 200, CHANGE),
    Row("GET /v1/skills/{u}/{a}/{s}/download", "", "", 200, READ),
    Row("GET /v1/skills/{u}/{a}/{s}/diff", "", "", 200, READ),
    Row("GET /v1/skills/{u}/{a}/{s}/lint", "", "", 200, READ),
    Row("GET /v1/skills/{u}/{a}/{s}/versions", "", "", 200, READ),
    Row("GET /v1/skills/{u}/{a}/{s}/versions/{v}", "", "", 404, READ),
    Row("DELETE /v1/skills/{u}/{a}/{s}/versions/{v}", "", "", 404, BASELINE),
    Row("PUT /v1/skills/{u}/{a}/{s}/versions/{v}/pin", "", "", 404, BASELINE),
    Row("DELETE /v1/skills/{u}/{a}/{s}/versions/{v}/pin", "", "", 404, BASELINE),
    Row("GET /v1/skills/{u}/{a}/{s}/versions/{v}/download", "", "", 404, READ),
    Row(
        "POST /v1/skills/{u}/{a}/{s}/rollback",
        "?version=00000000000000000000000000000000",
        "",
        404,
        BASELINE,
    ),
    Row("POST /v1/skills/{u}/{a}/{s}/promote", "", "", 409, BASELINE),
    Row("POST /v1/skills/{u}/{a}/{s}/pull", "", "", 200, CHANGE),
    Row("GET /v1/skills/{u}/{a}/catalog", "", "", 200, READ),
    Row("GET /v1/sandbox", "", "", 200, ISSUE),
    Row("DELETE /v1/sandbox", "", "", 400, ADMIN),
    Row("GET /v1/sandbox/{u}", "", "", 200, OF_USER),
    Row("GET /v1/sandbox/{u}/{a}", "", "", 200, READ),
    Row("POST /v1/sandbox/{u}/{a}/prepare", "", r#"{"runtime":false}"#, 200, CHANGE),
    Row("GET /v1/sandbox/{u}/{a}/snapshots", "", "", 200, READ),
    Row("POST /v1/sandbox/{u}/{a}/snapshots", "", "{}", 201, CHANGE),
    Row("GET /v1/sandbox/{u}/{a}/snapshots/{snapshot}", "", "", 404, READ),
    Row("DELETE /v1/sandbox/{u}/{a}/snapshots/{snapshot}", "", "", 404, CHANGE),
    Row("POST /v1/sandbox/{u}/{a}/snapshots/{snapshot}/restore", "", "", 404, CHANGE),
    Row("POST /v1/sandbox/{u}/{a}/snapshots/{snapshot}/fork", "", r#"{"user":"u","agent":"a"}"#, 404, FORK),
    Row("GET T/info", "", "", 200, READ),
    Row("GET T/files", "", "", 200, READ),
    Row("GET T/content", "?path=f", "", 200, READ),
    // A stream has no end to wait for; what follows the check of the role is another test's.
    Row("GET T/events", "?after=none", "", 400, READ),
    Row("PUT T/edit", "?path=f", "x", 200, CHANGE),
    Row("POST T/execute", "?command=ls", "", 200, CHANGE),
    Row("POST T/exec", "", r#"{"command":"ls"}"#, 200, CHANGE),
    Row("GET T/exec", "", "", 200, READ),
    Row("GET T/exec/{exec_id}", "", "", 404, READ),
    Row("DELETE T/exec/{exec_id}", "", "", 404, CHANGE),
    Row("POST T/exec/{exec_id}/commit", "", "", 404, CHANGE),
    Row("POST T/exec/{exec_id}/discard", "", "", 404, CHANGE),
    Row("POST T/exec/{exec_id}/signal", "", r#"{"signal":"TERM"}"#, 404, CHANGE),
    Row("POST T/exec/{exec_id}/stdin", "", "x", 404, CHANGE),
    Row("GET T/terminal", "", "", 400, CHANGE),
    // What comes after the check of the role depends on the tier.
    Row("GET T/ports", "?none=1", "", 400, READ),
    Row("POST T/ports", "", r#"{"port":0}"#, 400, CHANGE),
    Row("ANY T/ports/{port}/", "", "", 400, CHANGE),
    Row("ANY T/ports/{port}/{path}", "f", "", 400, CHANGE),
    // The right to it is in the path: here there is none.
    Row("ANY /v1/ports/{token}/", "", "", 401, ANYBODY),
    Row("ANY /v1/ports/{token}/{path}", "f", "", 401, ANYBODY),
    Row(
        "POST T/replace",
        "",
        r#"{"path":"f","edits":[{"old_string":"none","new_string":"y"}]}"#,
        409,
        CHANGE,
    ),
    Row("POST T/patch", "", r#"{"patch":"--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"}"#, 404, CHANGE),
    Row("POST T/copy", "", r#"{"from":"none","to":"x"}"#, 404, CHANGE),
    Row("GET T/glob", "?pattern=f", "", 200, READ),
    Row("POST T/grep", "", r#"{"pattern":"x"}"#, 200, READ),
    Row("GET T/stat", "?path=f", "", 200, READ),
    Row("GET T/dir", "", "", 200, READ),
    Row("GET T/archive", "", "", 200, READ),
    Row("PUT T/archive", "?path=none/d", "ZIP", 404, CHANGE),
    Row("POST T/mkdir", "", r#"{"path":"d","parents":true}"#, 200, CHANGE),
    Row("POST T/move", "", r#"{"from":"none","to":"x"}"#, 404, CHANGE),
    Row("DELETE T/file", "?path=none", "", 404, CHANGE),
    Row("GET T/raw/{path}", "f", "", 200, READ),
    Row("HEAD T/raw/{path}", "f", "", 200, READ),
    Row("PUT T/raw/{path}", "f", "x", 200, CHANGE),
    Row("DELETE T/raw/{path}", "none", "", 404, CHANGE),
    // Last: nothing is left afterwards.
    Row("DELETE /v1/sandbox/{u}/{a}", "", "", 200, CHANGE),
    Row("DELETE /v1/sandbox/{u}", "", "", 200, OF_USER),
    Row("DELETE /v1/users/{u}", "", "", 200, OF_USER),
];

/// Every place where a document lists what needs no token.
const LISTS: [(&str, &str, &str); 2] = [
    ("docs/API.md", "\n| `GET /healthz`", "| without a token"),
    ("docs/CONFIGURATION.md", "every request but `GET /healthz`", "needs one."),
];

#[test]
fn the_documents_list_exactly_the_routes_that_need_no_token() {
    let service = closed();
    let read =
        |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut open = BTreeSet::new();
    for operation in operations() {
        let (method, path) = operation.split_once(' ').unwrap();
        let path = path.replace("T/", "/v1/sandbox/{u}/{a}/").replace("{snapshot}", SNAPSHOT);
        let path = path.replace("{u}", "u").replace("{a}", "a").replace("{s}", "s");
        if service.client.request(method, path.replace(['{', '}'], "")).send().status != 401 {
            open.insert(operation);
        }
    }
    assert!(open.contains("GET /healthz") && open.len() < 14, "{open:?}");
    for (document, begin, end) in LISTS {
        let text = read(document);
        let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{document} has no list"));
        let list = format!("`GET /healthz`{}", rest.split_once(end).unwrap().0);
        let listed: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(listed, open, "{document}");
    }
    // Each has a section of its own that says so, and no other has.
    let api = read("docs/API.md");
    for section in api.split("\n### ").skip(1) {
        let says_so = section.lines().any(|line| line.starts_with("No token."));
        let named: BTreeSet<&str> = section.lines().next().unwrap().split('`').skip(1).step_by(2).collect();
        assert_eq!(says_so, named.iter().any(|name| open.contains(*name)), "{named:?}");
    }
}

/// A service that knows every caller by a token of the same text.
fn closed() -> Service {
    let mut config = "[devbox]\nenabled = true\n[mcp]\nenabled = true\n[compat]\nenabled = true\n[shares]\nenabled = true\n".to_owned();
    for (caller, role) in CALLERS.iter().skip(1).map(|caller| match *caller {
        "manager" => ("manager", "role = \"manager\"\nagent = \"a\""),
        "user" => ("user", "role = \"user\"\nuser = \"u\""),
        "bound" => ("bound", "role = \"user\"\nuser = \"u\"\nagent = \"a\""),
        "admin" => ("admin", "role = \"admin\""),
        "engine" => ("engine", "role = \"engine\""),
        other => (other, "role = \"monitor\""),
    }) {
        config.push_str(&format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(caller)));
    }
    let service = Service::configured(&config);
    let admin = service.client.with_token("admin");
    let archive = skill_zip("s", &[("f", "x")]);
    for (user, agent) in TREES {
        admin.upload(&format!("/v1/skills/u/{agent}"), "baseline", &archive);
        admin.write(&format!("/v1/skills/{user}/{agent}/s"), "f", "x");
        admin.write(&format!("/v1/sandbox/{user}/{agent}"), "f", "x");
    }
    service
}

/// The targets of an operation: for both kinds of trees where it is about a tree.
fn targets(path: &str, user: &str, agent: &str, rest: &str) -> Vec<String> {
    let path = match path.strip_suffix("{path}") {
        Some(directory) => format!("{directory}{rest}"),
        // The last segment of a row that has one of its own.
        None if path.ends_with("/{s}") && !rest.is_empty() => {
            format!("{}{rest}", path.trim_end_matches("{s}"))
        }
        None => format!("{path}{rest}"),
    };
    let trees =
        if path.starts_with("T/") { vec!["/v1/skills/{u}/{a}/{s}", "/v1/sandbox/{u}/{a}"] } else { vec![""] };
    let named = |tree: &str| {
        let whole = path.strip_prefix('T').map_or_else(|| path.clone(), |below| format!("{tree}{below}"));
        whole
            .replace("{u}", user)
            .replace("{a}", agent)
            .replace("{s}", "s")
            .replace("{exec_id}", "none")
            .replace("{snapshot}", SNAPSHOT)
            .replace("{runner}", "none")
            .replace("{share}", "none")
            .replace("{name}", "x")
            .replace("{version}", &SNAPSHOT.repeat(2)[..24])
            .replace("{v}", "0123456789abcdef0123456789abcdef")
            .replace("{port}", "none")
            .replace("{token}", "none")
            .replace("{id}", "none")
    };
    trees.into_iter().map(named).collect()
}

fn ask(client: &Client, method: &str, target: &str, body: &[u8]) -> Reply {
    let request = client.request(method, target);
    if body.is_empty() { request.send() } else { request.body(body).send() }
}

fn sentence(reply: &Reply) -> String {
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    // Other vendors' words have it elsewhere.
    answer["data"].as_str().or(answer["error"]["message"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn every_operation_of_the_router_has_a_row_and_every_row_an_operation() {
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.0.to_owned()).collect();
    let operations = operations();
    let without: Vec<_> = operations.difference(&rows).collect();
    let invented: Vec<_> = rows.difference(&operations).collect();
    assert!(without.is_empty() && invented.is_empty(), "no row: {without:?}; no operation: {invented:?}");
}

#[test]
fn every_route_answers_every_role_as_its_row_says() {
    let service = closed();
    let archive = skill_zip("s", &[("f", "x")]);
    let mut asked = 0;
    for Row(operation, rest, body, status, needs) in ROWS {
        let (method, path) = operation.split_once(' ').unwrap();
        let body = if *body == "ZIP" { archive.as_slice() } else { body.as_bytes() };
        for (at, (user, agent)) in TREES.iter().enumerate() {
            for target in targets(path, user, agent, rest) {
                for (caller, gets) in CALLERS.iter().zip(needs.iter().map(|gets| gets[at])) {
                    let client = if caller.is_empty() {
                        service.client.clone()
                    } else {
                        service.client.with_token(caller)
                    };
                    let reply = ask(&client, method, &target, body);
                    let expected = match gets {
                        It => *status,
                        Unknown => 401,
                        Denied => 403,
                        Nothing => 404,
                    };
                    let told = String::from_utf8_lossy(&reply.body);
                    assert_eq!(reply.status, expected, "{caller}: {method} {target}: {told}");
                    if method != "HEAD" {
                        assert_eq!(
                            sentence(&reply) == HIDDEN,
                            gets == Nothing,
                            "{caller}: {method} {target}: {told}"
                        );
                    }
                    asked += 1;
                }
            }
        }
    }
    assert!(asked > 700, "{asked}");
}

#[test]
fn the_token_of_one_user_finds_nothing_of_another_on_any_route() {
    let service = closed();
    let admin = service.client.with_token("admin");
    let signed = |user: &str| {
        let answer = admin.post_json("/v1/tokens", &serde_json::json!({ "user": user })).ok();
        service.client.with_token(answer["data"].as_str().unwrap())
    };
    let (of_u, of_v) = (signed("u"), signed("v"));
    let mut asked = 0;
    for operation in operations() {
        let (method, path) = operation.split_once(' ').unwrap();
        if !path.starts_with("T/") && !path.contains("{u}") {
            continue;
        }
        // What is there, and what is not: the same answer to every request.
        for (client, foreign, absent) in [(&of_u, "v", "nobody"), (&of_v, "u", "nobody")] {
            let there = targets(path, foreign, "a", if path.ends_with("{path}") { "f" } else { "" });
            let not_there =
                targets(path, absent, "no-agent", if path.ends_with("{path}") { "none" } else { "" });
            for (there, not_there) in there.iter().zip(&not_there) {
                let told = |target: &str| {
                    let reply = ask(client, method, target, b"");
                    let headers: Vec<_> = reply.headers.iter().map(|(name, _)| name.clone()).collect();
                    (reply.status, sentence(&reply), headers)
                };
                let (status, sentence, headers) = told(there);
                assert_eq!(status, 404, "{method} {there}: {sentence}");
                assert!(method == "HEAD" || sentence == HIDDEN, "{method} {there}: {sentence}");
                assert_eq!((status, sentence, headers), told(not_there), "{method} {there}");
                asked += 1;
            }
        }
    }
    assert!(asked > 50, "{asked}");
}
