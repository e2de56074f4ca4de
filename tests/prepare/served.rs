//! The acceptance table of the founding document once more, S1 to S25, each against a service that runs, over REST.

use filesecbox::ops::prepare::hash;
use serde_json::{Value, json};

use crate::support::{Client, Entry, Reply, Service, workspace, zip};

pub(crate) const SKILL: &str = "---\nname: 写作\ndescription: writes\n---\n";
const STATE: &str = "\"$HOME/.fastgpt/agent-skill-entrypoints/state.json\"";

/// The workspace of a row.
pub(crate) struct Row {
    pub(crate) client: Client,
    pub(crate) tree: String,
    number: u32,
    /// Where it has one of its own.
    service: Option<Service>,
}

/// A row in a service without settings.
pub(crate) fn row(number: u32) -> Row {
    let service = Service::start();
    let mut row = Row::of(&service, number);
    row.service = Some(service);
    row
}

impl Row {
    pub(crate) fn of(service: &Service, number: u32) -> Self {
        let tree = workspace(&format!("row-{number}"), "demo");
        Self { client: service.client.clone(), tree, number, service: None }
    }

    /// The id of a version that no other row has.
    pub(crate) fn version(&self, version: u32) -> String {
        format!("{:016x}{version:08x}", self.number)
    }

    /// Puts the package of a version.
    pub(crate) fn put(&self, version: u32, files: &[(&str, &str)]) -> String {
        let id = self.version(version);
        let entries: Vec<Entry> = files.iter().map(|(path, text)| Entry::file(path, text)).collect();
        self.client.put(format!("/v1/packages/{id}"), zip(&entries)).ok();
        id
    }

    pub(crate) fn ask(&self, body: &Value) -> Reply {
        self.client.post_json(format!("{}/prepare", self.tree), body)
    }

    pub(crate) fn prepare(&self, body: Value) -> Value {
        self.ask(&body).ok()["data"].clone()
    }

    /// A round with these versions and a script.
    pub(crate) fn round(&self, versions: &[&str], script: &str) -> Value {
        self.prepare(json!({ "skills": selected(versions), "entrypoint": script }))
    }

    pub(crate) fn exec(&self, script: &str) -> String {
        let ran = self.client.post_json(format!("{}/exec", self.tree), &json!({ "shell": script })).ok();
        assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
        ran["data"]["stdout"].as_str().unwrap().to_owned()
    }

    /// A file of the workspace; empty when it is not there.
    pub(crate) fn text(&self, path: &str) -> String {
        let reply = self.client.get(format!("{}/raw/{path}", self.tree));
        if reply.status == 404 {
            String::new()
        } else {
            String::from_utf8(reply.bytes(200).to_vec()).unwrap()
        }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.exec(&format!("if [ -e '{path}' ]; then echo yes; fi")) == "yes\n"
    }

    /// The names in `projects`.
    pub(crate) fn projects(&self) -> Vec<String> {
        let listed = self.client.get(format!("{}/dir?path=projects", self.tree));
        if listed.status == 404 {
            return Vec::new();
        }
        let listed = listed.ok();
        listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The state in the home of commands.
    pub(crate) fn state(&self) -> Value {
        serde_json::from_str(&self.exec(&format!("cat {STATE}"))).unwrap()
    }

    fn set_state(&self, text: &str) {
        self.exec(&format!(
            "mkdir -p \"$HOME/.fastgpt/agent-skill-entrypoints\"; printf '%s' '{text}' > {STATE}"
        ));
    }

    /// A file where the directory of the state would be: no state can be kept.
    fn without_state(&self) {
        self.exec("rm -rf \"$HOME/.fastgpt\"; echo > \"$HOME/.fastgpt\"");
    }
}

pub(crate) fn selected(versions: &[&str]) -> Value {
    let one = |version: &&str| json!({ "skill_id": "writer", "version_id": version });
    versions.iter().map(one).collect()
}

/// The step of a name.
pub(crate) fn step<'a>(data: &'a Value, name: &str) -> &'a Value {
    let mut steps = data["steps"].as_array().unwrap().iter();
    steps.find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name}: {data}"))
}

