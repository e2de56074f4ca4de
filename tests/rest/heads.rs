//! Heads of requests that say two things, name no host, or come from a web page that has no business here.

use std::io::Write;

use serde_json::json;

use crate::support::{Client, Reply, Service, digest, encoded};

const WORKSPACE: &str = "/v1/sandbox/u/a";

/// Sends a head as it is, with a body behind it.
fn raw(client: &Client, lines: &[&str], body: &str) -> Reply {
    let head = lines.join("\r\n").replace("HOST", &client.address.to_string());
    let sent = format!("{head}\r\nconnection: close\r\n\r\n{body}");
    let mut stream = client.connect();
    stream.write_all(sent.as_bytes()).unwrap();
    client.read_reply(&mut stream, lines[0], sent.as_bytes()).expect("an answer")
}

/// A service with one token, `secret`, and what is in `more`.
fn closed(more: &str) -> Service {
    let token = digest("secret");
    Service::configured(&format!("{more}\n[[tokens]]\nsha256 = \"{token}\"\nrole = \"admin\"\n"))
}

#[test]
fn a_request_names_one_host_and_spells_it_well() {
    let service = Service::start();
    let status = |lines: &[&str]| raw(&service.client, lines, "").status;
    for good in ["127.0.0.1", "localhost:8003", "LocalHost", "[::1]", "[::1]:8003", "10.1.2.3:1"] {
        assert_eq!(status(&["GET /healthz HTTP/1.1", &format!("host: {good}")]), 200);
    }
    let wrong: &[&[&str]] = &[
        &["GET /healthz HTTP/1.1"],
        &["GET /healthz HTTP/1.1", "host: HOST", "host: HOST"],
        &["GET /healthz HTTP/1.1", "host: HOST", "host: evil.example"],
        &["GET /healthz HTTP/1.1", "host:"],
        &["GET /healthz HTTP/1.1", "host: [::1].evil.example"],
        &["GET /healthz HTTP/1.1", "host: [::1]evil.example:80"],
        &["GET /healthz HTTP/1.1", "host: [::1"],
        &["GET /healthz HTTP/1.1", "host: [evil.example]"],
        &["GET /healthz HTTP/1.1", "host: ::1"],
        &["GET /healthz HTTP/1.1", "host: 127.0.0.1:evil.example"],
        &["GET /healthz HTTP/1.1", "host: 127.0.0.1:80:80"],
        &["GET /healthz HTTP/1.1", "host: 127.0.0.1:65536"],
        &["GET /healthz HTTP/1.1", "host: evil.example@127.0.0.1"],
        &["GET /healthz HTTP/1.1", "host: 127.0.0.1/evil.example"],
        &["GET /healthz HTTP/1.1", "host: 127.0.0.1, evil.example"],
        // The target of the absolute form names the host, and `Host` must be the same (RFC 9112, section 3.2.2).
        &["GET http://localhost/healthz HTTP/1.1"],
        &["GET http://localhost/healthz HTTP/1.1", "host: 127.0.0.1"],
        &["GET http://u@localhost/healthz HTTP/1.1", "host: localhost"],
    ];
    for lines in wrong {
        raw(&service.client, lines, "").refused(400, "invalid");
    }
    assert_eq!(status(&["GET http://localhost/healthz HTTP/1.1", "host: localhost"]), 200);
    let evil = ["GET http://evil.example/healthz HTTP/1.1", "host: evil.example"];
    raw(&service.client, &evil, "").refused(403, "denied");
    // HTTP/1.0 knows no `Host`, and no browser speaks it.
    assert_eq!(status(&["GET /healthz HTTP/1.0"]), 200);
    // With tokens any name will do, but a name it is.
    let closed = closed("");
    let named = |host: &str| raw(&closed.client, &["GET /healthz HTTP/1.1", &format!("host: {host}")], "");
    assert_eq!(named("box.example").status, 200);
    named("[::1].evil.example").refused(400, "invalid");
}

