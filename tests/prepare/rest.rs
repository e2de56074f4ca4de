//! Preparing over REST, on the service's own workspaces: roles, packages, progress, and many at once.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fixture::version;
use crate::support::{Client, Entry, Service, digest, workspace, zip};

const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";

fn package(client: &Client, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<Entry> = files.iter().map(|(path, text)| Entry::file(path, text)).collect();
    let bytes = zip(&entries);
    client.put(format!("/v1/packages/{version}"), &bytes).ok();
    bytes
}

fn prepare(client: &Client, tree: &str, body: &Value) -> Value {
    client.post_json(format!("{tree}/prepare"), body).ok()["data"].clone()
}

fn selected(versions: &[&str]) -> Value {
    let one = |version: &&str| json!({ "skill_id": "writer", "version_id": version });
    versions.iter().map(one).collect()
}

fn outcome(data: &Value, name: &str) -> String {
    let steps = data["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name}: {data}"));
    step["outcome"].as_str().unwrap().to_owned()
}

#[test]
fn a_round_deploys_writes_runs_and_finds_and_the_next_one_repeats_nothing() {
    let settings = [
        "",
        "[isolation]\nmaximum = \"landlock\"\n",
        "[isolation]\nminimum = \"process\"\nmaximum = \"process\"\n",
        "[commands]\nprofile = \"strict\"\n",
        "[commands]\nprofile = \"open\"\n",
        "[commands]\nscan = \"all\"\n",
    ];
    for config in settings {
        two_rounds(&Service::configured(config), config);
    }
}

fn two_rounds(service: &Service, config: &str) {
    let client = &service.client;
    let (tree, v1) = (workspace("用户", "demo"), version(1));
    package(
        client,
        &v1,
        &[("a/SKILL.md", SKILL), ("entrypoint.sh", "echo skill >> ../../order"), ("a/run.py", "print(1)")],
    );
    let body = json!({
        "skills": selected(&[&v1]),
        "entrypoint": "cat user_files/in.txt >> order; echo sandbox >> order",
        "files": [{ "name": "../in.txt", "content": "files\n" }, { "name": "b.bin", "content_base64": "AAH/" }],
    });
    let data = prepare(client, &tree, &body);
    assert_eq!(client.text(&tree, "order"), "files\nsandbox\nskill\n", "{config}: {data}");
    assert_eq!(client.get(format!("{tree}/raw/user_files/b.bin")).bytes(200), [0, 1, 255]);
    let workdir = data["workdir"].as_str().unwrap().to_owned();
    let directory = format!("{workdir}/projects/{v1}/a");
    let expected = json!([{
        "id": format!("{directory}/SKILL.md"), "name": "writer", "description": "writes", "directory": directory,
        "skill_md_path": format!("{directory}/SKILL.md"), "version_id": v1, "skill_id": "writer",
    }]);
    assert_eq!(data["skills"], expected);
    let names: Vec<&str> =
        data["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["deploy", "files", "entrypoint", &format!("skill:{v1}"), "scan"]);
    // The path is one that commands know.
    let told = client
        .post_json(format!("{tree}/exec"), &json!({ "shell": format!("cat {directory}/SKILL.md") }))
        .ok();
    assert_eq!(told["data"]["stdout"], SKILL);
    let again = prepare(client, &tree, &body);
    assert_eq!(client.text(&tree, "order"), "files\nsandbox\nskill\n", "{config}: {again}");
    assert_eq!(outcome(&again, "entrypoint"), "skipped");
    assert_eq!(outcome(&again, &format!("skill:{v1}")), "skipped");
    assert_eq!(again["skills"], data["skills"]);
    // The state is in the home of commands, in the founding form.
    let state = client.post_json(
        format!("{tree}/exec"),
        &json!({ "shell": "cat \"$HOME/.fastgpt/agent-skill-entrypoints/state.json\"" }),
    );
    let state: Value = serde_json::from_str(state.ok()["data"]["stdout"].as_str().unwrap()).unwrap();
    assert_eq!(state["skillEntrypoints"], json!([v1]));
    // Another version takes its place.
    let v2 = version(2);
    package(client, &v2, &[("SKILL.md", SKILL)]);
    prepare(client, &tree, &json!({ "skills": selected(&[&v2]) }));
    assert!(client.files(&tree).iter().all(|file| !file.contains(&v1)));
}

#[test]
fn t17_without_a_runtime_nothing_is_done_and_no_lease_is_taken() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let body = json!({ "runtime": false, "entrypoint": "touch ran", "skills": selected(&[&version(1)]) });
    let data = prepare(&service.client, &tree, &body);
    assert_eq!(data, json!({ "workdir": null, "skills": [], "steps": [] }));
    assert!(!service.root.join("sandbox/u/a").exists());
}