pub(crate) fn outcome(data: &Value, name: &str) -> String {
    step(data, name)["outcome"].as_str().unwrap().to_owned()
}

fn deployed(data: &Value) -> String {
    step(data, "deploy")["log"].as_str().unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn s01_a_selected_version_gets_its_directory_by_one_download() {
    let row = row(1);
    let v1 = row.put(1, &[("SKILL.md", SKILL), ("a/b.txt", "b")]);
    let data = row.round(&[&v1], "");
    assert_eq!(
        (row.projects(), deployed(&data).as_str()),
        (vec![v1.clone()], "1 of 1 versions deployed, 0 removed")
    );
    assert_eq!(row.text(&format!("projects/{v1}/a/b.txt")), "b");
    let skill = &data["skills"][0];
    let directory = format!("{}/projects/{v1}", data["workdir"].as_str().unwrap());
    assert_eq!(
        (&skill["name"], &skill["directory"], &skill["version_id"]),
        (&json!("写作"), &json!(directory), &json!(v1))
    );
}

#[test]
fn s02_a_second_round_downloads_and_unpacks_nothing() {
    let row = row(2);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    row.round(&[&v1], "");
    let inode = row.exec(&format!("stat -c %i projects/{v1}"));
    assert_eq!(deployed(&row.round(&[&v1], "")), "0 of 1 versions deployed, 0 removed");
    assert_eq!(row.exec(&format!("stat -c %i projects/{v1}")), inode);
}

#[test]
fn s03_of_two_skills_only_the_one_that_moved_on_is_downloaded() {
    let row = row(3);
    let [v1, v2, w1] = [1, 2, 9].map(|version| row.put(version, &[("SKILL.md", SKILL)]));
    row.round(&[&v1, &w1], "");
    row.exec(&format!("echo untouched > projects/{w1}/mark"));
    assert_eq!(deployed(&row.round(&[&v2, &w1], "")), "1 of 2 versions deployed, 1 removed");
    assert_eq!(
        (row.projects(), row.text(&format!("projects/{w1}/mark")).as_str()),
        (vec![v2, w1], "untouched\n")
    );
}

#[test]
fn s04_a_deselected_version_goes_and_is_no_skill_any_more() {
    let row = row(4);
    let [v1, v2] = [1, 2].map(|version| row.put(version, &[("SKILL.md", SKILL)]));
    assert_eq!(row.round(&[&v1, &v2], "")["skills"].as_array().unwrap().len(), 2);
    let data = row.round(&[&v2], "");
    assert_eq!((row.projects(), &data["skills"][0]["version_id"]), (vec![v2.clone()], &json!(v2)));
    assert_eq!(data["skills"].as_array().unwrap().len(), 1);
}

#[test]
fn s05_the_package_of_a_version_that_is_there_is_never_asked_for() {
    let row = row(5);
    // No package was ever put.
    let v1 = row.version(1);
    row.exec(&format!(
        "mkdir -p projects/{v1}; printf -- '---\\nname: own\\n---\\n' > projects/{v1}/SKILL.md"
    ));
    assert_eq!(row.round(&[&v1], "")["skills"][0]["name"], "own");
}

#[test]
fn s06_an_empty_script_is_not_run() {
    let data = row(6).prepare(json!({ "mode": "tool_call", "entrypoint": "" }));
    assert_eq!(data["steps"], json!([]));
}

#[test]
fn s07_a_script_of_a_new_hash_runs_once() {
    let row = row(7);
    assert_eq!(outcome(&row.round(&[], "echo 1 >> runs"), "entrypoint"), "done");
    assert_eq!(row.text("runs"), "1\n");
    assert_eq!(row.state(), json!({ "sandboxEntrypointHash": hash("echo 1 >> runs") }));
}

#[test]
fn s08_a_script_of_the_same_hash_is_skipped() {
    let row = row(8);
    row.round(&[], "echo 1 >> runs");
    assert_eq!(outcome(&row.round(&[], "echo 1 >> runs"), "entrypoint"), "skipped");
    assert_eq!(row.text("runs"), "1\n");
}

#[test]
fn s09_a_changed_script_runs_again() {
    let row = row(9);
    row.round(&[], "echo 1 >> runs");
    assert_eq!(outcome(&row.round(&[], "echo 2 >> runs"), "entrypoint"), "done");
    assert_eq!(row.text("runs"), "1\n2\n");
}

#[test]
fn s10_without_a_state_a_script_runs_each_time_and_nothing_is_written() {
    let row = row(10);
    row.without_state();
    for expected in ["1\n", "1\n1\n"] {
        assert_eq!(outcome(&row.round(&[], "echo 1 >> runs"), "entrypoint"), "done");
        assert_eq!(row.text("runs"), expected);
    }
    assert_eq!(row.exec("wc -c < \"$HOME/.fastgpt\"").trim(), "1");
}

#[test]
fn s11_a_script_that_fails_or_takes_too_long_blocks_nothing_and_is_not_recorded() {
    let row = row(11);
    let data = row.round(&[], "echo out; echo err >&2; exit 1");
    assert_eq!(
        (outcome(&data, "entrypoint").as_str(), &step(&data, "entrypoint")["log"]),
        ("failed", &json!("it exited with 1\nout\nerr"))
    );
    let data = row.prepare(json!({ "entrypoint": "echo begun; sleep 600", "timeout_seconds": 1 }));
    assert_eq!(outcome(&data, "entrypoint"), "timed_out");
    assert_eq!(row.exec(&format!("if [ -e {STATE} ]; then echo recorded; fi")), "");
}

#[test]
fn s12_the_script_of_a_version_runs_in_its_directory() {
    let row = row(12);
    let v1 = row.put(1, &[("entrypoint.sh", "pwd > where; echo hello")]);
    let data = row.round(&[&v1], "");
    assert_eq!(
        row.text(&format!("projects/{v1}/where")),
        format!("{}/projects/{v1}\n", data["workdir"].as_str().unwrap())
    );
    assert_eq!(step(&data, &format!("skill:{v1}"))["log"], "hello");
    assert_eq!(row.state(), json!({ "skillEntrypoints": [v1] }));
}

#[test]
fn s13_a_script_below_the_root_of_a_version_is_not_run() {
    let row = row(13);
    let v1 = row.put(
        1,
        &[("x/entrypoint.sh", "echo > ../../../ran; echo > ../../ran; echo > ran"), ("SKILL.md", SKILL)],
    );
    assert_eq!(outcome(&row.round(&[&v1], ""), &format!("skill:{v1}")), "skipped");
    assert_eq!(row.exec("find . -name ran"), "");
}

#[test]
fn s14_a_script_in_the_root_of_the_workspace_is_not_run() {
    let row = row(14);
    row.exec("mkdir projects; echo 'echo > ran' > entrypoint.sh; echo 'echo > ran' > projects/entrypoint.sh");
    row.round(&[], "true");
    assert_eq!(row.exec("find . -name ran"), "");
}

const COUNTS: [(&str, &str); 1] = [("entrypoint.sh", "echo x >> ../../runs")];

#[test]
fn s15_the_script_of_a_new_version_runs() {
    let row = row(15);
    let [v1, v2] = [1, 2].map(|version| row.put(version, &COUNTS));
    row.round(&[&v1], "");
    row.round(&[&v2], "");
    assert_eq!(row.text("runs"), "x\nx\n");
}

#[test]
fn s16_the_script_of_a_recorded_version_is_skipped() {
    let row = row(16);
    let v1 = row.put(1, &COUNTS);
    row.round(&[&v1], "");
    assert_eq!(outcome(&row.round(&[&v1], ""), &format!("skill:{v1}")), "skipped");
    assert_eq!(row.text("runs"), "x\n");
}

#[test]
fn s17_the_script_of_a_recorded_version_that_is_deployed_anew_is_not_run_again() {
    let row = row(17);
    let v1 = row.put(1, &COUNTS);
    row.round(&[&v1], "");
    row.exec(&format!("rm -r projects/{v1}"));
    assert_eq!(deployed(&row.round(&[&v1], "")), "1 of 1 versions deployed, 0 removed");
    assert_eq!(row.text("runs"), "x\n");
}

#[test]
fn s18_without_a_state_the_script_of_a_version_runs_each_time_and_is_not_recorded() {
    let row = row(18);
    let v1 = row.put(1, &COUNTS);
    row.without_state();
    for expected in ["x\n", "x\nx\n"] {
        row.round(&[&v1], "");
        assert_eq!(row.text("runs"), expected);
    }
}

#[test]
fn s19_a_script_that_failed_is_tried_again_in_the_next_round() {
    let row = row(19);
    let v1 = row.put(1, &[("entrypoint.sh", "[ -e ../../ready ]")]);
    let failed = row.round(&[&v1], "[ -e ready ]");
    row.exec("echo > ready");
    let done = row.round(&[&v1], "[ -e ready ]");
    for name in ["entrypoint".to_owned(), format!("skill:{v1}")] {
        assert_eq!((outcome(&failed, &name).as_str(), outcome(&done, &name).as_str()), ("failed", "done"));
    }
}

#[test]
fn s20_scripts_run_when_files_and_versions_are_there_however_large_they_are() {
    let row = row(20);
    let large = "x".repeat(3_000_000);
    let v1 = row.put(1, &[("SKILL.md", SKILL), ("data", &large)]);
    let script = format!("cat user_files/in.txt projects/{v1}/data | wc -c > both");
    row.prepare(json!({ "skills": selected(&[&v1]), "entrypoint": script, "files": [{ "name": "in.txt", "content": large }] }));
    assert_eq!(row.text("both").trim(), "6000000");
}

#[test]
fn s21_a_skill_that_a_script_makes_is_found() {
    let row = row(21);
    let v1 = row
        .put(1, &[("entrypoint.sh", "mkdir made && printf -- '---\\nname: made\\n---\\n' > made/SKILL.md")]);
    let data = row.round(&[&v1], "");
    assert_eq!((&data["skills"][0]["name"], data["skills"].as_array().unwrap().len()), (&json!("made"), 1));
}

#[test]
fn s22_a_preview_runs_no_script_and_finds_the_skills_of_the_whole_workspace() {
    let row = row(22);
    row.exec("mkdir 'my skill'; printf -- '---\\nname: mine\\n---\\n' > 'my skill/SKILL.md'");
    let data = row.prepare(json!({ "mode": "edit_debug", "entrypoint": "echo > ran" }));
    assert_eq!(
        (outcome(&data, "entrypoint").as_str(), &data["skills"][0]["name"]),
        ("skipped", &json!("mine"))
    );
    assert!(!row.has("ran"));
}

#[test]
fn s23_in_a_preview_what_a_person_runs_by_hand_runs() {
    let row = row(23);
    row.exec("echo 'echo > ran' > entrypoint.sh");
    row.prepare(json!({ "mode": "edit_debug" }));
    row.exec("bash entrypoint.sh");
    assert!(row.has("ran"));
}

#[test]
fn s24_a_state_that_is_none_is_an_empty_one_and_is_made_anew() {
    let service = Service::start();
    for (number, garbage) in (2400..).zip(["garbage", "[]", r#"{"skillEntrypoints":5}"#, ""]) {
        let row = Row::of(&service, number);
        row.set_state(garbage);
        row.round(&[], "echo > ran");
        assert!(row.has("ran"), "{garbage}");
        assert_eq!(row.state(), json!({ "sandboxEntrypointHash": hash("echo > ran") }), "{garbage}");
    }
}

#[test]
fn s25_a_version_that_is_not_selected_leaves_the_state() {
    let row = row(25);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    row.set_state(&json!({ "skillEntrypoints": [v1, row.version(9)] }).to_string());
    row.round(&[&v1], "");
    assert_eq!(row.state(), json!({ "skillEntrypoints": [v1] }));
}
