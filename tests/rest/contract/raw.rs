//! Bytes: `GET`, `HEAD`, `PUT` and `DELETE` of `raw`, ranges and conditions.

use serde_json::json;

use crate::support::{Service, encoded, skill, skill_zip, skills, workspace};

#[test]
fn bytes_come_back_as_they_were_sent() {
    let service = Service::start();
    let all: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let target = format!(
        "{}/raw/{}",
        workspace("用户", "代理"),
        encoded("目 录").to_owned() + "/" + &encoded("文%件#?.bin")
    );
    service.client.put(target.clone(), &all).refused(404, "not_found");
    let written = service.client.put(format!("{target}?parents=true&mode=600"), &all);
    assert!(!written.bytes(201).is_empty());
    let answer = written.ok();
    assert_eq!(
        (&answer["path"], &answer["size"], &answer["created"]),
        (&json!("目 录/文%件#?.bin"), &json!(70_000), &json!(true))
    );
    assert_eq!(answer["etag"], written.etag());
    let read = service.client.get(target.clone());
    assert_eq!(read.bytes(200), all);
    assert_eq!(read.etag(), written.etag());
    assert_eq!(read.header("content-type"), Some("application/octet-stream"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(read.header("accept-ranges"), Some("bytes"));
    assert!(read.header("last-modified").unwrap().ends_with("GMT"));
    assert_eq!(service.client.put(target.clone(), "").status, 200);
    assert_eq!(service.client.get(target.clone()).bytes(200), b"");
    service.client.delete(target.clone()).ok();
    service.client.get(target.clone()).refused(404, "not_found");
    service.client.delete(target).refused(404, "not_found");
}

#[test]
fn a_head_answers_the_headers_of_the_get_and_no_body() {
    let service = Service::start();
    let target = format!("{}/raw/f", workspace("u", "a"));
    service.client.put(format!("{target}?parents=true"), "0123456789").bytes(201);
    let (get, head) = (service.client.get(target.clone()), service.client.request("HEAD", &*target).send());
    assert_eq!(head.bytes(200), b"");
    for name in ["content-length", "etag", "last-modified", "content-type", "accept-ranges"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    // Ranges are defined for GET only (RFC 9110, section 14.2).
    let head = service.client.request("HEAD", &*target).header("range", "bytes=2-3").send();
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    let missing = service.client.request("HEAD", format!("{target}x")).send();
    assert_eq!((missing.status, missing.body.len()), (404, 0));
}

#[test]
fn a_range_gives_the_bytes_asked_for() {
    let service = Service::start();
    let target = format!("{}/raw/f", workspace("u", "a"));
    service.client.put(format!("{target}?parents=true"), "0123456789").bytes(201);
    let range = |range: &str| service.client.request("GET", &*target).header("range", range).send();
    for (asked, bytes, told) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=-200", "0123456789", "bytes 0-9/10"),
        ("bytes=5-18446744073709551615", "56789", "bytes 5-9/10"),
    ] {
        let reply = range(asked);
        assert_eq!(reply.bytes(206), bytes.as_bytes(), "{asked}");
        assert_eq!(reply.header("content-range"), Some(told), "{asked}");
        assert_eq!(reply.header("content-length"), Some(bytes.len().to_string().as_str()), "{asked}");
    }
    for beyond in ["bytes=10-", "bytes=11-12", "bytes=-0", "bytes=18446744073709551615-"] {
        let reply = range(beyond);
        assert_eq!(reply.refused(416, "range_not_satisfiable")["size"], 10, "{beyond}");
        assert_eq!(reply.header("content-range"), Some("bytes */10"), "{beyond}");
    }
    // What the RFC lets a server ignore.
    for ignored in ["bytes=0-1,3-4", "lines=1-2"] {
        assert_eq!(range(ignored).bytes(200), b"0123456789", "{ignored}");
    }
    let etag = service.client.get(target.clone()).etag();
    let with = |tag: &str| {
        let request = service.client.request("GET", &*target).header("range", "bytes=1-2");
        request.header("if-range", tag).send().status
    };
    assert_eq!((with(&etag), with("\"other\"")), (206, 200));
}

#[test]
fn a_change_can_depend_on_what_is_there() {
    let service = Service::start();
    let target = format!("{}/raw/f", workspace("u", "a"));
    let put = |name: &str, value: &str| {
        service.client.request("PUT", format!("{target}?parents=true")).header(name, value).body("new").send()
    };
    assert!(put("if-match", "*").refused(412, "stale")["current_etag"].is_null());
    assert_eq!(put("if-none-match", "*").status, 201);
    let current = service.client.get(target.clone()).etag();
    let refused = put("if-none-match", "*").refused(412, "stale");
    assert_eq!(refused["current_etag"], current);
    assert_eq!(put("if-match", &current).status, 200);
    let now = service.client.get(target.clone()).etag();
    assert_ne!(now, current, "every change gives a new tag");
    assert_eq!(put("if-match", &current).refused(412, "stale")["current_etag"], now);
    // Weak tags never match strongly.
    put("if-match", &format!("W/{now}")).refused(412, "stale");
    assert_eq!(put("if-match", &format!("\"x\", {now}")).status, 200);

    let now = service.client.get(target.clone()).etag();
    let delete = |tag: &str| service.client.request("DELETE", &*target).header("if-match", tag).send();
    delete(&current).refused(412, "stale");
    delete(&now).ok();
    service.client.get(target.clone()).refused(404, "not_found");
}

#[test]
fn every_route_that_changes_a_file_honours_if_match() {
    let service = Service::start();
    service.client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("f.txt", "one\n")]));
    let tree = skill("u", "a", "s");
    let old = service.client.get(format!("{tree}/raw/f.txt")).etag();
    service.client.write(&tree, "f.txt", "two\n");
    let now = service.client.get(format!("{tree}/content?path=f.txt")).etag();
    assert_ne!(old, now);
    let edits = json!({"path": "f.txt", "edits": [{"old_string": "two", "new_string": "three"}]}).to_string();
    let moved = json!({"from": "f.txt", "to": "g.txt"}).to_string();
    let stale = |method: &str, target: String, body: &str| {
        let request = service.client.request(method, target).header("if-match", &old).body(body);
        assert_eq!(request.send().refused(412, "stale")["current_etag"], now);
    };
    stale("PUT", format!("{tree}/edit?path=f.txt"), "x");
    stale("PUT", format!("{tree}/edit?path=f.txt&start=1&end=1"), "x");
    stale("PUT", format!("{tree}/raw/f.txt"), "x");
    stale("POST", format!("{tree}/replace"), &edits);
    stale("POST", format!("{tree}/move"), &moved);
    stale("DELETE", format!("{tree}/file?path=f.txt"), "");
    stale("DELETE", format!("{tree}/raw/f.txt"), "");
    assert_eq!(service.client.text(&tree, "f.txt"), "two\n");
    let request =
        service.client.request("POST", format!("{tree}/move")).header("if-match", &now).body(&moved);
    request.send().ok();
    assert_eq!(service.client.text(&tree, "g.txt"), "two\n");
}

