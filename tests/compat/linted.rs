//! What `GET …/lint` says of other programs, held against those that can be asked: the installer `npx skills` and the
//! specification's validator.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::installers::Person;
use crate::support::{Entry, Service, granted, skill, skills, zip};

/// A SKILL.md, in which `NAME` is the name of its directory; the programs that do not take it; and what is found.
const TABLE: &[(&str, &[&str], &[&str])] = &[
    ("---\nname: NAME\ndescription: d\n---\n", &[], &[]),
    ("---\r\nname: NAME\r\ndescription: d\r\n---\r\n# x\r\n", &[], &[]),
    ("---\nname: NAME\ndescription: d\nversion: 1\n---\n", &["agentskills"], &["unknown_fields"]),
    (
        "---\nname: NAME\ndescription: d\nallowed-tools: [A, B]\n---\n",
        &["agentskills"],
        &["allowed_tools_list", "front_matter_signs"],
    ),
    ("---\nname: other-NAME\ndescription: d\n---\n", &["agentskills"], &["name_directory"]),
    ("---\nname: NAME\ndescription: make <b>bold</b>\n---\n", &["anthropic"], &["description_markup"]),
    ("---\nname: NAME\ndescription: a < b and c > d\n---\n", &[], &[]),
    ("---\nname: NAME\ndescription: 2024\n---\n", &["npx-skills"], &["description_not_text"]),
    (
        "---\nname: NAME\ndescription: d\nmetadata:\n  internal: true\n---\n",
        &["npx-skills"],
        &["metadata_internal"],
    ),
    ("---\nname: NAME\ndescription: d\nmetadata:\n  internal: 'true'\n---\n", &[], &[]),
    ("---  \nname: NAME\ndescription: d\n---\n", &["npx-skills"], &["spaces_after_dashes"]),
    ("\u{FEFF}---\nname: NAME\ndescription: d\n---\n", &["agentskills"], &["byte_order_mark"]),
    (
        "\n---\nname: NAME\ndescription: d\n---\n",
        &["agentskills", "anthropic", "npx-skills"],
        &["text_before_front_matter"],
    ),
    (
        "---\nname: NAME\ndescription: d\n...\n",
        &["agentskills", "anthropic", "npx-skills"],
        &["front_matter_ends_with_dots"],
    ),
    ("---\nname: NAME\n---\n", &["agentskills", "anthropic", "npx-skills"], &["description_missing"]),
    (
        "---\nname: NAME\ndescription: [d]\n---\n",
        &["agentskills", "anthropic", "npx-skills"],
        &["description_structure", "front_matter_signs"],
    ),
    (
        "---\nname: NAME\ndescription: use: when\n---\n",
        &["agentskills", "anthropic", "claude-code", "npx-skills"],
        &["front_matter_unread"],
    ),
    (
        "name: NAME\ndescription: d\n",
        &["agentskills", "anthropic", "npx-skills"],
        &["front_matter_not_marked"],
    ),
    ("# NAME\n\nd\n", &["agentskills", "anthropic", "npx-skills"], &["no_front_matter"]),
];

fn found(client: &crate::support::Client, id: &str) -> (Vec<String>, Vec<String>) {
    let linted = client.get(format!("{}/lint", skill("u", "a", id))).ok()["data"].clone();
    let refusing = linted["ok"].as_object().unwrap().iter().filter(|(_, ok)| **ok == json!(false));
    let codes =
        linted["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap());
    let mut codes: Vec<String> = codes.map(str::to_owned).collect();
    codes.sort();
    (refusing.map(|(target, _)| target.clone()).collect(), codes)
}

#[test]
fn what_a_skill_is_said_to_be_for_other_programs_is_what_they_say_of_it() {
    let service = Service::start();
    let client = &service.client;
    let installer = Person::new();
    let place = tempfile::tempdir().unwrap();
    let has_validator = Command::new("agentskills").arg("--help").output().is_ok();
    for (number, (text, refusing, codes)) in TABLE.iter().enumerate() {
        let name = format!("row-{number}");
        let text = text.replace("NAME", &name);
        client.upload(
            &skills("u", "a"),
            "baseline",
            &zip(&[Entry::file(&format!("{name}/SKILL.md"), &text)]),
        );
        let said = found(client, &name);
        let expected = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(said, (expected(refusing), expected(codes)), "{text:?}");
        let dir = place.path().join("skills").join(&name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("SKILL.md"), &text).unwrap();
        if granted("skills-ref", has_validator) {
            let valid =
                Command::new("agentskills").arg("validate").arg(&dir).output().unwrap().status.success();
            assert_eq!(valid, !refusing.contains(&"agentskills"), "{text:?}");
        }
    }
    let Some(installer) = installer else { return };
    let listed = installer
        .must(&["skills", "add", &place.path().display().to_string(), "--list"], &[("NO_COLOR", "1")]);
    let (_, listed) = listed.split_once("Available Skills").unwrap();
    for (number, (text, refusing, _)) in TABLE.iter().enumerate() {
        let is_listed = listed.lines().any(|line| line.trim_end().ends_with(&format!("row-{number}")));
        assert_eq!(is_listed, !refusing.contains(&"npx-skills"), "{text:?}: {listed}");
    }
}

#[test]
fn what_is_found_has_a_line_and_any_state_of_a_skill_is_looked_at() {
    let service = Service::start();
    let client = &service.client;
    let publish = |head: &str| {
        let text = format!("---\n{head}---\nname: of the body\n");
        client.upload(&skills("u", "a"), "baseline", &zip(&[Entry::file("claude-写作/SKILL.md", text)]));
    };
    publish("description: d\n\nname: claude-写作\n");
    let tree = skill("u", "a", "claude-写作");
    let linted = |query: &str| client.get(format!("{tree}/lint{query}")).ok()["data"].clone();
    let first = linted("");
    assert_eq!(
        first["ok"],
        json!({ "agentskills": true, "anthropic": false, "npx-skills": true, "claude-code": false })
    );
    let expected = json!([
        { "code": "name_not_ascii", "class": "portability", "field": "name", "line": 4,
          "text": "`name` has letters other than `a` to `z`", "targets": ["anthropic", "claude-code"] },
        { "code": "name_reserved", "class": "portability", "field": "name", "line": 4,
          "text": "`name` has the word `claude`", "targets": ["anthropic"] },
    ]);
    assert_eq!(first["findings"], expected);
    // Such findings are no warnings: the specification has nothing against it.
    assert_eq!(client.get(format!("{}/list", skills("u", "a"))).ok()["data"][0]["warnings"], Value::Null);

    publish("description: d\n");
    let second = linted("");
    assert_eq!(
        (&second["findings"][0]["code"], &second["findings"][0]["line"]),
        (&json!("name_missing"), &Value::Null)
    );
    assert_eq!(linted("?version=1"), first);
    client.write(&tree, "SKILL.md", "---\ndescription: d: e\n---\n");
    let unread = &linted("")["findings"][0];
    assert_eq!((&unread["code"], &unread["line"]), (&json!("front_matter_unread"), &json!(2)));
    assert_eq!(linted("?layer=baseline"), second);
    client.delete(format!("{tree}/file?path=SKILL.md")).ok();
    assert_eq!(linted("")["findings"][0]["code"], "no_skill_md");
    client.get(format!("{}/lint", skill("u", "a", "none"))).refused(404, "not_found");
    client.get(format!("{tree}/lint?version=9")).refused(404, "not_found");
    client.get(format!("{tree}/lint?layer=overlay")).refused(400, "invalid");
}
