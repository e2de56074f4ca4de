//! Bad input gets a named 4xx in the envelope and changes nothing: every route against every way of being wrong.
//!
//! Every request is followed by a comparison of the whole data directory with what it was.

use std::io::Write;
use std::net::Shutdown;

use serde_json::json;

use crate::support::{Reply, Service, Snapshot, encoded, skill_zip};

const WORKSPACE: &str = "/v1/sandbox/u/a";
const SKILL: &str = "/v1/skills/u/a/s";

/// A service with something to lose in every layer, and a memory of it.
struct Guarded {
    service: Service,
    before: Snapshot,
}

impl Guarded {
    fn new() -> Self {
        Self::around(Service::start())
    }

    fn around(service: Service) -> Self {
        let client = &service.client;
        client.upload(
            "/v1/skills/u/a",
            "baseline",
            &skill_zip("s", &[("f.txt", "one\ntwo\n"), ("d/g", "x")]),
        );
        client.write(SKILL, "mine.txt", "mine");
        client.write(WORKSPACE, "f.txt", "one\ntwo\n");
        client.write(WORKSPACE, "d/g", "x");
        let before = Snapshot::of(&service.root);
        Self { service, before }
    }

    #[track_caller]
    fn unchanged(&self, after: &str) {
        self.before.unchanged(&self.service.root, after);
    }

    /// Sends a request that must be refused so, and leave everything as it was.
    #[track_caller]
    fn refused(&self, method: &str, target: &str, body: &[u8], status: u16, code: &str) {
        let mut request = self.service.client.request(method, target);
        if method != "GET" && method != "HEAD" {
            request = request.body(body);
        }
        request.send().refused(status, code);
        self.unchanged(&format!("{method} {target}"));
    }
}

/// Spellings of a path, as text before it is encoded, and what each is called.
fn bad_paths() -> Vec<(String, u16, &'static str)> {
    let (escape, invalid) = ((403, "path_escape"), (400, "invalid"));
    [
        ("..", escape),
        ("../f.txt", escape),
        ("d/../f.txt", escape),
        ("d/..", escape),
        ("/", escape),
        ("/etc/hostname", escape),
        ("/workspaces/f.txt", escape),
        ("/workspace/skills/other/f.txt", escape),
        ("//workspace/f.txt", escape),
        (".", invalid),
        ("d/./g", invalid),
        ("d//g", invalid),
        ("", invalid),
        ("f\0.txt", invalid),
        ("f\n.txt", invalid),
        ("f\u{7f}", invalid),
        ("f\u{85}", invalid),
    ]
    .into_iter()
    .map(|(path, (status, code))| (path.to_owned(), status, code))
    .chain([
        ("x".repeat(256), 400, "invalid"),
        ("数".repeat(86), 400, "invalid"),
        ("x/".repeat(2049) + "x", 400, "invalid"),
    ])
    .collect()
}

#[test]
fn a_bad_path_is_refused_by_every_route_that_takes_one() {
    let guarded = Guarded::new();
    for tree in [WORKSPACE, SKILL] {
        for (path, status, code) in bad_paths() {
            // The sandbox form of this workspace reads `/workspace/skills/…` as a directory of its own.
            if tree == WORKSPACE && path.starts_with("/workspace/skills") {
                continue;
            }
            let query = encoded(&path);
            let inside = json!(path).to_string();
            let rows: Vec<(&str, String, String)> = vec![
                ("GET", format!("content?path={query}"), String::new()),
                ("GET", format!("content?path={query}&start=1&end=2"), String::new()),
                ("PUT", format!("edit?path={query}"), "evil".to_owned()),
                ("PUT", format!("edit?path={query}&start=1&end=1"), "evil".to_owned()),
                ("DELETE", format!("file?path={query}&recursive=true"), String::new()),
                ("POST", "mkdir".to_owned(), format!("{{\"path\":{inside},\"parents\":true}}")),
                ("POST", "move".to_owned(), format!("{{\"from\":{inside},\"to\":\"x\",\"overwrite\":true}}")),
                (
                    "POST",
                    "move".to_owned(),
                    format!("{{\"from\":\"f.txt\",\"to\":{inside},\"overwrite\":true}}"),
                ),
                ("POST", "copy".to_owned(), format!("{{\"from\":{inside},\"to\":\"x\",\"recursive\":true}}")),
                (
                    "POST",
                    "copy".to_owned(),
                    format!("{{\"from\":\"f.txt\",\"to\":{inside},\"overwrite\":true}}"),
                ),
                (
                    "POST",
                    "replace".to_owned(),
                    format!(
                        "{{\"path\":{inside},\"edits\":[{{\"old_string\":\"one\",\"new_string\":\"1\"}}]}}"
                    ),
                ),
            ];
            for (method, route, body) in rows {
                guarded.refused(method, &format!("{tree}/{route}"), body.as_bytes(), status, code);
            }
            if path.is_empty() {
                // No path is the tree itself for what reads directories, and no route for bytes.
                guarded.refused("PUT", &format!("{tree}/raw/"), b"evil", 404, "not_found");
                continue;
            }
            for (method, route, body) in [
                ("GET", format!("stat?path={query}"), ""),
                ("GET", format!("dir?path={query}"), ""),
                ("GET", format!("files?path={query}"), ""),
                ("GET", format!("glob?pattern=*&path={query}"), ""),
                ("POST", "grep".to_owned(), &format!("{{\"pattern\":\"x\",\"path\":{inside}}}")),
                ("GET", format!("raw/{query}"), ""),
                ("PUT", format!("raw/{query}?parents=true"), "evil"),
                ("DELETE", format!("raw/{query}?recursive=true"), ""),
                ("POST", "exec".to_owned(), &format!("{{\"command\":\"ls\",\"dir\":{inside}}}")),
            ] {
                // The tree itself can be listed and searched.
                if path == "." && !route.starts_with("raw/") {
                    continue;
                }
                guarded.refused(method, &format!("{tree}/{route}"), body.as_bytes(), status, code);
            }
            // As the path of the request has it, unencoded, where that can be sent.
            if path.bytes().all(|byte| byte.is_ascii_graphic()) {
                guarded.refused("PUT", &format!("{tree}/raw/{path}?parents=true"), b"evil", status, code);
            }
        }
    }
}

