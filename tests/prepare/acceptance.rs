//! The acceptance table of the founding document, S1 to S25 and S30 to S32, each under its number.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use filesecbox::ops::lease::LeaseStore;
use filesecbox::ops::prepare::{Bootstrap, Mode, Outcome, Site, deadline, hash};
use parking_lot::Mutex;
use serde_json::json;

use crate::fixture::{Ask, Call, Fixture, step, version};

const SKILL: &str = "---\nname: 写作\ndescription: writes\n---\n";

#[tokio::test]
async fn s01_a_selected_version_gets_its_directory_by_one_download() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL), ("a/b.txt", "b")]);
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.projects(), std::slice::from_ref(&v1));
    assert_eq!(fixture.text(&format!("projects/{v1}/a/b.txt")), "b");
    assert_eq!(fixture.shelf.fetched(), std::slice::from_ref(&v1));
    let work = fixture.work().to_str().unwrap().to_owned();
    assert_eq!(prepared.workdir, work);
    let skill = &prepared.skills[0];
    assert_eq!((skill.name.as_str(), skill.description.as_str()), ("写作", "writes"));
    assert_eq!(skill.directory, format!("{work}/projects/{v1}"));
    assert_eq!(skill.skill_md_path, format!("{work}/projects/{v1}/SKILL.md"));
    assert_eq!(skill.id, skill.skill_md_path);
    assert_eq!(skill.version_id.as_ref().unwrap().as_str(), v1);
}

#[tokio::test]
async fn s02_a_second_round_downloads_and_unpacks_nothing() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.prepare(Ask::versions(&[&v1])).await;
    fixture.shelf.fetched();
    fixture.sandbox.calls();
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.shelf.fetched(), Vec::<String>::new());
    let written = fixture
        .sandbox
        .calls()
        .into_iter()
        .filter(|Call(method, about)| *method == "write" || about.contains("mv "));
    assert_eq!(written.filter(|Call(_, about)| !about.contains("state")).count(), 0);
}

#[tokio::test]
async fn s03_of_two_skills_only_the_one_that_moved_on_is_downloaded() {
    let fixture = Fixture::new();
    let (v1, v2, w1) = (version(1), version(2), version(0xb1));
    for version in [&v1, &v2, &w1] {
        fixture.shelf.put(version, &[("SKILL.md", SKILL)]);
    }
    fixture.prepare(Ask::versions(&[&v1, &w1])).await;
    fixture.plant(&format!("projects/{w1}/mark"), "untouched");
    fixture.shelf.fetched();
    fixture.prepare(Ask::versions(&[&v2, &w1])).await;
    assert_eq!(fixture.shelf.fetched(), std::slice::from_ref(&v2));
    assert_eq!(fixture.projects(), [v2, w1.clone()]);
    assert_eq!(fixture.text(&format!("projects/{w1}/mark")), "untouched");
}

#[tokio::test]
async fn s04_a_deselected_version_goes_and_is_no_skill_any_more() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.shelf.put(&v2, &[("SKILL.md", SKILL)]);
    assert_eq!(fixture.prepare(Ask::versions(&[&v1, &v2])).await.skills.len(), 2);
    let prepared = fixture.prepare(Ask::versions(&[&v2])).await;
    assert_eq!(fixture.projects(), std::slice::from_ref(&v2));
    assert_eq!(prepared.skills.len(), 1);
    assert_eq!(prepared.skills[0].version_id.as_ref().unwrap().as_str(), v2);
}

#[tokio::test]
async fn s05_the_package_of_a_version_that_is_there_is_never_asked_for() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.plant(&format!("projects/{v1}/SKILL.md"), SKILL);
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.shelf.fetched(), Vec::<String>::new());
    assert_eq!(prepared.skills.len(), 1);
}

