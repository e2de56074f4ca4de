//! Policies of agents: what an admin sets holds in the kernel from the next run on, and no other caller sets it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Service, Settings, digest, landlocked, workspace};

/// Tokens of every role, by their text.
fn tokens() -> String {
    let of = |name: &str, role: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name))
    };
    [
        of("admin", "role = \"admin\""),
        of("manager", "role = \"manager\"\nagent = \"a\""),
        of("engine", "role = \"engine\""),
        of("user", "role = \"user\"\nuser = \"u\""),
        of("bound", "role = \"user\"\nuser = \"u\"\nagent = \"a\""),
    ]
    .concat()
}

fn set(client: &Client, agent: &str, policy: &Value) -> Value {
    client.put(format!("/v1/agents/{agent}/policy"), policy.to_string()).ok()
}

fn effective(client: &Client, agent: &str) -> Value {
    client.get(format!("/v1/agents/{agent}/policy")).ok()["data"].clone()
}

fn shell(client: &Client, agent: &str, line: &str) -> Value {
    client.post_json(format!("{}/exec", workspace("u", agent)), &json!({ "shell": line })).ok()["data"]
        .clone()
}

/// A service at each tier that the host grants.
fn services(config: &str) -> Vec<(&'static str, Service)> {
    let at = |tier: &'static str| {
        let service = Service::configured(&format!("{config}\n[isolation]\nmaximum = \"{tier}\"\n"));
        let is_granted = landlocked(&service.client)
            && service.client.get("/v1/info").ok()["data"]["host"]["enforcement"]["tier"] == tier;
        if !is_granted {
            eprintln!("SKIPPED: tier `{tier}`, which the host does not grant");
        }
        is_granted.then_some((tier, service))
    };
    ["namespaces", "landlock"].into_iter().filter_map(at).collect()
}

fn policies_dir(root: &Path) -> PathBuf {
    root.join(".filesecbox/policies")
}

