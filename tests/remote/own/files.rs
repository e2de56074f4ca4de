//! Files and directories elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{ErrorKind, MemSandbox, Sandbox, SandboxExt, SandboxPath, UserId};
use serde_json::{Value, json};

use super::{in_memory, on_the_host};
use crate::client::Client;
use crate::server::Server;

pub(super) fn what_is_not_known_is_left_out(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "plain"));
    let written = client.put(format!("{tree}/raw/file?mode=0640"), "12345");
    assert_eq!(written.status, 200);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&written.ok()), ["data", "etag", "path", "size", "status"]);
    let facts = client.get(format!("{tree}/stat?path=file")).ok()["data"].clone();
    assert_eq!(keys(&facts), ["etag", "kind", "mode", "modified_at", "path", "size"]);
    assert_eq!(
        keys(&client.get(format!("{tree}/stat?path=")).ok()["data"]),
        ["kind", "mode", "modified_at", "path", "size"]
    );
    assert_eq!((&facts["mode"], &facts["size"]), (&json!("0640"), &json!(5)));
    let listed = client.get(format!("{tree}/dir")).ok();
    assert_eq!(listed["data"], json!([{"name": "file", "kind": "file", "size": 5}]));
    let info = client.get(format!("{tree}/info")).ok()["data"].clone();
    assert_eq!(keys(&info), ["backend", "runs", "sessions", "shell", "workspace"]);
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

pub(super) fn tags_and_conditions_are_those_of_own_workspaces(server: &Server) {
    let client = &server.client;
    for tree in [in_memory(server, "tagging"), on_the_host(server, "tagging"), own(client, "tagging")] {
        let send = |method: &str, route: &str, name: &str, value: &str| {
            client.request(method, format!("{tree}/{route}")).header(name, value).body("text\n").send()
        };
        let get = |method: &str, route: &str, name: &str, value: &str| {
            client.request(method, format!("{tree}/{route}")).header(name, value).send()
        };
        let written = client.put(format!("{tree}/raw/file"), "0123456789\n");
        let tag = written.header("etag").unwrap().to_owned();
        assert_eq!(written.ok()["etag"], tag, "{tree}");
        for route in ["raw/file", "content?path=file", "stat?path=file"] {
            let read = client.get(format!("{tree}/{route}"));
            assert_eq!((read.status, read.header("etag")), (200, Some(tag.as_str())), "{tree} {route}");
        }
        assert_eq!(client.get(format!("{tree}/stat?path=file")).ok()["data"]["etag"], tag);
        for (method, route) in [("GET", "raw/file"), ("HEAD", "raw/file"), ("GET", "content?path=file")] {
            let had = get(method, route, "if-none-match", &tag);
            assert_eq!(
                (had.status, had.header("etag")),
                (304, Some(tag.as_str())),
                "{tree} {method} {route}"
            );
            assert_eq!(get(method, route, "if-none-match", "*").status, 304);
            assert_eq!(get(method, route, "if-none-match", "\"other\"").status, 200);
            assert_eq!(get(method, route, "if-match", &format!("\"other\", {tag}")).status, 200);
            assert_eq!(get(method, route, "if-match", &format!("W/{tag}")).status, 412);
        }
        let told = get("GET", "raw/file", "if-match", "\"other\"").refused(412, "stale");
        assert_eq!(told["current_etag"], tag);
        let part = client.request("GET", format!("{tree}/raw/file")).header("range", "bytes=2-4");
        assert_eq!(part.header("if-range", &tag).send().bytes(206), b"234");
        // Each change gives another tag, and the one before is of no use any more.
        let mut tags = vec![tag];
        for (method, route) in
            [("PUT", "raw/file"), ("PUT", "edit?path=file"), ("PUT", "edit?path=file&start=1&end=1")]
        {
            let last = tags.last().unwrap().clone();
            let changed = send(method, route, "if-match", &last);
            assert_eq!((changed.status, &changed.ok()["created"]), (200, &json!(false)), "{tree} {route}");
            let next = changed.header("etag").unwrap().to_owned();
            assert!(!tags.contains(&next), "{tree} {route}");
            let told = send(method, route, "if-match", &last).refused(412, "stale");
            assert_eq!(told["current_etag"], next, "{tree} {route}");
            tags.push(next);
        }
        let edits = json!({"path": "file", "edits": [{"old_string": "text", "new_string": "t"}]});
        let replace = |tag: &str| {
            let request = client.request("POST", format!("{tree}/replace")).header("if-match", tag);
            request.header("content-type", "application/json").body(edits.to_string()).send()
        };
        replace(&tags[0]).refused(412, "stale");
        let last = replace(tags.last().unwrap()).header("etag").unwrap().to_owned();
        for route in ["raw/file", "edit?path=file"] {
            send("PUT", route, "if-match", "*").ok();
            send("PUT", route, "if-match", &format!("W/{last}")).refused(412, "stale");
            send("PUT", route, "if-none-match", "*").refused(412, "stale");
        }
        for route in [
            "raw/missing",
            "edit?path=missing",
            "raw/no/such",
            "raw/no/such?parents=true",
            "edit?path=no/such",
        ] {
            for tag in ["*", &last] {
                let told = send("PUT", route, "if-match", tag).refused(412, "stale");
                assert_eq!(told["current_etag"], Value::Null, "{tree} {route}");
            }
        }
        client.get(format!("{tree}/stat?path=no")).refused(404, "not_found");
        assert_eq!(client.text(&tree, "file"), "text\n");
    }
}

