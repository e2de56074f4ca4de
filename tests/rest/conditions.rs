//! `GET T/info`: an engine asks what holds for the commands of one agent, and a command meets exactly that.

use std::fs;

use policy::AgentId;
use serde_json::{Value, json};
use storage::Store;

use crate::support::{Client, Service, Settings, landlocked, skill_zip, workspace};

/// A policy that changes all that `info` tells of an agent.
fn narrow() -> Value {
    json!({
        "profile": "strict",
        "extra": ["sort"],
        "network": "none",
        "runs": { "timeout_ms": 700, "background_ms": 800, "terminal_ms": 900, "memory_bytes": 1_000_000_000 },
        "disk": { "bytes": 65536, "files": 20 },
    })
}

/// The trees of the user `u` with an agent: the workspace, and the skill `s`, which the agent gets here.
fn trees(client: &Client, agent: &str) -> [String; 2] {
    let skills = format!("/v1/skills/u/{agent}");
    client.upload(&skills, "baseline", &skill_zip("s", &[("f", "x")]));
    [workspace("u", agent), format!("{skills}/s")]
}

fn info(client: &Client, tree: &str) -> Value {
    client.get(format!("{tree}/info")).ok()["data"].clone()
}

#[test]
fn both_trees_of_an_agent_tell_its_own_commands_network_and_limits() {
    let service = Service::start();
    let client = &service.client;
    client.put("/v1/agents/own/policy", narrow().to_string()).ok();
    let common = client.get("/v1/info").ok()["data"].clone();
    for agent in ["own", "like-all"] {
        let policy = client.get(format!("/v1/agents/{agent}/policy")).ok()["data"]["effective"].clone();
        let commands: Vec<&Value> = {
            let missing = policy["missing"].as_array().unwrap();
            policy["commands"].as_array().unwrap().iter().filter(|name| !missing.contains(name)).collect()
        };
        for tree in trees(client, agent) {
            let told = info(client, &tree);
            assert_eq!(told["commands"], json!(commands), "{tree}");
            assert_eq!(told["limits"]["disk"], policy["disk"], "{tree}");
            for fact in ["profile", "network", "runs", "sessions"] {
                assert!(!told[fact].is_null(), "{tree} {fact}: {told}");
                assert_eq!(told[fact], policy[fact], "{tree} {fact}");
            }
            assert_eq!(told["tier"], common["host"]["enforcement"]["tier"], "{tree}");
        }
    }
    for tree in trees(client, "own") {
        let told = info(client, &tree);
        assert_eq!((&told["profile"], &told["network"]), (&json!("strict"), &json!("none")), "{tree}");
        assert!(told["commands"].as_array().unwrap().contains(&json!("sort")), "{told}");
        let runs = (&told["runs"]["timeout_ms"], &told["runs"]["memory_bytes"]);
        assert_eq!(runs, (&json!(700), &json!(1_000_000_000)), "{tree}");
        let sessions = (&told["sessions"]["background_ms"], &told["sessions"]["terminal_ms"]);
        assert_eq!(sessions, (&json!(800), &json!(900)), "{tree}");
        assert_eq!(told["limits"]["disk"]["files"], 20, "{tree}");
    }
    for tree in trees(client, "like-all") {
        let told = info(client, &tree);
        assert!(!told["commands"].as_array().unwrap().contains(&json!("sort")), "{told}");
        for (fact, expected) in [
            ("network", &common["network"]),
            ("runs", &common["limits"]["runs"]),
            ("sessions", &common["limits"]["sessions"]),
        ] {
            assert_eq!(told[fact], *expected, "{tree} {fact}");
        }
    }
}

#[test]
fn what_an_agent_is_told_is_what_its_commands_meet() {
    let service = Service::start();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    client.put("/v1/agents/own/policy", narrow().to_string()).ok();
    for agent in ["own", "like-all"] {
        for tree in trees(client, agent) {
            let told = info(client, &tree);
            let shell = |line: &str| {
                client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok()["data"].clone()
            };
            // At lower tiers the tree has a path of the host besides, which is in the variable.
            if told["tier"] == "namespaces" {
                let place = format!("{}\n", told["workspace"].as_str().unwrap());
                assert_eq!(shell("echo $WORKSPACE")["stdout"], place, "{tree}");
            }
            let is_told = told["commands"].as_array().unwrap().contains(&json!("sort"));
            let run = client.post_json(format!("{tree}/exec"), &json!({ "command": "sort" }));
            let answer = String::from_utf8_lossy(&run.body);
            assert_eq!(run.status, if is_told { 200 } else { 403 }, "{tree}: {answer}");
            let deadline = told["runs"]["timeout_ms"].as_u64().unwrap();
            if deadline < 1000 {
                let line = "python3 -c 'import time; time.sleep(20)'";
                assert_eq!(shell(line)["timed_out"], true, "{tree}");
            }
        }
    }
}

#[test]
fn an_agent_whose_policy_cannot_be_read_has_no_commands() {
    let mut service = Service::start();
    service.client.put("/v1/agents/own/policy", narrow().to_string()).ok();
    service.terminate();
    service.wait();
    let moved = tempfile::tempdir().unwrap();
    let root = moved.path().join("data");
    fs::rename(&service.root, &root).unwrap();
    // As a later version would write it.
    let (store, _) = Store::open(&root, storage::Options::default()).unwrap();
    let agent = AgentId::parse("own").unwrap();
    store.keep_agent_policy(&agent, Some(r#"{"profile":"strict","later":true}"#)).unwrap();
    drop(store);
    let again = Service::with(Settings { root: Some(root), ..Settings::default() });
    let client = &again.client;
    assert_eq!(client.get("/v1/agents/own/policy").ok()["data"]["source"], "unreadable");
    for tree in trees(client, "own") {
        assert_eq!(info(client, &tree)["commands"], json!([]), "{tree}");
    }
    assert_ne!(info(client, &workspace("u", "like-all"))["commands"], json!([]));
}

#[test]
fn info_uses_no_tree_and_there_is_none_of_a_skill_that_is_not_there() {
    let service = Service::start();
    let client = &service.client;
    client.get("/v1/skills/u/a/none/info").refused(404, "not_found");
    client.get("/v1/skills/u/a/none/info?x=1").refused(400, "invalid");
    for tree in trees(client, "a") {
        info(client, &tree);
    }
    let used = client.get(workspace("u", "a")).ok()["data"].clone();
    assert_eq!((&used["workspace"], &used["last_used_at"]), (&json!(false), &Value::Null), "{used}");
}
