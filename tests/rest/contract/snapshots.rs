//! Snapshots of workspaces: taken, listed, restored, forked, removed.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Service, digest, landlocked, workspace};

fn take(service: &Service, tree: &str) -> Value {
    let reply = service.client.post(format!("{tree}/snapshots"), "");
    assert_eq!(reply.status, 201);
    reply.ok()["data"].clone()
}

fn id(snapshot: &Value) -> &str {
    snapshot["id"].as_str().unwrap()
}

#[test]
fn a_workspace_goes_back_to_a_snapshot_that_is_found_by_its_name() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("甲", "x"));
    client.write(&tree, "数据/表.csv", "一\n");
    client.put(format!("{tree}/raw/run.sh?mode=755"), "#!/bin/sh\n").ok();
    let body = json!({"name": "开始", "note": "第一行\n第二行"});
    let first = client.post_json(format!("{tree}/snapshots"), &body).ok()["data"].clone();
    assert_eq!(
        (&first["name"], &first["note"], &first["live"]),
        (&body["name"], &body["note"], &json!(false))
    );
    assert_eq!((&first["entries"], &first["bytes"]), (&json!(3), &json!(14)));
    client.write(&tree, "数据/表.csv", "二\n");
    client.write(&tree, "later", "x");
    let second = take(&service, &tree);
    let list = client.get(format!("{tree}/snapshots")).ok()["data"].clone();
    assert_eq!(list, json!([first, second]));
    assert_eq!(client.get(format!("{tree}/snapshots?limit=1")).ok()["next"], first["id"]);
    assert_eq!(client.get(format!("{tree}/snapshots/{}", id(&second))).ok()["data"], second);
    let restored = client.post(format!("{tree}/snapshots/{}/restore", id(&first)), "").ok();
    assert_eq!(
        (&restored["data"], &restored["replaced"]),
        (&json!("The workspace is what it was"), &json!(true))
    );
    assert_eq!(client.files(&tree), ["run.sh", "数据/表.csv"]);
    assert_eq!(client.text(&tree, "数据/表.csv"), "一\n");
    assert_eq!(client.get(format!("{tree}/stat?path=run.sh")).ok()["data"]["mode"], "0755");
    client.delete(format!("{tree}/snapshots/{}", id(&first))).ok();
    client.post(format!("{tree}/snapshots/{}/restore", id(&first)), "").refused(404, "not_found");
    client.post(format!("{tree}/snapshots/{}/restore", id(&second)), "").ok();
    assert_eq!(client.text(&tree, "数据/表.csv"), "二\n");
}

#[test]
fn commands_find_restored_and_forked_files_their_own() {
    let service = Service::start();
    if !landlocked(&service.client) {
        return;
    }
    let (client, tree, fork) = (&service.client, workspace("甲", "x"), workspace("乙", "y"));
    let shell = |tree: &str, line: &str| {
        let answer = client.post_json(format!("{tree}/exec"), &json!({"shell": line})).ok();
        assert_eq!(answer["data"]["exit_code"], 0, "{answer}");
        answer["data"]["stdout"].as_str().unwrap().to_owned()
    };
    shell(&tree, "mkdir d; echo one > d/f; chmod 700 d; ln -s d/f link; echo x > private; chmod 600 private");
    let snapshot = take(&service, &tree);
    shell(&tree, "rm -r d; echo two > private");
    let refused_while = json!({"shell": "sleep 600", "exec_id": "sleeper"});
    client.post_json(format!("{tree}/exec?background=true"), &refused_while).ok();
    let restore = format!("{tree}/snapshots/{}/restore", id(&snapshot));
    client.post(&restore, "").refused(409, "conflict");
    assert_eq!(take(&service, &tree)["live"], true);
    client.delete(format!("{tree}/exec/sleeper")).ok();
    // What the run had is given back right after its end is told.
    let begun = Instant::now();
    while client.post(&restore, "").status == 409 {
        assert!(begun.elapsed().as_secs() < 60, "the run is not over");
    }
    assert_eq!(shell(&tree, "cat link private; echo three >> d/f; stat -c %a private"), "one\nx\n600\n");
    let target = json!({"user": "乙", "agent": "y"});
    let forked = client.post_json(format!("{tree}/snapshots/{}/fork", id(&snapshot)), &target);
    assert_eq!((forked.status, &forked.ok()["replaced"]), (201, &json!(false)));
    assert_eq!(shell(&fork, "echo two > d/f; cat link private"), "two\nx\n");
    assert_eq!(client.text(&tree, "d/f"), "one\nthree\n");
    let again = client.post_json(format!("{tree}/snapshots/{}/fork", id(&snapshot)), &target);
    again.refused(409, "already_exists");
    assert_eq!(client.text(&fork, "d/f"), "two\n");
    let replacing = json!({"user": "乙", "agent": "y", "replace": true});
    client.post_json(format!("{tree}/snapshots/{}/fork", id(&snapshot)), &replacing).ok();
    assert_eq!(client.text(&fork, "d/f"), "one\n");
}