pub(super) fn of_changes_with_one_tag_at_once_one_is_made(server: &Server) {
    let client = &server.client;
    for tree in [in_memory(server, "racing"), on_the_host(server, "racing")] {
        let tag = client.put(format!("{tree}/raw/file"), "old\n").etag();
        let made = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..16)
                .map(|number| {
                    let (tree, tag) = (&tree, &tag);
                    scope.spawn(move || {
                        let route = if number % 2 == 0 { "raw/file" } else { "edit?path=file" };
                        let request = client.request("PUT", format!("{tree}/{route}"));
                        let reply = request.header("if-match", tag).body(format!("{number}\n")).send();
                        assert!(matches!(reply.status, 200 | 412), "{}", reply.status);
                        (reply.status == 200).then_some(number)
                    })
                })
                .collect();
            callers.into_iter().filter_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(made.len(), 1, "{tree}");
        assert_eq!(client.text(&tree, "file"), format!("{}\n", made[0]));
    }
}

pub(super) fn changes_of_others_are_not_lost_to_changes_of_texts(server: &Server) {
    let client = &server.client;
    let memory = Arc::new(MemSandbox::new());
    let lent: Arc<dyn Sandbox> = memory.clone();
    server.lend(&["sharing"], "memory", &lent);
    let (tree, user) = ("/v1/sandbox/sharing/memory", UserId::parse("sharing").unwrap());
    client.put(format!("{tree}/raw/list"), "0\n").ok();
    let path = SandboxPath::workspace().join("list").unwrap();
    let beside = async {
        let mut number = 100;
        while number < 140 {
            let (bytes, version) = memory.read_versioned(&user, &path).await.unwrap();
            let text = format!("{}{number}\n", std::str::from_utf8(&bytes).unwrap());
            match memory.swap(&user, &path, text.into(), version.unwrap()).await {
                Ok(_) => number += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Stale),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let made: usize = std::thread::scope(|scope| {
        let editing = scope.spawn(|| {
            let edit = |number: usize| {
                client.put(format!("{tree}/edit?path=list&start=2&end=1"), format!("{number}\n"))
            };
            (1..=40).map(edit).filter(|reply| reply.status == 200).count()
        });
        server.runtime.block_on(beside);
        editing.join().unwrap()
    });
    let text = client.text(tree, "list");
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (41 + made, 41 + made), "{text}");
    assert!(made > 30, "{made}");
}

/// A workspace of the service itself.
fn own(client: &Client, user: &str) -> String {
    let tree = format!("/v1/sandbox/{user}/own");
    client.put(format!("{tree}/raw/begun"), "").ok();
    tree
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
    }
    assert_eq!(client.text(&tree, "file"), "text\n");
    for route in ["raw/file", "content?path=file"] {
        let get = |name: &str, value: &str| {
            client.request("GET", format!("{tree}/{route}")).header(name, value).send()
        };
        assert_eq!(get("if-none-match", "\"tag\"").status, 200);
        get("if-match", "\"tag\"").refused(412, "stale");
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