#[tokio::test]
async fn s06_an_empty_script_is_not_run() {
    let fixture = Fixture::new();
    let prepared = fixture.prepare(Ask::script("").mode(Mode::ToolCall)).await;
    assert_eq!(prepared.steps, []);
    assert_eq!(fixture.sandbox.calls(), [Call("exec", "pwd".to_owned())]);
}

#[tokio::test]
async fn s07_to_s09_a_script_runs_once_for_each_of_its_texts() {
    let fixture = Fixture::new();
    let outcome = |prepared| step(&prepared, "entrypoint").outcome;
    assert_eq!(outcome(fixture.prepare(Ask::script("echo 1 >> runs; pwd")).await), Outcome::Done);
    assert_eq!(fixture.text("runs"), "1\n");
    assert_eq!(fixture.state(), json!({ "sandboxEntrypointHash": hash("echo 1 >> runs; pwd") }));
    assert_eq!(outcome(fixture.prepare(Ask::script("echo 1 >> runs; pwd")).await), Outcome::Skipped);
    assert_eq!(fixture.text("runs"), "1\n");
    assert_eq!(outcome(fixture.prepare(Ask::script("echo 2 >> runs")).await), Outcome::Done);
    assert_eq!(fixture.text("runs"), "1\n2\n");
}

#[tokio::test]
async fn s10_without_a_home_a_script_runs_each_time_and_nothing_is_written() {
    let fixture = Fixture::with_home(|_| "/dev/null/home".into());
    for expected in ["1\n", "1\n1\n"] {
        let prepared = fixture.prepare(Ask::script("echo 1 >> runs")).await;
        assert_eq!(step(&prepared, "entrypoint").outcome, Outcome::Done);
        assert_eq!(fixture.text("runs"), expected);
    }
    let writes = fixture.sandbox.calls().into_iter().filter(|Call(_, about)| about.contains("cat >"));
    assert_eq!(writes.count(), 0);
}

#[tokio::test]
async fn s11_a_script_that_fails_or_takes_too_long_blocks_nothing_and_is_not_recorded() {
    let fixture = Fixture::new();
    let prepared = fixture.prepare(Ask::script("echo out; echo err >&2; exit 1")).await;
    let failed = step(&prepared, "entrypoint");
    assert_eq!(failed.outcome, Outcome::Failed);
    assert_eq!(failed.log, "it exited with 1\nout\nerr");
    let slow = Ask { seconds: Some(0), ..Ask::script("echo begun; sleep 60") };
    let prepared = fixture.prepare(slow).await;
    assert_eq!(step(&prepared, "entrypoint").outcome, Outcome::TimedOut);
    assert!(!fixture.state_file().exists());
}

#[tokio::test]
async fn s12_the_script_of_a_version_runs_in_its_directory() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("entrypoint.sh", "pwd > where; echo hello")]);
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    let place = fixture.work().join("projects").join(&v1);
    assert_eq!(fixture.text(&format!("projects/{v1}/where")).trim_end(), place.to_str().unwrap());
    assert_eq!(step(&prepared, &format!("skill:{v1}")).log, "hello");
    assert_eq!(fixture.state(), json!({ "skillEntrypoints": [v1] }));
}

#[tokio::test]
async fn s13_a_script_below_the_root_of_a_version_is_not_run() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("x/entrypoint.sh", "touch \"$HOME/ran\""), ("SKILL.md", SKILL)]);
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(step(&prepared, &format!("skill:{v1}")).outcome, Outcome::Skipped);
    assert!(!fixture.state_file().with_file_name("../../ran").exists());
    assert!(!fixture.state_file().exists());
}

#[tokio::test]
async fn s14_a_script_in_the_root_of_the_workspace_is_not_run() {
    let fixture = Fixture::new();
    fixture.plant("entrypoint.sh", "touch ran");
    fixture.plant("projects/entrypoint.sh", "touch ran");
    fixture.prepare(Ask::script("true")).await;
    assert!(!fixture.has("ran") && !fixture.has("projects/ran"));
}

