//! Runs that stand in a skill while others publish, pull, promote and delete, and runs that leave much to be taken in.
//!
//! Each attack has a service of its own, because it publishes for all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::Attack;
use crate::client::encoded;
use crate::expectation::{Finding, Tier};
use crate::records::{ATTACKER, Mortal, PATIENCE, nothing_to_start};
use crate::scene::{AGENT, SKILL, Scene, VICTIM, skill_of, workspace_of};
use crate::zip::skill_zip;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("keeping_others_from_publishing_with_a_run", standing_in_the_way).everywhere().waiting(),
    Attack::driven("leaving_ghosts_in_a_directory_that_was_dropped", leaving_ghosts).everywhere().waiting(),
    Attack::driven("having_a_deletion_undone_when_a_run_ends", undoing).everywhere().waiting(),
    Attack::driven("removing_a_workspace_at_the_answer_of_its_run", removing_at_once).everywhere().waiting(),
    Attack::driven("holding_a_skill_while_much_is_taken_in", holding).everywhere().waiting(),
    Attack::driven("leaving_more_than_can_be_taken_in_in_time", leaving_too_much).everywhere().waiting(),
];

/// Files that a run makes: enough that taking them in takes seconds, or some hundred milliseconds of a fast build.
const FILES: usize = 3000;

impl Mortal {
    /// Publishes the shared skill for all.
    fn publish(&self, files: &[(&str, &str)]) -> u16 {
        let skills = format!("/v1/skills/{VICTIM}/{AGENT}");
        self.client.try_upload(&skills, "baseline", &skill_zip(SKILL, files)).status
    }