#[test]
fn packages_are_immutable_checked_by_digest_and_given_back_as_they_came() {
    let service = Service::start();
    let client = &service.client;
    let route = format!("/v1/packages/{}", version(1));
    let bytes = zip(&[Entry::file("SKILL.md", SKILL)]);
    let hex = hex::encode(Sha256::digest(&bytes));
    let wrong = format!("{route}?digest=sha256:{}", "0".repeat(64));
    client.put(&wrong, &bytes).refused(400, "invalid");
    client.put(format!("{route}?digest=none"), &bytes).refused(400, "invalid");
    client.get(&route).refused(404, "not_found");
    let put = client.put(format!("{route}?digest=sha256:{hex}"), &bytes);
    assert_eq!(put.status, 201);
    assert_eq!(put.json()["digest"], format!("sha256:{hex}"));
    assert_eq!((&put.json()["created"], &put.json()["bytes"]), (&json!(true), &json!(bytes.len())));
    let again = client.put(&route, &bytes);
    assert_eq!((again.status, &again.ok()["created"]), (200, &json!(false)));
    client.put(&route, zip(&[Entry::file("SKILL.md", "other")])).refused(409, "already_exists");
    let got = client.get(&route);
    assert_eq!(got.bytes(200), bytes);
    let told = got.header("digest").unwrap().to_owned();
    assert!(told.starts_with("SHA-256="));
    let same = client.request("PUT", &route).header("Digest", &told).body(&bytes).send();
    assert_eq!(same.status, 200);
    let head = client.request("HEAD", &route).send();
    assert_eq!((head.status, head.header("content-length")), (200, Some(bytes.len().to_string().as_str())));
    for hostile in [Entry::file("../x", "x"), Entry::file("/x", "x"), Entry::link("a", "/etc/passwd")] {
        client.put(format!("/v1/packages/{}", version(2)), zip(&[hostile])).refused(422, "bad_archive");
    }
    client.put("/v1/packages/v1", &bytes).refused(400, "invalid");
    client.put("/v1/packages/..%2F..%2Fetc", &bytes).refused(400, "invalid");
}

#[test]
fn a_users_own_token_prepares_its_workspace_and_deploys_no_package() {
    let token =
        |name: &str, role: &str| format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"{role}\"\n", digest(name));
    let config = format!("{}{}user = \"u\"\n", token("engine", "engine"), token("user", "user"));
    let service = Service::configured(&config);
    let (engine, user) = (service.client.with_token("engine"), service.client.with_token("user"));
    let (tree, v1) = (workspace("u", "a"), version(1));
    let bytes = package(&engine, &v1, &[("SKILL.md", SKILL)]);
    user.put(format!("/v1/packages/{v1}"), &bytes).refused(403, "denied");
    user.get(format!("/v1/packages/{v1}")).refused(403, "denied");
    let body = json!({ "skills": selected(&[&v1]), "entrypoint": "touch ran" });
    let data = prepare(&user, &tree, &body);
    assert_eq!((&data["skills"], outcome(&data, "entrypoint").as_str()), (&json!([]), "done"));
    assert_eq!(prepare(&engine, &tree, &body)["skills"].as_array().unwrap().len(), 1);
    assert_eq!(prepare(&user, &tree, &body)["skills"].as_array().unwrap().len(), 1, "what is there stays");
    user.post_json(format!("{}/prepare", workspace("v", "a")), &body).refused(404, "not_found");
}

#[test]
fn what_is_too_much_or_makes_no_sense_is_refused_and_changes_nothing() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let many = |number: usize| vec![json!({ "skill_id": "s", "version_id": version(1) }); number];
    let files = |number: usize| vec![json!({ "name": "a", "content": "" }); number];
    for body in [
        json!({ "entrypoint": "x".repeat(16 * 1024 + 1) }),
        json!({ "entrypoint": "a\u{0}b" }),
        json!({ "skills": many(101) }),
        json!({ "files": files(101) }),
        json!({ "files": [{ "name": "a" }] }),
        json!({ "files": [{ "name": "a", "url": "http://169.254.169.254/" }] }),
        json!({ "files": [{ "name": "a", "content": "", "content_base64": "" }] }),
        json!({ "files": [{ "name": "a", "content_base64": "?" }] }),
        json!({ "bootstrap": ["no-such-step"] }),
        json!({ "mode": "other" }),
        json!({ "command": "ls" }),
        json!({ "skills": [["s", "v"]] }),
    ] {
        service.client.post_json(format!("{tree}/prepare"), &body).refused(400, "invalid");
    }
    assert!(!service.root.join("sandbox/u/a").exists());
    let long = "名".repeat(100);
    let body = json!({ "files": [{ "name": long, "content": "" }], "entrypoint": "touch ran" });
    service.client.post_json(format!("{tree}/prepare"), &body).refused(400, "invalid");
    assert!(!service.root.join("sandbox/u/a").exists());
}