#[tokio::test]
async fn s15_s16_s17_the_script_of_a_version_runs_once_also_when_its_directory_was_deployed_anew() {
    let fixture = Fixture::new();
    let (v1, v2) = (version(1), version(2));
    let script = [("entrypoint.sh", "echo x >> ../../runs")];
    fixture.shelf.put(&v1, &script);
    fixture.shelf.put(&v2, &script);
    let runs = || fixture.text("runs").lines().count();
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(runs(), 1, "S15: a new version's script runs");
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(runs(), 1, "S16: a recorded one does not");
    std::fs::remove_dir_all(fixture.work().join("projects").join(&v1)).unwrap();
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert!(fixture.has(&format!("projects/{v1}/entrypoint.sh")), "it is deployed anew");
    assert_eq!(runs(), 1, "S17: and does not run again");
    fixture.prepare(Ask::versions(&[&v2])).await;
    assert_eq!(runs(), 2, "another version's does");
}

#[tokio::test]
async fn s18_without_a_state_the_script_of_a_version_runs_each_time_and_is_not_recorded() {
    let fixture = Fixture::with_home(|_| "/proc/none".into());
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("entrypoint.sh", "echo x >> ../../runs")]);
    for count in 1..=2 {
        fixture.prepare(Ask::versions(&[&v1])).await;
        assert_eq!(fixture.text("runs").lines().count(), count);
    }
}

#[tokio::test]
async fn s19_a_script_that_failed_is_tried_again_in_the_next_round() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("entrypoint.sh", "[ -e ../../ready ]")]);
    let ask = || Ask::versions(&[&v1]).with_script("[ -e ready ]");
    let failed = fixture.prepare(ask()).await;
    fixture.plant("ready", "");
    let done = fixture.prepare(ask()).await;
    for name in ["entrypoint".to_owned(), format!("skill:{v1}")] {
        assert_eq!(
            (step(&failed, &name).outcome, step(&done, &name).outcome),
            (Outcome::Failed, Outcome::Done)
        );
    }
    assert_eq!(
        fixture.state(),
        json!({ "sandboxEntrypointHash": hash("[ -e ready ]"), "skillEntrypoints": [v1] })
    );
}

#[tokio::test]
async fn s20_scripts_run_when_files_and_versions_are_there_however_slowly_they_come() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL), ("data", "x")]);
    *fixture.sandbox.slow_writes.lock() = Duration::from_millis(100);
    let script = format!("cat user_files/in.txt projects/{v1}/data > both");
    let ask = Ask {
        files: vec![("in.txt".to_owned(), "in ".to_owned())],
        ..Ask::versions(&[&v1]).with_script(&script)
    };
    fixture.prepare(ask).await;
    assert_eq!(fixture.text("both"), "in x");
}

#[tokio::test]
async fn s21_a_skill_that_a_script_makes_is_found() {
    let fixture = Fixture::new();
    let v1 = version(1);
    let script = "mkdir made && printf -- '---\\nname: made\\n---\\n' > made/SKILL.md";
    fixture.shelf.put(&v1, &[("entrypoint.sh", script)]);
    let prepared = fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(prepared.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["made"]);
    assert_eq!(prepared.skills[0].description, "");
}

#[tokio::test]
async fn s22_s23_a_preview_runs_no_script_and_finds_the_skills_of_the_whole_workspace() {
    let fixture = Fixture::new();
    fixture.plant("my skill/SKILL.md", SKILL);
    fixture.plant("entrypoint.sh", "touch ran");
    let prepared = fixture.prepare(Ask::script("touch ran").mode(Mode::EditDebug)).await;
    assert!(!fixture.has("ran"));
    assert_eq!(step(&prepared, "entrypoint").outcome, Outcome::Skipped);
    assert_eq!(prepared.skills.len(), 1);
    assert_eq!(prepared.skills[0].version_id, None);
    // S23: what a person runs by hand runs.
    use sandbox::Sandbox;
    let user = policy::UserId::parse("alice").unwrap();
    let ran = fixture.sandbox.exec(&user, sandbox::ExecSpec::shell("bash entrypoint.sh")).await.unwrap();
    assert!(ran.is_success() && fixture.has("ran"));
}

