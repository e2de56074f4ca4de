//! Skills by their places in the workspace: what the catalogue names is there, for every route with a path.

use serde_json::json;

use crate::support::{Service, encoded, skill, skill_zip, skills, workspace};

/// A service with the skill `技能` of the agent, and an empty workspace of `张三`.
fn service() -> (Service, String, String) {
    let service = Service::start();
    let files = [("docs/a.txt", "one\n"), ("run.py", "print('ran')\n")];
    service.client.upload(&skills("anybody", "代理"), "baseline", &skill_zip("技能", &files));
    (service, workspace("张三", "代理"), skill("张三", "代理", "技能"))
}

#[test]
fn what_the_catalogue_names_is_read_through_the_workspace() {
    let (service, tree, skill) = service();
    let client = &service.client;
    let catalogue = client.get(format!("{}/catalog", skills("张三", "代理"))).ok();
    let location = "/workspace/skills/技能/SKILL.md";
    assert!(catalogue["data"].as_str().unwrap().contains(location), "{catalogue}");
    let whole = client.text(&skill, "SKILL.md");
    for path in [location, "skills/技能/SKILL.md", "./skills/技能/SKILL.md"] {
        let read = client.get(format!("{tree}/content?path={}", encoded(path))).ok();
        assert_eq!((&read["data"], &read["layer"]), (&json!(whole), &json!("baseline")));
        assert_eq!(client.get(format!("{tree}/raw/{}", encoded(path))).body, whole.as_bytes());
        let stat = client.get(format!("{tree}/stat?path={}", encoded(path))).ok();
        assert_eq!(stat["data"]["path"], "skills/技能/SKILL.md");
    }
    let path = encoded("skills/技能");
    let names = client.get(format!("{tree}/dir?path={path}")).ok();
    assert_eq!(names["data"].as_array().unwrap().len(), 3);
    let files = client.get(format!("{tree}/files?path={path}")).ok();
    assert_eq!(
        files["data"],
        json!(["skills/技能/SKILL.md", "skills/技能/docs/a.txt", "skills/技能/run.py"])
    );
    let found = client.get(format!("{tree}/glob?pattern=*.txt&path={path}")).ok();
    assert_eq!(found["data"], json!(["skills/技能/docs/a.txt"]));
    let found = client
        .post_json(format!("{tree}/grep"), &json!({"pattern": "one", "path": "/workspace/skills/技能/"}));
    assert_eq!(found.ok()["data"][0]["path"], "skills/技能/docs/a.txt");
    // Page by page, too.
    let page = client.get(format!("{tree}/glob?pattern=*&path={path}&limit=1")).ok();
    let next = encoded(page["next"].as_str().unwrap());
    let page = client.get(format!("{tree}/glob?pattern=*&path={path}&limit=1&cursor={next}")).ok();
    assert_eq!(page["data"], json!(["skills/技能/docs/a.txt"]));
}

#[test]
fn a_change_through_the_workspace_is_one_of_the_users_overlay() {
    let (service, tree, skill) = service();
    let client = &service.client;
    let inside = |path: &str| encoded(format!("/workspace/skills/技能/{path}"));
    let edited = client.put(format!("{tree}/edit?path={}&start=1&end=1", inside("docs/a.txt")), "two\n").ok();
    assert_eq!(edited["path"], "skills/技能/docs/a.txt");
    assert_eq!(client.text(&skill, "docs/a.txt"), "two\n");
    client.put(format!("{tree}/raw/{}?parents=true", inside("new/b.txt")), "b").ok();
    client.post_json(format!("{tree}/mkdir"), &json!({"path": "skills/技能/empty/"})).ok();
    client
        .post_json(format!("{tree}/move"), &json!({"from": "skills/技能/run.py", "to": "skills/技能/go.py"}))
        .ok();
    client
        .post_json(format!("{tree}/copy"), &json!({"from": "skills/技能/go.py", "to": "skills/技能/too.py"}))
        .ok();
    let edits = json!({"path": "skills/技能/too.py", "edits": [{"old_string": "ran", "new_string": "run"}]});
    client.post_json(format!("{tree}/replace"), &edits).ok();
    client.delete(format!("{tree}/file?path={}", inside("SKILL.md"))).ok();
    assert_eq!(client.files(&skill), ["docs/a.txt", "go.py", "new/b.txt", "too.py"]);
    // Other users see the application's, and the workspace holds nothing of it.
    let others = crate::support::skill("李四", "代理", "技能");
    assert_eq!(client.files(&others), ["SKILL.md", "docs/a.txt", "run.py"]);
    assert_eq!(client.files(&tree), Vec::<String>::new());
    assert!(!service.root.join("sandbox/张三/代理/skills").exists());
}