#[test]
fn a_stream_tells_each_step_and_ends_with_the_result_or_the_failure() {
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    let body = json!({ "entrypoint": "echo hello" }).to_string();
    let target = format!("{tree}/prepare");
    let events: Vec<Value> = client.stream("POST", &target, "application/x-ndjson", &body).collect();
    let told: Vec<String> = events
        .iter()
        .map(|event| {
            let name = event["name"].as_str().or(event["step"]["name"].as_str()).unwrap_or_default();
            format!("{} {name}", event["event"].as_str().unwrap())
        })
        .collect();
    let expected =
        ["step deploy", "step_ended deploy", "step entrypoint", "step_ended entrypoint", "prepared "];
    assert_eq!(told, expected);
    assert_eq!(events[3]["step"]["log"], "hello");
    assert_eq!(events[4]["result"]["steps"].as_array().unwrap().len(), 2);
    // Each version that is deployed is told.
    let versions = [version(1), version(2)];
    for version in &versions {
        package(client, version, &[("SKILL.md", SKILL)]);
    }
    let body =
        json!({ "skills": selected(&[&versions[0], &versions[1]]), "entrypoint": "echo hello" }).to_string();
    let events: Vec<Value> = client.stream("POST", &target, "application/x-ndjson", &body).collect();
    let progress: Vec<Value> = events.into_iter().filter(|event| event["event"] == "progress").collect();
    let done = |done: u32| json!({ "event": "progress", "name": "deploy", "done": done, "of": 2 });
    assert_eq!(progress, [done(1), done(2)]);
    // `stream` alone is a stream of lines, too; server-sent events are for those that ask for them.
    let lines: Vec<Value> = client.stream("POST", &format!("{target}?stream=true"), "*/*", &body).collect();
    assert_eq!(lines.last().unwrap()["event"], "prepared");
    let mut sent = client.stream("POST", &target, "text/event-stream", &body);
    assert_eq!(sent.line().as_deref(), Some("event: step\n"));
    let mut last = String::new();
    while let Some(line) = sent.line() {
        last.push_str(&line);
    }
    assert!(last.contains("event: prepared\ndata: {"), "{last}");
    // A file in the place of the directory of versions is a failure within the stream.
    client.delete(format!("{tree}/file?path=projects&recursive=true")).ok();
    client.write(&tree, "projects", "a file");
    let events: Vec<Value> = client.stream("POST", &target, "application/x-ndjson", &body).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["code"]), (&json!("failed"), &json!("not_a_directory")));
    client.post(target, &body).refused(409, "not_a_directory");
}

#[test]
fn steps_of_the_configuration_run_first_and_only_those_that_are_named() {
    let config = r#"
[[prepare.bootstrap]]
name = "mirror"
command = "cat .pip/pip.conf > seen; ls >> seen"
files = { ".pip/pip.conf" = "[global]\n" }

[[prepare.bootstrap]]
name = "other"
command = "touch other"
"#;
    let service = Service::configured(config);
    let tree = workspace("u", "a");
    let body =
        json!({ "bootstrap": ["mirror"], "files": [{ "name": "a", "content": "a" }], "mode": "tool_call" });
    let data = prepare(&service.client, &tree, &body);
    assert_eq!(outcome(&data, "bootstrap:mirror"), "done");
    assert_eq!(service.client.text(&tree, "seen"), "[global]\nseen\n");
    assert!(!service.client.files(&tree).contains(&"other".to_owned()));
}