#[test]
fn what_is_not_utf8_is_refused_wherever_it_stands() {
    let guarded = Guarded::new();
    for bytes in ["%ff", "f%E6%95", "%c0%af..", "%ed%a0%80"] {
        for (method, target) in [
            ("GET", format!("/v1/skills/{bytes}/a/list")),
            ("PUT", format!("/v1/sandbox/u/{bytes}/edit?path=f")),
            ("GET", format!("/v1/skills/u/a/{bytes}/download")),
            ("GET", format!("{WORKSPACE}/content?path={bytes}")),
            ("PUT", format!("{WORKSPACE}/edit?path={bytes}")),
            ("PUT", format!("{SKILL}/edit?path=f.txt&{bytes}=1")),
            ("PUT", format!("{WORKSPACE}/raw/{bytes}?parents=true")),
            ("DELETE", format!("{SKILL}/raw/{bytes}")),
            ("DELETE", format!("{SKILL}/file?path={bytes}")),
            ("POST", format!("{WORKSPACE}/execute?command={bytes}")),
        ] {
            guarded.refused(method, &target, b"evil", 400, "invalid");
        }
    }
    for (route, status) in [("edit?path=new", 400), ("edit?path=f.txt&start=1&end=1", 400)] {
        guarded.refused("PUT", &format!("{WORKSPACE}/{route}"), b"\xff\xfe", status, "invalid");
    }
    for route in ["replace", "mkdir", "move", "copy", "patch", "grep", "exec", "execute?command=ls"] {
        guarded.refused("POST", &format!("{WORKSPACE}/{route}"), b"\"\xff\xfe\"", 400, "invalid");
    }
}

#[test]
fn a_bad_id_is_refused_in_every_position() {
    let guarded = Guarded::new();
    let long = "x".repeat(129);
    let ids = [
        "..",
        ".",
        "",
        "%2e%2e",
        "%2E%2e",
        "a%2Fb",
        "..%2F..",
        "a%00b",
        "a%5Cb",
        "\\",
        "%20a",
        "a%0Ab",
        "%7F",
        "a%E2%80%AEb",
        "%E2%81%A6",
        long.as_str(),
    ];
    for id in ids {
        for (method, target) in [
            ("GET", format!("/v1/skills/{id}/a/list")),
            ("GET", format!("/v1/skills/u/{id}/list")),
            ("POST", format!("/v1/skills/u/{id}/upload?scope=baseline")),
            ("POST", format!("/v1/skills/{id}/a/upload")),
            ("DELETE", format!("/v1/skills/u/{id}/s?scope=baseline")),
            ("GET", format!("/v1/skills/u/a/{id}/files")),
            ("POST", format!("/v1/skills/u/a/{id}/reset")),
            ("GET", format!("/v1/skills/u/a/{id}/download")),
            ("GET", format!("/v1/skills/u/a/{id}/diff")),
            ("GET", format!("/v1/skills/u/a/{id}/versions")),
            ("GET", format!("/v1/skills/u/a/{id}/versions/1")),
            ("DELETE", format!("/v1/skills/u/a/{id}/versions/1")),
            ("PUT", format!("/v1/skills/u/a/{id}/versions/1/pin")),
            ("GET", format!("/v1/skills/u/a/{id}/versions/1/download")),
            ("POST", format!("/v1/skills/u/a/{id}/rollback?version=1")),
            ("POST", format!("/v1/skills/u/a/{id}/promote")),
            ("POST", format!("/v1/skills/u/a/{id}/pull")),
            ("GET", format!("/v1/skills/{id}/a/catalog")),
            ("PUT", format!("/v1/skills/u/a/{id}/edit?path=f")),
            ("POST", format!("/v1/skills/u/a/{id}/execute?command=ls")),
            ("GET", format!("/v1/sandbox/{id}/a/files")),
            ("PUT", format!("/v1/sandbox/u/{id}/raw/f?parents=true")),
            ("POST", format!("/v1/sandbox/{id}/a/exec")),
        ] {
            guarded.refused(method, &target, b"evil", 400, "invalid");
        }
        if !id.is_empty() {
            guarded.refused("DELETE", &format!("/v1/skills/u/a/{id}"), b"", 400, "invalid");
        }
    }
    guarded.refused("DELETE", "/v1/skills/u/a/", b"", 404, "not_found");
}

