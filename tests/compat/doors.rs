//! What clients send, without the clients: forms of every kind, both shapes of answers, failures, records, and who sees what.

use serde_json::{Value, json};

use crate::support::{Client, Reply, Service, landlocked, skill, skill_zip, skills};

/// Switches the doors on.
pub(crate) const ON: &str = "[compat]\nenabled = true\n";
/// A caller of each role, by a token of the same text: the manager and the user of one agent's skills, an engine, an admin.
pub(crate) const TOKENS: [&str; 4] = [
    "[[tokens]]\nname = \"keeper\"\nrole = \"manager\"\nagent = \"demo\"\nsha256 = \"00aa8942525b763cbe72e4a0fbfbb027b909dd8299e9c6c85c28d3d42d2cc28b\"\n",
    "[[tokens]]\nname = \"engine\"\nrole = \"engine\"\nsha256 = \"ed9f6f25068608efd412958da4dfc19328ca3511251fa6d5f9c42baf230e32f8\"\n",
    "[[tokens]]\nrole = \"user\"\nuser = \"alice\"\nsha256 = \"2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\"\n",
    "[[tokens]]\nname = \"admin\"\nrole = \"admin\"\nsha256 = \"8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918\"\n",
];

pub(crate) const AGENT: &str = "/compat/anthropic/a/demo/v1/skills";
pub(crate) const ALICE: &str = "/compat/anthropic/u/alice/a/demo/v1/skills";
pub(crate) const OPENAI: &str = "/compat/openai/a/demo/v1/skills";
const OLD: (&str, &str) = ("anthropic-beta", "a, skills-2025-10-02,skills-2025-10-02");

fn open() -> Service {
    Service::configured(ON)
}

fn closed() -> Service {
    Service::configured(&format!("{ON}{}", TOKENS.concat()))
}

#[test]
fn a_skill_with_warnings_is_taken_or_refused_as_the_configuration_says() {
    let nameless = [("files[]", Some("s/SKILL.md"), "# Without a header\n")];
    for rules in ["", "skill_rules = \"warn\"\n", "skill_rules = \"refuse\"\n"] {
        let service = Service::configured(&format!("{ON}{rules}"));
        let client = &service.client;
        for target in [AGENT, ALICE, OPENAI] {
            // Each with a base of its own.
            client.delete(format!("{}?scope=baseline", skill("u", "demo", "s")));
            let reply = send(client, target, &nameless);
            if rules.contains("refuse") {
                let told = reply.json();
                assert_eq!(
                    (reply.status, &told["error"]["type"]),
                    (400, &json!("invalid_request_error")),
                    "{told}"
                );
                assert!(told["error"]["message"].as_str().unwrap().starts_with("skill `s`: "), "{told}");
                assert_eq!(client.get(format!("{}?view=merged", skills("alice", "demo"))).status, 404);
                // The control: one without warnings.
                assert_eq!(create(client, target, "fine", "1").status, 200, "{target}");
                client.delete(format!("{}?scope=baseline", skill("u", "demo", "fine")));
            } else {
                assert_eq!(reply.status, 200, "{target}: {}", reply.json());
            }
        }
    }
}