#[test]
fn a_reader_who_has_it_gets_304() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "text");
    for target in [format!("{tree}/raw/f"), format!("{tree}/content?path=f")] {
        let etag = service.client.get(target.clone()).etag();
        let ask =
            |name: &str, value: &str| service.client.request("GET", &*target).header(name, value).send();
        let fresh = ask("if-none-match", &etag);
        assert_eq!((fresh.status, fresh.body.len(), fresh.etag()), (304, 0, etag.clone()), "{target}");
        assert_eq!(ask("if-none-match", "\"x\"").status, 200);
        assert_eq!(ask("if-match", &etag).status, 200);
        assert_eq!(ask("if-match", "\"x\"").refused(412, "stale")["current_etag"], etag);
    }
}

#[test]
fn raw_tells_the_permission_bits() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.put(format!("{tree}/raw/run.sh?mode=0750"), "x").ok();
    let reply = service.client.get(format!("{tree}/raw/run.sh"));
    assert_eq!((reply.bytes(200), reply.header("x-mode")), (&b"x"[..], Some("0750")));
}

#[test]
fn a_directory_is_no_file_and_the_reverse() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "d/f", "x");
    service.client.get(format!("{tree}/raw/d")).refused(409, "is_directory");
    service.client.put(format!("{tree}/raw/d"), "x").refused(409, "is_directory");
    service.client.put(format!("{tree}/edit?path=d"), "x").refused(409, "is_directory");
    service.client.get(format!("{tree}/content?path=d")).refused(409, "is_directory");
    service.client.get(format!("{tree}/raw/d/f/g")).refused(409, "not_a_directory");
    service.client.put(format!("{tree}/raw/d/f/g"), "x").refused(409, "not_a_directory");
    service.client.put(format!("{tree}/raw/d/f/g?parents=true"), "x").refused(409, "not_a_directory");
    service.client.put(format!("{tree}/edit?path=d/f/g"), "x").refused(409, "not_a_directory");
    service.client.get(format!("{tree}/dir?path=d/f")).refused(409, "not_a_directory");
    service.client.delete(format!("{tree}/raw/d")).refused(409, "not_empty");
    service.client.delete(format!("{tree}/raw/d?recursive=true")).ok();
    assert!(service.client.files(&tree).is_empty());
}