/// Every route with its method, and the others that it must refuse.
const ROUTES: &[(&str, &str)] = &[
    ("/healthz", "GET,HEAD"),
    ("/v1/info", "GET,HEAD"),
    ("/v1/skills/u/a/upload", "POST"),
    ("/v1/skills/u/a/list", "GET,HEAD"),
    ("/v1/skills/u/a/s", "DELETE"),
    ("/v1/skills/u/a/s/reset", "POST"),
    ("/v1/skills/u/a/s/download", "GET,HEAD"),
    ("/v1/skills/u/a/s/diff", "GET,HEAD"),
    ("/v1/skills/u/a/s/versions", "GET,HEAD"),
    ("/v1/skills/u/a/s/versions/1", "DELETE,GET,HEAD"),
    ("/v1/skills/u/a/s/versions/1/pin", "DELETE,PUT"),
    ("/v1/skills/u/a/s/versions/1/download", "GET,HEAD"),
    ("/v1/skills/u/a/s/rollback", "POST"),
    ("/v1/skills/u/a/s/promote", "POST"),
    ("/v1/skills/u/a/s/pull", "POST"),
    ("/v1/skills/u/a/catalog", "GET,HEAD"),
    ("/v1/sandbox", "DELETE,GET,HEAD"),
    ("/v1/sandbox/u", "DELETE,GET,HEAD"),
    ("/v1/sandbox/u/a", "DELETE,GET,HEAD"),
    ("/v1/sandbox/u/a/info", "GET,HEAD"),
    ("/v1/skills/u/a/s/info", "GET,HEAD"),
    ("/v1/sandbox/u/a/snapshots", "GET,HEAD,POST"),
    ("/v1/sandbox/u/a/snapshots/x", "DELETE,GET,HEAD"),
    ("/v1/sandbox/u/a/snapshots/x/restore", "POST"),
    ("/v1/sandbox/u/a/snapshots/x/fork", "POST"),
];
const TREE_ROUTES: &[(&str, &str)] = &[
    ("files", "GET,HEAD"),
    ("content", "GET,HEAD"),
    ("edit", "PUT"),
    ("execute", "POST"),
    ("exec", "GET,HEAD,POST"),
    ("exec/x", "DELETE,GET,HEAD"),
    ("exec/x/commit", "POST"),
    ("exec/x/discard", "POST"),
    ("exec/x/signal", "POST"),
    ("exec/x/stdin", "POST"),
    ("terminal", "GET,HEAD"),
    ("events", "GET,HEAD"),
    ("ports", "GET,HEAD,POST"),
    ("replace", "POST"),
    ("patch", "POST"),
    ("copy", "POST"),
    ("glob", "GET,HEAD"),
    ("grep", "POST"),
    ("stat", "GET,HEAD"),
    ("dir", "GET,HEAD"),
    ("mkdir", "POST"),
    ("move", "POST"),
    ("file", "DELETE"),
    ("raw/f.txt", "DELETE,GET,HEAD,PUT"),
];

#[test]
fn another_method_is_405_and_told_the_right_ones() {
    let guarded = Guarded::new();
    let routes = ROUTES.iter().map(|(route, allowed)| ((*route).to_owned(), *allowed));
    let below = [WORKSPACE, SKILL].into_iter().flat_map(|tree| {
        TREE_ROUTES.iter().map(move |(route, allowed)| (format!("{tree}/{route}"), *allowed))
    });
    for (target, allowed) in routes.chain(below) {
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "PROPFIND"] {
            if allowed.split(',').any(|name| name == method) {
                continue;
            }
            let reply = guarded.service.client.request(method, &*target).body("evil").send();
            reply.refused(405, "method_not_allowed");
            let mut told: Vec<&str> =
                reply.header("allow").unwrap_or_default().split(',').map(str::trim).collect();
            told.sort_unstable();
            assert_eq!(told.join(","), allowed, "{method} {target}");
            guarded.unchanged(&format!("{method} {target}"));
        }
    }
}