/// A form of parts: name, file name where it is a file, content.
fn form(parts: &[(&str, Option<&str>, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (name, file, content) in parts {
        let file = file.map_or_else(String::new, |file| format!("; filename=\"{file}\""));
        body.push_str(&format!(
            "--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
        ));
    }
    format!("{body}--b--\r\n").into_bytes()
}

fn header(name: &str) -> String {
    format!("---\nname: {name}\ndescription: about {name}\n---\n")
}

fn send(client: &Client, target: &str, parts: &[(&str, Option<&str>, &str)]) -> Reply {
    let request = client.request("POST", target).header("content-type", "multipart/form-data; boundary=b");
    request.body(form(parts)).send()
}

/// Sends a skill of two files.
pub(crate) fn create(client: &Client, target: &str, name: &str, text: &str) -> Reply {
    let (marker, file) = (format!("{name}/SKILL.md"), format!("{name}/f"));
    let parts =
        [("files[]", Some(marker.as_str()), header(name)), ("files[]", Some(file.as_str()), text.to_owned())];
    let parts = parts.each_ref().map(|(name, file, content)| (*name, *file, content.as_str()));
    send(client, target, &parts)
}

pub(crate) fn told(reply: &Reply, status: u16) -> Value {
    let answer = serde_json::from_slice(&reply.body).unwrap_or_default();
    assert_eq!(reply.status, status, "{answer}");
    answer
}

/// The type and the code of a failure.
pub(crate) fn refused(reply: &Reply, status: u16) -> (String, String) {
    let answer = told(reply, status);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(answer["request_id"].as_str(), reply.header("request-id"));
    (text(&answer["error"]["type"]), text(&answer["error"]["details"]["error_code"]))
}

#[test]
fn the_doors_are_not_there_unless_they_are_switched_on() {
    let service = Service::start();
    for base in [AGENT, ALICE, OPENAI] {
        assert_eq!(told(&service.client.get(base), 404)["code"], "not_found");
    }
}

#[test]
fn forms_of_every_client_are_taken() {
    let service = open();
    let client = &service.client;
    // What one version sends beside each file, an unknown part, and a title.
    let parts = [
        ("files[]", Some("数据/SKILL.md"), "---\nname: 数据\ndescription: d\n---\n"),
        ("files[][]", None, "数据/SKILL.md"),
        ("display_title", None, "标题"),
        ("files[]", Some("数据/.DS_Store"), "x"),
        ("files[]", Some("数据/run.sh"), "#!/bin/sh\necho 1\n"),
        ("unknown", None, "y"),
    ];
    let made = told(&send(client, AGENT, &parts), 200);
    assert_eq!((&made["display_name"], &made["source"]), (&json!("标题"), &json!({ "type": "custom" })));
    let files = client.get(format!("{}/files?detail=true", skill("u", "demo", "数据"))).ok();
    let modes: Vec<_> =
        files["data"].as_array().unwrap().iter().map(|file| (&file["path"], &file["mode"])).collect();
    let (marker, script) = (json!("SKILL.md"), json!("run.sh"));
    assert_eq!(modes, [(&marker, &json!("0644")), (&script, &json!("0755"))]);
    // Files without directories, which some clients drop, and an archive by its bytes.
    let flat = [("files[]", Some("SKILL.md"), header("flat")), ("files[]", Some("a.py"), "1".to_owned())];
    let flat = flat.each_ref().map(|(name, file, content)| (*name, *file, content.as_str()));
    assert_eq!(told(&send(client, OPENAI, &flat), 200)["name"], "flat");
    let zip = skill_zip("zipped", &[("f", "1")]);
    let mut body =
        b"--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"any\"\r\n\r\n".to_vec();
    body.extend(&zip);
    body.extend(b"\r\n--b--\r\n");
    let request = client.request("POST", OPENAI).header("content-type", "multipart/form-data; boundary=b");
    assert_eq!(told(&request.body(body).send(), 200)["name"], "zipped");
    // A refused one leaves nothing.
    let list = || client.get(format!("{}/list", skills("u", "demo"))).ok();
    let before = list();
    for parts in [
        &[("files[]", Some("SKILL.md"), "a"), ("files[]", Some("SKILL.md"), "b")][..],
        &[("files[]", Some("../x/SKILL.md"), "a")],
        &[("files[]", Some("a/SKILL.md"), "a"), ("files[]", Some("b/SKILL.md"), "b")],
        &[("unknown", Some("a/SKILL.md"), "a")],
        &[("display_name", None, "a\tb"), ("files[]", Some("a/SKILL.md"), "a")],
        &[],
    ] {
        assert_eq!(refused(&send(client, AGENT, parts), 400).0, "invalid_request_error", "{parts:?}");
    }
    assert_eq!(refused(&client.post_json(AGENT, &json!({})), 400).1, "invalid");
    assert_eq!(list(), before);
}

#[test]
fn both_shapes_of_answers_name_the_same_things() {
    let service = open();
    let client = &service.client;
    let made = told(&create(client, AGENT, "s", "1"), 200);
    let id = made["id"].as_str().unwrap();
    let registered = client.get("/v1/registry").ok();
    assert_eq!(id, format!("skill_{}", registered["data"][0]["id"].as_str().unwrap()));
    create(client, &format!("{AGENT}/{id}/versions"), "s", "2");
    let old = |target: String| told(&client.request("GET", target).header(OLD.0, OLD.1).send(), 200);
    let new = |target: String| told(&client.get(target), 200);
    let (skill_old, skill_new) = (old(format!("{AGENT}/{id}")), new(format!("{AGENT}/s")));
    assert_eq!((&skill_old["display_title"], &skill_old["source"]), (&json!("s"), &json!("custom")));
    assert_eq!((&skill_new["display_name"], &skill_new["id"]), (&json!("s"), &json!(id)));
    let micros = skill_old["latest_version"].as_str().unwrap();
    let version = skill_new["latest_version_id"].as_str().unwrap();
    for name in ["latest", micros, version, version.strip_prefix("skillver_").unwrap()] {
        let (old, new) =
            (old(format!("{AGENT}/s/versions/{name}")), new(format!("{AGENT}/s/versions/{name}")));
        assert_eq!(
            (&old["version"], &old["directory"], &old["id"]),
            (&json!(micros), &json!("s"), &json!(version))
        );
        assert_eq!((&new["id"], new.get("version")), (&json!(version), None));
    }
    let page = new(format!("{AGENT}/s/versions?limit=1&beta=true"));
    let next = page["next_page"].as_str().unwrap();
    assert_eq!((page["data"].as_array().unwrap().len(), page.get("has_more")), (1, None));
    let last = old(format!("{AGENT}/s/versions?limit=1&page={next}"));
    assert_eq!((&last["next_page"], &last["has_more"]), (&Value::Null, &json!(false)));
    for wrong in ["limit=0", "limit=1001", "limit=x", "page=none"] {
        assert_eq!(refused(&client.get(format!("{AGENT}?{wrong}")), 400).1, "invalid");
    }
    let content = client.get(format!("{AGENT}/s/versions/latest/content"));
    let native = client.get(format!("{}/versions/2/download", skill("u", "demo", "s")));
    assert_eq!(content.bytes(200), native.bytes(200), "the same archive through every door");
    for path in
        ["/none", "/s/none", "/s/versions/1/none", "/s/versions/0", "/a%2Fb", "/s/versions/latest/content/x"]
    {
        assert_eq!(refused(&client.get(format!("{AGENT}{path}")), 404).0, "not_found_error", "{path}");
    }
    assert_eq!(client.get("/compat/anthropic/a/demo/v2/skills").status, 404);
}

#[test]
fn every_caller_sees_what_the_base_and_the_token_say() {
    let service = closed();
    let [keeper, engine, alice] = ["keeper", "engine", "alice"].map(|token| service.client.with_token(token));
    let id = told(&create(&keeper, AGENT, "s", "1"), 200)["id"].as_str().unwrap().to_owned();
    for (client, target) in
        [(&keeper, AGENT), (&engine, AGENT), (&keeper, ALICE), (&engine, ALICE), (&alice, ALICE)]
    {
        let list = told(&client.get(target), 200);
        let source = if target == ALICE { "plugin" } else { "custom" };
        assert_eq!(
            (&list["data"][0]["id"], &list["data"][0]["source"]["type"]),
            (&json!(id), &json!(source))
        );
    }
    let by_key =
        |target: &str, key: &str| service.client.request("GET", target).header("x-api-key", key).send();
    assert_eq!(by_key(ALICE, "alice").status, 200);
    assert_eq!(refused(&by_key(ALICE, "wrong"), 401).0, "authentication_error");
    assert_eq!(by_key("/v1/skills/alice/demo/list", "alice").status, 401, "a header of one door alone");
    assert_eq!(by_key("/compat/openai/u/alice/a/demo/v1/skills", "alice").status, 401);
    let both = alice.request("GET", ALICE).header("x-api-key", "keeper").send();
    assert_eq!(refused(&both, 401).1, "unauthenticated");
    // Another's base, or the agent's, is not there, and says the same of what is there and what never was.
    let bob = "/compat/anthropic/u/bob/a/demo/v1/skills";
    create(&engine, bob, "of-bob", "1");
    let keys = [id.as_str(), "of-bob", "skill_00000000000000000000000000000000"];
    for base in [bob, AGENT] {
        let told = keys.map(|key| told(&alice.get(format!("{base}/{key}")), 404)["error"].clone());
        assert!(told.iter().all(|error| *error == told[0]), "{base}: {told:?}");
    }
    for key in keys {
        told(&alice.get(format!("/compat/anthropic/u/alice/a/other/v1/skills/{key}")), 404);
    }
    assert_eq!(refused(&engine.request("DELETE", format!("{AGENT}/{id}")).send(), 403).0, "permission_error");
    assert_eq!(refused(&create(&keeper, ALICE, "t", "1"), 403).1, "denied");
    // The user's change makes it the user's own, and a promotion everybody's.
    let own = told(&create(&alice, &format!("{ALICE}/{id}/versions"), "s", "mine"), 200);
    let seen = told(&alice.get(format!("{ALICE}/{id}")), 200);
    assert_eq!((&seen["source"]["type"], &seen["latest_version_id"]), (&json!("custom"), &own["id"]));
    keeper.post("/v1/skills/alice/demo/s/promote", "").ok();
    assert_eq!(told(&keeper.get(format!("{AGENT}/{id}")), 200)["latest_version_id"], own["id"]);
    assert_eq!(told(&alice.get(format!("{ALICE}/{id}")), 200)["source"]["type"], "plugin");
}

#[test]
fn the_next_command_of_a_user_sees_the_default_version() {
    let service = open();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let command = json!({ "command": "cat", "args": ["skills/s/f"], "skills": ["s"] });
    let seen = || client.post_json("/v1/sandbox/alice/demo/exec", &command).ok()["data"]["stdout"].clone();
    told(&create(client, OPENAI, "s", "1"), 200);
    assert_eq!(seen(), "1");
    let versions = format!("{OPENAI}/s/versions");
    told(&create(client, &versions, "s", "2"), 200);
    assert_eq!(seen(), "1", "a version that is not the default");
    for (version, text) in [("2", "2"), ("1", "1"), ("2", "2")] {
        told(&client.post_json(format!("{OPENAI}/s"), &json!({ "default_version": version })), 200);
        assert_eq!(seen(), text);
    }
}

#[test]
fn what_no_repetition_helps_is_said_so_and_records_name_what_was_done() {
    let service = closed();
    let [keeper, engine, admin] = ["keeper", "engine", "admin"].map(|token| service.client.with_token(token));
    create(&keeper, AGENT, "s", "1");
    engine.write("/v1/skills/alice/demo/s", "own", "mine");
    create(&keeper, &format!("{AGENT}/s/versions"), "s", "2");
    let list = told(&keeper.get(format!("{AGENT}/s/versions")), 200);
    let first = list["data"][1]["id"].as_str().unwrap();
    let kept = keeper.request("DELETE", format!("{AGENT}/s/versions/{first}")).send();
    assert_eq!(refused(&kept, 409), ("invalid_request_error".to_owned(), "conflict".to_owned()));
    assert_eq!(kept.header("x-should-retry"), Some("false"));
    let current = list["data"][0]["id"].as_str().unwrap();
    let current = keeper.request("DELETE", format!("{AGENT}/s/versions/{current}")).send();
    assert_eq!(refused(&current, 400).1, "invalid");
    let records = admin.get("/v1/audit").ok();
    let of_door: Vec<_> = records["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["door"] == "anthropic")
        .map(|record| {
            (
                record["action"].as_str().unwrap(),
                record["agent"].as_str().unwrap(),
                record["scope"].as_str().unwrap(),
            )
        })
        .collect();
    let upload = ("POST /v1/skills/{u}/{a}/upload", "demo", "baseline");
    assert_eq!(of_door.iter().filter(|record| **record == upload).count(), 2, "{of_door:?}");
    let removal = "DELETE /v1/skills/{u}/{a}/{s}/versions/{v}";
    assert!(of_door.iter().any(|record| record.0 == removal), "{of_door:?}");
}
