//! A skill's way between one user and all: differences, versions, promotion, pulling, the catalogue.

use serde_json::{Value, json};

use crate::support::{Service, skill, skill_zip, skills};

const FIRST: &[(&str, &str)] = &[("脚本/运行.py", "print('一')\nprint('二')\n"), ("other", "1\n")];

/// A service with the baseline skill `报表`, and the paths of Alice's and Bob's views of it.
fn served() -> (Service, String, String) {
    let service = Service::start();
    service.client.upload(&skills("alice", "x"), "baseline", &skill_zip("报表", FIRST));
    (service, skill("alice", "x", "报表"), skill("bob", "x", "报表"))
}

fn change(service: &Service, tree: &str) {
    service.client.write(tree, "脚本/运行.py", "print('一')\nprint('三')\n");
    service.client.write(tree, "新.bin", "a\0b");
    service.client.delete(format!("{tree}/file?path=other")).ok();
}

fn status(service: &Service, user: &str) -> Value {
    service.client.get(format!("{}/list", skills(user, "x"))).ok()["data"][0]["status"].clone()
}

#[test]
fn a_difference_names_every_change_with_its_lines() {
    let (service, alice, bob) = served();
    change(&service, &alice);
    let answer = service.client.get(format!("{alice}/diff")).ok();
    assert_eq!(answer["skill_status"], "MODIFIED");
    let expected = json!([
        {"path": "other", "change": "deleted", "before_bytes": 2, "after_bytes": null,
         "diff": "--- a/other\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"},
        {"path": "新.bin", "change": "created", "before_bytes": null, "after_bytes": 3,
         "diff": null, "omitted": "not_text"},
        {"path": "脚本/运行.py", "change": "modified", "before_bytes": 26, "after_bytes": 26,
         "diff": "--- a/脚本/运行.py\n+++ b/脚本/运行.py\n@@ -1,2 +1,2 @@\n print('一')\n-print('二')\n+print('三')\n"},
    ]);
    assert_eq!(answer["data"], expected);
    let page = service.client.get(format!("{alice}/diff?limit=1&cursor=other")).ok();
    assert_eq!((&page["data"][0]["path"], page["data"].as_array().unwrap().len()), (&json!("新.bin"), 1));
    assert_eq!(service.client.get(format!("{bob}/diff")).ok()["data"], json!([]));
    let none = skill("alice", "x", "none");
    service.client.get(format!("{none}/diff")).refused(404, "not_found");
}

#[test]
fn a_manager_publishes_what_a_user_made_and_goes_back() {
    let (service, alice, bob) = served();
    change(&service, &alice);
    let first = service.client.get(format!("{alice}/versions")).ok();
    assert_eq!(first["data"].as_array().unwrap().len(), 1, "{first}");
    let version = first["data"][0]["version"].as_str().unwrap();
    let promoted = service.client.post(format!("{alice}/promote"), "").ok();
    assert_eq!(promoted["data"], "Skill '报表' of 'alice' is now published for all users");
    assert_eq!(promoted["replaced"], true);
    assert_eq!(service.client.text(&bob, "脚本/运行.py"), "print('一')\nprint('三')\n");
    assert_eq!(
        (status(&service, "alice"), status(&service, "bob")),
        (json!("UNCHANGED"), json!("UNCHANGED"))
    );
    service.client.post(format!("{alice}/promote"), "").refused(409, "conflict");

    let kept = service.client.get(format!("{bob}/versions")).ok();
    assert_eq!(kept["data"][0]["version"], promoted["version"]);
    assert_eq!((&kept["data"][0]["current"], &kept["data"][0]["replaced_at"]), (&json!(true), &json!(null)));
    assert_eq!((&kept["data"][1]["version"], &kept["data"][1]["current"]), (&json!(version), &json!(false)));
    assert!(kept["data"][1]["replaced_at"].is_string());
    let back = service.client.post(format!("{bob}/rollback?version={version}"), "").ok();
    assert_eq!((&back["version"], &back["changed"]), (&json!(version), &json!(true)));
    assert_eq!(service.client.text(&alice, "other"), "1\n");
    let again = service.client.post(format!("{bob}/rollback?version={version}"), "").ok();
    assert_eq!(again["changed"], false);
}