#[test]
fn what_is_no_route_is_404_in_the_envelope() {
    let guarded = Guarded::new();
    for target in [
        "/v1",
        "/v1/",
        "/v2/info",
        "/v1/info/",
        "/healthz/",
        "/v1/skills/u/a",
        "/v1/skills/u",
        "/v1/sandbox/",
        "/v1/sandbox/u/a/",
        "/v1/sandbox/u/a/snapshots/",
        "/v1/skills/u/a/s/snapshots",
        "/v1/skills/u/a/list/",
        "/v1/sandbox/u/a/files/x",
        "/v1/sandbox/u/a/upload",
        "/v1/skills/u/a/s/none",
        "/v1/../v1/info",
        "//v1/info",
        "/V1/info",
        "/v1%2Finfo",
        "/%2e%2e/etc/hostname",
    ] {
        guarded.refused("GET", target, b"", 404, "not_found");
    }
}

#[test]
fn an_unknown_or_malformed_parameter_is_refused() {
    let guarded = Guarded::new();
    for tree in [WORKSPACE, SKILL] {
        for (method, route) in [
            ("GET", "files?recursive=true"),
            ("GET", "files?depth=-1"),
            ("GET", "files?depth=x"),
            ("GET", "files?detail=yes"),
            ("GET", "files?limit=1.5"),
            ("GET", "content?path=f.txt&line=1"),
            ("GET", "content?path=f.txt&start=x"),
            ("GET", "content?path=f.txt&start=0"),
            ("GET", "content?path=f.txt&end=0"),
            ("GET", "content?path=f.txt&start=-1&end=1"),
            ("GET", "content?path=f.txt&start=1&start=2"),
            ("GET", "content?path=f.txt&path=d/g"),
            ("GET", "content?Path=f.txt"),
            ("GET", "content"),
            ("PUT", "edit"),
            ("PUT", "edit?path=f.txt&strat=1"),
            ("PUT", "edit?path=f.txt&start="),
            ("PUT", "edit?path=f.txt&start=1&end=two"),
            ("PUT", "edit?path=f.txt&start=99"),
            ("PUT", "raw/f.txt?mode=999"),
            ("PUT", "raw/f.txt?mode=-1"),
            ("PUT", "raw/f.txt?mode=0o"),
            ("PUT", "raw/f.txt?mode=4755"),
            ("PUT", "raw/f.txt?mode=+755"),
            ("PUT", "raw/f.txt?parents=1"),
            ("PUT", "raw/f.txt?path=x"),
            ("DELETE", "raw/d?recursive=yes"),
            ("DELETE", "file"),
            ("DELETE", "file?path=d&force=true"),
            ("GET", "stat?path=f.txt&x=1"),
            ("GET", "dir?depth=2"),
            ("GET", "glob"),
            ("GET", "glob?pattern=%5B"),
            ("GET", "glob?pattern=x&limit=-1"),
            ("GET", "glob?pattern=x&hidden=1"),
            ("PUT", "edit?path=f.txt&encoding=latin-1"),
            ("PUT", "edit?path=f.txt&start=1&end=1&encoding=gbk"),
            ("POST", "execute"),
            ("POST", "execute?command=ls&timeout_ms=-5"),
            ("POST", "execute?command=ls&timeout_ms=99999999999999999999"),
            ("POST", "execute?command=ls&timeout=5"),
            ("POST", "exec?background=1"),
            ("POST", "exec?after=1"),
            ("GET", "exec?limit=x"),
            ("GET", "exec/a%2Fb"),
            ("GET", "exec/.x"),
            ("GET", "exec/x?follow=maybe"),
            ("GET", "exec/x?after=-1"),
            ("GET", "exec/x?encoding=utf-16"),
            ("DELETE", "exec/%20"),
            ("POST", "exec/x/stdin?close=1"),
            ("POST", "exec/x/stdin?path=x"),
            ("POST", "exec/x/signal"),
            ("GET", "events?after=1"),
            ("GET", "events?path=x"),
            ("GET", "terminal?rows=0"),
            ("GET", "terminal?path=x"),
        ] {
            guarded.refused(method, &format!("{tree}/{route}"), b"[]", 400, "invalid");
        }
    }
    for (method, target) in [
        ("POST", "/v1/skills/u/a/upload?scop=baseline"),
        ("POST", "/v1/skills/u/a/upload?scope=all"),
        ("POST", "/v1/skills/u/a/upload?charset=big5"),
        ("POST", "/v1/skills/u/a/upload?scope=overlay&scope=baseline"),
        ("DELETE", "/v1/skills/u/a/s?scope=both"),
        ("DELETE", "/v1/skills/u/a/s?force=1"),
        ("GET", "/v1/sandbox?limit=0"),
        ("GET", "/v1/sandbox/u?user=v"),
        ("GET", "/v1/sandbox/u/a?detail=true"),
        ("GET", "/v1/sandbox/u/a/info?x=1"),
        ("DELETE", "/v1/sandbox"),
        ("DELETE", "/v1/sandbox?confirm=yes"),
        ("DELETE", "/v1/sandbox?confirm=all-workspaces&forced=true"),
        ("DELETE", "/v1/sandbox/u?confirm=all-workspaces"),
        ("DELETE", "/v1/sandbox/u/a?force=1"),
        ("DELETE", "/v1/sandbox/u/a?path=f.txt"),
        ("POST", "/v1/sandbox/u/a/snapshots?name=x"),
        ("GET", "/v1/sandbox/u/a/snapshots?limit=-1"),
        ("GET", "/v1/sandbox/u/a/snapshots/x"),
        ("GET", "/v1/sandbox/u/a/snapshots/..%2F..%2Fmanifests%2Fxx"),
        ("DELETE", "/v1/sandbox/u/a/snapshots/0000000000000000000G"),
        ("DELETE", "/v1/sandbox/u/a/snapshots/00000000000000000000?force=true"),
        ("POST", "/v1/sandbox/u/a/snapshots/000000000000000000000/restore"),
        ("POST", "/v1/sandbox/u/a/snapshots/00000000000000000000/restore?force=true"),
        ("POST", "/v1/sandbox/u/a/snapshots/00000000000000000000/fork?user=v"),
        ("GET", "/v1/registry?agents=a"),
        ("GET", "/v1/registry?agent=.."),
        ("GET", "/v1/registry?user=a%2Fb"),
        ("GET", "/v1/registry?skill="),
        ("GET", "/v1/registry?scope=all"),
        ("GET", "/v1/registry?scope=baseline&user=u"),
        ("GET", "/v1/registry?limit=0"),
        ("GET", "/v1/registry?cursor=WyJhIl0"),
        ("GET", "/v1/registry?limit=1&cursor=WyJhIl0"),
    ] {
        guarded.refused(method, target, &skill_zip("evil", &[]), 400, "invalid");
    }
}

