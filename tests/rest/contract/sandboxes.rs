//! Workspaces as a whole: listed, measured, removed, swept when they are not used.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Service, encoded, landlocked, skill, skill_zip, skills, workspace};

fn listed(service: &Service, target: &str) -> Vec<(String, String)> {
    let answer = service.client.get(target).ok();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    answer["data"].as_array().unwrap().iter().map(|row| (text(row, "user"), text(row, "agent"))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(user, agent)| ((*user).to_owned(), (*agent).to_owned())).collect()
}

/// Waits until something holds.
fn wait(complaint: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{complaint}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn workspaces_are_listed_sorted_and_in_pages() {
    let service = Service::start();
    for (user, agent) in [("乙", "y"), ("a", "z"), ("乙", "x"), ("a!", "b")] {
        service.client.write(&workspace(user, agent), "f", "x");
    }
    let all = pairs(&[("a!", "b"), ("a", "z"), ("乙", "x"), ("乙", "y")]);
    assert_eq!(listed(&service, "/v1/sandbox"), all);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = service.client.get(format!("/v1/sandbox?limit=3{cursor}")).ok();
        found.extend(listed(&service, &format!("/v1/sandbox?limit=3{cursor}")));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={}", encoded(next));
    }
    assert_eq!(found, all);
    assert_eq!(
        listed(&service, &format!("/v1/sandbox/{}", encoded("乙"))),
        pairs(&[("乙", "x"), ("乙", "y")])
    );
    assert_eq!(listed(&service, "/v1/sandbox/nobody"), pairs(&[]));
}

#[test]
fn what_a_user_takes_is_told_for_the_workspace_each_skill_and_the_snapshots() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("甲", "x"), "baseline", &skill_zip("报表", &[("large", &"x".repeat(100_000))]));
    client.write(&skill("甲", "x", "报表"), "mine", &"y".repeat(10_000));
    client.write(&workspace("甲", "x"), "f", &"z".repeat(50_000));
    client.post(format!("{}/snapshots", workspace("甲", "x")), "").ok();
    let told = client.get(workspace("甲", "x")).ok()["data"].clone();
    assert_eq!(
        (&told["user"], &told["agent"], &told["workspace"]),
        (&json!("甲"), &json!("x"), &json!(true))
    );
    assert!((50_000..100_000).contains(&told["taken"]["bytes"].as_u64().unwrap()), "{told}");
    assert_eq!(told["skills"][0]["skill_id"], "报表");
    assert!((10_000..50_000).contains(&told["skills"][0]["bytes"].as_u64().unwrap()), "{told}");
    assert_eq!(told["snapshots"], 1);
    assert!(told["taken_by_snapshots"]["bytes"].as_u64().unwrap() >= 50_000, "{told}");
    assert_eq!((&told["runs"], &told["terminals"]), (&json!(0), &json!(0)));
    assert_eq!(told["limits"]["idle_ms"], 0, "nothing goes by itself unless the operator says so");
    assert_eq!(told["limits"]["keep_ms"], 2_592_000_000_u64);
    assert!(told["last_used_at"].as_str().unwrap().ends_with('Z'), "{told}");
    let none = client.get(workspace("nobody", "x")).ok()["data"].clone();
    assert_eq!((&none["workspace"], &none["taken"]["bytes"]), (&json!(false), &json!(0)));
    let info = client.get(format!("{}/info", workspace("甲", "x"))).ok()["data"].clone();
    assert_eq!((&info["workspace"], &info["backend"]), (&json!("/workspace"), &json!("local")));
}

#[test]
fn a_workspace_is_removed_with_its_home_and_not_under_a_command_unless_forced() {
    let service = Service::start();
    if !landlocked(&service.client) {
        return;
    }
    let (client, tree) = (&service.client, workspace("甲", "x"));
    client.write(&tree, "f", "x");
    client.post_json(format!("{tree}/exec"), &json!({"shell": "echo x > ~/kept"})).ok();
    let sleeps = json!({"shell": "sleep 600", "exec_id": "sleeper"});
    client.post_json(format!("{tree}/exec?background=true"), &sleeps).ok();
    assert_eq!(client.get(&tree).ok()["data"]["runs"], 1);
    client.delete(&tree).refused(409, "conflict");
    assert_eq!(client.text(&tree, "f"), "x");
    let several = client.delete(format!("/v1/sandbox/{}", encoded("甲"))).ok();
    assert_eq!((&several["removed"], &several["busy"][0]["agent"]), (&json!(0), &json!("x")));
    // A plain run, without a name, is killed too.
    std::thread::scope(|scope| {
        let plain = scope.spawn(|| client.try_execute(&tree, "bash", &["-c", "sleep 600"]));
        wait("the second run does not start", || client.get(&tree).ok()["data"]["runs"] == 2);
        assert_eq!(client.delete(format!("{tree}?force=true")).ok()["removed"], true);
        plain.join().unwrap().refused(409, "conflict");
    });
    let told = client.get(&tree).ok()["data"].clone();
    assert_eq!((&told["workspace"], &told["home"], &told["runs"]), (&json!(false), &json!(false), &json!(0)));
    assert_eq!(client.files(&tree), Vec::<String>::new());
    let home = client.post_json(format!("{tree}/exec"), &json!({"shell": "ls -A ~; pwd"})).ok();
    assert!(!home["data"]["stdout"].as_str().unwrap().contains("kept"), "{home}");
    assert_eq!(client.delete(&tree).ok()["removed"], true);
    assert_eq!(client.delete(&tree).ok()["removed"], false);
}

