//! Users, agents and runs as a whole: which there are, and everything of a user removed, everywhere.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Service, Settings, digest, skill, skill_zip, skills, workspace};

/// Gives a user all that a user can have: a workspace, a home, a snapshot, an own skill, a changed one and a hidden one.
fn settle(client: &Client, user: &str, agent: &str) {
    let tree = workspace(user, agent);
    client.write(&tree, "notes.md", "mine\n");
    assert_eq!(client.post_json(format!("{tree}/snapshots"), &json!({})).status, 201);
    client.post_json(format!("{tree}/exec"), &json!({"shell": "echo x > \"$HOME/kept\""})).ok();
    client.upload(&skills(user, agent), "overlay", &skill_zip("own", &[("a", "own\n")]));
    client.write(&skill(user, agent, "changed"), "f", "changed\n");
    client.delete(format!("{}?scope=overlay", skill(user, agent, "hidden"))).ok();
}

fn baseline(client: &Client, agent: &str) {
    for id in ["changed", "hidden"] {
        client.upload(&skills("anybody", agent), "baseline", &skill_zip(id, &[("f", "old\n")]));
    }
}

/// Every path below the data directory that has `name` as a segment; the audit log keeps what happened.
fn traces(root: &Path, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy() == name {
                found.push(entry.path().display().to_string());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    found
}

fn users(client: &Client) -> Value {
    client.get("/v1/users").ok()["data"].clone()
}

#[test]
fn users_and_agents_are_listed_with_what_there_is_of_each() {
    let service = Service::start();
    let client = &service.client;
    assert_eq!((users(client), &client.get("/v1/agents").ok()["data"]), (json!([]), &json!([])));
    baseline(client, "代理");
    settle(client, "张三", "代理");
    settle(client, "bob", "代理");
    client.write(&workspace("bob", "other"), "a", "x");
    assert_eq!(users(client), json!([{"user": "bob"}, {"user": "张三"}]));
    let agents = client.get("/v1/agents").ok();
    assert_eq!(agents["data"], json!([{"agent": "other", "skills": 0}, {"agent": "代理", "skills": 2}]));
    let bob = client.get("/v1/users/bob").ok();
    assert_eq!(bob["data"]["agents"][0]["agent"], "other");
    let with = &bob["data"]["agents"][1];
    assert_eq!(
        (&with["skills"], &with["workspace"], &with["home"], &with["snapshots"], &with["runs"]),
        (&json!(3), &json!(true), &json!(true), &json!(1), &json!(0)),
        "{bob}"
    );
    client.get("/v1/users/nobody").refused(404, "not_found");
    // Page by page.
    let first = client.get("/v1/users?limit=1").ok();
    assert_eq!((&first["data"], &first["next"]), (&json!([{"user": "bob"}]), &json!("bob")));
    let last = client.get("/v1/users?limit=1&cursor=bob").ok();
    assert_eq!((&last["data"], &last["next"]), (&json!([{"user": "张三"}]), &Value::Null));
    for route in ["/v1/users?limit=0", "/v1/users?cursor=a%2Fb", "/v1/agents?limit=0", "/v1/runs?state=x"] {
        client.get(route).refused(400, "invalid");
    }
}

#[test]
fn a_removed_user_leaves_nothing_and_no_other_is_touched() {
    let service = Service::start();
    let client = &service.client;
    for agent in ["a", "b"] {
        baseline(client, agent);
        settle(client, "alice", agent);
        settle(client, "bob", agent);
    }
    let bobs = |client: &Client| {
        let trees = ["a", "b"].map(|agent| {
            let hidden = client.get(format!("{}/files", skill("bob", agent, "hidden"))).status;
            let [own, changed] = ["own", "changed"].map(|id| client.files(&skill("bob", agent, id)));
            let snapshots = client.get(format!("{}/snapshots", workspace("bob", agent))).ok()["data"].clone();
            let home = client
                .post_json(format!("{}/exec", workspace("bob", agent)), &json!({"shell": "cat ~/kept"}));
            (hidden, own, changed, snapshots, home.ok()["data"]["stdout"].clone())
        });
        (
            trees,
            client.text(&workspace("bob", "a"), "notes.md"),
            client.get("/v1/registry?user=bob").ok()["data"].clone(),
        )
    };
    let before = bobs(client);
    // A run with a name, and one without.
    let background = json!({"shell": "echo named; sleep 1000", "exec_id": "dev"});
    let begun = client.post_json(format!("{}/exec?background=true", workspace("alice", "a")), &background);
    assert_eq!(begun.status, 201);
    let (caller, tree) = (client.clone(), skill("alice", "b", "own"));
    let unnamed = std::thread::spawn(move || {
        caller
            .post_json(format!("{tree}/exec"), &json!({"shell": "echo begun; echo x > begun; sleep 1000"}))
            .ok()
    });
    wait_for(|| client.get("/v1/runs?user=alice&state=running").ok()["data"].as_array().unwrap().len() == 2);
    wait_for(|| client.get(format!("{}/content?path=begun", skill("alice", "b", "own"))).status == 200);

    let removed = client.delete("/v1/users/alice").ok();
    assert_eq!(removed["data"], "User 'alice' removed", "{removed}");
    assert_eq!(
        (&removed["workspaces"], &removed["skills"], &removed["runs"], &removed["busy"], &removed["more"]),
        (&json!(2), &json!(6), &json!(2), &json!([]), &json!(false))
    );
    // The caller of the run has what it wrote.
    let ended = unnamed.join().unwrap();
    assert_eq!((&ended["data"]["stdout"], &ended["data"]["exit_code"]), (&json!("begun\n"), &json!(-1)));
    assert_eq!(client.get("/v1/runs?user=alice").ok()["data"], json!([]));
    client.get("/v1/users/alice").refused(404, "not_found");
    assert_eq!(users(client), json!([{"user": "bob"}]));
    assert_eq!(client.get("/v1/registry?user=alice").ok()["data"], json!([]));
    assert_eq!(traces(&service.root, "alice"), Vec::<String>::new());
    assert_eq!(bobs(client), before);
    // The user may come back, and finds what everybody finds.
    assert_eq!(client.text(&skill("alice", "a", "changed"), "f"), "old\n");
    assert_eq!(client.text(&skill("alice", "a", "hidden"), "f"), "old\n");
    let again = client.delete("/v1/users/alice").ok();
    assert_eq!((&again["workspaces"], &again["skills"]), (&json!(0), &json!(0)));
}

#[test]
fn a_removal_that_a_crash_cuts_short_is_finished_by_the_next_call() {
    let mut service = Service::start();
    baseline(&service.client, "a");
    settle(&service.client, "bob", "a");
    for delay in [0, 3, 10, 30] {
        let client = service.client.clone();
        for agent in 0..12 {
            let agent = format!("a{agent}");
            client.write(&workspace("alice", &agent), "d/notes.md", "mine\n");
            for id in ["s", "t"] {
                client.upload(&skills("alice", &agent), "overlay", &skill_zip(id, &[("a", "own\n")]));
            }
        }
        // Connected before the service can be gone. The request is cut short, perhaps before it is sent, and there is no answer.
        let mut stream = client.connect();
        let head = format!("DELETE /v1/users/alice HTTP/1.1\r\nhost: {}\r\n\r\n", client.address);
        let removal = std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut stream, head.as_bytes());
            let _ = std::io::Read::read(&mut stream, &mut [0; 512]);
        });
        std::thread::sleep(Duration::from_millis(delay));
        let pid = rustix::process::Pid::from_raw(i32::try_from(service.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        service.wait();
        removal.join().unwrap();
        let root = service.root.clone();
        let next = Service::with(Settings { root: Some(root), ..Settings::default() });
        // What is left is whole, and can be used.
        for agent in 0..12 {
            let tree = workspace("alice", &format!("a{agent}"));
            if next.client.get(format!("{tree}/files")).ok()["data"] != json!([]) {
                assert_eq!(next.client.text(&tree, "d/notes.md"), "mine\n");
            }
        }
        let removed = next.client.delete("/v1/users/alice").ok();
        assert_eq!(removed["data"], "User 'alice' removed", "{removed}");
        assert_eq!(traces(&next.root, "alice"), Vec::<String>::new());
        assert_eq!(next.client.get("/v1/registry?user=alice").ok()["data"], json!([]));
        assert_eq!(users(&next.client), json!([{"user": "bob"}]));
        assert_eq!(next.client.text(&workspace("bob", "a"), "notes.md"), "mine\n");
        assert_eq!(next.client.text(&skill("bob", "a", "changed"), "f"), "changed\n");
        // The data directory lies in the directory of the first service, which goes with it.
        std::mem::forget(std::mem::replace(&mut service, next));
    }
}