#[test]
fn of_fifty_at_once_each_wins_or_is_told_that_the_workspace_is_initialising() {
    let service = Service::start();
    let client = &service.client;
    let (tree, v1, v2) = (workspace("u", "a"), version(1), version(2));
    let many: Vec<(String, String)> =
        (0..40).map(|number| (format!("d{}/f{number}", number % 7), "x".repeat(1000))).collect();
    for version in [&v1, &v2] {
        let mut files: Vec<(&str, &str)> =
            many.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        files.push(("SKILL.md", SKILL));
        package(client, version, &files);
    }
    let mut won = 0;
    for round in 0..3 {
        let version = [&v1, &v2][round % 2];
        let body = json!({ "skills": selected(&[version]), "entrypoint": format!("sleep 0.3; echo {round} >> runs") });
        let replies: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> =
                (0..50).map(|_| scope.spawn(|| client.post_json(format!("{tree}/prepare"), &body))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        for reply in replies {
            if reply.status == 200 {
                won += 1;
                assert_eq!(reply.ok()["data"]["skills"].as_array().unwrap().len(), 1);
            } else {
                let refused = reply.refused(429, "busy");
                assert_eq!(refused["initialising"], true, "{refused}");
                assert!(reply.header("retry-after").is_some());
            }
        }
        let files = client.files(&tree);
        let deployed = files.iter().filter(|file| file.starts_with("projects/")).count();
        assert_eq!(deployed, 41, "never half, never two: {files:?}");
        assert_eq!(client.text(&tree, "runs").lines().count(), round + 1, "each script once");
    }
    assert!(won >= 3);
}

#[test]
fn versions_go_also_where_the_users_own_commands_take_all_places() {
    let config = "[limits.runs]\nruns_per_user = 1\nqueue_ms = 100\n[limits.disk]\nbytes = 1048576\n";
    let service = Service::configured(config);
    let (client, tree) = (&service.client, workspace("u", "a"));
    let versions: Vec<String> = (1..=3).map(version).collect();
    let large = "x".repeat(3 << 20);
    for (version, text) in versions.iter().zip([SKILL, SKILL, &large]) {
        package(client, version, &[("SKILL.md", text)]);
    }
    prepare(client, &tree, &json!({ "skills": selected(&[&versions[0]]) }));
    let taken = json!({ "shell": "touch taken; sleep 600" }).to_string();
    let _under_way = client.stream("POST", &format!("{tree}/exec"), "application/x-ndjson", &taken);
    while client.get(format!("{tree}/stat?path=taken")).status != 200 {
        thread::sleep(Duration::from_millis(5));
    }
    let deployed = || -> Vec<String> {
        let files = client.files(&tree).into_iter();
        files.filter_map(|file| Some(file.strip_prefix("projects/")?.to_owned())).collect()
    };
    let data = prepare(client, &tree, &json!({ "skills": selected(&[&versions[1]]) }));
    assert_eq!(deployed(), [format!("{}/SKILL.md", versions[1])], "{data}");
    // One has no room: the one that was placed before it goes as well.
    let body = json!({ "skills": selected(&[&versions[0], &versions[2]]) });
    client.post_json(format!("{tree}/prepare"), &body).refused(507, "quota");
    assert_eq!(deployed(), [format!("{}/SKILL.md", versions[1])]);
}

#[test]
fn a_round_goes_on_when_its_caller_leaves() {
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    let body = json!({ "entrypoint": "sleep 1; touch ran" }).to_string();
    let mut events = client.stream("POST", &format!("{tree}/prepare"), "application/x-ndjson", &body);
    assert_eq!(events.next().unwrap()["event"], "step");
    drop(events);
    client.post(format!("{tree}/prepare"), &body).refused(429, "busy");
    let begun = Instant::now();
    while client.post(format!("{tree}/prepare"), &body).status == 429 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(client.files(&tree).contains(&"ran".to_owned()));
    assert_eq!(
        outcome(&prepare(client, &tree, &serde_json::from_str(&body).unwrap()), "entrypoint"),
        "skipped"
    );
}

#[test]
fn one_round_is_one_record_in_the_audit_log() {
    let service = Service::start();
    let client = &service.client;
    let v1 = version(1);
    package(client, &v1, &[("SKILL.md", SKILL), ("a", "a"), ("b", "b")]);
    prepare(client, &workspace("u", "a"), &json!({ "skills": selected(&[&v1]), "entrypoint": "true" }));
    let mut text = String::new();
    for entry in std::fs::read_dir(service.root.join(".filesecbox/audit")).unwrap() {
        text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default());
    }
    assert_eq!(text.matches("POST /v1/sandbox/{u}/{a}/prepare").count(), 1, "{text}");
    assert_eq!(text.matches(&format!("packages/{v1}")).count(), 1, "{text}");
    assert!(!text.contains("write_file"), "{text}");
}
