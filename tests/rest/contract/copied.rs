//! Skills that are copied for commands, where nothing can be mounted.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Service, landlocked, skill, skill_zip, skills, workspace};

/// More files than can be copied in a millisecond.
const FILES: usize = 2000;
/// More files than are copied before the next request comes.
const LONG: usize = 8000;

#[test]
fn a_command_whose_time_is_over_before_its_skills_are_copied_does_not_begin_and_says_so() {
    let service = Service::configured("[isolation]\nmaximum = \"landlock\"\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let names: Vec<String> = (0..FILES).map(|number| format!("f{number}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    client.upload(&skills("u", "a"), "baseline", &skill_zip("large", &files));
    let own = workspace("u", "a");
    let tree = skill("u", "a", "large");
    let in_workspace = json!({ "shell": "touch made", "skills": "all", "timeout_ms": 1, "changes": true });
    let in_skill = json!({ "shell": "touch made", "timeout_ms": 1, "changes": true });
    for (tree, request) in [(&own, in_workspace), (&tree, in_skill)] {
        let answer = client.post_json(format!("{tree}/exec"), &request).ok();
        let late = &answer["data"];
        assert_eq!((&late["timed_out"], &late["exit_code"]), (&json!(true), &json!(-1)), "{late}");
        let hint = late["hint"].as_str().unwrap();
        assert!(hint.contains("did not begin") && hint.contains("deadline of 1 ms"), "{hint}");
        assert_eq!(answer["changes"], json!({ "created": [], "modified": [], "deleted": [] }));
        assert_eq!(late["enforcement"]["tier"], "landlock");
    }
    let made = |tree: &str| client.get(format!("{tree}/raw/made")).status;
    assert_eq!((made(&own), made(&tree)), (404, 404));
    // A run that events are read of has the same end, and one that is to be decided about has nothing to decide.
    let ask = json!({ "shell": "touch made", "timeout_ms": 1, "commit": "ask" });
    let late = client.post_json(format!("{tree}/exec"), &ask).ok()["data"].clone();
    assert!(late["hint"].as_str().unwrap().contains("did not begin"), "{late}");

    // Enough time, and nothing is in the way.
    let request = json!({ "shell": "ls skills/large | wc -l", "skills": "all" });
    let whole = client.post_json(format!("{own}/exec"), &request).ok()["data"].clone();
    // Besides them, the description of the skill.
    assert_eq!(whole["stdout"], format!("{}\n", FILES + 1), "{whole}");
}

/// A run that copies what it is to see is ended like one that works, by everything that ends runs.
#[test]
fn a_copy_for_a_command_ends_with_its_run_its_user_and_its_service() {
    let config =
        "shutdown_ms = 200\n[limits.runs]\ntimeout_ms = 300000\n[isolation]\nmaximum = \"landlock\"\n";
    let mut service = Service::configured(config);
    let client = service.client.clone();
    if !landlocked(&client) {
        return;
    }
    let names: Vec<String> = (0..LONG).map(|number| format!("f{number}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    client.upload(&skills("u", "a"), "baseline", &skill_zip("large", &files));
    let request = json!({ "shell": "touch made; sleep 1000", "skills": "all", "exec_id": "x" });
    // A copy that was made stays, so each of them copies for another user.
    let interrupted = |user: &str, end: &dyn Fn()| {
        let tree = workspace(user, "a");
        let (ended, took) = std::thread::scope(|scope| {
            let run = scope.spawn(|| client.post_json(format!("{tree}/exec"), &request));
            let state = || client.get(format!("{tree}/exec")).ok()["data"][0]["state"].clone();
            let seen = std::iter::repeat_with(state).find(|state| !state.is_null()).unwrap();
            assert_eq!(seen, "starting", "the copy was too short for this test");
            let begun = Instant::now();
            end();
            (run.join().unwrap(), begun.elapsed())
        });
        assert!(took < Duration::from_secs(60), "{took:?}");
        if ended.status != 200 {
            return ended.refused(503, "disconnected");
        }
        let ended = ended.ok();
        let result = &ended["data"];
        assert_eq!((&result["exit_code"], &result["timed_out"]), (&json!(-1), &json!(false)), "{ended}");
        assert_eq!(result["stdout"], "", "{ended}");
        ended
    };
    let killed = interrupted("u", &|| {
        client.delete(format!("{}/exec/x", workspace("u", "a"))).ok();
    });
    assert_eq!(killed["data"]["signal"], "SIGKILL", "{killed}");
    let own = workspace("u", "a");
    client.get(format!("{own}/raw/made")).refused(404, "not_found");
    // The next run goes on with what was copied, and sees everything.
    let shell = "ls skills/large | wc -l";
    let whole = client.post_json(format!("{own}/exec"), &json!({ "shell": shell, "skills": "all" })).ok();
    assert_eq!(whole["data"]["stdout"], format!("{}\n", LONG + 1), "{whole}");

    interrupted("v", &|| {
        let removed = client.delete("/v1/users/v").ok();
        assert_eq!((&removed["runs"], &removed["busy"]), (&json!(1), &json!([])), "{removed}");
    });
    client.get("/v1/users/v").refused(404, "not_found");

    let stopped = interrupted("w", &|| service.terminate());
    // One that was only admitted has no result.
    let said = stopped["data"]["hint"].as_str().or(stopped["data"].as_str()).unwrap();
    assert!(said.starts_with("the service is stopping"), "{stopped}");
    assert!(service.wait().success());
}
