//! Searching: names by patterns, lines by regular expressions. Both kinds of tree, Chinese names and contents.

use serde_json::{Value, json};

use crate::support::{Reply, Service, encoded, skill, skill_zip, skills, workspace};

const FILES: [(&str, &str); 5] = [
    ("src/main.py", "import os\nimport json\n\ndef main():\n    pass\n"),
    ("src/lib/util.py", "import re\n"),
    ("文档/说明.md", "# 说明\n数据分析的说明\n"),
    ("notes.txt", "nothing\nIMPORT here\n"),
    (".hidden/x.py", "import hidden\n"),
];

/// A skill whose files are partly of the baseline, partly changed, and a workspace with the same files.
fn trees(service: &Service) -> [(String, String); 2] {
    let client = &service.client;
    let base = [("notes.txt", "import old\n"), ("gone.py", "import gone\n"), FILES[0], FILES[2], FILES[4]];
    client.upload(&skills("anybody", "代理"), "baseline", &skill_zip("技能", &base));
    let (skill, workspace) = (skill("张三", "代理", "技能"), workspace("张三", "代理"));
    for tree in [&skill, &workspace] {
        for (path, text) in FILES {
            client.write(tree, path, text);
        }
        client.write(tree, "SKILL.md", "# 工作\n");
    }
    client.delete(format!("{skill}/file?path=gone.py")).ok();
    [(skill, "/workspace/skills/技能".to_owned()), (workspace, "/workspace".to_owned())]
}

fn globbed(service: &Service, tree: &str, query: &str) -> Value {
    service.client.get(format!("{tree}/glob?{query}")).ok()
}

fn grepped(service: &Service, tree: &str, body: &Value) -> Reply {
    service.client.post_json(format!("{tree}/grep"), body)
}

/// The paths and lines of an answer.
fn places(answer: &Value) -> Vec<String> {
    let matches = answer["data"].as_array().unwrap().iter();
    matches.map(|found| format!("{}:{}", found["path"].as_str().unwrap(), found["line"])).collect()
}

#[test]
fn names_are_found_by_patterns_over_the_merged_view() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        for (query, expected) in [
            ("pattern=*.py", json!(["src/lib/util.py", "src/main.py"])),
            ("pattern=src/*.py", json!(["src/main.py"])),
            ("pattern=/*", json!(["SKILL.md", "notes.txt"])),
            ("pattern=src/**", json!(["src/lib/util.py", "src/main.py"])),
            ("pattern=lib/", json!(["src/lib/util.py"])),
            ("pattern=*.%7Btxt,md%7D", json!(["SKILL.md", "notes.txt", "文档/说明.md"])),
            ("pattern=%E8%AF%B4?.md", json!(["文档/说明.md"])),
            ("pattern=*.py&hidden=true", json!([".hidden/x.py", "src/lib/util.py", "src/main.py"])),
            ("pattern=.hidden/*", json!([".hidden/x.py"])),
            ("pattern=*.py&path=src/lib", json!(["src/lib/util.py"])),
            ("pattern=/*.py&path=src", json!(["src/main.py"])),
            ("pattern=*.none", json!([])),
        ] {
            let answer = globbed(&service, &tree, query);
            assert_eq!(answer["data"], expected, "{query}");
            assert_eq!((&answer["truncated"], &answer["next"]), (&json!(false), &Value::Null));
        }
        let sandbox = encoded(format!("{inside}/src/*.py"));
        assert_eq!(globbed(&service, &tree, &format!("pattern={sandbox}"))["data"], json!(["src/main.py"]));
        let below = globbed(&service, &tree, &format!("pattern={sandbox}&path=src"));
        assert_eq!(below["data"], json!(["src/main.py"]));
        let detailed = globbed(&service, &tree, "pattern=notes.txt&detail=true");
        let facts = &detailed["data"][0];
        assert_eq!(
            (&facts["path"], &facts["kind"], &facts["size"]),
            (&json!("notes.txt"), &json!("file"), &json!(20))
        );
        assert_eq!(facts["etag"], service.client.get(format!("{tree}/raw/notes.txt")).etag());
        assert!(matches!(facts["layer"].as_str(), Some("overlay" | "workspace")), "{facts}");
    }
}

