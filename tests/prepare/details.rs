//! What the tests of the founding implementation pin down, T1 to T18, and what hostile users try.

use filesecbox::ops::error::Error;
use filesecbox::ops::prepare::{LOG_CHARACTERS, Mode, Outcome, hash};

use crate::fixture::{Ask, Call, Fixture, step, version};

const SKILL: &str = "---\nname: s\n---\n";

#[tokio::test]
async fn t01_of_white_space_nothing_reaches_the_sandbox() {
    let fixture = Fixture::new();
    fixture.prepare(Ask::script(" \n\t ").mode(Mode::ToolCall)).await;
    assert_eq!(fixture.sandbox.calls(), [Call("exec", "pwd".to_owned())]);
    assert!(!fixture.state_file().exists());
}

#[tokio::test]
async fn t02_blanks_around_a_script_make_no_other_script() {
    let fixture = Fixture::new();
    fixture.prepare(Ask::script("echo 1 >> runs")).await;
    fixture.prepare(Ask::script("  \necho 1 >> runs\n\n")).await;
    assert_eq!(fixture.text("runs"), "1\n");
    assert_eq!(hash("  \necho 1 >> runs\n\n"), hash("echo 1 >> runs"));
}

#[tokio::test]
async fn t03_a_sandbox_that_fails_to_run_a_script_blocks_nothing() {
    let fixture = Fixture::new();
    fixture.sandbox.fail("exec", "exec bash -c");
    let prepared = fixture.prepare(Ask::script("touch ran")).await;
    assert_eq!(step(&prepared, "entrypoint").outcome, Outcome::Failed);
    assert!(!fixture.state_file().exists());
    fixture.sandbox.mend();
    fixture.prepare(Ask::script("touch ran")).await;
    assert!(fixture.has("ran"));
}

#[tokio::test]
async fn t04_a_script_with_quotes_and_a_place_with_quotes_stay_what_they_are() {
    let fixture = Fixture::new();
    let script = r#"printf '%s' "it's \"$PWD\" \\ $(echo 'a b') 用户" > said"#;
    fixture.prepare(Ask::script(script)).await;
    assert_eq!(fixture.text("said"), format!("it's \"{}\" \\ a b 用户", fixture.work().display()));
}

#[tokio::test]
async fn t05_when_versions_cannot_be_listed_the_round_fails() {
    let fixture = Fixture::new();
    fixture.sandbox.fail("list", "projects");
    let failed = fixture.try_prepare(Ask::versions(&[&version(1)]).with_script("touch ran")).await;
    assert!(failed.is_err());
    assert!(!fixture.has("ran"));
}

#[tokio::test]
async fn t06_a_version_that_may_not_be_had_is_left_out_and_the_others_are_deployed() {
    let mut fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    let prepared = fixture.prepare(Ask::versions(&[&v2, &v1])).await;
    assert_eq!(fixture.projects(), std::slice::from_ref(&v1));
    assert!(step(&prepared, "deploy").log.contains(&v2));
    assert_eq!(prepared.skills.len(), 1);
    // A caller that may deploy nothing keeps what is there.
    fixture.may_deploy = false;
    fixture.shelf.put(&v2, &[("SKILL.md", SKILL)]);
    fixture.prepare(Ask::versions(&[&v2, &v1])).await;
    assert_eq!(fixture.projects(), [v1]);
}

#[tokio::test]
async fn t07_when_nothing_that_is_selected_is_possible_all_versions_go() {
    let fixture = Fixture::new();
    fixture.plant(&format!("projects/{}/SKILL.md", version(1)), SKILL);
    let prepared = fixture.prepare(Ask::versions(&["not-an-id", "../../etc", ""])).await;
    assert_eq!(fixture.projects(), Vec::<String>::new());
    assert_eq!(prepared.skills, []);
}