#[test]
fn who_forks_must_be_allowed_in_both_places_and_the_record_names_both() {
    let config = format!(
        "[[tokens]]\nsha256 = \"{}\"\nrole = \"engine\"\n[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"甲\"\n",
        digest("engine"),
        digest("user")
    );
    let service = Service::configured(&config);
    let (engine, user) = (service.client.with_token("engine"), service.client.with_token("user"));
    let tree = workspace("甲", "x");
    engine.write(&tree, "f", "x");
    engine.write(&workspace("乙", "x"), "secret", "x");
    let snapshot = user.post(format!("{tree}/snapshots"), "").ok()["data"].clone();
    let fork = format!("{tree}/snapshots/{}/fork", id(&snapshot));
    for target in
        [json!({"user": "乙", "agent": "x"}), json!({"user": "乙", "agent": "none", "replace": true})]
    {
        user.post_json(&fork, &target).refused(404, "not_found");
    }
    assert_eq!(engine.files(&workspace("乙", "x")), ["secret"]);
    user.post_json(&fork, &json!({"user": "甲", "agent": "别的"})).ok();
    engine.post_json(&fork, &json!({"user": "乙", "agent": "new"})).ok();
    assert_eq!(engine.files(&workspace("乙", "new")), ["f"]);
    // The snapshot of one user is nothing to another.
    let foreign = format!("{}/snapshots/{}/restore", workspace("乙", "x"), id(&snapshot));
    engine.post(&foreign, "").refused(404, "not_found");
    let audit =
        std::fs::read_to_string(service.root.join(".filesecbox/audit/0000000000000001.jsonl")).unwrap();
    let records: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let forks: Vec<(&str, &str, &str)> = records
        .iter()
        .filter(|record| record["action"].as_str().unwrap().ends_with("/fork"))
        .map(|record| {
            assert_eq!((&record["tree"], &record["snapshot"]), (&json!("sandbox/甲/x"), &snapshot["id"]));
            let text = |name: &str| record[name].as_str().unwrap();
            (text("role"), text("to"), text("outcome"))
        })
        .collect();
    assert_eq!(
        forks,
        [
            ("user", "sandbox/乙/x", "not_found"),
            ("user", "sandbox/乙/none", "not_found"),
            ("user", "sandbox/甲/别的", "ok"),
            ("engine", "sandbox/乙/new", "ok"),
        ]
    );
}

#[test]
fn snapshots_beyond_a_limit_are_refused_by_its_name() {
    let service = Service::configured("[limits.snapshots]\nper_workspace = 1\nbytes = 200000\n");
    let (client, tree) = (&service.client, workspace("u", "a"));
    client.write(&tree, "large", &"x".repeat(300_000));
    let answer = client.post(format!("{tree}/snapshots"), "").refused(507, "quota");
    assert_eq!(answer["limit"], "limits.snapshots.bytes");
    client.write(&tree, "large", "small");
    let snapshot = take(&service, &tree);
    let answer = client.post(format!("{tree}/snapshots"), "").refused(507, "quota");
    assert_eq!(
        (&answer["limit"], &answer["limit_snapshots"]),
        (&json!("limits.snapshots.per_workspace"), &json!(1))
    );
    client.delete(format!("{tree}/snapshots/{}", id(&snapshot))).ok();
    take(&service, &tree);
}

#[test]
fn who_goes_away_from_a_restore_keeps_its_place_until_it_is_done() {
    let service = Service::configured("[limits.snapshots]\nat_once = 1\n");
    let client = &service.client;
    let forks: Vec<String> = ["a", "b"]
        .iter()
        .map(|agent| {
            let tree = workspace("甲", agent);
            client.write(&tree, "f", "x");
            for number in 0..5000 {
                let path = service.root.join(format!("sandbox/甲/{agent}/{number}"));
                std::fs::write(path, number.to_string()).unwrap();
            }
            format!("{tree}/snapshots/{}/fork", id(&take(&service, &tree)))
        })
        .collect();
    let drafts = || {
        let staged = std::fs::read_dir(service.root.join(".filesecbox/stage")).unwrap();
        staged.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
    };
    let target = json!({"user": "甲", "agent": "first"}).to_string();
    let mut stream = client.connect();
    let head = format!("POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n", forks[0]);
    let token = client.token.as_deref().map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    write!(stream, "{head}{token}content-length: {}\r\n\r\n{target}", target.len()).unwrap();
    let begun = Instant::now();
    while drafts() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the first fork never begins");
    }
    drop(stream);
    let most = std::thread::scope(|scope| {
        let target = json!({"user": "甲", "agent": "second"});
        let second = scope.spawn(move || {
            // A machine may take longer for the first than a request waits for its place.
            while client.post_json(forks[1].clone(), &target).status == 429 {}
        });
        let mut most = 0;
        while !second.is_finished() {
            most = most.max(drafts());
        }
        second.join().unwrap();
        most
    });
    assert_eq!(most, 1, "two workspaces are being made at once");
    for made in ["first", "second"] {
        assert_eq!(client.files(&workspace("甲", made)).len(), 5001, "{made}");
    }
}