#[test]
fn a_body_that_is_not_what_the_route_takes_is_refused() {
    let guarded = Guarded::new();
    let deep = "[".repeat(60_000);
    for tree in [WORKSPACE, SKILL] {
        for route in ["replace", "mkdir", "move", "copy", "patch", "grep", "exec", "execute?command=ls"] {
            for body in [
                "{",
                "nonsense",
                "[}",
                "null",
                "1",
                "\"x\"",
                "{\"unknown\":1}",
                "{\"path\":1}",
                "[[]]",
                "[null]",
                "{\"path\":\"x\"}trailing",
                "{\"path\":\"x\",\"path\":\"y\"}",
                "\u{feff}{}",
                deep.as_str(),
            ] {
                guarded.refused("POST", &format!("{tree}/{route}"), body.as_bytes(), 400, "invalid");
            }
            if !route.starts_with("execute") {
                guarded.refused("POST", &format!("{tree}/{route}"), b"", 400, "invalid");
            }
        }
        for (route, body) in [
            ("mkdir", json!({"path": "x", "parents": "yes"})),
            ("mkdir", json!({"path": "x", "recursive": true})),
            ("mkdir", json!({"path": "x", "mode": 755})),
            ("move", json!({"from": "f.txt"})),
            ("move", json!({"from": "f.txt", "to": "x", "force": true})),
            ("replace", json!({"path": "f.txt", "edits": {}})),
            ("replace", json!({"path": "f.txt", "edits": [{"old": "one", "new_string": "1"}]})),
            (
                "replace",
                json!({"path": "f.txt", "edits": [{"old_string": "one", "new_string": "1", "expected_replacements": -1}]}),
            ),
            (
                "replace",
                json!({"path": "f.txt", "edits": vec![json!({"old_string": "one", "new_string": "one"}); 1001]}),
            ),
            ("exec", json!({"command": 1})),
            ("exec", json!({"shell": ["ls"]})),
            ("exec", json!({"command": "ls", "args": "x"})),
            ("exec", json!({"command": "ls", "env": []})),
            ("exec", json!({"command": "ls", "stdin_open": 1})),
            ("exec", json!({"command": "ls", "changes": "yes"})),
            ("exec", json!({"command": "ls", "commit": "later"})),
            ("exec", json!({"command": "ls", "exec_id": "a b"})),
            ("exec/x/signal", json!({"signal": 2})),
            ("exec/x/signal", json!({"signal": "INT", "all": true})),
        ] {
            guarded.refused("POST", &format!("{tree}/{route}"), body.to_string().as_bytes(), 400, "invalid");
        }
    }
}

