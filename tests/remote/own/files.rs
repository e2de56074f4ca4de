//! Files and directories elsewhere.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{in_memory, on_the_host};
use crate::server::Server;

pub(super) fn what_is_not_known_is_left_out(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "plain"));
    let written = client.put(format!("{tree}/raw/file?mode=0640"), "12345");
    assert_eq!((written.status, written.header("etag")), (200, None));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&written.ok()), ["data", "path", "size", "status"]);
    let facts = client.get(format!("{tree}/stat?path=file")).ok()["data"].clone();
    assert_eq!(keys(&facts), ["kind", "mode", "modified_at", "path", "size"]);
    assert_eq!((&facts["mode"], &facts["size"]), (&json!("0640"), &json!(5)));
    let listed = client.get(format!("{tree}/dir")).ok();
    assert_eq!(listed["data"], json!([{"name": "file", "kind": "file", "size": 5}]));
    let info = client.get(format!("{tree}/info")).ok()["data"].clone();
    assert_eq!(keys(&info), ["backend", "runs", "shell", "workspace"]);
    assert_eq!(
        (&info["backend"], &info["shell"], &info["workspace"]),
        (&json!("none"), &json!("sh"), &json!("/workspace"))
    );
    let ran = client.execute(&tree, "cat", &["file"]);
    assert_eq!(ran["data"], "Exit Code: 0\nOutput:\n12345");
    let enforcement = &ran["result"]["enforcement"];
    assert_eq!((&enforcement["tier"], &enforcement["backend"]), (&json!("elsewhere"), &json!("none")));
    assert_eq!(keys(enforcement), ["backend", "notes", "tier"]);
}

pub(super) fn conditions_that_can_be_kept_are_kept_and_others_refused(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "careful"));
    let put = |route: &str, name: &str, value: &str| {
        client.request("PUT", format!("{tree}/{route}")).header(name, value).body("text\n").send()
    };
    let made = put("raw/file", "if-none-match", "*");
    assert_eq!((made.status, &made.ok()["created"]), (201, &json!(true)));
    put("edit?path=other", "if-none-match", "*").ok();
    for route in ["raw/file", "edit?path=file"] {
        put(route, "if-none-match", "*").refused(412, "stale");
        put(route, "if-none-match", "\"tag\"").refused(400, "invalid");
        put(route, "if-match", "\"tag\"").refused(501, "unsupported");
        put(route, "if-match", "*").refused(501, "unsupported");
    }
    assert_eq!(client.text(&tree, "file"), "text\n");
    for route in ["raw/file", "content?path=file"] {
        let get = |name: &str, value: &str| {
            client.request("GET", format!("{tree}/{route}")).header(name, value).send()
        };
        assert_eq!(get("if-none-match", "\"tag\"").status, 200);
        get("if-match", "\"tag\"").refused(501, "unsupported");
        get("if-none-match", "tag").refused(400, "invalid");
    }
    for route in ["raw/file", "file?path=file"] {
        let remove =
            |name: &str| client.request("DELETE", format!("{tree}/{route}")).header(name, "*").send();
        remove("if-match").refused(501, "unsupported");
        remove("if-none-match").refused(501, "unsupported");
    }
    client.delete(format!("{tree}/raw/file")).ok();
}

pub(super) fn ranges_are_those_of_the_file(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "ranging"));
    client.put(format!("{tree}/raw/digits"), "0123456789").ok();
    client.put(format!("{tree}/raw/empty"), "").ok();
    client.post_json(format!("{tree}/mkdir"), &json!({"path": "dir"})).ok();
    let get = |file: &str, range: &str| {
        client.request("GET", format!("{tree}/raw/{file}")).header("range", range).send()
    };
    for (range, bytes, content_range) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=5-999", "56789", "bytes 5-9/10"),
    ] {
        let reply = get("digits", range);
        assert_eq!(reply.bytes(206), bytes.as_bytes(), "{range}");
        assert_eq!(reply.header("content-range"), Some(content_range));
    }
    assert_eq!(get("digits", "bytes=0-1,3-4").bytes(200), b"0123456789");
    get("digits", "bytes=10-").refused(416, "range_not_satisfiable");
    get("empty", "bytes=0-").refused(416, "range_not_satisfiable");
    get("digits", "bytes=x").refused(400, "invalid");
    get("dir", "bytes=0-").refused(409, "is_directory");
    get("missing", "bytes=0-").refused(404, "not_found");
    let of_tag = client.request("GET", format!("{tree}/raw/digits")).header("range", "bytes=2-4");
    assert_eq!(of_tag.header("if-range", "\"tag\"").send().bytes(200), b"0123456789");
    let head = client.request("HEAD", format!("{tree}/raw/digits")).send();
    assert_eq!(
        (head.status, head.header("content-length"), head.header("x-mode")),
        (200, Some("10"), Some("0644"))
    );
    assert_eq!(client.request("HEAD", format!("{tree}/raw/dir")).send().status, 409);
    assert_eq!(client.request("HEAD", format!("{tree}/stat?path=digits")).send().bytes(200), b"");
}