#[test]
fn a_header_that_means_one_thing_comes_once() {
    let service = closed("");
    let client = &service.client;
    let token = "authorization: Bearer secret";
    let put = |more: &[&str]| {
        let mut lines = vec!["PUT /v1/sandbox/u/a/raw/f HTTP/1.1", "host: HOST"];
        lines.extend(more);
        raw(client, &lines, "new!")
    };
    assert_eq!(put(&[token, "content-length: 4"]).status, 201, "the control");
    for twice in [
        &[token, "authorization: Bearer other", "content-length: 4"][..],
        &["authorization: Bearer other", token, "content-length: 4"],
        &[token, token, "content-length: 4"],
        &[token, "content-length: 4", "content-type: text/plain", "content-type: application/zip"],
        &[token, "content-length: 4", "origin: http://HOST", "origin: http://evil.example"],
        &[token, "content-length: 4", "if-match: *", "if-match: \"a\""],
    ] {
        put(twice).refused(400, "invalid");
    }
    let get = |more: &[&str]| {
        let mut lines = vec!["GET /v1/sandbox/u/a/raw/f HTTP/1.1", "host: HOST", token];
        lines.extend(more);
        raw(client, &lines, "")
    };
    get(&["range: bytes=0-1", "range: bytes=2-3"]).refused(400, "invalid");
    get(&["range: bytes=0-1", "if-range: \"a\"", "if-range: \"b\""]).refused(400, "invalid");
    // A part of a file is not the file.
    put(&[token, "content-length: 4", "content-range: bytes 0-3/9"]).refused(400, "invalid");
    // Lists may come in several lines (RFC 9110, section 5.3).
    let etag = get(&[]).etag();
    assert_eq!(
        put(&[token, "content-length: 4", "if-match: \"x\"", &format!("if-match: {etag}")]).status,
        200
    );
    // No header and no parameter makes one method another.
    let reply =
        get(&["x-http-method-override: DELETE", "x-method-override: DELETE", "x-http-method: DELETE"]);
    assert_eq!(reply.bytes(200), b"new!");
    assert_eq!(get(&[]).bytes(200), b"new!");
}

#[test]
fn a_body_in_another_coding_is_refused_and_not_stored() {
    let service = Service::start();
    let client = &service.client;
    let put = |target: &str, more: &[&str], body: &str| {
        let line = format!("PUT {WORKSPACE}/{target} HTTP/1.1");
        let mut lines = vec![line.as_str(), "host: HOST"];
        lines.extend(more);
        raw(client, &lines, body)
    };
    let chunks = "4\r\ntext\r\n0\r\n\r\n";
    for target in ["raw/f", "edit?path=f"] {
        for coding in ["gzip, chunked", "identity, chunked", "chunked, chunked", "x-chunked, chunked"] {
            let header = format!("transfer-encoding: {coding}");
            put(target, &[&header], chunks).refused(501, "unsupported");
        }
        put(target, &["transfer-encoding: gzip", "transfer-encoding: chunked"], chunks)
            .refused(501, "unsupported");
        for coding in ["gzip", "deflate", "br", "identity, gzip"] {
            let header = format!("content-encoding: {coding}");
            put(target, &[&header, "content-length: 4"], "text").refused(415, "unsupported_media");
        }
        client.get(format!("{WORKSPACE}/raw/f")).refused(404, "not_found");
    }
    let gzip = ["content-encoding: gzip", "content-length: 2"];
    let line = format!("POST {WORKSPACE}/exec HTTP/1.1");
    raw(client, &[&[line.as_str(), "host: HOST"][..], &gzip].concat(), "{}")
        .refused(415, "unsupported_media");
    // The controls.
    assert_eq!(put("raw/f", &["transfer-encoding: Chunked"], chunks).status, 201);
    assert_eq!(put("raw/f", &["content-encoding: identity", "content-length: 4"], "text").status, 200);
    assert_eq!(client.get(format!("{WORKSPACE}/raw/f")).bytes(200), b"text");
}

#[test]
fn a_page_of_another_site_gets_nowhere_with_or_without_tokens() {
    let open = Service::start();
    let closed = closed("[access]\nallowed_origins = [\"https://ide.example\"]");
    for (service, is_closed) in [(&open, false), (&closed, true)] {
        let client = service.client.with_token("secret");
        let own = format!("http://{}", client.address);
        let ask = |headers: &[(&str, &str)]| {
            let request = client.request("GET", format!("{WORKSPACE}/files"));
            headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
        };
        for pass in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin")],
            &[("origin", own.as_str())],
            &[("origin", own.as_str()), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(ask(pass).status, 200, "{pass:?}");
        }
        for page in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", own.as_str()), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "http://127.0.0.1:1")],
            &[("origin", "file://")],
        ] {
            ask(page).refused(403, "denied");
        }
        let allowed = ask(&[("origin", "https://ide.example"), ("sec-fetch-site", "cross-site")]).status;
        assert_eq!(allowed, if is_closed { 200 } else { 403 }, "only where it is configured");
        ask(&[("origin", "https://ide.example.evil.example")]).refused(403, "denied");
        // A terminal begins with a request like any other.
        client
            .request("GET", format!("{WORKSPACE}/terminal"))
            .header("origin", "http://evil.example")
            .header("upgrade", "websocket")
            .send()
            .refused(403, "denied");
        // A link to the page that describes the interface may be followed from anywhere.
        let page = client.request("GET", "/docs").header("sec-fetch-site", "cross-site").send();
        assert_eq!(page.status, 200);
    }
}