#[test]
fn pages_of_names_and_of_lines_together_are_the_whole() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for index in 0..7 {
        service.client.write(&tree, &format!("目录{index}/文-{index}"), "x\ny\nx\n");
        service.client.write(&tree, &format!("目录{index}.txt"), "x\n");
    }
    let whole = globbed(&service, &tree, "pattern=**")["data"].clone();
    assert_eq!(whole, json!(service.client.files(&tree)));
    let (mut cursor, mut names) = (String::new(), Vec::new());
    loop {
        let page = globbed(&service, &tree, &format!("pattern=**&limit=3{cursor}"));
        names.extend(page["data"].as_array().unwrap().clone());
        assert_eq!(page["truncated"].as_bool().unwrap(), page["next"].is_string());
        let Some(next) = page["next"].as_str() else { break };
        assert_eq!(page["stopped_by"], "limit");
        cursor = format!("&cursor={}", encoded(next));
    }
    assert_eq!(Value::from(names), whole);

    let whole = places(&grepped(&service, &tree, &json!({"pattern": "x"})).ok());
    assert_eq!(whole.len(), 21);
    for limit in [1, 2, 5, 20, 21] {
        let (mut cursor, mut found) = (Value::Null, Vec::new());
        loop {
            let mut body = json!({"pattern": "x", "limit": limit});
            if cursor.is_string() {
                body["cursor"] = cursor;
            }
            let page = grepped(&service, &tree, &body).ok();
            found.extend(places(&page));
            cursor = page["next"].clone();
            if cursor.is_null() {
                assert_eq!(page["truncated"], false);
                break;
            }
            assert_eq!((&page["truncated"], &page["stopped_by"]), (&json!(true), &json!("limit")));
        }
        assert_eq!(found, whole, "{limit} at a time");
    }
}

#[test]
fn lines_are_found_over_the_merged_view() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let find = |body: Value| places(&grepped(&service, &tree, &body).ok());
        assert_eq!(
            find(json!({"pattern": "^import"})),
            ["src/lib/util.py:1", "src/main.py:1", "src/main.py:2"]
        );
        assert_eq!(find(json!({"pattern": "^import", "ignore_case": true})).len(), 4);
        assert_eq!(find(json!({"pattern": "数据分析.说明"})), ["文档/说明.md:2"]);
        assert_eq!(find(json!({"pattern": "main():", "literal": true})), ["src/main.py:4"]);
        assert_eq!(find(json!({"pattern": "import", "include": ["lib/"]})), ["src/lib/util.py:1"]);
        assert_eq!(find(json!({"pattern": "import", "include": ["*.{py,md}"], "exclude": ["lib"]})).len(), 2);
        assert_eq!(find(json!({"pattern": "import", "path": "src/lib"})), ["src/lib/util.py:1"]);
        assert_eq!(find(json!({"pattern": "import", "path": format!("{inside}/src/main.py")})).len(), 2);
        assert_eq!(find(json!({"pattern": "hidden", "hidden": true})), [".hidden/x.py:1"]);
        assert_eq!(find(json!({"pattern": "hidden"})), [""; 0]);
        let answer = grepped(&service, &tree, &json!({"pattern": "def (\\w+)", "context": 1})).ok();
        assert_eq!(
            answer["data"],
            json!([{"path": "src/main.py", "line": 4, "column": 1, "text": "def main():",
                    "before": [""], "after": ["    pass"]}])
        );
        assert_eq!((&answer["files_searched"], &answer["files_binary"]), (&json!(5), &json!(0)));
        assert_eq!((&answer["truncated"], &answer["stopped_by"]), (&json!(false), &Value::Null));
    }
    // Another user's view has what the first one removed.
    let others = grepped(&service, &skill("李四", "代理", "技能"), &json!({"pattern": "gone|old"})).ok();
    assert_eq!(places(&others), ["gone.py:1", "notes.txt:1"]);
}