#[test]
fn a_user_pulls_a_new_version_under_changes_and_is_told_the_conflicts() {
    let (service, alice, _) = served();
    change(&service, &alice);
    let next = [("脚本/运行.py", "print('二')\n"), ("other", "1\n"), ("more", "2\n")];
    service.client.upload(&skills("bob", "x"), "baseline", &skill_zip("报表", &next));
    assert_eq!(status(&service, "alice"), "OUT_OF_SYNC");
    service.client.post(format!("{alice}/promote"), "").refused(409, "conflict");
    let told = service.client.post(format!("{alice}/pull?dry_run=true"), "").ok();
    assert!(told["data"].as_str().unwrap().starts_with("Nothing was done"), "{told}");
    let pulled = service.client.post(format!("{alice}/pull"), "").ok();
    for field in ["version", "changed", "refreshed", "conflicts", "conflicts_total"] {
        assert_eq!(told[field], pulled[field], "{field}");
    }
    assert_eq!(pulled["data"], "Skill '报表' is based on the current version");
    assert_eq!((&pulled["changed"], &pulled["conflicts"]), (&json!(true), &json!(["脚本/运行.py"])));
    assert_eq!(pulled["conflicts_total"], 1);
    assert_eq!(service.client.text(&alice, "脚本/运行.py"), "print('一')\nprint('三')\n");
    assert_eq!(service.client.text(&alice, "more"), "2\n");
    assert_eq!(status(&service, "alice"), "MODIFIED");
    assert_eq!(service.client.post(format!("{alice}/pull"), "").ok()["changed"], false);

    service.client.upload(&skills("bob", "x"), "baseline", &skill_zip("报表", &[("脚本/运行.py", "2\n")]));
    let pulled = service.client.post(format!("{alice}/pull?prefer=theirs"), "").ok();
    assert_eq!(pulled["conflicts"], json!(["脚本/运行.py"]));
    assert_eq!(service.client.text(&alice, "脚本/运行.py"), "2\n");
}

#[test]
fn a_catalogue_tells_a_model_where_the_instructions_are() {
    let (service, ..) = served();
    let catalog = |query: &str| {
        let answer = service.client.get(format!("{}/catalog{query}", skills("alice", "x"))).ok();
        answer["data"].as_str().unwrap().to_owned()
    };
    let block = catalog("");
    assert!(block.starts_with("<available_skills>\n  <skill>\n    <name>"), "{block}");
    assert!(block.contains("<location>/workspace/skills/报表/SKILL.md</location>"), "{block}");
    assert_eq!(catalog("?format=xml"), block);
    assert!(catalog("?format=markdown").contains("(`/workspace/skills/报表/SKILL.md`)"));
    let empty = service.client.get(format!("{}/catalog", skills("alice", "y"))).ok();
    assert_eq!(empty["data"], "");
}

#[test]
fn bad_questions_about_a_skills_life_change_nothing() {
    let (service, alice, _) = served();
    for (target, status, code) in [
        (format!("{alice}/rollback"), 400, "invalid"),
        (format!("{alice}/rollback?version=x"), 400, "invalid"),
        (format!("{alice}/rollback?version=2"), 404, "not_found"),
        (format!("{alice}/rollback?version=1&title={}", "t".repeat(129)), 400, "invalid"),
        (format!("{alice}/promote?message=a%0Ab"), 400, "invalid"),
        (format!("{alice}/rollback?version={}", "0".repeat(32)), 404, "not_found"),
        (format!("{alice}/promote"), 409, "conflict"),
        (format!("{alice}/promote?force=maybe"), 400, "invalid"),
        (format!("{alice}/pull?prefer=mine"), 400, "invalid"),
        (format!("{}/pull", skill("alice", "x", "none")), 404, "not_found"),
        (format!("{}/promote", skill("alice", "x", "none")), 404, "not_found"),
    ] {
        service.client.post(&target, "").refused(status, code);
    }
    for target in [format!("{}/catalog?format=yaml", skills("alice", "x")), format!("{alice}/diff?limit=x")] {
        service.client.get(target).refused(400, "invalid");
    }
    service.client.get(format!("{}/versions", skill("alice", "x", "none"))).refused(404, "not_found");
    assert_eq!(status(&service, "alice"), "UNCHANGED");
}