#[test]
fn a_run_that_waits_for_its_place_does_not_keep_a_workspace_from_being_removed_by_force() {
    let service = Service::configured("[limits.runs]\nruns_per_user = 1\nqueue_ms = 60000\n");
    if !landlocked(&service.client) {
        return;
    }
    let (client, tree) = (&service.client, workspace("u", "a"));
    std::thread::scope(|scope| {
        let run = || scope.spawn(|| client.try_execute(&tree, "bash", &["-c", "sleep 600"]));
        let first = run();
        wait("the first run does not start", || client.get(&tree).ok()["data"]["runs"] == 1);
        let second = run();
        wait("the second run does not wait", || {
            String::from_utf8_lossy(client.get("/metrics").bytes(200))
                .contains("\nfilesecbox_runs_waiting 1\n")
        });
        assert_eq!(client.delete(format!("{tree}?force=true")).ok()["removed"], true);
        first.join().unwrap().refused(409, "conflict");
        // It may have begun when the workspace was gone.
        while !second.is_finished() {
            client.delete(format!("{tree}?force=true")).ok();
        }
        second.join().unwrap().refused(409, "conflict");
    });
}

#[test]
fn a_run_that_is_about_to_wait_for_a_decision_does_not_keep_a_workspace_from_being_removed_by_force() {
    let service = Service::start();
    if !landlocked(&service.client) {
        return;
    }
    let (client, tree) = (&service.client, workspace("u", "a"));
    let many = "mkdir d && cd d && for i in $(seq 20000); do : > f$i; done";
    let run = json!({"shell": many, "commit": "ask"});
    let runs = || client.get(&tree).ok()["data"]["runs"] == 1;
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.post_json(format!("{tree}/exec"), &run).status);
        wait("the run does not start", || runs() || asking.is_finished());
        // Its command is over then, and its changes are being looked through.
        wait("the run does not end", || !runs());
        assert_eq!(client.delete(format!("{tree}?force=true")).ok()["removed"], true);
        assert_eq!(asking.join().unwrap(), 200);
    });
}

#[test]
fn all_workspaces_go_only_when_it_is_said_in_full() {
    let service = Service::start();
    let client = &service.client;
    for user in ["甲", "乙"] {
        client.write(&workspace(user, "x"), "f", "x");
        client.write(&workspace(user, "y"), "f", "x");
    }
    client.delete("/v1/sandbox").refused(400, "invalid");
    assert_eq!(client.delete(format!("/v1/sandbox/{}", encoded("甲"))).ok()["removed"], 2);
    assert_eq!(listed(&service, "/v1/sandbox"), pairs(&[("乙", "x"), ("乙", "y")]));
    let answer = client.delete("/v1/sandbox?confirm=all-workspaces").ok();
    assert_eq!((&answer["removed"], &answer["more"]), (&json!(2), &json!(false)));
    assert_eq!(listed(&service, "/v1/sandbox"), pairs(&[]));
}

#[test]
fn an_unused_workspace_is_swept_and_a_used_one_is_not() {
    let service = Service::configured("[workspaces]\nidle_ms = 1500\nkeep_ms = 0\n");
    let client = &service.client;
    client.upload(&skills("甲", "x"), "baseline", &skill_zip("s", &[("f", "1")]));
    client.write(&skill("甲", "x", "s"), "mine", "x");
    for user in ["甲", "乙"] {
        client.write(&workspace(user, "x"), "f", "x");
    }
    if landlocked(client) {
        let sleeps = json!({"shell": "sleep 600", "exec_id": "sleeper"});
        client.write(&workspace("丙", "x"), "f", "x");
        client.post_json(format!("{}/exec?background=true", workspace("丙", "x")), &sleeps).ok();
    }
    let at = |user: &str| service.root.join("sandbox").join(user).join("x").exists();
    wait("nothing is swept", || {
        // A read is a use; asking what there is, is none.
        assert_eq!(client.text(&workspace("乙", "x"), "f"), "x");
        listed(&service, "/v1/sandbox").len() < 3 || !at("甲")
    });
    assert_eq!((at("甲"), at("乙")), (false, true));
    assert_eq!(client.files(&workspace("甲", "x")), Vec::<String>::new());
    assert_eq!(client.text(&skill("甲", "x", "s"), "mine"), "x");
    let figures = String::from_utf8(client.get("/metrics").bytes(200).to_vec()).unwrap();
    assert!(figures.contains("filesecbox_workspaces_swept_total 1\n"), "{figures}");
    let audit =
        std::fs::read_to_string(service.root.join(".filesecbox/audit/0000000000000001.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("\"action\":\"sweep\"")).unwrap();
    assert!(line.contains("\"tree\":\"sandbox/甲/x\"") && !line.contains("\"role\""), "{line}");
    if landlocked(client) {
        assert!(at("丙"), "the workspace of a run was swept");
    }
}