#[test]
fn every_run_is_listed_for_who_may_see_it_and_killed_by_its_id() {
    let mut config = String::new();
    for (token, role) in [
        ("admin", "role = \"admin\""),
        ("manager", "role = \"manager\"\nagent = \"a\""),
        ("alice", "role = \"user\"\nuser = \"alice\""),
        ("bound", "role = \"user\"\nuser = \"alice\"\nagent = \"b\""),
        ("bob", "role = \"user\"\nuser = \"bob\""),
    ] {
        config.push_str(&format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(token)));
    }
    let service = Service::configured(&config);
    let [admin, manager, alice, bound, bob] =
        ["admin", "manager", "alice", "bound", "bob"].map(|token| service.client.with_token(token));
    let tree = workspace("alice", "a");
    let (caller, place) = (alice.clone(), tree.clone());
    let unnamed = std::thread::spawn(move || {
        caller
            .post_json(
                format!("{place}/execute?command=bash"),
                &json!(["-c", "echo begun; echo x > begun; sleep 1000"]),
            )
            .ok()
    });
    let seen = |client: &Client, query: &str| client.get(format!("/v1/runs{query}")).ok()["data"].clone();
    wait_for(|| seen(&admin, "").as_array().unwrap().len() == 1);
    wait_for(|| admin.get(format!("{tree}/content?path=begun")).status == 200);
    let run = seen(&admin, "")[0].clone();
    let id = run["exec_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&run["user"], &run["agent"], &run["skill_id"], &run["named"], &run["state"]),
        (&json!("alice"), &json!("a"), &Value::Null, &json!(false), &json!("running"))
    );
    assert_eq!(run["command"], "bash -c echo begun; echo x > begun; sleep 1000");
    for (client, query, count) in [
        (&manager, "", 1),
        (&alice, "", 1),
        (&bound, "", 0),
        (&bob, "", 0),
        (&admin, "?user=alice&agent=a&state=running", 1),
        (&admin, "?agent=b", 0),
        (&admin, "?state=ended", 0),
    ] {
        assert_eq!(seen(client, query).as_array().unwrap().len(), count, "{query}");
    }
    bob.get("/v1/runs?user=alice").refused(404, "not_found");
    bob.delete(format!("{tree}/exec/{id}")).refused(404, "not_found");
    manager.delete(format!("{tree}/exec/{id}")).refused(403, "denied");
    // Its own tree finds it, and no other.
    assert_eq!(alice.get(format!("{tree}/exec")).ok()["data"][0]["exec_id"], json!(id));
    assert_eq!(alice.get(format!("{tree}/exec/{id}")).ok()["data"]["named"], false);
    alice.get(format!("{tree}/exec/{id}?follow=true")).refused(409, "conflict");
    alice.delete(format!("{}/exec/{id}", workspace("alice", "b"))).refused(404, "not_found");
    assert_eq!(alice.delete(format!("{tree}/exec/{id}")).ok()["ended"], true);
    let ended = unnamed.join().unwrap();
    assert_eq!(
        (&ended["result"]["stdout"], &ended["result"]["signal"]),
        (&json!("begun\n"), &json!("SIGKILL"))
    );
    assert_eq!(seen(&admin, ""), json!([]));
    alice.delete(format!("{tree}/exec/{id}")).refused(404, "not_found");
}

fn wait_for(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}