#[test]
fn what_is_said_of_a_snapshot_is_bounded_and_a_fork_names_its_place() {
    let guarded = Guarded::new();
    for body in [
        "{",
        "[]",
        "null",
        "{\"names\":\"x\"}",
        "{\"name\":1}",
        "{\"name\":\"a\\u0000b\"}",
        "{\"note\":\"a\\u001bb\"}",
        &json!({ "name": "x".repeat(129) }).to_string(),
        &json!({ "note": "数".repeat(342) }).to_string(),
    ] {
        let target = format!("{WORKSPACE}/snapshots");
        guarded.refused("POST", &target, body.as_bytes(), 400, "invalid");
    }
    guarded.refused("POST", &format!("{WORKSPACE}/snapshots"), &[b' '; 65_537], 413, "too_large");
    guarded.refused("POST", "/v1/sandbox/nobody/a/snapshots", b"{}", 404, "not_found");
    let none = format!("{WORKSPACE}/snapshots/00000000000000000000");
    for body in [
        json!({}),
        json!([]),
        json!({"user": "v"}),
        json!({"user": "v", "agent": "../x"}),
        json!({"user": ".", "agent": "a"}),
        json!({"user": "v", "agent": "a", "replace": 1}),
        json!({"user": "v", "agent": "a", "path": "x"}),
    ] {
        guarded.refused("POST", &format!("{none}/fork"), body.to_string().as_bytes(), 400, "invalid");
    }
    guarded.refused("POST", &format!("{none}/fork"), b"{\"user\":\"v\",\"agent\":\"a\"}", 404, "not_found");
    guarded.refused("POST", &format!("{none}/restore"), b"", 404, "not_found");
    guarded.refused("DELETE", &none, b"", 404, "not_found");
}

#[test]
fn an_upload_that_is_no_archive_or_no_form_is_refused() {
    let guarded = Guarded::new();
    let send = |content_type: &str, body: &[u8]| {
        let request = guarded.service.client.request("POST", "/v1/skills/u/a/upload");
        let reply = request.header("content-type", content_type).body(body).send();
        guarded.unchanged(content_type);
        reply
    };
    let archive = skill_zip("evil", &[]);
    for body in [&b""[..], b"text", b"PK\x03\x04", &archive[..archive.len() - 1], &archive[1..]] {
        send("application/zip", body).refused(422, "bad_archive");
    }
    let form = |name: &str| {
        let head =
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x.zip\"\r\n\r\n");
        [head.as_bytes(), &archive, b"\r\n--B--\r\n"].concat()
    };
    let whole = form("file");
    for (content_type, body) in [
        ("multipart/form-data", &whole[..]),
        ("multipart/form-data; boundary=", &whole),
        ("multipart/form-data; boundary=C", &whole),
        ("multipart/form-data; boundary=B", b""),
        ("multipart/form-data; boundary=B", b"--B--\r\n"),
        ("multipart/form-data; boundary=B", &whole[..whole.len() - 9]),
        ("multipart/form-data; boundary=B", &whole[..60]),
        ("multipart/form-data; boundary=B", &form("archive")),
        ("multipart/form-data; boundary=B", &[b"--B\r\n\r\n", &archive[..], b"\r\n--B--\r\n"].concat()),
    ] {
        send(content_type, body).refused(400, "invalid");
    }
    let mut many = Vec::new();
    for number in 0..33 {
        let skill = skill_zip(&format!("evil{number}"), &[]);
        many.extend(
            format!(
                "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{number}.zip\"\r\n\r\n"
            )
            .bytes(),
        );
        many.extend(skill);
        many.extend(b"\r\n");
    }
    many.extend(b"--B--\r\n");
    send("multipart/form-data; boundary=B", &many).refused(400, "invalid");
}

