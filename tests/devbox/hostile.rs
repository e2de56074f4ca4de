//! Hostile adapters and callers: names, bodies, tokens, and records that the service did not write.

use std::fs;

use serde_json::{Value, json};

use crate::adapter::{API, Adapter, ON, data, failed, kill, lasting, service};
use crate::support::{Service, digest, encoded};

#[test]
fn a_name_that_is_no_label_is_refused_everywhere() {
    let service = service("");
    let long = "x".repeat(64);
    for name in
        ["", "..", "A", "a/b", "a.b", "a_b", "-a", "a-", "a b", "\u{e4}", "a\0", "a\n", "a%2fb", &long]
    {
        failed(&service.client.post_json(API, &json!({ "name": name })), 400);
        if name.is_empty() {
            continue;
        }
        let url = format!("{API}/{}", encoded(name));
        failed(&service.client.get(url.clone()), 400);
        failed(&service.client.delete(url.clone()), 400);
        for what in ["pause", "stop", "resume", "exec", "files/upload?path=a"] {
            failed(&service.client.post(format!("{url}/{what}"), r#"{"command":["true"]}"#), 400);
        }
        failed(&service.client.get(format!("{url}/files/download?path=a")), 400);
    }
    assert!(!service.root.join("sandbox").read_dir().unwrap().any(|_| true));
}

#[test]
fn a_body_that_makes_no_sense_or_is_too_large_is_refused() {
    let service = service("[limits.files]\nraw_bytes = 100000\n");
    let one = Adapter::new(&service, "one");
    one.create();
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{\"name\": 1}",
        "{\"name\": \"a\", \"env\": [1]}",
        "{\"name\": \"a\", \"env\": {\"A\": 1}}",
    ] {
        failed(&service.client.post(API, body), 400);
    }
    for name in ["LD_PRELOAD", "BASH_ENV", "a b", "", "KUBERNETES_X", "PWD"] {
        let told = failed(&service.client.post_json(API, &json!({ "name": "a", "env": { name: "x" } })), 400);
        assert!(told.starts_with("the environment variable"), "{told}");
    }
    let many: serde_json::Map<String, Value> =
        (0..1025).map(|number| (format!("V{number}"), json!(""))).collect();
    failed(&service.client.post_json(API, &json!({ "name": "a", "env": many })), 400);
    failed(&service.client.post_json(API, &json!({ "name": "a", "image": "x".repeat(513) })), 400);
    failed(&service.client.post_json(API, &json!({ "name": "a", "image": "x".repeat(70_000) })), 413);
    failed(&service.client.get(format!("{API}/a")), 404);

    failed(&one.try_upload("large", "0644", &vec![0; 100_001]), 413);
    failed(&one.download("large"), 404);
    for mode in ["8", "01000", "rw", "-1"] {
        failed(&one.try_upload("a", mode, b"x"), 400);
    }
    for path in [
        "",
        ".",
        "/workspace",
        "/workspace/",
        "a/",
        "a/../b",
        "/workspace/../etc/x",
        "/workspace//etc/x",
        "a\0",
    ] {
        let reply = one.try_upload(path, "0644", b"x");
        assert!(matches!(reply.status, 400 | 403), "{path:?}: {}", reply.json());
        failed(&reply, reply.status);
    }
    for body in [
        "{}",
        r#"{"command":[]}"#,
        r#"{"command":"ls"}"#,
        r#"{"command":[1]}"#,
        r#"{"command":["ls\u0000"]}"#,
    ] {
        let reply = service.client.post(one.url("/exec"), body);
        assert!(matches!(reply.status, 400 | 403), "{body}: {}", reply.json());
        failed(&reply, reply.status);
    }
    for program in ["mount", "../../bin/true", "no such program", "", "-x"] {
        let reply = one.try_exec(&[program]);
        assert!(reply.status == 403 || data(&reply)["exitCode"] != 0, "{program}: {}", reply.json());
    }
    failed(&one.try_exec(&["cat", "/etc/passwd"]), 403);
    assert_eq!(one.line("ls -A"), "");
}

#[test]
fn only_an_admin_and_an_engine_have_devboxes() {
    let roles = [
        ("admin", "role = \"admin\""),
        ("engine", "role = \"engine\""),
        ("manager", "role = \"manager\"\nagent = \"devbox\""),
        ("user", "role = \"user\"\nuser = \"devbox-one\""),
        ("bound", "role = \"user\"\nuser = \"devbox-one\"\nagent = \"devbox\""),
        ("monitor", "role = \"monitor\""),
    ];
    let tokens: Vec<String> = roles
        .iter()
        .map(|(token, role)| format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(token)))
        .collect();
    let service = service(&tokens.concat());
    let of = |token: &str| {
        let client = if token.is_empty() { service.client.clone() } else { service.client.with_token(token) };
        Adapter { client, name: "one".to_owned() }
    };
    of("engine").create();
    of("admin").upload("a.txt", "0644", b"x");
    for (token, status) in
        [("", 401), ("wrong", 401), ("manager", 403), ("user", 403), ("bound", 403), ("monitor", 403)]
    {
        let one = of(token);
        for reply in [
            one.client.post_json(API, &json!({ "name": "one" })),
            one.client.post_json(API, &json!({ "name": "new" })),
            one.client.get(one.url("")),
            one.client.get(format!("{API}/none")),
            one.client.delete(one.url("")),
            one.client.post(one.url("/pause"), ""),
            one.client.post(one.url("/stop"), ""),
            one.client.post(one.url("/resume"), ""),
            one.try_exec(&["true"]),
            one.try_upload("a.txt", "0644", b"y"),
            one.download("a.txt"),
        ] {
            failed(&reply, status);
            let challenge = reply.header("www-authenticate");
            assert_eq!(challenge, (status == 401).then_some("Bearer"));
        }
    }
    assert_eq!(of("engine").download("a.txt").bytes(200), b"x");
    assert_eq!(of("engine").phase(), "Running");
    failed(&of("admin").client.get(format!("{API}/new")), 404);
}

#[test]
fn a_page_of_another_site_and_a_foreign_host_reach_no_devbox() {
    let service = service("");
    let one = Adapter::new(&service, "one");
    one.create();
    for (header, value) in
        [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("host", "evil.example")]
    {
        failed(&one.client.request("GET", one.url("")).header(header, value).send(), 403);
        failed(&one.client.request("POST", one.url("/pause")).header(header, value).send(), 403);
    }
    assert_eq!(one.phase(), "Running");
}

#[test]
fn no_devbox_reaches_the_files_of_another() {
    let service = service("");
    let (one, two) = (Adapter::new(&service, "one"), Adapter::new(&service, "two"));
    one.create();
    two.create();
    one.upload("secret.txt", "0644", b"of one");
    for line in
        ["cat ../*/*/secret.txt", "find / -name secret.txt 2>/dev/null | grep .", "ls ../../devbox-one"]
    {
        let told = two.exec(&["bash", "-lc", line]);
        assert!(
            told["exitCode"] != 0 && !told["stdout"].as_str().unwrap().contains("of one"),
            "{line}: {told}"
        );
    }
    two.line("ln -s /workspace/../../devbox-one/devbox/secret.txt link || true");
    assert_ne!(two.download("link").status, 200);
}

#[test]
fn a_record_that_the_service_did_not_write_is_kept_aside_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let first = lasting(dir.path(), "");
    for name in ["one", "two"] {
        Adapter::new(&first, name).create();
    }
    Adapter::new(&first, "one").change("pause");
    kill(first);
    let records = dir.path().join(".filesecbox/devboxes");
    let paths: Vec<_> = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 2);
    let of_one = paths.iter().find(|path| fs::read_to_string(path).unwrap().contains("/one\n")).unwrap();
    let text = fs::read_to_string(of_one).unwrap();
    fs::write(of_one, text.replace("Paused", "Running")).unwrap();
    // A copy under another name has no proof either.
    let of_two = paths.iter().find(|path| *path != of_one).unwrap();
    fs::copy(of_two, records.join("00000000000000000000000000000000-0000000000000009")).unwrap();

    let second = lasting(dir.path(), "");
    failed(&second.client.get(format!("{API}/one")), 404);
    assert_eq!(Adapter::new(&second, "two").phase(), "Running");
    assert_eq!(fs::read_dir(dir.path().join(".filesecbox/refused")).unwrap().count(), 2);
    assert!(second.log().contains("is not the service's"), "{}", second.log());
}