fn kept(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(policies_dir(root)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn programs_of_one_agent_are_its_own_in_the_kernel_at_every_tier_and_from_the_next_run_on() {
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("SKIPPED: perl is not there");
        return;
    }
    for (tier, service) in services("") {
        let client = &service.client;
        let perl = |agent: &str| {
            let direct = client.post_json(
                format!("{}/execute?command=perl", workspace("u", agent)),
                &json!(["-e", "print 6*7"]),
            );
            // Two runs in the same place: the second may meet what is left of the first.
            let below =
                [0, 1].map(|_| shell(client, agent, "perl -e 'print 6*7'; echo \" $?\"")["stdout"].clone());
            assert_eq!(below[0], below[1], "{tier}");
            (direct.status, below[0].as_str().unwrap().starts_with("42 0"))
        };
        for agent in ["a", "b"] {
            assert_eq!(perl(agent), (403, false), "{tier} {agent}");
        }
        set(client, "a", &json!({ "extra": ["perl", "no-such-program"] }));
        assert_eq!(perl("a"), (200, true), "{tier}");
        let told = |agent| client.get(workspace("u", agent) + "/info").ok()["data"]["commands"].to_string();
        assert!(told("a").contains("\"perl\"") && !told("a").contains("no-such-program"), "{tier}");
        assert!(told("b").contains("\"python3\"") && !told("b").contains("\"perl\""), "{tier}");
        assert_eq!(perl("b"), (403, false), "{tier}: another agent's walls");
        // A program that the profile lends, and one that it does not.
        assert!(shell(client, "a", "echo x | head -1")["stdout"] == "x\n", "{tier}");
        set(client, "a", &json!({ "profile": "strict" }));
        assert_eq!(perl("a"), (403, false), "{tier}");
        assert_ne!(shell(client, "a", "echo x | head -1")["stdout"], "x\n", "{tier}: strict lends no helper");
        assert_eq!(shell(client, "b", "echo x | head -1")["stdout"], "x\n", "{tier}");
        // Strict runs nothing of the tree either; the other agent's scripts run.
        for (agent, runs) in [("a", false), ("b", true)] {
            client.write(&workspace("u", agent), "run.sh", "#!/bin/sh\necho ran\n");
            let told = shell(
                client,
                agent,
                "bash -c 'chmod +x run.sh' 2>/dev/null; python3 -c 'import os; os.chmod(\"run.sh\", 0o755)'; ./run.sh",
            );
            assert_eq!(told["stdout"] == "ran\n", runs, "{tier} {agent}: {told}");
        }
        client.delete("/v1/agents/a/policy").ok();
        assert_eq!(shell(client, "a", "echo x | head -1")["stdout"], "x\n", "{tier}");
        set(client, "a", &json!({ "profile": "open" }));
        assert_eq!(perl("a"), (403, true), "{tier}: what callers may start is as before");
    }
}

#[test]
fn the_network_of_an_agent_is_never_more_than_the_services_and_runs_get_no_more_than_it() {
    for (tier, service) in services("[commands]\nnetwork = \"auto\"") {
        let client = &service.client;
        let most = client.get("/v1/info").ok()["data"]["network"].clone();
        client.put("/v1/agents/a/policy", r#"{"network":"host"}"#).refused(400, "invalid");
        assert_eq!(effective(client, "a")["source"], "none");
        set(client, "a", &json!({ "network": "none" }));
        assert_eq!(effective(client, "a")["effective"]["network"], "none");
        let info = client.get(format!("{}/info", workspace("u", "a"))).ok();
        assert_eq!(info["data"]["network"], "none", "{tier}");
        let proxied = shell(client, "a", "echo \"${HTTP_PROXY:-none}\"");
        assert_eq!(proxied["stdout"], "none\n", "{tier}");
        for asked in ["proxy", "host"] {
            let exec = json!({ "command": "ls", "network": asked });
            let refused = client.post_json(format!("{}/exec", workspace("u", "a")), &exec);
            refused.refused(501, "unsupported");
        }
        // Another agent has what there was.
        let other = client.get(format!("{}/info", workspace("u", "b"))).ok();
        assert_eq!(other["data"]["network"], most, "{tier}");
    }
}

#[test]
fn limits_of_an_agent_hold_for_its_runs_and_trees_alone() {
    let service = Service::start();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    set(
        client,
        "a",
        &json!({
            "runs": { "timeout_ms": 700, "background_ms": 800, "file_bytes": 4096 },
            "disk": { "bytes": 65536, "files": 20 },
        }),
    );
    let timed = shell(client, "a", "echo begun; sleep 20");
    assert_eq!((&timed["timed_out"], &timed["stdout"]), (&json!(true), &json!("begun\n")), "{timed}");
    let asked = client.post_json(
        format!("{}/exec", workspace("u", "a")),
        &json!({ "shell": "sleep 20", "timeout_ms": 60_000 }),
    );
    assert_eq!(asked.ok()["data"]["timed_out"], true, "a request asks for no more");
    let background = json!({ "shell": "sleep 20", "exec_id": "bg" });
    client.post_json(format!("{}/exec?background=true", workspace("u", "a")), &background).ok();
    let followed = client.get(format!("{}/exec/bg?follow=true", workspace("u", "a")));
    assert!(
        String::from_utf8_lossy(&followed.body).contains("\"timed_out\":true"),
        "a background run is bounded too"
    );
    let large = shell(client, "a", "python3 -c 'f = open(\"f\", \"wb\"); f.write(b\"x\" * 8192); f.flush()'");
    assert_ne!(large["exit_code"], 0, "{large}");
    let refused = client.put(format!("{}/raw/g", workspace("u", "a")), vec![b'x'; 100_000]);
    assert_eq!(refused.refused(507, "quota")["limit"], "agents.disk.bytes");
    // The other agent knows nothing of it.
    assert_eq!(shell(client, "b", "sleep 1; echo done")["stdout"], "done\n");
    client.put(format!("{}/raw/g", workspace("u", "b")), vec![b'x'; 100_000]).ok();
    let info = client.get(format!("{}/info", workspace("u", "a"))).ok();
    assert_eq!(
        (&info["data"]["runs"]["timeout_ms"], &info["data"]["limits"]["disk"]["files"]),
        (&json!(700), &json!(20))
    );
}

#[test]
fn only_an_admin_sees_and_sets_policies_and_each_change_is_on_record() {
    let service = Service::configured(&tokens());
    let route = "/v1/agents/a/policy";
    for role in ["manager", "engine", "user", "bound"] {
        let client = service.client.with_token(role);
        client.get(route).refused(403, "denied");
        client.put(route, r#"{"profile":"open","extra":["perl"]}"#).refused(403, "denied");
        client.delete(route).refused(403, "denied");
    }
    service.client.put(route, "{}").refused(401, "unauthenticated");
    let admin = service.client.with_token("admin");
    assert_eq!(effective(&admin, "a")["source"], "none");
    let first = set(&admin, "a", &json!({ "network": "none" }));
    let second = set(&admin, "a", &json!({ "network": "none", "extra": ["jq"] }));
    let last = admin.delete(route).ok();
    assert_eq!(
        (&first["before"], &second["before"], &last["after"]),
        (&Value::Null, &first["after"], &Value::Null)
    );
    assert_eq!((&last["before"], &last["source"]), (&second["after"], &json!("none")));
    assert_ne!(first["after"], second["after"]);
    let log = fs::read_dir(service.root.join(".filesecbox/audit")).unwrap();
    let text: String = log
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes: Vec<Value> = records
        .filter(|record| record["agent"] == "a" && record["outcome"] == "ok" && record["action"] != "start")
        .map(|record| json!([record["action"], record["token"], record["before"], record["after"]]))
        .collect();
    let (put, delete) = ("PUT /v1/agents/{a}/policy", "DELETE /v1/agents/{a}/policy");
    assert_eq!(
        changes,
        [
            json!([put, "admin", null, first["after"]]),
            json!([put, "admin", first["after"], second["after"]]),
            json!([delete, "admin", second["after"], null]),
        ],
        "{text}"
    );
}

#[test]
fn a_policy_that_cannot_be_is_refused_and_changes_nothing() {
    let service = Service::start();
    let client = &service.client;
    let before = set(client, "a", &json!({ "extra": ["jq"] }));
    let many: Vec<String> = (0..65).map(|number| format!("p{number}")).collect();
    let hosts: Vec<String> = (0..257).map(|number| format!("h{number}.example.com")).collect();
    for policy in [
        json!({ "profile": "all" }),
        json!({ "profil": "open" }),
        json!({ "extra": ["/bin/perl"] }),
        json!({ "extra": ["../perl"] }),
        json!({ "extra": many }),
        json!({ "network": "everything" }),
        json!({ "hosts": { "allow": ["http://x/"] } }),
        json!({ "hosts": { "deny": hosts } }),
        json!({ "hosts": { "allow": ["x".repeat(300)] } }),
        json!({ "hosts": { "all": [] } }),
        json!({ "runs": { "timeout_ms": 0 } }),
        json!({ "runs": { "timeout_ms": -1 } }),
        json!({ "runs": { "timeout_ms": 1e300 } }),
        json!({ "runs": { "open_files": 1 } }),
        json!({ "disk": { "bytes": 0 } }),
        json!([]),
    ] {
        client.put("/v1/agents/a/policy", policy.to_string()).refused(400, "invalid");
    }
    client.put("/v1/agents/a/policy", "x".repeat(600 * 1024)).refused(413, "too_large");
    client.put("/v1/agents/..%2Fx/policy", "{}").refused(400, "invalid");
    client.put("/v1/agents/a/policy?x=1", "{}").refused(400, "invalid");
    let now = client.put("/v1/agents/a/policy", r#"{"extra":["jq"]}"#).ok();
    assert_eq!(now["before"], before["after"]);
}

#[test]
fn what_is_set_outlives_a_restart_and_the_configuration_holds_again_without_it() {
    let config = "[agents.a]\nnetwork = \"none\"\n[agents.a.runs]\ntimeout_ms = 1234\n[agents.\"某个.draft\"]\nextra = [\"jq\"]\n";
    let mut service = Service::configured(config);
    let configured = effective(&service.client, "a");
    assert_eq!(
        (&configured["source"], &configured["policy"]["runs"]["timeout_ms"]),
        (&json!("configuration"), &json!(1234))
    );
    set(&service.client, "a", &json!({ "runs": { "timeout_ms": 4321 } }));
    // An id that ends as drafts do, and the longest there is.
    let long = "很".repeat(42);
    for agent in ["x.draft", &long] {
        set(&service.client, &crate::support::encoded(agent), &json!({ "extra": ["jq"] }));
    }
    let root = service.root.clone();
    let aside = tempfile::tempdir().unwrap();
    service.terminate();
    service.wait();
    let moved = aside.path().join("data");
    fs::rename(&root, &moved).unwrap();
    let again =
        Service::with(Settings { config: Some(config.to_owned()), root: Some(moved), ..Settings::default() });
    let client = &again.client;
    let held = effective(client, "a");
    assert_eq!(
        (&held["source"], &held["effective"]["runs"]["timeout_ms"]),
        (&json!("set"), &json!(4321)),
        "{held}"
    );
    // Whole: what the file says of the network does not hold beside it.
    assert_eq!(held["policy"], json!({ "runs": { "timeout_ms": 4321 } }));
    for agent in ["x.draft", &long] {
        assert_eq!(effective(client, &crate::support::encoded(agent))["source"], "set");
    }
    let removed = client.delete("/v1/agents/a/policy").ok();
    assert_eq!(removed["source"], "configuration");
    assert_eq!(effective(client, "a")["effective"]["runs"]["timeout_ms"], 1234);
}

#[test]
fn a_record_that_the_service_did_not_write_sets_nothing() {
    let mut service = Service::start();
    set(&service.client, "a", &json!({ "network": "none" }));
    set(&service.client, "victim", &json!({ "profile": "strict" }));
    let root = service.root.clone();
    let [one, two] = <[PathBuf; 2]>::try_from(kept(&root)).unwrap();
    let of = |path: &Path| fs::read_to_string(path).unwrap();
    let (genuine, victim) = if of(&one).contains("victim") { (two, one) } else { (one, two) };
    let name = victim.file_name().unwrap().to_str().unwrap().to_owned();
    let (digits, _) = name.split_once('-').unwrap();
    let newer = policies_dir(&root).join(format!("{digits}-00000000000000ff"));
    service.terminate();
    service.wait();
    let moved = tempfile::tempdir().unwrap();
    let data = moved.path().join("data");
    fs::rename(&root, &data).unwrap();
    let place = |path: &Path| data.join(path.strip_prefix(&root).unwrap());
    // A wider policy under a newer number, the former text of it with another digest, and another agent's record.
    let digest = "0".repeat(64);
    fs::write(place(&newer), format!("{digest}\nvictim\n{{\"profile\":\"open\",\"extra\":[\"perl\"]}}"))
        .unwrap();
    fs::copy(place(&genuine), data.join(format!(".filesecbox/policies/{digits}-00000000000000fe"))).unwrap();
    let text = of(&place(&genuine)).replace("none", "host");
    fs::write(place(&genuine), text).unwrap();
    let again = Service::with(Settings { root: Some(data.clone()), ..Settings::default() });
    assert_eq!(effective(&again.client, "victim")["policy"], json!({ "profile": "strict" }));
    assert_eq!(effective(&again.client, "a")["source"], "none", "a record that was changed is none");
    assert_eq!(kept(&data).len(), 1);
    let refused = fs::read_dir(data.join(".filesecbox/refused")).unwrap().count();
    assert_eq!(refused, 3);
    assert!(again.log().contains("kept aside"), "{}", again.log());
}

#[test]
fn no_run_reaches_the_records_of_policies() {
    for (tier, service) in services("") {
        let client = &service.client;
        set(client, "a", &json!({ "runs": { "timeout_ms": 20_000 } }));
        let dir = policies_dir(&service.root);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let before: Vec<Vec<u8>> = kept(&service.root).iter().map(|path| fs::read(path).unwrap()).collect();
        let shown = dir.display();
        let line = format!(
            "cat '{shown}'/*; echo x > '{shown}/0-0'; rm -f '{shown}'/*; mv '{shown}' '{shown}.x'; ls '{shown}' && echo REACHED"
        );
        let told = shell(client, "a", &line);
        assert!(!told["stdout"].as_str().unwrap().contains("REACHED"), "{tier}: {told}");
        assert!(!told["stdout"].as_str().unwrap().contains("timeout_ms"), "{tier}: {told}");
        let after: Vec<Vec<u8>> = kept(&service.root).iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(before, after, "{tier}");
    }
}

/// A server of the host's that answers every request, and its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
        }
    });
    port
}

