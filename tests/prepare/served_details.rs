//! What the tests of the founding implementation pin down once more, T1 to T18, each against a service that runs, over REST.

use std::process::Command;

use filesecbox::ops::prepare::hash;
use serde_json::{Value, json};

use crate::served::{Row, SKILL, outcome, row, selected, step};
use crate::support::{Entry, Service, Settings, granted, zip};

fn names(data: &Value) -> Vec<&str> {
    data["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect()
}

#[test]
fn t01_white_space_is_no_script() {
    let row = row(101);
    let data = row.prepare(json!({ "mode": "tool_call", "entrypoint": " \n\t " }));
    assert_eq!(data["steps"], json!([]));
    assert_eq!(row.exec("if [ -e \"$HOME/.fastgpt\" ]; then echo made; fi"), "");
}

#[test]
fn t02_blanks_around_a_script_make_no_other_script() {
    let row = row(102);
    row.round(&[], "echo 1 >> runs");
    row.round(&[], "  \necho 1 >> runs\n\n");
    assert_eq!(
        (row.text("runs").as_str(), row.state()),
        ("1\n", json!({ "sandboxEntrypointHash": hash("echo 1 >> runs") }))
    );
}

#[test]
fn t03_a_script_that_cannot_be_run_blocks_nothing_and_is_not_recorded() {
    // What the service refuses to begin: a line of more than all arguments may have.
    let service = Service::configured("[limits.runs]\narguments_bytes = 4096\n");
    let row = Row::of(&service, 103);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    let data = row.round(&[&v1], &format!("# {}", "x".repeat(8000)));
    assert_eq!((outcome(&data, "entrypoint").as_str(), names(&data)), ("failed", vec!["写作"]));
    assert_eq!(
        row.exec("ls -A \"$HOME/.fastgpt/agent-skill-entrypoints\" | grep -c state; true").trim(),
        "0"
    );
}

#[test]
fn t04_a_script_and_a_place_with_quotes_and_blanks_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("it's a \"place\"");
    // Where commands see the place itself.
    let config = Some("[isolation]\nmaximum = \"landlock\"\n".to_owned());
    let service = Service::with(Settings { config, root: Some(root), ..Settings::default() });
    let row = Row::of(&service, 104);
    let v1 = row.put(1, &[("SKILL.md", SKILL), ("entrypoint.sh", "pwd > where")]);
    let script = r#"printf '%s' "it's \"$PWD\" \\ $(echo 'a b') 用户" > said"#;
    let data = row.round(&[&v1], script);
    let workdir = data["workdir"].as_str().unwrap();
    assert!(workdir.contains("it's a \"place\""), "{workdir}");
    assert_eq!(row.text("said"), format!("it's \"{workdir}\" \\ a b 用户"));
    assert_eq!(row.text(&format!("projects/{v1}/where")), format!("{workdir}/projects/{v1}\n"));
}

#[test]
fn t05_when_versions_cannot_be_listed_the_round_fails() {
    let row = row(105);
    row.exec("echo > projects");
    row.ask(&json!({ "skills": selected(&[&row.version(1)]), "entrypoint": "echo > ran" }))
        .refused(409, "not_a_directory");
    assert!(!row.has("ran"));
}

#[test]
fn t06_a_version_that_is_not_there_is_left_out_and_the_others_are_deployed() {
    let row = row(106);
    let (v1, v2) = (row.put(1, &[("SKILL.md", SKILL)]), row.version(2));
    let data = row.round(&[&v2, &v1], "");
    assert_eq!((row.projects(), names(&data)), (vec![v1], vec!["写作"]));
    assert!(step(&data, "deploy")["log"].as_str().unwrap().contains(&v2));
}

#[test]
fn t07_when_nothing_that_is_selected_is_possible_all_versions_go() {
    let row = row(107);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    row.round(&[&v1], "");
    let data = row.round(&["not-an-id", "../../etc", ""], "");
    assert_eq!((row.projects(), names(&data)), (vec![], vec![]));
}

#[test]
fn t08_what_is_no_directory_of_a_version_is_left_alone() {
    let row = row(108);
    let [v1, v2] = [1, 2].map(|version| row.version(version));
    row.exec(&format!("mkdir -p projects/notes; echo > projects/{v1}; ln -s notes projects/{v2}"));
    row.round(&[], "");
    assert_eq!(row.projects(), [v1, v2, "notes".to_owned()]);
}

#[test]
fn t09_a_leftover_that_cannot_be_removed_is_only_a_warning() {
    let service = Service::start();
    let row = Row::of(&service, 109);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    row.exec("mkdir -p projects/.tmp-x; echo > projects/.tmp-x/half");
    let stuck = service.root.join("sandbox/row-109/demo/projects/.tmp-x");
    let set = |what: &str| {
        Command::new("chattr").arg(what).arg(&stuck).output().is_ok_and(|told| told.status.success())
    };
    if !set("+i") {
        eprintln!(
            "SKIPPED: t09: `chattr +i` cannot be had here; the same without a service is in `details.rs`"
        );
        return;
    }
    let data = row.round(&[&v1], "");
    assert!(set("-i"));
    assert!(
        step(&data, "deploy")["log"].as_str().unwrap().contains("`.tmp-x` could not be removed"),
        "{data}"
    );
    assert_eq!((names(&data), row.text(&format!("projects/{v1}/SKILL.md")).as_str()), (vec!["写作"], SKILL));
}

