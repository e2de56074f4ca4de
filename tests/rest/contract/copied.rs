//! Skills that are copied for commands, where nothing can be mounted.

use serde_json::json;

use crate::support::{Service, landlocked, skill, skill_zip, skills, workspace};

/// More files than can be copied in a millisecond.
const FILES: usize = 2000;

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