#[tokio::test]
async fn s24_a_state_that_is_none_is_an_empty_one_and_is_made_anew() {
    for garbage in ["garbage", "[]", r#"{"skillEntrypoints":5}"#, ""] {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.state_file().parent().unwrap()).unwrap();
        std::fs::write(fixture.state_file(), garbage).unwrap();
        fixture.prepare(Ask::script("touch ran")).await;
        assert!(fixture.has("ran"), "{garbage}");
        assert_eq!(fixture.state(), json!({ "sandboxEntrypointHash": hash("touch ran") }), "{garbage}");
    }
}

#[tokio::test]
async fn s25_a_version_that_is_not_selected_leaves_the_state_also_when_nothing_runs() {
    let fixture = Fixture::new();
    let (v1, v9) = (version(1), version(9));
    fixture.plant(&format!("projects/{v1}/SKILL.md"), SKILL);
    std::fs::create_dir_all(fixture.state_file().parent().unwrap()).unwrap();
    let text = json!({ "skillEntrypoints": [v1, v9] }).to_string();
    std::fs::write(fixture.state_file(), &text).unwrap();
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.state(), json!({ "skillEntrypoints": [v1] }));
    // With no selected version the file is not touched.
    std::fs::write(fixture.state_file(), &text).unwrap();
    fixture.prepare(Ask::default()).await;
    assert_eq!(std::fs::read_to_string(fixture.state_file()).unwrap(), text);
}

#[tokio::test]
async fn s30_what_a_crash_left_between_unpacking_and_moving_goes_and_the_version_is_deployed() {
    let fixture = Fixture::new();
    let v1 = version(1);
    fixture.shelf.put(&v1, &[("SKILL.md", SKILL)]);
    fixture.plant(&format!("projects/.tmp-{v1}-1700000000000-abc/half"), "");
    fixture.prepare(Ask::versions(&[&v1])).await;
    assert_eq!(fixture.projects(), std::slice::from_ref(&v1));
    assert_eq!(fixture.text(&format!("projects/{v1}/SKILL.md")), SKILL);
}

#[test]
fn s31_the_time_of_scripts_is_clamped() {
    assert_eq!([0, -1, 9999].map(|seconds| deadline(seconds).as_secs()), [1, 1, 600]);
}

struct Noted(Arc<Mutex<Vec<bool>>>, Arc<dyn LeaseStore>, std::path::PathBuf);

#[async_trait]
impl Bootstrap for Noted {
    fn name(&self) -> &str {
        "mirror"
    }
    async fn run(&self, _site: &Site, _deadline: Duration) -> (Outcome, String) {
        let key = crate::fixture::KEY;
        let is_leased = self.1.acquire(key, "another", Duration::from_secs(1)).await.unwrap().is_none();
        self.0.lock().push(is_leased && !self.2.exists());
        (Outcome::Done, "set up".to_owned())
    }
}

#[tokio::test]
async fn s32_what_a_platform_sets_up_comes_first_under_the_lease_and_not_in_a_preview() {
    let mut fixture = Fixture::new();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let files = fixture.work().join("user_files");
    fixture.bootstrap = vec![Arc::new(Noted(runs.clone(), fixture.leases.clone(), files))];
    fixture.prepare(Ask::files(&["a"]).mode(Mode::EditDebug)).await;
    assert!(runs.lock().is_empty(), "not in a preview");
    std::fs::remove_dir_all(fixture.work().join("user_files")).unwrap();
    let prepared = fixture.prepare(Ask::files(&["a"])).await;
    assert_eq!(*runs.lock(), [true], "under the lease, before any file");
    assert_eq!(prepared.steps[0].name, "bootstrap:mirror");
    assert!(fixture.has("user_files/a"));
}