#[test]
fn hosts_of_an_agent_hold_for_runs_under_way_too_and_open_nothing_that_is_closed() {
    let (open, closed) = (server(), server());
    let config = format!(
        "[commands]\nnetwork = \"proxy\"\n[commands.proxy]\nports = [{open}]\nallow = [\"127.0.0.1\"]\nallow_private = [\"127.0.0.0/8\"]\n"
    );
    for tier in ["namespaces", "landlock"] {
        let config = format!("[isolation]\nmaximum = \"{tier}\"\n{config}");
        let service = Service::configured(&config);
        let client = &service.client;
        let info = client.get("/v1/info").ok();
        if info["data"]["network"] != "proxy" {
            eprintln!("SKIPPED: tier `{tier}` without the proxy");
            continue;
        }
        let ask = |port: u16| {
            format!(
                "curl -s -o /dev/null -w '%{{http_code}} ' --noproxy '' -x \"$HTTP_PROXY\" http://127.0.0.1:{port}/"
            )
        };
        let code =
            |agent: &str, port: u16| shell(client, agent, &ask(port))["stdout"].as_str().unwrap().to_owned();
        assert_eq!(code("a", open), "200 ", "{tier}");
        // A run that is under way when the policy is set.
        let line =
            format!("{} > first; while ! test -e go; do sleep 0.05; done; {} > second", ask(open), ask(open));
        let tree = workspace("u", "a");
        let background = json!({ "shell": line, "exec_id": "under-way" });
        assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &background).status, 201);
        let told = |file: &str, expected: &str| {
            let begun = Instant::now();
            let content = || client.get(format!("{tree}/content?path={file}"));
            while !String::from_utf8_lossy(&content().body).contains(expected) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{tier}: {:?}", content());
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        told("first", "200 ");
        set(client, "a", &json!({ "hosts": { "deny": ["127.0.0.0/8"] } }));
        client.write(&tree, "go", "");
        told("second", "403 ");
        assert_eq!((code("a", open), code("b", open)), ("403 ".to_owned(), "200 ".to_owned()), "{tier}");
        // A wider list of hosts opens no port, no metadata service and not the service itself.
        set(client, "a", &json!({ "hosts": { "allow": [] } }));
        assert_eq!((code("a", open), code("a", closed)), ("200 ".to_owned(), "403 ".to_owned()), "{tier}");
        set(client, "a", &json!({ "hosts": { "allow": ["169.254.169.254", "127.0.0.1"] } }));
        let metadata =
            "curl -s -o /dev/null -w '%{http_code}' -m 5 -x \"$HTTP_PROXY\" http://169.254.169.254/";
        assert_eq!(shell(client, "a", metadata)["stdout"], "403", "{tier}");
        set(client, "a", &json!({ "hosts": { "allow": ["example.com"] } }));
        assert_eq!(code("a", open), "403 ", "{tier}");
        client.delete("/v1/agents/a/policy").ok();
        assert_eq!(code("a", open), "200 ", "{tier}");
    }
}