#[test]
fn a_malformed_condition_or_range_is_refused() {
    let guarded = Guarded::new();
    let client = &guarded.service.client;
    let changes = [
        ("PUT", "edit?path=f.txt", "evil"),
        ("PUT", "raw/f.txt", "evil"),
        ("DELETE", "raw/f.txt", ""),
        ("DELETE", "file?path=f.txt", ""),
        ("POST", "move", r#"{"from":"f.txt","to":"x"}"#),
        ("POST", "replace", r#"{"path":"f.txt","edits":[{"old_string":"one","new_string":"1"}]}"#),
    ];
    let headers: &[&[(&str, &[u8])]] = &[
        &[("if-match", b"bare")],
        &[("if-match", b"")],
        &[("if-match", b"\"open")],
        &[("if-match", b"\"a\" \"b\"")],
        &[("if-match", b"\xff")],
        &[("if-none-match", b"\"tag\"")],
        &[("if-none-match", b"bare")],
    ];
    for tree in [WORKSPACE, SKILL] {
        for (method, route, body) in changes {
            // Each is well formed, and together they never hold.
            let both = client.request(method, format!("{tree}/{route}")).body(body);
            both.header("if-match", "*").header("if-none-match", "*").send().refused(412, "stale");
            guarded.unchanged(&format!("{method} {route} with both conditions"));
            for headers in headers {
                let mut request = client.request(method, format!("{tree}/{route}")).body(body);
                for (name, value) in *headers {
                    request = request.header(name, value);
                }
                request.send().refused(400, "invalid");
                guarded.unchanged(&format!("{method} {route} {headers:?}"));
            }
        }
        let tags = vec!["\"x\""; 65].join(",");
        let request =
            client.request("PUT", format!("{tree}/raw/f.txt")).header("if-match", tags).body("evil");
        request.send().refused(400, "invalid");
        for range in [
            "bytes=",
            "bytes=x",
            "bytes=4-2",
            "bytes=-",
            "bytes=+1-2",
            "bytes=1-2x",
            "bytes=99999999999999999999-",
        ] {
            let request = client.request("GET", format!("{tree}/raw/f.txt")).header("range", range);
            request.send().refused(400, "invalid");
        }
        for name in ["if-match", "if-none-match"] {
            for route in ["raw/f.txt", "content?path=f.txt"] {
                client
                    .request("GET", format!("{tree}/{route}"))
                    .header(name, "bare")
                    .send()
                    .refused(400, "invalid");
            }
        }
        guarded.unchanged("conditions");
    }
}

/// Sends bytes as they are; the answer, if there is one, is a failure.
fn raw(guarded: &Guarded, request: &str, body: &[u8]) -> Option<Reply> {
    let host = guarded.service.client.address;
    let bytes =
        [request.replace("HOST", &format!("host: {host}\r\nconnection: close")).as_bytes(), body].concat();
    let reply = guarded.service.client.raw(&bytes);
    if let Some(reply) = &reply {
        assert!((400..500).contains(&reply.status), "{request}: {}", reply.status);
    }
    reply
}

#[test]
fn a_body_that_ends_early_changes_nothing() {
    let guarded = Guarded::new();
    let archive = skill_zip("evil", &[("x", "y")]);
    let (start, end) = archive.split_at(archive.len() / 2);
    for tree in [WORKSPACE, SKILL] {
        for route in [
            "PUT TREE/edit?path=f.txt",
            "PUT TREE/raw/f.txt",
            "PUT TREE/raw/new",
            "POST TREE/replace",
            "POST TREE/execute?command=ls",
        ] {
            let line = route.replace("TREE", tree);
            for length in [1000, 10_000_000] {
                raw(
                    &guarded,
                    &format!("{line} HTTP/1.1\r\nHOST\r\ncontent-length: {length}\r\n\r\n"),
                    b"evil",
                );
                guarded.unchanged(&line);
            }
            // Chunks that end, lie about their length, or are none.
            for chunks in [
                &b"4\r\nevil\r\n"[..],
                b"ffff\r\nevil\r\n0\r\n\r\n",
                b"garbage",
                b"-1\r\nevil\r\n0\r\n\r\n",
                b"4\r\nevil0\r\n\r\n",
            ] {
                raw(
                    &guarded,
                    &format!("{line} HTTP/1.1\r\nHOST\r\ntransfer-encoding: chunked\r\n\r\n"),
                    chunks,
                );
                guarded.unchanged(&line);
            }
        }
    }
    let head = |length: usize| {
        format!("POST /v1/skills/u/a/upload HTTP/1.1\r\nHOST\r\ncontent-length: {length}\r\n\r\n")
    };
    raw(&guarded, &head(archive.len()), start);
    guarded.unchanged("half an upload");
    // The control: the other half makes it whole.
    let whole = [start, end].concat();
    guarded.service.client.try_upload("/v1/skills/u/a", "overlay", &whole).ok();
}

#[test]
fn a_sender_who_vanishes_in_the_middle_changes_nothing() {
    let guarded = Guarded::new();
    let host = guarded.service.client.address;
    for line in [
        format!("PUT {WORKSPACE}/raw/f.txt"),
        format!("PUT {SKILL}/raw/new"),
        "POST /v1/skills/u/a/upload".to_owned(),
    ] {
        let mut stream = guarded.service.client.connect();
        write!(stream, "{line} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 4000000\r\n\r\n").unwrap();
        stream.write_all(&vec![b'x'; 2_000_000]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        drop(stream);
    }
    // A change afterwards, so that the service has certainly seen the others end.
    let before = std::fs::read_dir(guarded.service.root.join(".filesecbox/stage")).unwrap().count();
    guarded.service.client.get("/healthz").ok();
    guarded.unchanged("senders who vanished");
    let begin = std::time::Instant::now();
    let staged = || std::fs::read_dir(guarded.service.root.join(".filesecbox/stage")).unwrap().count();
    while staged() > 0 && begin.elapsed() < std::time::Duration::from_secs(20) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(staged(), 0, "what was staged goes ({before} before)");
}

#[test]
fn a_request_that_is_no_http_is_answered_and_the_service_goes_on() {
    let guarded = Guarded::new();
    for bytes in [
        &b"\r\n\r\n"[..],
        b"GARBAGE\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /health\x00z HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PUT /v1/sandbox/u/a/raw/f.txt HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\nevil",
        b"PUT /v1/sandbox/u/a/raw/f.txt HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ncontent-length: 2\r\n\r\nevil",
        b"PUT /v1/sandbox/u/a/raw/f.txt HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\nevil",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        if let Some(reply) = guarded.service.client.raw(bytes) {
            assert!((400..500).contains(&reply.status), "{}: {}", String::from_utf8_lossy(bytes), reply.status);
        }
        guarded.unchanged("no HTTP");
        guarded.service.client.get("/healthz").ok();
    }
    let long = format!("/v1/sandbox/u/a/content?path={}", "x".repeat(100_000));
    let reply = guarded.service.client.get(long);
    assert!(matches!(reply.status, 400 | 414 | 431), "{}", reply.status);
    let request = guarded.service.client.request("GET", "/healthz").header("x-long", "x".repeat(1_000_000));
    let reply = request.send();
    assert!(matches!(reply.status, 400 | 431), "{}", reply.status);
    guarded.service.client.get("/healthz").ok();
}

#[test]
fn a_refused_change_of_a_tree_nobody_has_makes_nothing() {
    let guarded = Guarded::new();
    let tree = "/v1/sandbox/new/a";
    for (method, route, body, header, status, code) in [
        ("PUT", "raw/f", "x", ("if-match", "*"), 412, "stale"),
        ("PUT", "raw/nowhere/f", "x", ("x", "y"), 404, "not_found"),
        ("PUT", "edit?path=f&start=5", "x", ("x", "y"), 400, "invalid"),
        ("PUT", "edit?path=nowhere/f", "x", ("if-match", "\"a\""), 412, "stale"),
        ("POST", "move", r#"{"from":"a","to":"b"}"#, ("x", "y"), 404, "not_found"),
        ("POST", "copy", r#"{"from":"a","to":"b"}"#, ("x", "y"), 404, "not_found"),
        ("POST", "copy", r#"{"from":"a","to":"b","recursive":true}"#, ("x", "y"), 404, "not_found"),
        (
            "POST",
            "patch",
            r#"{"patch":"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n"}"#,
            ("x", "y"),
            404,
            "not_found",
        ),
        ("POST", "mkdir", r#"{"path":"nowhere/b"}"#, ("x", "y"), 404, "not_found"),
        ("DELETE", "file?path=none", "", ("x", "y"), 404, "not_found"),
        ("POST", "execute?command=perl", "[]", ("x", "y"), 403, "command_not_allowed"),
        ("POST", "execute?command=cat", "[\"/etc/hostname\"]", ("x", "y"), 403, "path_escape"),
    ] {
        for tree in [tree, "/v1/skills/new/a/none", "/v1/skills/new/a/s"] {
            let request = guarded.service.client.request(method, format!("{tree}/{route}"));
            let reply = request.header(header.0, header.1).body(body).send();
            // In a skill that does not exist, the missing thing is the skill.
            if reply.status != 404 || !tree.ends_with("none") {
                reply.refused(status, code);
            }
            guarded.unchanged(&format!("{method} {tree}/{route}"));
        }
    }
}

#[test]
fn no_failure_tells_where_the_data_directory_is() {
    let guarded = Guarded::new();
    let client = &guarded.service.client;
    // Made by hand, as a broken disk or a careless operator might: what the service cannot make sense of.
    let workspace = guarded.service.root.join("sandbox/u/a");
    std::fs::create_dir(workspace.join("closed")).unwrap();
    std::os::unix::net::UnixListener::bind(workspace.join("socket")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, workspace.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .unwrap();
    for route in ["raw/socket", "raw/pipe", "content?path=pipe", "content?path=socket", "stat?path=none/x"] {
        // The client looks for the path in every failure. A pipe must not hold the reader up either.
        let reply = client.get(format!("{WORKSPACE}/{route}"));
        let code = reply.json()["code"].as_str().unwrap().to_owned();
        reply.refused(reply.status, &code);
        assert!(reply.status < 500, "{route}: {}", reply.status);
    }
    client.put(format!("{WORKSPACE}/edit?path=pipe&start=1&end=1"), "x").refused(409, "not_a_file");
    client.get(format!("{WORKSPACE}/files")).ok();
}