#[test]
fn what_is_no_text_is_counted_and_other_encodings_are_searched() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let gbk = b"\xca\xfd\xbe\xdd\xb7\xd6\xce\xf6\n\xcb\xb5\xc3\xf7\n";
    let utf_16: Vec<u8> = "\u{feff}数据分析\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, bytes) in [("gbk", &gbk[..]), ("utf-16", &utf_16), ("binary", b"\0\x01\xca\xfd\xbe\xdd")] {
        service.client.put(format!("{tree}/raw/{name}?parents=true"), bytes).ok();
    }
    let answer = grepped(&service, &tree, &json!({"pattern": "^数据..$"})).ok();
    assert_eq!(places(&answer), ["gbk:1", "utf-16:1"]);
    assert_eq!(answer["data"][1]["text"], "数据分析");
    assert_eq!((&answer["files_searched"], &answer["files_binary"]), (&json!(2), &json!(1)));
}

#[test]
fn a_search_follows_no_link_and_a_workspace_nobody_wrote_to_is_empty() {
    let service = Service::start();
    let tree = workspace("nobody", "a");
    assert_eq!(globbed(&service, &tree, "pattern=**")["data"], json!([]));
    assert_eq!(grepped(&service, &tree, &json!({"pattern": "x"})).ok()["data"], json!([]));
    assert!(!service.root.join("sandbox/nobody").exists(), "searching makes nothing");
    service.client.get(format!("{tree}/glob?pattern=x&path=none")).refused(404, "not_found");
    let none = skill("nobody", "a", "s");
    service.client.get(format!("{none}/glob?pattern=x")).refused(404, "not_found");
    grepped(&service, &none, &json!({"pattern": "x"})).refused(404, "not_found");

    let tree = workspace("u", "a");
    service.client.write(&tree, "d/f", "needle\n");
    std::fs::write(service.outside().join("secret"), "needle\n").unwrap();
    let workspace = service.root.join("sandbox/u/a");
    for (target, link) in
        [(service.outside().join("secret"), "out"), ("d/f".into(), "in"), ("d".into(), "dir")]
    {
        std::os::unix::fs::symlink(target, workspace.join(link)).unwrap();
    }
    assert_eq!(places(&grepped(&service, &tree, &json!({"pattern": "needle"})).ok()), ["d/f:1"]);
    assert_eq!(globbed(&service, &tree, "pattern=**")["data"], json!(["d/f", "dir", "in", "out"]));
    let reply = grepped(&service, &tree, &json!({"pattern": "needle", "path": "out"}));
    reply.refused(403, "path_escape");
    assert_eq!(places(&grepped(&service, &tree, &json!({"pattern": "needle", "path": "in"})).ok()), ["in:1"]);
}

#[test]
fn a_search_that_makes_no_sense_or_costs_too_much_is_refused() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "x\n");
    for pattern in
        ["", "[", "(", "a{1000000}", "(?:\\w{100}){100}", "a\\nb", "(?<", "*", "x".repeat(5000).as_str()]
    {
        let refused = grepped(&service, &tree, &json!({"pattern": pattern})).refused(400, "invalid");
        assert!(refused["data"].as_str().unwrap().contains("is refused: "), "{pattern}: {refused}");
    }
    for body in [
        json!({"pattern": "x", "limit": 0}),
        json!({"pattern": "x", "context": 21}),
        json!({"pattern": "x", "include": ["["]}),
        json!({"pattern": "x", "include": ["!a"]}),
        json!({"pattern": "x", "include": "a"}),
        json!({"pattern": "x", "cursor": "f"}),
        json!({"pattern": "x", "include": vec!["a"; 65]}),
        json!({"pattern": "x", "multiline": true}),
    ] {
        grepped(&service, &tree, &body).refused(400, "invalid");
    }
    grepped(&service, &tree, &json!({"pattern": "x", "path": "f/"})).refused(409, "not_a_directory");
    for query in ["", "pattern=", "pattern=%5B", "pattern=x&limit=0", "pattern=x&depth=1", "pattern=%7Ba"] {
        service.client.get(format!("{tree}/glob?{query}")).refused(400, "invalid");
    }
    grepped(&service, &tree, &json!({"pattern": "x", "include": ["../x"]})).refused(403, "path_escape");
    service.client.get(format!("{tree}/glob?pattern=../*")).refused(403, "path_escape");
    service.client.get(format!("{tree}/glob?pattern=x&path=f")).refused(409, "not_a_directory");
}