#[tokio::test]
async fn t08_what_is_no_directory_of_a_version_is_left_alone() {
    let fixture = Fixture::new();
    fixture.plant(&format!("projects/{}", version(1)), "a file");
    fixture.plant("projects/notes/a", "mine");
    std::os::unix::fs::symlink("notes", fixture.work().join("projects").join(version(2))).unwrap();
    fixture.prepare(Ask::default()).await;
    assert_eq!(fixture.projects(), [version(1), version(2), "notes".to_owned()]);
}

#[tokio::test]
async fn t09_a_leftover_that_cannot_be_removed_is_only_a_warning() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.plant("projects/.tmp-x/half", "");
    fixture.sandbox.fail("remove", ".tmp-x");
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert!(step(&prepared, "deploy").log.contains("`.tmp-x` could not be removed"));
    assert_eq!(prepared.skills.len(), 1);
}

#[tokio::test]
async fn t10_a_package_that_is_refused_or_a_write_that_fails_leaves_no_directory() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.shelf.put(&v2, &[("a", "a"), ("b", "b")]);
    fixture.shelf.damaged.lock().push(v2.clone());
    assert!(fixture.try_prepare(Ask::versions(&[&v1, &v2])).await.is_err());
    assert_eq!(fixture.projects(), Vec::<String>::new());
    fixture.shelf.damaged.lock().clear();
    fixture.sandbox.fail("write", "/b");
    assert!(fixture.try_prepare(Ask::versions(&[&v1, &v2])).await.is_err());
    assert_eq!(fixture.projects(), Vec::<String>::new());
    fixture.sandbox.mend();
    // The first is in its place when the second cannot be moved: both go.
    fixture.sandbox.fail("exec", &format!("mv 'projects/.tmp-{v2}"));
    assert!(fixture.try_prepare(Ask::versions(&[&v1, &v2])).await.is_err());
    assert_eq!(fixture.projects(), Vec::<String>::new());
}

#[tokio::test]
async fn t11_skills_are_found_at_any_depth_in_any_case_and_not_in_dependencies() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(
        &v1,
        &[
            ("SKILL.md", SKILL),
            ("a/skill.md", SKILL),
            ("a/b/Skill.MD", SKILL),
            ("node_modules/x/SKILL.md", SKILL),
        ],
    );
    fixture.shelf.put(
        &v2,
        &[
            ("x/SKILL.md", SKILL),
            ("y/SKILL.md", SKILL),
            ("y/z/SKILL.md", SKILL),
            (".venv/SKILL.md", SKILL),
            ("venv/SKILL.md", SKILL),
        ],
    );
    let prepared = fixture.prepare(Ask::versions(&[&v1, &v2])).await;
    assert_eq!(prepared.skills.len(), 6);
    let of = |version: &str| {
        prepared.skills.iter().filter(|skill| skill.version_id.as_ref().unwrap().as_str() == version).count()
    };
    assert_eq!((of(&v1), of(&v2)), (3, 3));
}

#[tokio::test]
async fn t12_a_skill_without_a_name_is_left_out() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(
        &v1,
        &[
            ("a/SKILL.md", "# heading alone"),
            ("b/SKILL.md", "---\ndescription: d\n---\n"),
            ("c/SKILL.md", SKILL),
        ],
    );
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(prepared.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["s"]);
}

#[tokio::test]
async fn t13_of_a_directory_that_cannot_be_looked_through_the_others_are_found() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.shelf.put(&v2, &[("SKILL.md", SKILL)]);
    fixture.sandbox.fail("list", &format!("projects/{v1}"));
    let prepared = fixture.prepare(Ask::versions(&[&v1, &v2])).await;
    assert_eq!(prepared.skills.len(), 1);
    assert!(step(&prepared, "scan").log.contains(&v1));
}

// T14 is `of_nested_directories_the_longest_owns_a_skill`, beside the function.