    /// Starts a command in `tree` that says a word and stays.
    fn stay(&self, tree: &str) {
        let line = json!({ "shell": "echo here; sleep 600", "exec_id": "stay" });
        let begun = self.client.post_json(format!("{tree}/exec?background=true"), &line);
        assert_eq!(begun.status, 201, "{}", begun.json());
        let since = Instant::now();
        let run = || self.client.get(format!("{tree}/exec/stay")).ok();
        while run()["data"]["last_seq"].as_u64().is_none_or(|last| last < 2) {
            assert!(since.elapsed() < PATIENCE, "the control: {}", run());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_staying(&self, tree: &str) -> bool {
        self.client.get(format!("{tree}/exec/stay")).ok()["data"]["state"] == "running"
    }

    fn end(&self, tree: &str) {
        self.client.delete(format!("{tree}/exec/stay")).ok();
    }

    /// The output of a line of the shell in `tree`.
    fn line(&self, tree: &str, line: &str) -> String {
        let ran = self.client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
        ran["data"]["stdout"].as_str().unwrap().to_owned()
    }

    /// How a user's view of the shared skill stands to the baseline.
    fn status(&self, user: &str) -> Value {
        let listed = self.client.get(format!("/v1/skills/{}/{AGENT}/list", encoded(user))).ok();
        let mut all = listed["data"].as_array().unwrap().iter();
        all.find(|skill| skill["skill_id"] == SKILL).map(|skill| skill["status"].clone()).unwrap()
    }
}

/// A command of the attacker stays in the skill; another user edits, pulls and promotes, and a manager publishes. Then only
/// the attacker's own view is left, and holds the attacker off no longer either.
fn standing_in_the_way(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let (mine, other) = (skill_of(ATTACKER), skill_of("publisher"));
    mortal.client.put(format!("{mine}/raw/mine"), "x").ok();
    mortal.client.put(format!("{other}/raw/theirs"), "x").ok();
    // The other user's own view is there, and idle.
    assert_eq!(mortal.line(&other, "cat theirs"), "x", "the control");
    mortal.stay(&mine);
    let statuses = [
        mortal.publish(&[("data.txt", "second\n")]),
        mortal.client.post(format!("{other}/pull"), "").status,
        mortal.client.post(format!("{other}/promote"), "").status,
        mortal.publish(&[("data.txt", "third\n")]),
    ];
    assert!(mortal.is_staying(&mine), "the control");
    let seen = mortal.client.text(&other, "data.txt");
    mortal.end(&mine);
    let own = [
        mortal.client.post(format!("{mine}/pull"), "").status,
        mortal.client.post(format!("{mine}/promote"), "").status,
    ];
    let files = mortal.client.files(&skill_of("newcomer"));
    if statuses != [200; 4] || seen != "third\n" {
        return Finding::Through(format!("under another's run: {statuses:?}, {seen:?}"));
    }
    if own != [200; 2] || !files.contains(&"mine".to_owned()) {
        return Finding::Through(format!("when it had ended: {own:?}, {files:?}"));
    }
    Finding::Stopped
}

/// A user removes a file of a directory that the application drops next.
fn leaving_ghosts(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = skill_of(ATTACKER);
    let both = [("data.txt", "1\n"), ("d/x", "1\n"), ("d/y", "1\n"), ("d/e/z", "1\n")];
    assert_eq!(mortal.publish(&both), 200);
    // The kernel hides whiteouts in directories that it has changed itself, and shows them in those that the service has.
    for deleted in ["d/x", "d/e/z"] {
        assert_eq!(mortal.client.delete(format!("{tree}/file?path={deleted}")).status, 200, "the control");
    }
    mortal.client.put(format!("{tree}/raw/d/e/own"), "kept\n").ok();
    assert_eq!(mortal.publish(&[("data.txt", "2\n")]), 200);
    let looked = mortal.line(
        &tree,
        "find d | sort; cp -r d copied && echo copied; rm -rf copied && echo removed; ls -l d/e | grep -c '?'",
    );
    if looked != "d\nd/e\nd/e/own\ncopied\nremoved\n0\n" {
        return Finding::Through(format!("{looked:?}"));
    }
    // The application goes back, and what was deleted stays deleted; then it drops the directory again.
    assert_eq!(mortal.publish(&both), 200);
    let back = ["d/x", "d/y", "d/e/z"].map(|at| mortal.client.get(format!("{tree}/stat?path={at}")).status);
    assert_eq!(mortal.publish(&[("data.txt", "2\n")]), 200);
    let removed = mortal.client.delete(format!("{tree}/file?path=d&recursive=true")).status;
    match (back, removed) {
        ([404, 200, 404], 200) => Finding::Stopped,
        _ => Finding::Through(format!("of what was deleted is back: {back:?}; removing it is {removed}")),
    }
}

/// A user publishes while a command is in the skill, and deletes something then. Another user publishes under a command and
/// changes nothing.
fn undoing(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = skill_of(ATTACKER);
    for path in ["mine", "own/a", "own/b"] {
        mortal.client.put(format!("{tree}/raw/{path}?parents=true"), "x").ok();
    }
    mortal.stay(&tree);
    mortal.client.post(format!("{tree}/promote"), "").ok();
    for path in ["mine", "own", "data.txt"] {
        mortal.client.delete(format!("{tree}/file?path={path}&recursive=true")).ok();
    }
    mortal.end(&tree);
    // The next command, and the next request.
    let seen = [mortal.line(&tree, "ls"), mortal.client.files(&tree).join("\n") + "\n"];
    if seen != ["SKILL.md\n", "SKILL.md\n"] {
        return Finding::Through(format!("what was deleted is back: {seen:?}"));
    }
    let other = skill_of("publisher");
    mortal.client.put(format!("{other}/raw/theirs"), "x").ok();
    mortal.stay(&other);
    mortal.client.post(format!("{other}/promote"), "").ok();
    mortal.end(&other);
    let files = mortal.client.files(&other);
    match mortal.status("publisher") {
        status if status == "UNCHANGED" && files.contains(&"theirs".to_owned()) => Finding::Stopped,
        status => Finding::Through(format!("a user without changes is {status}, with {files:?}")),
    }
}

/// A workspace goes at the moment when the answer of its run is there.
fn removing_at_once(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = workspace_of(ATTACKER);
    for round in 0..10 {
        // What is left in the temporary directory takes a moment to remove.
        let line = "for i in $(seq 60); do echo > \"$TMPDIR/$i\"; done; echo here";
        assert_eq!(mortal.line(&tree, line), "here\n", "the control");
        let removed = mortal.client.delete(&tree);
        if removed.status != 200 {
            return Finding::Through(format!("round {round}: {}", removed.json()));
        }
    }
    Finding::Stopped
}

/// A command that makes [`FILES`] files, the first of which is `f00000`.
fn making() -> Value {
    let script = format!("for number in range({FILES}): open('f%05d' % number, 'w').close()\nprint('made')");
    json!({ "command": "python3", "args": ["-c", script] })
}

fn roomy(absorb_ms: u64) -> String {
    format!("[limits.disk]\nfiles = 20000\n[limits.files]\nabsorb_ms = {absorb_ms}\n")
}

/// Requests on the same tree go on while the run's files are taken in.
fn holding(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, &roomy(120_000)) else { return nothing_to_start() };
    let tree = skill_of(ATTACKER);
    let is_there = |number: usize| mortal.client.get(format!("{tree}/stat?path=f{number:05}")).status == 200;
    std::thread::scope(|threads| {
        let ran = threads.spawn(|| mortal.client.post_json(format!("{tree}/exec"), &making()).ok());
        let begun = Instant::now();
        while !is_there(0) {
            assert!(begun.elapsed() < PATIENCE, "the control");
            // The run needs the processor, too, where there is one.
            std::thread::sleep(Duration::from_millis(5));
        }
        let put = mortal.client.put(format!("{tree}/raw/meanwhile"), "x").status;
        let is_over = is_there(FILES - 1);
        let ran = ran.join().unwrap();
        assert_eq!((ran["data"]["stdout"].as_str(), is_there(FILES - 1)), (Some("made\n"), true), "{ran}");
        assert_eq!(mortal.client.text(&tree, "meanwhile"), "x", "the control");
        // A live view has nothing to take in.
        let is_held = is_over && scene.stage.tier < Tier::Namespaces;
        if put != 201 || is_held {
            return Finding::Through(format!("a request waited until all was taken in, and got {put}"));
        }
        Finding::Stopped
    })
}

/// Changes that cannot be absorbed in time are left out, and told: the numbers add up.
fn leaving_too_much(scene: &Scene<'_>) -> Finding {
    // A live view has nothing to take in; of a copy, no machine takes in all of it within a millisecond.
    let is_copy = scene.stage.tier < Tier::Namespaces;
    for (absorb_ms, must_leave_out) in [(60, false), (1, is_copy)] {
        let Some(mortal) = Mortal::of(scene, &roomy(absorb_ms)) else { return nothing_to_start() };
        let finding = leave_too_much(&mortal, must_leave_out);
        if finding != Finding::Stopped {
            return finding;
        }
    }
    Finding::Stopped
}

fn leave_too_much(mortal: &Mortal, must_leave_out: bool) -> Finding {
    let tree = skill_of(ATTACKER);
    let ran = mortal.client.post_json(format!("{tree}/exec"), &making()).ok();
    let files = mortal.client.get(format!("{tree}/files?limit=20000")).ok();
    let there = files["data"].as_array().unwrap().iter();
    let there = there.filter(|path| path.as_str().is_some_and(|path| path.starts_with('f'))).count();
    let absorbed = &ran["absorbed"];
    let number = |name: &str| usize::try_from(absorbed[name].as_u64().unwrap_or(0)).unwrap();
    // A live view has all of it at once; one that was compared in time has what was told.
    let is_told = match absorbed["refused"].is_string() {
        true => there == 0 && ran["data"]["limit"] == "disk",
        false if absorbed.get("left_out").is_some() => {
            absorbed["left_out_because"].is_string() && number("created") + number("left_out") == FILES
        }
        false => there == FILES,
    };
    mortal.client.put(format!("{tree}/raw/after"), "the control").ok();
    if must_leave_out && there == FILES {
        return Finding::Through(format!("all was taken in, whatever the time: {absorbed}"));
    }
    match is_told && (there == FILES || number("created") == there) {
        true => Finding::Stopped,
        false => Finding::Through(format!("{there} of {FILES} files are there, and told is {absorbed}")),
    }
}