#[test]
fn a_search_ends_at_its_deadline_and_says_where_to_go_on() {
    let service = Service::configured("[limits.files]\nsearch_ms = 200\n");
    let tree = workspace("u", "a");
    // Letters without a rule, for which the engine's states never repeat: the slowest that it gets.
    let mut random = 1_u64;
    let line: String = (0..40_000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 63 == 0 { 'a' } else { 'b' }
        })
        .collect();
    for index in 0..40 {
        service.client.write(&tree, &format!("f{index:02}"), &line);
    }
    let begin = std::time::Instant::now();
    let answer = grepped(&service, &tree, &json!({"pattern": r"a[ab]{300}\W"})).ok();
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!((&answer["truncated"], &answer["stopped_by"]), (&json!(true), &json!("time")), "{answer}");
    // Each page gets further, also past a file that alone takes all the time there is.
    let next = answer["next"].clone();
    let again = json!({"pattern": r"a[ab]{300}\W", "cursor": next});
    let later = grepped(&service, &tree, &again).ok();
    assert!(later["next"].is_null() || later["next"].as_str() > next.as_str(), "{next} {later}");
    // The service goes on meanwhile and afterwards.
    let short = || grepped(&service, &tree, &json!({"pattern": "^[ab]", "limit": 1})).ok();
    // On a busy machine even this can take all the time there is.
    let answer =
        std::iter::repeat_with(short).take(50).find(|answer| answer["stopped_by"] != "time").unwrap();
    assert_eq!(places(&answer), ["f00:1"]);
}

#[test]
fn a_search_passes_over_what_commands_may_plant() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "needle\n");
    let root = service.root.join("sandbox/u/a");
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    std::fs::write(root.join(std::ffi::OsStr::new("line\nbreak")), "needle\n").unwrap();
    std::fs::write(root.join("long"), "needle".repeat(2_000_000)).unwrap();
    std::fs::create_dir_all(root.join("deep/".repeat(100))).unwrap();
    let answer = grepped(&service, &tree, &json!({"pattern": "needle"})).ok();
    assert_eq!(places(&answer), ["f:1"]);
    assert_eq!((&answer["files_searched"], &answer["files_skipped"]), (&json!(1), &json!(1)));
    assert_eq!(globbed(&service, &tree, "pattern=**")["data"], json!(["f", "long"]));
    for path in ["pipe", "socket"] {
        grepped(&service, &tree, &json!({"pattern": "x", "path": path})).refused(409, "not_a_file");
        service
            .client
            .post_json(format!("{tree}/copy"), &json!({"from": path, "to": "x"}))
            .refused(409, "not_a_file");
    }
}

#[test]
fn many_searches_at_once_wait_for_their_turn_and_all_are_answered() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for index in 0..100 {
        service.client.write(&tree, &format!("d{}/f{index}", index % 7), "one\nneedle\n");
    }
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let answer = grepped(&service, &tree, &json!({"pattern": "needle"})).ok();
                assert_eq!(places(&answer).len(), 100);
                assert_eq!(globbed(&service, &tree, "pattern=f*")["data"].as_array().unwrap().len(), 100);
            });
        }
    });
}