#[tokio::test]
async fn t15_t16_input_files_get_names_of_one_segment_that_differ() {
    let fixture = Fixture::new();
    fixture.prepare(Ask::files(&["a.tar.gz", "a.tar.gz", "../../x", "..", "", "a\\b"])).await;
    let read = |name: &str| fixture.text(&format!("user_files/{name}"));
    let found = ["a.tar.gz", "a-1.tar.gz", "x", "file-3", "file-4", "b"].map(read);
    assert_eq!(found, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(std::fs::read_dir(fixture.work().join("user_files")).unwrap().count(), 6);
}

#[tokio::test]
async fn a_directory_with_the_name_of_an_input_file_is_refused_and_stays() {
    let fixture = Fixture::new();
    fixture.plant("user_files/b/precious", "mine");
    let refused = fixture.try_prepare(Ask::files(&["a", "b", "c"])).await;
    assert!(matches!(refused, Err(Error::Storage(storage::Error::IsDirectory(_)))), "{refused:?}");
    let mut names: Vec<_> = std::fs::read_dir(fixture.work().join("user_files")).unwrap().collect();
    names.retain(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with('.'));
    assert!(names.is_empty(), "what has no name yet goes: {names:?}");
    assert_eq!(fixture.text("user_files/b/precious"), "mine");
    assert_eq!(std::fs::read_dir(fixture.work().join("user_files/b")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_hundred_input_files_of_the_longest_and_strangest_names_are_written() {
    let fixture = Fixture::new();
    let name = |number: usize| format!("{}$(touch hostile)`touch hostile`;{number:03}", "'".repeat(210));
    let names: Vec<String> = (0..100).map(name).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    fixture.prepare(Ask::files(&asked)).await;
    for (number, name) in names.iter().enumerate() {
        assert_eq!(fixture.text(&format!("user_files/{name}")), number.to_string());
    }
    assert!(!fixture.has("hostile"));
}

#[tokio::test]
async fn what_rounds_have_left_of_input_files_goes_and_a_link_in_its_place_leads_to_no_removal() {
    let fixture = Fixture::new();
    fixture.plant("precious/a", "mine");
    fixture.plant("user_files/.tmp-files-1-a/0", "half");
    fixture.plant("user_files/.tmp-other/a", "mine");
    let link = fixture.work().join("user_files/.tmp-files-2-b");
    std::os::unix::fs::symlink("../precious", link).unwrap();
    fixture.prepare(Ask::files(&["x"])).await;
    assert!(!fixture.has("user_files/.tmp-files-1-a") && fixture.has("user_files/.tmp-files-2-b"));
    assert_eq!((fixture.text("precious/a").as_str(), fixture.text("user_files/x").as_str()), ("mine", "0"));
    assert_eq!(fixture.text("user_files/.tmp-other/a"), "mine");
}

#[tokio::test]
async fn t18_of_much_output_the_end_is_kept_and_the_log_is_cut() {
    let fixture = Fixture::new();
    let prepared =
        fixture.prepare(Ask::script("head -c 1000000 /dev/zero | tr '\\0' x; echo END; exit 1")).await;
    let log = &step(&prepared, "entrypoint").log;
    assert_eq!(log.chars().count(), LOG_CHARACTERS + 3);
    assert!(log.ends_with("x..."));
}

#[tokio::test]
async fn a_script_has_no_input_of_its_own_text() {
    let fixture = Fixture::new();
    fixture.prepare(Ask::script("cat > input\ntouch after")).await;
    assert!(fixture.has("after"));
    assert_eq!(fixture.text("input"), "");
}

#[tokio::test]
async fn the_later_form_of_the_state_is_read_where_the_founding_one_is_not_there() {
    let fixture = Fixture::new();
    let later = fixture.state_file().parent().unwrap().parent().unwrap().join("runtime/state.json");
    std::fs::create_dir_all(later.parent().unwrap()).unwrap();
    let text = serde_json::json!({ "values": { "sandboxEntrypoint": hash("touch ran") } }).to_string();
    std::fs::write(&later, text).unwrap();
    fixture.prepare(Ask::script("touch ran")).await;
    assert!(!fixture.has("ran"));
    fixture.prepare(Ask::script("touch other")).await;
    assert_eq!(fixture.state(), serde_json::json!({ "sandboxEntrypointHash": hash("touch other") }));
    fixture.prepare(Ask::script("touch ran")).await;
    assert!(fixture.has("ran"), "the founding form counts from here on");
}

#[tokio::test]
async fn a_state_that_is_larger_than_any_is_an_empty_one() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.state_file().parent().unwrap()).unwrap();
    let hash = hash("touch ran");
    let large = format!("{{\"sandboxEntrypointHash\":\"{hash}\",\"x\":\"{}\"}}", "x".repeat(200_000));
    std::fs::write(fixture.state_file(), large).unwrap();
    fixture.prepare(Ask::script("touch ran")).await;
    assert!(fixture.has("ran"));
}

#[tokio::test]
async fn a_planted_pipe_or_device_in_place_of_the_state_holds_nothing_up() {
    for target in ["/dev/zero", "/dev/stdin"] {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.state_file().parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, fixture.state_file()).unwrap();
        let before = std::time::Instant::now();
        fixture.prepare(Ask::script("touch ran")).await;
        assert!(fixture.has("ran") && before.elapsed().as_secs() < 5, "{target}");
    }
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.state_file().parent().unwrap()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(fixture.state_file()).status().unwrap();
    assert!(made.success());
    let before = std::time::Instant::now();
    fixture.prepare(Ask::script("touch ran")).await;
    assert!(fixture.has("ran") && before.elapsed().as_secs() < 5);
}

#[tokio::test]
async fn a_version_whose_name_is_taken_by_something_else_is_refused_and_what_is_there_stays() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.plant("precious/a", "mine");
    std::fs::create_dir_all(fixture.work().join("projects")).unwrap();
    std::os::unix::fs::symlink("../precious", fixture.work().join("projects").join(&v1)).unwrap();
    assert!(fixture.try_prepare(Ask::versions(&[&v1])).await.is_err());
    assert_eq!(fixture.projects(), [v1]);
    assert_eq!(std::fs::read_dir(fixture.work().join("precious")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_removal_that_is_cut_short_leaves_no_half_version_under_its_name() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", "one"), ("a", "a")]);
    fixture.shelf.put(&v2, &[("SKILL.md", "two")]);
    fixture.prepare(Ask::versions(&[&v1])).await;
    fixture.sandbox.fail("remove", "projects/");
    let prepared = fixture.prepare(Ask::versions(&[&v2])).await;
    let log = &step(&prepared, "deploy").log;
    // It has left its name, which is what a caller asks about.
    assert!(
        log.starts_with("1 of 1 versions deployed, 1 removed") && log.contains("could not be removed"),
        "{log}"
    );
    let projects = fixture.projects();
    assert!(projects[0].starts_with(&format!(".tmp-{v1}-")) && projects[1..] == [v2.clone()], "{projects:?}");
    fixture.sandbox.mend();
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.projects(), std::slice::from_ref(&v1));
    assert_eq!(fixture.text(&format!("projects/{v1}/a")), "a");
}

#[tokio::test]
async fn a_version_that_keeps_its_name_is_not_told_as_removed() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", "one")]);
    fixture.shelf.put(&v2, &[("SKILL.md", "two")]);
    fixture.prepare(Ask::versions(&[&v1])).await;
    fixture.sandbox.fail("exec", &format!("mv 'projects/{v1}'"));
    let prepared = fixture.prepare(Ask::versions(&[&v2])).await;
    let log = &step(&prepared, "deploy").log;
    assert!(log.starts_with("1 of 1 versions deployed, 0 removed"), "{log}");
    assert_eq!(fixture.projects(), [v1, v2.clone()]);
    fixture.sandbox.mend();
    let prepared = fixture.prepare(Ask::versions(&[&v2])).await;
    let log = &step(&prepared, "deploy").log;
    assert!(log.starts_with("0 of 1 versions deployed, 1 removed"), "{log}");
    assert_eq!(fixture.projects(), [v2]);
}
