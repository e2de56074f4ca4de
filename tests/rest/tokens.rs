//! Signed tokens, expiry, and changing tokens and keys of a running service.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Reply, Service, Settings, digest, run_program};

const KEY: &str = ".filesecbox/keys/signing";

/// A service whose tokens are in a file that can be changed: `admin`, and tokens that a test adds.
fn with_tokens_file() -> (Service, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    fs::write(&path, token("admin", "")).unwrap();
    let config = format!("[access]\ntokens_file = {path:?}\n");
    (Service::configured(&config), dir)
}

fn token(role: &str, further: &str) -> String {
    format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"{role}\"\n{further}\n", digest(role))
}

/// Asks until the status is `status`; what has changed is noticed within about a second.
fn wait_for(status: u16, ask: impl Fn() -> Reply) {
    let begun = Instant::now();
    loop {
        let reply = ask();
        if reply.status == status {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{} and not {status}", reply.status);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_signed_token_reaches_its_users_trees_and_ends() {
    let (service, _dir) = with_tokens_file();
    let admin = service.client.with_token("admin");
    let issue = |body| admin.post_json("/v1/tokens", &body);
    let answer = issue(json!({ "user": "张三", "ttl_seconds": 60 })).ok();
    let user = service.client.with_token(answer["data"].as_str().unwrap());
    user.write("/v1/sandbox/%E5%BC%A0%E4%B8%89/a", "f", "mine");
    user.get("/v1/sandbox/u/a/files").refused(404, "not_found");
    user.post_json("/v1/tokens", &json!({ "user": "u" })).refused(403, "denied");
    // Bound to an agent, it reaches no other.
    let answer = issue(json!({ "user": "u", "agent": "a" })).ok();
    let bound = service.client.with_token(answer["data"].as_str().unwrap());
    bound.write("/v1/sandbox/u/a", "f", "x");
    bound.get("/v1/sandbox/u/b/files").refused(404, "not_found");
    // It ends by itself.
    let answer = issue(json!({ "user": "u", "ttl_seconds": 1 })).ok();
    let short = service.client.with_token(answer["data"].as_str().unwrap());
    wait_for(401, || short.get("/v1/sandbox/u/a/files"));
    for wrong in [
        json!({}),
        json!({ "user": "../x" }),
        json!({ "user": "u", "agent": "" }),
        json!({ "user": "u", "ttl_seconds": 0 }),
        json!({ "user": "u", "ttl_seconds": 2_592_001 }),
        json!({ "user": "u", "role": "admin" }),
    ] {
        issue(wrong).refused(400, "invalid");
    }
}

#[test]
fn a_token_is_issued_where_the_key_is_and_nobody_else_reads_the_key() {
    let service = Service::start();
    let key = service.root.join(KEY);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(key.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let root = service.root.to_str().unwrap();
    let output = run_program(&["token", "issue", "--root", root, "--user", "u", "--ttl", "2m"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let token = String::from_utf8(output.stdout).unwrap();
    // On a service that needs no token, a caller that sends one is the user whom it names.
    let user = service.client.with_token(token.trim());
    user.write("/v1/sandbox/u/a", "f", "x");
    user.get("/v1/sandbox/v/a/files").refused(404, "not_found");
    service.client.with_token(&format!("{}x", token.trim())).get("/v1/info").refused(401, "unauthenticated");
    service.client.get("/v1/sandbox/v/a/files").ok();
    // No command finds the key.
    let hidden = key.to_str().unwrap().trim_start_matches('/');
    let script = format!("cat $(echo /){hidden}; find $(echo /) -name signing 2>&1; echo control");
    let run = service.client.execute("/v1/sandbox/u/a", "bash", &["-c", &script]);
    let seen = run["result"]["output"].as_str().unwrap();
    let line = fs::read_to_string(&key).unwrap();
    assert!(seen.contains("control") && !seen.contains(line.trim()), "{seen}");
    for wrong in
        [vec!["--user", ".."], vec!["--user", "u", "--ttl", "0"], vec!["--user", "u", "--ttl", "31d"]]
    {
        let args = [vec!["token", "issue", "--root", root], wrong].concat();
        assert!(!run_program(&args, &[]).status.success(), "{args:?}");
    }
}

#[test]
fn tokens_that_are_added_count_and_those_removed_do_not_without_a_restart() {
    let (service, dir) = with_tokens_file();
    let path = dir.path().join("tokens.toml");
    let ask = |who: &str| service.client.with_token(who).get("/v1/info");
    ask("engine").refused(401, "unauthenticated");
    fs::write(&path, format!("{}{}", token("admin", ""), token("engine", "name = \"platform\""))).unwrap();
    wait_for(200, || ask("engine"));
    ask("admin").ok();
    // What is wrong changes nothing.
    fs::write(&path, "[[tokens]]\nrole = \"admin\"").unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    ask("engine").ok();
    assert!(service.log().contains("tokens and keys stay as they were"), "{}", service.log());
    // An expired one is as good as none, and a service without any is still closed.
    fs::write(&path, token("engine", "expires = \"2020-01-01T00:00:00Z\"")).unwrap();
    wait_for(401, || ask("admin"));
    ask("engine").refused(401, "unauthenticated");
    fs::write(&path, "").unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    ask("admin").refused(401, "unauthenticated");
    service.client.get("/v1/info").refused(401, "unauthenticated");
}

#[test]
fn keys_change_on_sighup_and_the_former_one_counts_while_it_is_there() {
    let (service, _dir) = with_tokens_file();
    let admin = service.client.with_token("admin");
    let signed = || {
        let answer = admin.post_json("/v1/tokens", &json!({ "user": "u" })).ok();
        service.client.with_token(answer["data"].as_str().unwrap())
    };
    let path = service.root.join(KEY);
    let former = fs::read_to_string(&path).unwrap();
    let next = "5a".repeat(32);
    let before = signed();
    let reload = |text: String| {
        fs::write(&path, text).unwrap();
        kill_process(Pid::from_raw(service.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    };
    let id = |client: &crate::support::Client| {
        client.token.as_deref().unwrap().split('.').nth(1).unwrap().to_owned()
    };
    reload(format!("{next}\n{former}"));
    let begun = Instant::now();
    let after = loop {
        let after = signed();
        if id(&after) != id(&before) {
            break after;
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    };
    before.get("/v1/sandbox/u/a/files").ok();
    reload(next);
    wait_for(401, || before.get("/v1/sandbox/u/a/files"));
    after.get("/v1/sandbox/u/a/files").ok();
}

#[test]
fn an_admins_token_can_be_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "from-a-file\n").unwrap();
    let env = vec![("FILESECBOX_TOKEN_FILE".to_owned(), path.to_str().unwrap().to_owned())];
    let service = Service::with(Settings { env, ..Settings::default() });
    service.client.get("/v1/info").refused(401, "unauthenticated");
    service.client.with_token("from-a-file").get("/v1/info").ok();
}

#[test]
fn the_configuration_is_checked_without_being_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    let root = dir.path().join("data");
    let check = |text: &str, env: &[(&str, &str)]| {
        fs::write(&path, text).unwrap();
        let args = ["check-config", "--config", path.to_str().unwrap(), "--root", root.to_str().unwrap()];
        let output = run_program(&args, env);
        let told =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), told)
    };
    let (code, told) = check(&token("engine", "name = \"platform\""), &[]);
    assert!(code == Some(0) && told.contains("platform (engine)"), "{told}");
    let (code, told) = check(&token("admin", "name = \"old\"\nexpires = \"2020-01-01T00:00:00Z\""), &[]);
    assert!(code == Some(0) && told.contains("old (admin) EXPIRED at 2020-01-01T00:00:00Z"), "{told}");
    for (text, env, hint) in [
        ("lissten = 1", None, "lissten"),
        ("[[tokens]]\nsha256 = \"0\"\nrole = \"admin\"", None, "token 1"),
        ("listen = \"0.0.0.0:1\"", None, "loopback"),
        ("[limits.connections]\nhead_bytes = 1", None, "limits.connections.head_bytes"),
        ("[audit]\ntotal_bytes = 1", None, "audit.total_bytes"),
        ("[access]\nkey_file = \"/nonexistent/key\"", None, "openssl"),
        ("[telemetry]\notlp_endpoint = \"https://collector:4318\"", None, "TLS"),
        ("[telemetry]\nsample_ratio = nan", None, "telemetry.sample_ratio"),
        ("", Some(("FILESECBOX_TELEMETRY__QUEUE", "0")), "telemetry.queue"),
        ("[access]\ntokens_file = \"/nonexistent/tokens\"", None, "/nonexistent/tokens"),
        ("[commands]\nextra = [\"a/b\"]", None, "a/b"),
        ("", Some(("FILESECBOX_LIMITS__RUNS__RUNS", "many")), "FILESECBOX_LIMITS__RUNS__RUNS"),
        ("", Some(("FILESECBOX_LIMITS__NO_SUCH", "1")), "FILESECBOX_LIMITS__NO_SUCH"),
    ] {
        let (code, told) = check(text, env.as_slice());
        assert!(code == Some(1) && told.contains(hint), "{text}: {told}");
    }
    assert!(!root.exists(), "nothing was touched");
}

#[test]
fn a_caller_is_told_its_role_and_what_its_token_is_bound_to() {
    let (service, dir) = with_tokens_file();
    let path = dir.path().join("tokens.toml");
    let tokens = [
        token("admin", "name = \"ops\""),
        token("manager", "agent = \"a\"\nexpires = \"2126-01-01T00:00:00Z\""),
    ];
    fs::write(path, tokens.concat()).unwrap();
    let admin = service.client.with_token("admin");
    wait_for(200, || service.client.with_token("manager").get("/v1/whoami"));
    let who = |token: &str| service.client.with_token(token).get("/v1/whoami").ok()["data"].clone();
    let named = json!({ "role": "admin", "user": null, "agent": null, "token": "ops", "expires_at": null });
    assert_eq!(who("admin"), named);
    let manager = who("manager");
    assert_eq!(
        (&manager["role"], &manager["agent"], &manager["expires_at"]),
        (&json!("manager"), &json!("a"), &json!("2126-01-01T00:00:00Z"))
    );
    let answer = admin.post_json("/v1/tokens", &json!({ "user": "\u{5f20}\u{4e09}", "agent": "a" })).ok();
    let signed = who(answer["data"].as_str().unwrap());
    let id = format!("signed:{}", answer["id"].as_str().unwrap());
    assert_eq!(
        signed,
        json!({ "role": "user", "user": "\u{5f20}\u{4e09}", "agent": "a", "token": id, "expires_at": answer["expires_at"] })
    );
    service.client.get("/v1/whoami").refused(401, "unauthenticated");
    let open = Service::start();
    let anyone = open.client.get("/v1/whoami").ok()["data"].clone();
    assert_eq!(
        anyone,
        json!({ "role": "admin", "user": null, "agent": null, "token": null, "expires_at": null })
    );
}

#[test]
fn a_token_that_is_revoked_counts_no_more_also_after_a_restart_and_the_others_do() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let config = Some(token("admin", ""));
        Service::with(Settings { config, root: Some(dir.path().join("data")), ..Settings::default() })
    };
    let service = start();
    let admin = service.client.with_token("admin");
    let issue = |user: &str| {
        let answer = admin.post_json("/v1/tokens", &json!({ "user": user })).ok();
        (answer["data"].as_str().unwrap().to_owned(), answer["id"].as_str().unwrap().to_owned())
    };
    let whoami = |service: &Service, token: &str| service.client.with_token(token).get("/v1/whoami").status;
    let (stolen, stolen_id) = issue("u");
    let (kept, _) = issue("u");
    let (own, own_id) = issue("v");
    let (others, others_id) = issue("w");
    admin.delete(format!("/v1/tokens/{stolen_id}")).ok();
    assert_eq!([&stolen, &kept].map(|token| whoami(&service, token)), [401, 200]);

    // Its bearer may revoke it, and no other one.
    let bearer = service.client.with_token(&own);
    bearer.delete(format!("/v1/tokens/{others_id}")).refused(403, "denied");
    bearer.delete("/v1/tokens?user=v").refused(403, "denied");
    bearer.get("/v1/tokens").refused(403, "denied");
    bearer.delete(format!("/v1/tokens/{own_id}")).ok();
    assert_eq!([&own, &others].map(|token| whoami(&service, token)), [401, 200]);

    // Those of a user that were issued until now; one that is issued in the same second counts.
    admin.delete("/v1/tokens?user=w").ok();
    let (later, _) = issue("w");
    assert_eq!([&others, &later].map(|token| whoami(&service, token)), [401, 200]);
    for wrong in ["/v1/tokens", "/v1/tokens?user=../x", "/v1/tokens/a-b", "/v1/tokens?user=u&id=x"] {
        admin.delete(wrong).refused(400, "invalid");
    }

    // Ended as a loss of power does it: what was acknowledged is on the disk.
    kill_process(Pid::from_raw(service.pid().try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    let mut service = service;
    service.wait();
    let service = start();
    let now = [&stolen, &kept, &own, &others, &later].map(|token| whoami(&service, token));
    assert_eq!(now, [401, 200, 401, 401, 200]);
    let listed = service.client.with_token("admin").get("/v1/tokens").ok()["data"].clone();
    let mut listed: Vec<(String, String)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (entry["id"].as_str().unwrap_or("-").to_owned(), entry["user"].as_str().unwrap_or("-").to_owned())
        })
        .collect();
    listed.sort();
    let mut expected =
        vec![(stolen_id, "-".to_owned()), (own_id, "-".to_owned()), ("-".to_owned(), "w".to_owned())];
    expected.sort();
    assert_eq!(listed, expected);
}