#[test]
fn what_no_skill_is_asked_for_is_refused_by_name_and_changes_nothing() {
    let (service, tree, skill) = service();
    let client = &service.client;
    client.write(&tree, "own.txt", "own\n");
    for (route, body) in [
        ("move", json!({"from": "skills/技能/run.py", "to": "run.py"})),
        ("copy", json!({"from": "own.txt", "to": "skills/技能/own.txt"})),
        ("copy", json!({"from": "skills/技能", "to": "skill", "recursive": true})),
        ("mkdir", json!({"path": "skills/技能"})),
        (
            "patch",
            json!({"patch": "--- a/skills/技能/docs/a.txt\n+++ b/skills/技能/docs/a.txt\n@@ -1 +1 @@\n-one\n+two\n"}),
        ),
    ] {
        client.post_json(format!("{tree}/{route}"), &body).refused(400, "invalid");
    }
    client
        .delete(format!("{tree}/file?path={}&recursive=true", encoded("skills/技能")))
        .refused(400, "invalid");
    for path in ["skills/技能/../x", "/workspace/skills/技能/../../own.txt", "skills/../own.txt"] {
        client.get(format!("{tree}/content?path={}", encoded(path))).refused(403, "path_escape");
    }
    // A link in the skill does not lead from it to the workspace.
    let link =
        "import os; os.symlink('.' + './../own.txt', 'out'); os.symlink('/work' + 'space/own.txt', 'abs')";
    let ran = client.execute(&skill, "python3", &["-c", link]);
    assert_eq!(ran["result"]["exit_code"], 0, "{ran}");
    for link in ["out", "abs"] {
        let path = encoded(format!("skills/技能/{link}"));
        client.get(format!("{tree}/content?path={path}")).refused(403, "path_escape");
    }
    assert_eq!(client.files(&tree), ["own.txt"]);
    assert_eq!(client.text(&skill, "docs/a.txt"), "one\n");
}

#[test]
fn a_directory_of_the_workspace_is_itself_where_the_user_has_no_such_skill() {
    let (service, tree, _) = service();
    let client = &service.client;
    client.write(&tree, "skills/other/a.txt", "own\n");
    assert_eq!(client.text(&tree, "skills/other/a.txt"), "own\n");
    assert_eq!(client.text(&tree, "/workspace/skills/other/a.txt"), "own\n");
    assert_eq!(client.files(&tree), ["skills/other/a.txt"]);
    // Another user's own skill is none of this user's.
    client.upload(&skills("李四", "代理"), "overlay", &skill_zip("other", &[("secret", "s")]));
    client.get(format!("{tree}/content?path=skills/other/secret")).refused(404, "not_found");
    assert_eq!(client.text(&tree, "skills/other/a.txt"), "own\n");
}

#[test]
fn execute_in_a_workspace_sees_the_skills_it_asks_for() {
    let (service, tree, skill) = service();
    let client = &service.client;
    let args = json!(["/workspace/skills/技能/run.py"]);
    for skills in ["all".to_owned(), encoded("技能")] {
        let ran = client.post_json(format!("{tree}/execute?command=python3&skills={skills}"), &args).ok();
        assert_eq!(ran["data"], "Exit Code: 0\nOutput:\nran\n");
    }
    client.post_json(format!("{tree}/execute?command=ls&skills=none"), &json!([])).refused(404, "not_found");
    client.post_json(format!("{skill}/execute?command=ls&skills=all"), &json!([])).refused(400, "invalid");
    let many = vec!["s"; 65].join(",");
    client.post_json(format!("{tree}/execute?command=ls&skills={many}"), &json!([])).refused(400, "invalid");
}