#[test]
fn t10_a_package_that_leads_out_or_is_too_large_deploys_nothing() {
    let service =
        Service::configured("[limits.disk]\nbytes = 1048576\n[limits.archive]\nfile_bytes = 4194304\n");
    let row = Row::of(&service, 110);
    for (number, hostile) in [
        (1, Entry::file("../x", "x")),
        (2, Entry::file("/x", "x")),
        (3, Entry::file("a", "x".repeat(5 << 20))),
    ] {
        let id = row.version(number);
        let put = row.client.put(format!("/v1/packages/{id}"), zip(&[hostile]));
        assert!(matches!(put.status, 413 | 422), "{}", put.status);
        assert_eq!(names(&row.round(&[&id], "")), Vec::<&str>::new());
    }
    // More than the workspace may have: found out when it is deployed, and the one before it goes as well.
    let v4 = row.put(4, &[("SKILL.md", SKILL)]);
    let v5 = row.put(5, &[("a", &"x".repeat(3 << 20))]);
    let refused = row.ask(&json!({ "skills": selected(&[&v4, &v5]) }));
    assert_eq!(refused.json()["code"], "quota", "{}", refused.json());
    assert_eq!(row.projects(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(service.root.join(".filesecbox/stage")).unwrap().count(), 0);
}

#[test]
fn t11_skills_are_found_at_any_depth_in_any_case_and_not_in_dependencies() {
    let row = row(111);
    let v1 = row.put(
        1,
        &[
            ("SKILL.md", SKILL),
            ("a/skill.md", SKILL),
            ("a/b/Skill.MD", SKILL),
            ("node_modules/x/SKILL.md", SKILL),
        ],
    );
    let v2 = row.put(
        2,
        &[("x/SKILL.md", SKILL), ("y/SKILL.md", SKILL), ("y/z/SKILL.md", SKILL), (".venv/SKILL.md", SKILL)],
    );
    assert_eq!(names(&row.round(&[&v1, &v2], "")).len(), 6);
}

#[test]
fn t12_a_skill_without_a_name_is_left_out() {
    let row = row(112);
    let v1 = row.put(
        1,
        &[
            ("a/SKILL.md", "# heading alone"),
            ("b/SKILL.md", "---\ndescription: d\n---\n"),
            ("c/SKILL.md", SKILL),
        ],
    );
    assert_eq!(names(&row.round(&[&v1], "")), ["写作"]);
}

#[test]
fn t13_of_a_directory_that_cannot_be_looked_through_the_others_are_found() {
    let row = row(113);
    let [v1, v2] = [1, 2].map(|version| row.put(version, &[("SKILL.md", SKILL)]));
    row.round(&[&v1, &v2], "");
    row.exec(&format!("cd projects/{v1} && mkdir many && cd many && seq 20001 | xargs mkdir"));
    let data = row.round(&[&v1, &v2], "");
    let of_v2 = data["skills"].as_array().unwrap().iter().filter(|skill| skill["version_id"] == v2.as_str());
    assert_eq!(of_v2.count(), 1, "{data}");
    assert!(
        step(&data, "scan")["log"].as_str().unwrap().contains(&format!("`projects/{v1}` has more than")),
        "{data}"
    );
}

#[test]
fn t14_a_skill_belongs_to_the_version_whose_directory_it_is_in() {
    let row = row(114);
    let [v1, v2] = [1, 2].map(|version| row.put(version, &[("SKILL.md", SKILL)]));
    row.round(&[&v1, &v2], "");
    // A directory that is called as another version.
    row.exec(&format!("mkdir -p projects/{v1}/{v2} && cp projects/{v1}/SKILL.md projects/{v1}/{v2}/"));
    let data = row.round(&[&v1, &v2], "");
    let of = |version: &str| {
        data["skills"].as_array().unwrap().iter().filter(|skill| skill["version_id"] == version).count()
    };
    assert_eq!((of(&v1), of(&v2)), (2, 1), "{data}");
}

/// What `user_files` has after a round with files of these names, whose texts are their numbers.
fn injected(row: &Row, files: &[&str]) -> Vec<(String, String)> {
    let files: Vec<Value> = files
        .iter()
        .enumerate()
        .map(|(number, name)| json!({ "name": name, "content": number.to_string() }))
        .collect();
    row.prepare(json!({ "mode": "tool_call", "files": files }));
    let listed = row.exec("ls user_files");
    listed.lines().map(|name| (name.to_owned(), row.exec(&format!("cat 'user_files/{name}'")))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn t15_two_input_files_of_one_name_get_two_names() {
    assert_eq!(
        injected(&row(115), &["a.tar.gz", "a.tar.gz"]),
        pairs(&[("a-1.tar.gz", "1"), ("a.tar.gz", "0")])
    );
}

#[test]
fn t16_names_of_input_files_become_one_segment() {
    let found = injected(&row(116), &["../../x", "..", "", "a\\b"]);
    assert_eq!(found, pairs(&[("b", "3"), ("file-1", "1"), ("file-2", "2"), ("x", "0")]));
}

// T17 is `t17_without_a_runtime_nothing_is_done_and_no_lease_is_taken`, in `rest.rs`.

#[test]
fn t18_of_much_output_the_end_is_kept_and_the_log_is_cut() {
    let row = row(118);
    let data = row.round(&[], "for i in $(seq 20); do printf '%50000s' x; done; echo END; exit 1");
    let log = step(&data, "entrypoint")["log"].as_str().unwrap();
    assert_eq!(log.chars().count(), 4003);
    assert!(log.ends_with("...") && log.starts_with("it exited with 1\n"));
}
