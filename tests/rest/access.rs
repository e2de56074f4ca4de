//! Who may do what: tokens and roles, and what guards a service that has none.

use crate::support::{Client, Service, Settings, Snapshot, digest, program, run_program, skill_zip};

/// Tokens as `[[tokens]]` of a configuration; each token's text is its role.
const TOKENS: &str = r#"
# admin, engine, manager (of agent `a`), user (`u`, any agent), user-v (`v`)
[[tokens]]
sha256 = "8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918"
role = "admin"
[[tokens]]
sha256 = "ENGINE"
role = "engine"
[[tokens]]
sha256 = "MANAGER"
role = "manager"
agent = "a"
[[tokens]]
sha256 = "USER"
role = "user"
user = "u"
"#;

fn closed() -> Service {
    let config = TOKENS
        .replace("ENGINE", &digest("engine"))
        .replace("MANAGER", &digest("manager"))
        .replace("USER", &digest("user").to_uppercase());
    Service::configured(&config)
}

/// A request and the status for each role: no token, admin, engine, manager of `a`, user `u`.
type Row<'a> = (&'a str, &'a str, &'a [u8], [u16; 5]);

#[test]
fn each_role_gets_exactly_its_answers() {
    let service = closed();
    let admin = service.client.with_token("admin");
    let archive = skill_zip("s", &[("f", "x")]);
    for agent in ["a", "b"] {
        admin.upload(&format!("/v1/skills/u/{agent}"), "baseline", &archive);
    }
    for tree in ["sandbox/u/a", "sandbox/v/a", "sandbox/u/b", "skills/v/a/s"] {
        admin.write(&format!("/v1/{tree}"), "f", "text");
    }
    let mkdir: &[u8] = br#"{"path":"d","parents":true}"#;
    let replace: &[u8] = br#"{"path":"f","edits":[{"old_string":"no such text","new_string":"y"}]}"#;
    let patch: &[u8] = br#"{"patch":"--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"}"#;
    let exec: &[u8] = br#"{"command":"ls"}"#;
    let rows: &[Row<'_>] = &[
        ("GET", "/healthz", b"", [200; 5]),
        ("GET", "/v1/info", b"", [401, 200, 200, 200, 200]),
        // Reading: a manager sees the agent it manages, of every user; a user sees the user's own trees.
        ("GET", "/v1/skills/u/a/list", b"", [401, 200, 200, 200, 200]),
        ("GET", "/v1/skills/u/b/list", b"", [401, 200, 200, 404, 200]),
        ("GET", "/v1/skills/v/a/list", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/skills/u/a/s/files", b"", [401, 200, 200, 200, 200]),
        ("GET", "/v1/skills/v/a/s/content?path=f", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/skills/v/a/s/download", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/skills/v/a/s/diff", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/skills/v/a/s/versions", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/skills/v/a/catalog", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/files", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/stat?path=f", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/dir", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/raw/f", b"", [401, 200, 200, 200, 404]),
        ("HEAD", "/v1/sandbox/v/a/raw/f", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/glob?pattern=f", b"", [401, 200, 200, 200, 404]),
        ("POST", "/v1/sandbox/v/a/grep", br#"{"pattern":"x"}"#, [401, 200, 200, 200, 404]),
        ("POST", "/v1/sandbox/u/b/grep", br#"{"pattern":"x"}"#, [401, 200, 200, 404, 200]),
        ("GET", "/v1/sandbox/u/b/raw/f", b"", [401, 200, 200, 404, 200]),
        // Changing: not for managers, and a stranger's tree is not there for a user.
        ("PUT", "/v1/sandbox/u/a/edit?path=f", b"x", [401, 200, 200, 403, 200]),
        ("PUT", "/v1/sandbox/v/a/edit?path=f", b"x", [401, 200, 200, 403, 404]),
        ("PUT", "/v1/sandbox/v/a/raw/f", b"x", [401, 200, 200, 403, 404]),
        ("POST", "/v1/sandbox/v/a/mkdir", mkdir, [401, 200, 200, 403, 404]),
        ("POST", "/v1/sandbox/v/a/replace", replace, [401, 409, 409, 403, 404]),
        ("POST", "/v1/sandbox/v/a/move", br#"{"from":"none","to":"x"}"#, [401, 404, 404, 403, 404]),
        ("POST", "/v1/sandbox/v/a/copy", br#"{"from":"none","to":"x"}"#, [401, 404, 404, 403, 404]),
        ("POST", "/v1/sandbox/v/a/patch", patch, [401, 404, 404, 403, 404]),
        ("POST", "/v1/sandbox/u/a/execute?command=ls", b"", [401, 200, 200, 403, 200]),
        ("POST", "/v1/sandbox/v/a/execute?command=ls", b"", [401, 200, 200, 403, 404]),
        ("POST", "/v1/skills/v/a/s/exec", exec, [401, 200, 200, 403, 404]),
        // Runs: to look at one is to read, to have a terminal is not.
        ("GET", "/v1/sandbox/u/a/exec", b"", [401, 200, 200, 200, 200]),
        ("GET", "/v1/sandbox/v/a/exec", b"", [401, 200, 200, 200, 404]),
        ("GET", "/v1/sandbox/v/a/exec/none", b"", [401, 404, 404, 404, 404]),
        ("DELETE", "/v1/sandbox/v/a/exec/none", b"", [401, 404, 404, 403, 404]),
        ("POST", "/v1/skills/v/a/s/exec/none/commit", b"", [401, 404, 404, 403, 404]),
        ("POST", "/v1/skills/v/a/s/exec/none/discard", b"", [401, 404, 404, 403, 404]),
        ("POST", "/v1/sandbox/v/a/exec/none/stdin", b"x", [401, 404, 404, 403, 404]),
        ("POST", "/v1/sandbox/v/a/exec/none/signal", br#"{"signal":"INT"}"#, [401, 404, 404, 403, 404]),
        ("GET", "/v1/sandbox/u/a/terminal", b"", [401, 400, 400, 403, 400]),
        ("GET", "/v1/sandbox/v/a/terminal", b"", [401, 400, 400, 403, 404]),
        ("GET", "/v1/skills/v/a/s/terminal", b"", [401, 400, 400, 403, 404]),
        ("DELETE", "/v1/sandbox/v/a/file?path=none", b"", [401, 404, 404, 403, 404]),
        ("DELETE", "/v1/sandbox/v/a/raw/none", b"", [401, 404, 404, 403, 404]),
        ("POST", "/v1/skills/u/a/upload", &archive, [401, 200, 200, 403, 200]),
        ("POST", "/v1/skills/v/a/upload", &archive, [401, 200, 200, 403, 404]),
        ("POST", "/v1/skills/u/a/s/reset", b"", [401, 200, 200, 403, 200]),
        ("POST", "/v1/skills/v/a/s/reset", b"", [401, 200, 200, 403, 404]),
        ("POST", "/v1/skills/u/a/s/pull", b"", [401, 200, 200, 403, 200]),
        ("POST", "/v1/skills/v/a/s/pull", b"", [401, 200, 200, 403, 404]),
        ("DELETE", "/v1/skills/v/a/none", b"", [401, 404, 404, 403, 404]),
        // The baseline belongs to admins, and to managers of the agent.
        ("POST", "/v1/skills/u/a/upload?scope=baseline", &archive, [401, 200, 403, 200, 403]),
        ("POST", "/v1/skills/u/b/upload?scope=baseline", &archive, [401, 200, 403, 404, 403]),
        ("DELETE", "/v1/skills/u/a/none?scope=baseline", b"", [401, 404, 403, 404, 403]),
        ("DELETE", "/v1/skills/u/b/s?scope=baseline", b"", [401, 200, 403, 404, 403]),
        ("POST", "/v1/skills/u/a/none/promote", b"", [401, 404, 403, 404, 403]),
        ("POST", "/v1/skills/u/b/none/promote", b"", [401, 404, 403, 404, 403]),
        (
            "POST",
            "/v1/skills/u/a/s/rollback?version=00000000000000000000000000000000",
            b"",
            [401, 404, 403, 404, 403],
        ),
        // A path that is no route tells no caller anything.
        ("GET", "/v1/nothing", b"", [404; 5]),
    ];
    let callers: [Client; 5] = [
        service.client.clone(),
        admin.clone(),
        service.client.with_token("engine"),
        service.client.with_token("manager"),
        service.client.with_token("user"),
    ];
    for (method, target, body, statuses) in rows {
        // The refused first, so that what they see is what was there before.
        for (caller, status) in callers.iter().zip(statuses).rev() {
            let before = (*status == 401 || *status == 403).then(|| Snapshot::of(&service.root));
            let mut request = caller.request(method, *target);
            if !body.is_empty() {
                request = request.body(body);
            }
            let reply = request.send();
            let who = caller.token.as_deref().unwrap_or("no token");
            assert_eq!(
                reply.status,
                *status,
                "{who}: {method} {target}: {}",
                String::from_utf8_lossy(&reply.body)
            );
            match status {
                401 => {
                    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
                    if *method != "HEAD" {
                        reply.refused(401, "unauthenticated");
                    }
                }
                403 => drop(reply.refused(403, "denied")),
                _ => {}
            }
            if let Some(before) = before {
                before.unchanged(&service.root, &format!("{who}: {method} {target}"));
            }
        }
    }
}

#[test]
fn what_a_user_may_not_know_looks_the_same_whether_it_is_there_or_not() {
    let service = closed();
    service.client.with_token("admin").write("/v1/sandbox/v/a", "there", "x");
    let user = service.client.with_token("user");
    let told = |path: &str| {
        let answer = user.get(format!("/v1/sandbox/v/a/content?path={path}")).refused(404, "not_found");
        answer["data"].clone()
    };
    assert_eq!(told("there"), told("not-there"));
    assert_eq!(told("there"), told("../x"));
}

#[test]
fn only_a_whole_token_in_a_bearer_header_counts() {
    let service = closed();
    let ask = |value: &[u8]| service.client.request("GET", "/v1/info").header("authorization", value).send();
    for value in [&b"Bearer admin"[..], b"bearer admin", b"BEARER   admin"] {
        assert_eq!(ask(value).status, 200, "{}", String::from_utf8_lossy(value));
    }
    for value in [
        &b"Bearer"[..],
        b"Bearer ",
        b"Bearer admi",
        b"Bearer adminx",
        b"Bearer Admin",
        b"Basic admin",
        b"admin",
        b"",
        b"Bearer \xff\xfe",
        b"Bearer admin admin",
    ] {
        ask(value).refused(401, "unauthenticated");
    }
    service.client.get("/v1/info?token=admin").refused(401, "unauthenticated");
}

#[test]
fn a_token_in_the_environment_is_an_admins() {
    let env = vec![("FILESECBOX_TOKEN".to_owned(), "from-the-environment".to_owned())];
    let service = Service::with(Settings { env, ..Settings::default() });
    service.client.get("/v1/skills/u/a/list").refused(401, "unauthenticated");
    let admin = service.client.with_token("from-the-environment");
    admin.upload("/v1/skills/u/a", "baseline", &skill_zip("s", &[]));
    // No command learns it, however it asks.
    let script = "env; cat $(echo /pro)c/*/environ $(echo /pro)c/*/cmdline 2>&1 | tr '\\0' '\\n'";
    let run = admin.execute("/v1/sandbox/u/a", "bash", &["-c", script]);
    let seen = run["result"]["output"].as_str().unwrap();
    assert!(seen.contains("PATH="), "the control: {run}");
    assert!(!seen.contains("from-the-environment"), "{seen}");
    // And no service starts with a token that no caller can send.
    for token in ["", "two words", "密钥", " padded "] {
        let output = run_program(
            &["serve", "--listen", "127.0.0.1:0", "--root", "/nonexistent"],
            &[("FILESECBOX_TOKEN", token)],
        );
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("FILESECBOX_TOKEN"), "{token:?}: {told}");
    }
}

#[test]
fn an_open_address_without_a_token_is_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let start =
        |listen: &str| program().args(["serve", "--listen", listen, "--root"]).arg(&root).output().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let output = start(listen);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("FILESECBOX_TOKEN") && told.contains("--allow-anonymous"), "{told}");
    }
    assert!(!root.exists(), "a refused start makes nothing");
    let with = |args: &[&str], env: &[(&str, &str)]| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Service::with(Settings { args, env, listen: Some("0.0.0.0:0".to_owned()), ..Settings::default() })
    };
    let named = with(&[], &[("FILESECBOX_TOKEN", "t")]);
    named.client.get("/v1/info").refused(401, "unauthenticated");
    named.client.with_token("t").get("/v1/info").ok();
    // The operator says that something else guards the port; callers use any name that it has there.
    let open = with(&["--allow-anonymous"], &[]);
    open.client.request("GET", "/v1/info").header("host", "filesecbox:8003").send().ok();
    let foreign = open.client.request("POST", "/v1/sandbox/u/a/execute?command=ls");
    foreign
        .header("host", "filesecbox:8003")
        .header("origin", "https://evil.example")
        .send()
        .refused(403, "denied");
}

#[test]
fn a_web_page_cannot_use_a_service_that_needs_no_token() {
    let service = Service::start();
    let address = service.client.address.to_string();
    let port = service.client.address.port();
    let ask = |host: &str, origin: Option<&str>| {
        let mut request = service.client.request("PUT", "/v1/sandbox/u/a/edit?path=f").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.body("x").send()
    };
    for (host, origin) in [
        (address.clone(), None),
        (format!("localhost:{port}"), None),
        (format!("LOCALHOST:{port}"), None),
        (format!("[::1]:{port}"), None),
        (address.clone(), Some(format!("http://{address}"))),
    ] {
        ask(&host, origin.as_deref()).ok();
    }
    for (host, origin) in [
        ("evil.example".to_owned(), None),
        (format!("evil.example:{port}"), None),
        (format!("localhost.evil.example:{port}"), None),
        (format!("127.0.0.1.evil.example:{port}"), None),
        (address.clone(), Some("http://evil.example".to_owned())),
        (address.clone(), Some("null".to_owned())),
        (address.clone(), Some(String::new())),
        (address.clone(), Some(format!("http://localhost:{port}"))),
        (format!("evil.example:{port}"), Some(format!("http://evil.example:{port}"))),
    ] {
        ask(&host, origin.as_deref()).refused(403, "denied");
    }
    // With tokens, a page has none; a caller may come under any name.
    let closed = closed();
    let admin = closed.client.with_token("admin");
    admin.request("GET", "/v1/info").header("host", "filesecbox.internal").send().ok();
}

#[test]
fn a_configuration_with_wrong_tokens_is_refused_at_start_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    let zeros = "0".repeat(64);
    for (entry, hint) in [
        (format!("sha256 = \"{zeros}\"\nrole = \"boss\""), "`role` is"),
        (format!("sha256 = \"{zeros}\"\nrole = \"user\""), "names its `user`"),
        (format!("sha256 = \"{zeros}\"\nrole = \"user\"\nuser = \"../x\""), "user id"),
        (format!("sha256 = \"{zeros}\"\nrole = \"manager\"\nuser = \"x\""), "names its `agent`"),
        ("sha256 = \"secret\"\nrole = \"admin\"".to_owned(), "sha256sum"),
    ] {
        std::fs::write(&path, format!("[[tokens]]\n{entry}\n")).unwrap();
        let config = path.to_str().unwrap();
        let output = run_program(&["serve", "--config", config, "--root", "/nonexistent"], &[]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(told.contains("token 1") && told.contains(hint), "{entry}: {told}");
    }
}