#[test]
fn a_workspace_is_removed_restored_and_pulled_right_after_the_answer_of_a_run() {
    let service = Service::start();
    let client = &service.client;
    for round in 0..30 {
        let (user, tree) = (format!("u{round}"), workspace(&format!("u{round}"), "x"));
        client.upload(&skills(&user, "x"), "baseline", &skill_zip("报表", &[("f", &round.to_string())]));
        // Many files are removed after the answer: what a run leaves in its own `/tmp`.
        let line = "for i in $(seq 300); do : > $TMPDIR/$i; done; echo done";
        client.write(&tree, "f", "kept");
        let snapshot = client.post(format!("{tree}/snapshots"), "").ok()["data"]["id"].clone();
        client.execute(&tree, "bash", &["-c", line]);
        client.post(format!("{tree}/snapshots/{}/restore", snapshot.as_str().unwrap()), "").ok();
        client.write(&skill(&user, "x", "报表"), "mine", "1");
        client.execute(&skill(&user, "x", "报表"), "bash", &["-c", line]);
        client.post(format!("{}/promote", skill(&user, "x", "报表")), "").ok();
        client.execute(&skill(&user, "x", "报表"), "bash", &["-c", line]);
        client.post(format!("{}/pull", skill(&user, "x", "报表")), "").ok();
        client.execute(&tree, "bash", &["-c", line]);
        client.delete(&tree).ok();
    }
}

#[test]
fn an_unused_workspace_is_set_aside_and_comes_back_with_the_first_request() {
    let service = Service::configured("[workspaces]\nidle_ms = 1500\n");
    let client = &service.client;
    client.write(&workspace("甲", "x"), "f", "mine");
    client.write(&workspace("乙", "x"), "f", "other");
    let at = |user: &str| service.root.join("sandbox").join(user).join("x").exists();
    wait("nothing is set aside", || !at("甲") && !at("乙"));
    let told = client.get(workspace("甲", "x")).ok()["data"].clone();
    assert_eq!((&told["workspace"], &told["kept"]), (&json!(false), &json!(true)));
    assert_eq!(listed(&service, "/v1/sandbox").len(), 2);
    // The first request of any kind brings it back: a read, a write over it, a command.
    assert_eq!(client.text(&workspace("甲", "x"), "f"), "mine");
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let client = client.clone();
            std::thread::spawn(move || client.write(&workspace("乙", "x"), &format!("new{number}"), "x"))
        })
        .collect();
    writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
    assert_eq!(client.text(&workspace("乙", "x"), "f"), "other");
    assert_eq!(client.files(&workspace("乙", "x")).len(), 5);
    let audit =
        std::fs::read_to_string(service.root.join(".filesecbox/audit/0000000000000001.jsonl")).unwrap();
    for action in ["set aside", "brought back"] {
        let told = |line: &&str| {
            line.contains(&format!("\"action\":\"{action}\"")) && line.contains("\"tree\":\"sandbox/甲/x\"")
        };
        assert!(audit.lines().any(|line| told(&line)), "{action}: {audit}");
    }
    let figures = String::from_utf8(client.get("/metrics").bytes(200).to_vec()).unwrap();
    assert!(figures.contains("filesecbox_workspaces_swept_total 0\n"), "{figures}");
}

#[test]
fn removing_many_workspaces_passes_over_kept_snapshots_and_records_what_it_removed() {
    let service = Service::start();
    let client = &service.client;
    let records = service.root.join(".filesecbox/sandboxes/a");
    for number in 0..1001 {
        let manifests = records.join(format!("x{number}/manifests"));
        std::fs::create_dir_all(&manifests).unwrap();
        std::fs::write(manifests.join("0123456789abcdef0123"), "").unwrap();
    }
    client.write(&workspace("乙", "x"), "f", "x");
    let answer = client.delete("/v1/sandbox?confirm=all-workspaces").ok();
    assert_eq!((&answer["removed"], &answer["more"]), (&json!(1), &json!(false)));
    let recorded = || {
        let files = std::fs::read_dir(service.root.join(".filesecbox/audit")).unwrap();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
        texts.map(|text| text.matches("workspace removed").count()).sum::<usize>()
    };
    wait("the removal is not recorded", || recorded() > 0);
    assert_eq!(recorded(), 1);
}
