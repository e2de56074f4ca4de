//! Text that is not UTF-8: shown as UTF-8, written back in its own encoding, byte for byte where nothing was changed.

use serde_json::{Value, json};

use crate::support::{Service, Snapshot, encoded, skill, skill_zip, skills, workspace};

/// `第一行\n数据分析\nlast\n` in GBK.
const GBK: &[u8] = b"\xb5\xda\xd2\xbb\xd0\xd0\n\xca\xfd\xbe\xdd\xb7\xd6\xce\xf6\nlast\n";

fn utf_16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(to_bytes).collect()
}

fn samples(text: &str) -> [(&'static str, Vec<u8>); 3] {
    [
        ("utf-16le", utf_16(text, u16::to_le_bytes)),
        ("utf-16be", utf_16(text, u16::to_be_bytes)),
        ("utf-8", text.as_bytes().to_vec()),
    ]
}

fn trees(service: &Service) -> [String; 2] {
    service.client.upload(&skills("x", "a"), "baseline", &skill_zip("s", &[]));
    [skill("u", "a", "s"), workspace("u", "a")]
}

fn put(service: &Service, tree: &str, name: &str, bytes: &[u8]) {
    service.client.put(format!("{tree}/raw/{name}?parents=true"), bytes).ok();
}

fn bytes(service: &Service, tree: &str, name: &str) -> Vec<u8> {
    service.client.get(format!("{tree}/raw/{name}")).bytes(200).to_vec()
}

#[test]
fn text_in_each_encoding_is_shown_as_utf_8_whole_and_by_lines() {
    let service = Service::start();
    let text = "第一行\n数据分析\nlast\n";
    let all: Vec<(&str, Vec<u8>)> = samples(text).into_iter().chain([("gbk", GBK.to_vec())]).collect();
    for tree in trees(&service) {
        for (encoding, content) in &all {
            put(&service, &tree, "f", content);
            let whole = service.client.get(format!("{tree}/content?path=f")).ok();
            assert_eq!((&whole["data"], &whole["encoding"]), (&json!(text), &json!(encoding)));
            assert_eq!((&whole["size"], &whole["total_lines"]), (&json!(content.len()), &json!(3)));
            for (range, lines, next) in
                [("start=2&end=2", json!(["数据分析"]), json!(3)), ("start=3", json!(["last"]), Value::Null)]
            {
                let part = service.client.get(format!("{tree}/content?path=f&{range}")).ok();
                assert_eq!(
                    (&part["data"], &part["encoding"], &part["total_lines"], &part["next"]),
                    (&lines, &json!(encoding), &json!(3), &next),
                    "{encoding} {range}"
                );
            }
        }
        // Larger than what is read on the spot.
        let large = GBK.repeat(30_000);
        put(&service, &tree, "large", &large);
        let part = service.client.get(format!("{tree}/content?path=large&start=89999")).ok();
        assert_eq!((&part["data"], &part["encoding"]), (&json!(["数据分析", "last"]), &json!("gbk")));
    }
}

#[test]
fn every_change_writes_back_in_the_encoding_of_the_file() {
    let service = Service::start();
    let client = &service.client;
    let (old, new) = ("第一行\r\n数据\r\n", "第一行\r\n统计\r\n");
    let encode = |text: &str| -> [(&'static str, Vec<u8>); 2] {
        let [le, be, _] = samples(text);
        [le, be]
    };
    let gbk = ("gbk", b"\xb5\xda\xd2\xbb\xd0\xd0\r\n\xca\xfd\xbe\xdd\r\n".to_vec());
    let gbk_after = b"\xb5\xda\xd2\xbb\xd0\xd0\r\n\xcd\xb3\xbc\xc6\r\n".to_vec();
    let before: Vec<_> = encode(old).into_iter().chain([gbk]).collect();
    let after: Vec<_> = encode(new).into_iter().map(|(_, bytes)| bytes).chain([gbk_after]).collect();
    let patch = "--- a/f\n+++ b/f\n@@ -2 +2 @@\n-数据\n+统计\n";
    for tree in trees(&service) {
        for ((encoding, content), expected) in before.iter().zip(&after) {
            let changes: [(&str, &str, &str, String); 4] = [
                ("PUT", "edit?path=f&start=2&end=2", "edit by lines", "统计".into()),
                ("PUT", "edit?path=f", "edit whole", new.into()),
                (
                    "POST",
                    "replace",
                    "replace",
                    json!({"path": "f", "edits": [{"old_string": "数据", "new_string": "统计"}]}).to_string(),
                ),
                ("POST", "patch", "patch", json!({"patch": patch}).to_string()),
            ];
            for (method, route, what, body) in changes {
                put(&service, &tree, "f", content);
                let answer = client.request(method, format!("{tree}/{route}")).body(body).send().ok();
                let facts = if what == "patch" { &answer["files"][0] } else { &answer };
                assert_eq!(facts["encoding"], *encoding, "{what}");
                assert_eq!(bytes(&service, &tree, "f"), *expected, "{what} in {encoding}");
            }
        }
    }
}

#[test]
fn what_the_encoding_lacks_is_refused_and_changes_nothing() {
    let service = Service::start();
    let client = &service.client;
    for tree in trees(&service) {
        put(&service, &tree, "f", GBK);
        let before = Snapshot::of(&service.root);
        let edits = json!({"path": "f", "edits": [{"old_string": "last", "new_string": "x\n😀"}]});
        let patch = json!({"patch": "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-last\n+😀\n"});
        for (method, route, body, line) in [
            ("PUT", "edit?path=f&start=1&end=1", "好😀".to_owned(), 1),
            ("PUT", "edit?path=f", "好\n\n😀".to_owned(), 3),
            ("POST", "replace", edits.to_string(), 4),
            ("POST", "patch", patch.to_string(), 3),
        ] {
            let reply = client.request(method, format!("{tree}/{route}")).body(body).send();
            let refused = reply.refused(409, "unencodable");
            assert_eq!(
                (&refused["encoding"], &refused["character"], &refused["line"]),
                (&json!("gbk"), &json!("😀"), &json!(line)),
                "{route}"
            );
            before.unchanged(&service.root, route);
        }
        // A whole text may be converted, and a new one made in any encoding.
        client.put(format!("{tree}/edit?path=f&encoding=utf-8"), "好😀").ok();
        assert_eq!(bytes(&service, &tree, "f"), "好😀".as_bytes());
        for (encoding, expected) in
            [("gbk", &b"\xba\xc3"[..]), ("utf-16le", b"\xff\xfe\x7d\x59"), ("UTF-8", "好".as_bytes())]
        {
            client.put(format!("{tree}/edit?path={encoding}&encoding={encoding}"), "好").ok();
            assert_eq!(bytes(&service, &tree, encoding), expected);
        }
        client.put(format!("{tree}/edit?path=f&encoding=latin-1"), "x").refused(400, "invalid");
        client.put(format!("{tree}/edit?path=f&start=1&encoding=gbk"), "x").refused(400, "invalid");
    }
}

#[test]
fn lines_that_are_text_are_read_although_others_are_not() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let mut log = b"good line\n".repeat(40_000);
    log.extend_from_slice(b"\xff\xff broken\n");
    for (name, content) in [("small", &b"good\n\xff\xff\n"[..]), ("large", &log)] {
        put(&service, &tree, name, content);
        let part = service.client.get(format!("{tree}/content?path={name}&start=1&end=1")).ok();
        assert_eq!(part["encoding"], "utf-8");
        assert!(part["data"][0].as_str().unwrap().starts_with("good"), "{part}");
        let last = if name == "small" { 2 } else { 40_001 };
        service.client.get(format!("{tree}/content?path={name}&start={last}")).refused(409, "not_text");
    }
    let path = encoded("latin");
    put(&service, &tree, &path, b"caf\xe9 na\xefve\n");
    service.client.get(format!("{tree}/content?path={path}")).refused(409, "not_text");
}