#[test]
fn a_list_is_no_object_in_any_body() {
    let service = Service::start();
    let client = &service.client;
    client.write(WORKSPACE, "f", "one");
    let snapshots = format!("{WORKSPACE}/snapshots");
    let id = client.post_json(&snapshots, &json!({ "name": "first" })).json()["data"]["id"].clone();
    let fork = format!("{snapshots}/{}/fork", id.as_str().unwrap());
    for (target, body) in [
        ("/v1/tokens".to_owned(), json!(["w", null, 60])),
        (snapshots.clone(), json!(["name", "note"])),
        (fork, json!(["v", "a", false])),
        (format!("{WORKSPACE}/mkdir"), json!(["d", null, true])),
        (format!("{WORKSPACE}/move"), json!(["f", "g", false])),
        (format!("{WORKSPACE}/copy"), json!(["f", "g", false, false])),
        (format!("{WORKSPACE}/replace"), json!(["f", [["one", "two", 1]]])),
        (format!("{WORKSPACE}/replace"), json!({ "path": "f", "edits": [["one", "two", 1]] })),
        (format!("{WORKSPACE}/patch"), json!(["--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n", false, {}])),
        (format!("{WORKSPACE}/grep"), json!(["one", null, [], [], false, false, null, 0, null, null])),
        (format!("{WORKSPACE}/exec"), json!(["ls"])),
        (format!("{WORKSPACE}/exec"), json!({ "command": "ls", "isolation": { "process": null } })),
        (format!("{WORKSPACE}/exec"), json!({ "command": "ls", "encoding": { "text": null } })),
        (format!("{WORKSPACE}/exec/none/signal"), json!(["TERM"])),
    ] {
        client.post_json(&target, &body).refused(400, "invalid");
    }
    assert_eq!(client.text(WORKSPACE, "f"), "one");
    assert_eq!(client.files(WORKSPACE), ["f"]);
}

#[test]
fn each_cause_of_a_condition_that_does_not_hold_has_its_next_step() {
    let service = Service::start();
    let client = &service.client;
    let said = |name: &str, value: &str, path: &str| {
        let request = client.request("PUT", format!("{WORKSPACE}/raw/{path}")).header(name, value).body("x");
        request.send().refused(412, "stale")["data"].as_str().unwrap().to_owned()
    };
    client.write(WORKSPACE, "f", "one");
    let changed = said("if-match", "\"old\"", "f");
    assert!(changed.contains("has changed") && changed.contains("read it again"), "{changed}");
    let there = said("if-none-match", "*", "f");
    assert!(there.contains("exists already") && there.contains("another path"), "{there}");
    for missing in [said("if-match", "*", "none"), said("if-match", "\"old\"", "none")] {
        assert!(missing.contains("does not exist") && missing.contains("without `If-Match`"), "{missing}");
    }
}

#[test]
fn a_file_that_a_browser_opens_runs_nowhere_and_keeps_its_name() {
    let service = Service::start();
    let client = &service.client;
    for (path, disposition) in [
        ("page.html", "attachment; filename=\"page.html\"; filename*=UTF-8''page.html"),
        ("d/数据 1.html", "attachment; filename=\"__ 1.html\"; filename*=UTF-8''%E6%95%B0%E6%8D%AE%201.html"),
        ("a\"b\\c;.txt", "attachment; filename=\"a_b_c_.txt\"; filename*=UTF-8''a%22b%5Cc%3B.txt"),
        ("100%.txt", "attachment; filename=\"100_.txt\"; filename*=UTF-8''100%25.txt"),
    ] {
        client.write(WORKSPACE, path, "<script>alert(1)</script>");
        let target =
            format!("{WORKSPACE}/raw/{}", path.split('/').map(encoded).collect::<Vec<_>>().join("/"));
        for reply in [
            client.get(&target),
            client.request("HEAD", &target).send(),
            client.request("GET", &target).header("range", "bytes=0-3").send(),
        ] {
            assert_eq!(reply.header("content-disposition"), Some(disposition), "{path}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            let policy = reply.header("content-security-policy").unwrap();
            assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{policy}");
        }
    }
}