pub(super) fn pages_are_cut_from_lists(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "listing"));
    for path in ["b/%E6%96%87", "b/c/d", "a", "e"] {
        client.put(format!("{tree}/raw/{path}?parents=true"), "1").ok();
    }
    let files = |query: &str| client.get(format!("{tree}/files?{query}")).ok();
    assert_eq!(files("")["data"], json!(["a", "b/c/d", "b/文", "e"]));
    assert_eq!(files("depth=1")["data"], json!(["a", "e"]));
    assert_eq!(files("path=b")["data"], json!(["b/c/d", "b/文"]));
    assert_eq!(
        files("path=b&depth=1&detail=true")["data"],
        json!([{"path": "b/文", "kind": "file", "size": 1}])
    );
    let page = files("limit=3");
    assert_eq!((&page["data"], &page["next"]), (&json!(["a", "b/c/d", "b/文"]), &json!("b/文")));
    let page = files("limit=3&cursor=b/%E6%96%87");
    assert_eq!((&page["data"], &page["next"]), (&json!(["e"]), &Value::Null));
    let page = client.get(format!("{tree}/dir?limit=2")).ok();
    assert_eq!((&page["data"][1]["name"], &page["next"]), (&json!("b"), &json!("b")));
    client.get(format!("{tree}/files?depth=0")).refused(400, "invalid");
    client.get(format!("{tree}/dir?path=a")).refused(409, "not_a_directory");
    client.get(format!("{tree}/files?path=a")).refused(409, "not_a_directory");
}

pub(super) fn texts_are_read_and_changed_in_their_encoding(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "writing"));
    // `数据统计结果\r\n第二行的内容\r\n` in GBK.
    let gbk = b"\xca\xfd\xbe\xdd\xcd\xb3\xbc\xc6\xbd\xe1\xb9\xfb\r\n\xb5\xda\xb6\xfe\xd0\xd0\xb5\xc4\xc4\xda\xc8\xdd\r\n";
    client.put(format!("{tree}/raw/old.txt"), gbk).ok();
    let whole = client.get(format!("{tree}/content?path=old.txt")).ok();
    assert_eq!(
        (&whole["data"], &whole["encoding"]),
        (&json!("数据统计结果\r\n第二行的内容\r\n"), &json!("gbk"))
    );
    let line = client.get(format!("{tree}/content?path=old.txt&start=2&end=2")).ok();
    assert_eq!((&line["data"], &line["total_lines"]), (&json!(["第二行的内容"]), &json!(2)));
    let edited = client.put(format!("{tree}/edit?path=old.txt&start=3"), "第三").ok();
    assert_eq!((&edited["encoding"], &edited["created"]), (&json!("gbk"), &json!(false)));
    let edits = json!({"path": "old.txt", "edits": [{"old_string": "第二行", "new_string": "新"}]});
    client.post_json(format!("{tree}/replace"), &edits).ok();
    let expected = b"\xca\xfd\xbe\xdd\xcd\xb3\xbc\xc6\xbd\xe1\xb9\xfb\r\n\xd0\xc2\xb5\xc4\xc4\xda\xc8\xdd\r\n\xb5\xda\xc8\xfd\r\n";
    assert_eq!(client.get(format!("{tree}/raw/old.txt")).bytes(200), expected);
    let told = client.post_json(format!("{tree}/replace"), &edits).refused(409, "edit_mismatch");
    assert_eq!((&told["found"], &told["expected"]), (&json!(0), &json!(1)));
    client.put(format!("{tree}/edit?path=old.txt"), "😀").refused(409, "unencodable");
    client.put(format!("{tree}/edit?path=old.txt&start=9"), "x").refused(400, "invalid");
    client.get(format!("{tree}/content?path=old.txt&start=0")).refused(400, "invalid");
    assert_eq!(client.get(format!("{tree}/raw/old.txt")).bytes(200), expected);
    let made = client.put(format!("{tree}/edit?path=new/dir/file"), "made\n").ok();
    assert_eq!(made["created"], true);
    client.put(format!("{tree}/raw/bytes"), [0xff, 0x00]).ok();
    client.get(format!("{tree}/content?path=bytes")).refused(409, "not_text");
    client.put(format!("{tree}/edit?path=bytes"), "text").ok();
    let missing = json!({"path": "missing", "edits": [{"old_string": "a", "new_string": "b"}]});
    client.post_json(format!("{tree}/replace"), &missing).refused(404, "not_found");
    client.put(format!("{tree}/edit?path=new"), "x").refused(409, "is_directory");
}

pub(super) fn changes_of_one_text_at_once_are_all_made(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "busy"));
    client.put(format!("{tree}/raw/list"), "0\n").ok();
    std::thread::scope(|scope| {
        for number in 1..=16 {
            let tree = &tree;
            scope.spawn(move || {
                client.put(format!("{tree}/edit?path=list&start=2&end=1"), format!("{number}\n")).ok()
            });
        }
    });
    let text = client.text(&tree, "list");
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (17, 17), "{text}");
}

pub(super) fn directories_are_made_as_asked_for(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "building"));
    let make = |body: Value| client.post_json(format!("{tree}/mkdir"), &body);
    make(json!({"path": "a/b"})).refused(404, "not_found");
    assert_eq!(make(json!({"path": "a/b", "parents": true, "mode": "0700"})).ok()["created"], true);
    assert_eq!(make(json!({"path": "a/b", "parents": true})).ok()["created"], false);
    make(json!({"path": "a/b"})).refused(409, "already_exists");
    let mode = |path: &str| client.get(format!("{tree}/stat?path={path}")).ok()["data"]["mode"].clone();
    assert_eq!((mode("a"), mode("a/b")), (json!("0755"), json!("0700")));
    client.put(format!("{tree}/raw/file"), "").ok();
    make(json!({"path": "file", "parents": true})).refused(409, "already_exists");
    make(json!({"path": "file/c", "parents": true})).refused(409, "not_a_directory");
    make(json!({"path": "d", "mode": "9"})).refused(400, "invalid");
    make(json!({"path": "../d"})).refused(403, "path_escape");
    make(json!({"path": "/workspace"})).refused(400, "invalid");
    client.delete(format!("{tree}/file?path=a")).refused(409, "not_empty");
    client.delete(format!("{tree}/file?path=/workspace/a&recursive=true")).ok();
    client.delete(format!("{tree}/raw/a")).refused(404, "not_found");
}
