//! Laws of recovery: a service that is killed at any moment leaves the old state or the new one.
//!
//! A child process changes a store in every way in an endless loop until it is killed; then the store is opened
//! and looked at, by us and by the kernel. `FILESECBOX_RECOVERY_KILLS`: how many times (120 unless told).

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fixture::kernel::KernelView;
use crate::fixture::random::Random;
use crate::fixture::{
    self, Fixture, Node, Tree, agent, path, publisher, put, relaxed, skill_id, skill_tree, user_id,
};
use policy::{Scope, SkillId, TreeId};
use storage::{Condition, Dir, Error, PublishOptions, Store, VersionName};

/// Where the child finds its store. Without it the child's test does nothing.
const ROOT: &str = "FILESECBOX_RECOVERY_ROOT";
const TOGETHER: [&str; 3] = ["a", "b", "c"];
/// A skill whose versions come and go by themselves.
const STAGED: &str = "staged";

fn moving() -> Tree {
    Tree::of(&[("d/f", "1"), ("d/deep/er/g", "2"), ("d/数据", "3"), ("stays", "4")])
}

/// Keeps version `text` of a skill beside the current one, pins it, and makes it current; removes versions when all pins are taken.
fn stage(store: &Store, text: &str) {
    let fill = &mut |_: &SkillId, dir: &Dir| {
        Tree::of(&[("number", text), ("d/number", text)]).fill(dir);
        Ok(None)
    };
    let options = PublishOptions { is_staged: true, ..publisher("u") };
    let (user, skill) = (user_id("u"), skill_id(STAGED));
    let (skills, all) = (store.skills(), std::slice::from_ref(&skill));
    let done = skills.publish_with(&options, Scope::Baseline, &user, &agent(), all, fill).unwrap();
    let name = done.skills.first().map(|done| VersionName::from(&done.version)).unwrap();
    drop(done);
    if skills.pin_version(&agent(), &skill, &name).is_err() {
        for kept in skills.versions(&agent(), &skill).unwrap().versions {
            let name = VersionName::from(&kept.version);
            drop(skills.remove_version(&agent(), &skill, &name, true));
        }
    }
    drop(skills.rollback(&publisher("u"), &user, &agent(), &skill, &name));
}

fn publish_together(store: &Store, scope: Scope, text: &str) {
    let fill = &mut |_: &SkillId, dir: &Dir| {
        Tree::of(&[("number", text), ("d/number", text)]).fill(dir);
        Ok(None)
    };
    drop(store.skills().publish(scope, &user_id("u"), &agent(), &TOGETHER.map(skill_id), fill).unwrap());
}

/// Writes `number` to two files, and renames a third to it, in one patch.
fn patch_together(files: &storage::Files, number: u64) {
    let old = fixture::read(files, "a").unwrap();
    let patch = format!(
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-{old}\n+{number}\n--- a/d/b\n+++ b/d/b\n@@ -1 +1 @@\n-{old}\n+{number}\n\
         diff --git a/n-{old}/n b/n-{number}/n\nrename from n-{old}/n\nrename to n-{number}/n\n",
        old = old.trim(),
    );
    let patch = storage::patch::parse(&patch, &policy::RelPath::parse).unwrap();
    let options = storage::patch::PatchOptions { limit: 1 << 20, ..Default::default() };
    files.patch(&patch, &options).unwrap();
    files.remove(&path(&format!("n-{}", old.trim())), true, &Condition::Always).unwrap();
}

/// What [`patch_together`] begins with.
fn patched() -> Tree {
    Tree::of(&[("a", "0\n"), ("d/b", "0\n"), ("n-0/n", "x")])
}

/// What the child does for ever. Each round tries every change that takes more than one step.
fn change_for_ever(root: &Path) {
    let (store, _) = Store::open(root, relaxed()).unwrap();
    println!("ready");
    let tree = |skill: &str| skill_tree("u", skill);
    let files = |skill: &str| store.files(tree(skill));
    let rename =
        |from: &str, to: &str| files("moving").rename(&path(from), &path(to), false, &Condition::Always);
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    for round in seed * 1000.. {
        match random.below(12) {
            0 | 1 => publish_together(&store, Scope::Baseline, &round.to_string()),
            2 => publish_together(&store, Scope::Overlay, &round.to_string()),
            3 => {
                rename("d", "moved").or_else(|_| rename("moved", "d")).unwrap();
            }
            4 => {
                // Back to a merged directory, so that the next move is one again.
                drop(store.skills().reset(&tree("moving")));
                rename("d", "moved").unwrap();
            }
            5 => {
                drop(store.skills().remove_for_user(&tree("removed")));
                drop(store.skills().reset(&tree("removed")));
            }
            6 => {
                let text = round.to_string().repeat(1000);
                put(&files("written"), "f", &text);
                put(&files(&format!("new-{}", round % 20)), "deep/er/f", &text);
                drop(store.skills().remove_for_user(&tree(&format!("new-{}", (round + 10) % 20))));
            }
            7 => stage(&store, &round.to_string()),
            8 => patch_together(&files("patched"), round),
            9 => patch_together(&store.files(TreeId::Workspace(user_id("u"), agent())), round),
            _ => {
                let run = store.runs().prepare(&tree("written")).unwrap();
                std::fs::write(run.view().tree.join("f"), round.to_string().repeat(1000)).unwrap();
                run.absorb().unwrap();
            }
        }
    }
}

#[test]
fn child_of_the_test_below() {
    if let Some(root) = std::env::var_os(ROOT) {
        change_for_ever(root.as_ref());
    }
}

fn start_child(root: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovery::child_of_the_test_below", "--nocapture"])
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.map_while(Result::ok).any(|line| line.ends_with("ready")),
        "the child could not open the store"
    );
    child
}

/// The highest number of a publication of the skill that is staged. The numbers follow each other, and the current version has one.
fn last_number(fixture: &Fixture) -> u64 {
    let versions = fixture.store.skills().versions(&agent(), &skill_id(STAGED)).unwrap();
    let numbers: Vec<u64> = versions.log.iter().map(|publication| publication.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(versions.current().is_some(), "{versions:?}");
    *numbers.last().unwrap()
}

/// What must hold at every moment of the child's death.
fn assert_whole(fixture: &Fixture) {
    fixture.assert_swept();
    let number = |tree: &Tree| match (tree.nodes.get("number"), tree.nodes.get("d/number")) {
        (Some(Node::File { bytes, .. }), Some(Node::File { bytes: deep, .. })) if bytes == deep => {
            bytes.clone()
        }
        _ => panic!("half a skill: {tree:?}"),
    };
    for root in [fixture.baseline_path(), fixture.overlay_path("u")] {
        let numbers: Vec<_> =
            TOGETHER.iter().map(|skill| Tree::on_disk(&root.join(skill)).as_ref().map(number)).collect();
        assert!(numbers.windows(2).all(|pair| pair.first() == pair.last()), "{root:?}: {numbers:?}");
    }
    let mut moved = Tree::default();
    for (at, node) in moving().nodes {
        let to = at.strip_prefix('d').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        moved.nodes.insert(to.map_or(at.clone(), |rest| format!("moved{rest}")), node);
    }
    let seen = Tree::through(&fixture.skill("u", "moving")).unwrap();
    assert!(seen == moving() || seen == moved, "half a move: {seen:#?}");
    let seen = Tree::through(&fixture.skill("u", "removed"));
    assert!(seen.is_none() || seen == Some(Tree::of(&[("f", "1")])), "half a removal: {seen:?}");
    for files in [fixture.skill("u", "patched"), fixture.workspace("u")] {
        let number = fixture::read(&files, "a").unwrap();
        assert_eq!(fixture::read(&files, "d/b").unwrap(), number, "half a patch");
        let seen = Tree::through(&files).unwrap();
        let named: Vec<&String> = seen.nodes.keys().filter(|at| at.ends_with("/n")).collect();
        assert_eq!(named, [&format!("n-{}/n", number.trim())], "half a patch");
    }
    let written = fixture::read(&fixture.skill("u", "written"), "f").unwrap();
    let unit = written.get(..written.len() / 1000).unwrap();
    assert_eq!(written, unit.repeat(1000), "half a write");
    for skill in ["a", STAGED] {
        let versions = fixture.root().join(".filesecbox/versions/agent").join(skill);
        for name in fixture::names(&versions) {
            number(&Tree::on_disk(&versions.join(name)).unwrap());
        }
    }
    for skill in fixture::names(&fixture.overlay_path("u")) {
        fixture.store.skills().status(&skill_tree("u", &skill)).unwrap();
    }
}

fn assert_kernel_agrees(fixture: &Fixture) {
    let upper = fixture.overlay_path("u");
    std::fs::create_dir_all(&upper).unwrap();
    let view = match KernelView::mount(fixture.root(), &fixture.baseline_path(), &upper) {
        Ok(view) => view,
        Err(error) => return fixture::skip("overlayfs", &error.to_string()),
    };
    for skill in fixture::names(&view.path()) {
        let ours = Tree::through(&fixture.skill("u", &skill));
        assert_eq!(ours, Tree::on_disk(&view.path().join(&skill)), "`{skill}`");
    }
}

#[test]
fn a_service_that_is_killed_at_any_moment_leaves_the_old_state_or_the_new() {
    let temp = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(temp.path(), relaxed()).unwrap();
    let mut fixture = Fixture { store, temp };
    publish_together(&fixture.store, Scope::Baseline, "0");
    fixture.baseline(STAGED, &Tree::of(&[("number", "0"), ("d/number", "0")]));
    fixture.baseline("moving", &moving());
    fixture.baseline("removed", &Tree::of(&[("f", "1")]));
    fixture.baseline("written", &Tree::of(&[("f", &"0".repeat(1000))]));
    fixture.baseline("patched", &patched());
    for (at, text) in [("a", "0\n"), ("d/b", "0\n"), ("n-0/n", "x")] {
        put(&fixture.workspace("u"), at, text);
    }
    let kills =
        std::env::var("FILESECBOX_RECOVERY_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let mut random = Random::new(7);
    let (mut finished, mut swept, mut last) = (0, 0, 0);
    for _ in 0..kills {
        let Fixture { store, temp } = fixture;
        drop(store);
        let mut child = start_child(temp.path());
        // Any moment is as good as another: nothing is waited for.
        std::thread::sleep(Duration::from_micros(u64::try_from(random.below(15_000)).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        let (store, recovery) = Store::open(temp.path(), relaxed()).unwrap();
        (finished, swept) = (finished + recovery.finished, swept + recovery.swept);
        assert_eq!(recovery.refused, 0, "a record of the service's own was refused");
        fixture = Fixture { store, temp };
        assert_whole(&fixture);
        assert_kernel_agrees(&fixture);
        let now = last_number(&fixture);
        assert!(now >= last, "a number went down from {last} to {now}");
        last = now;
    }
    eprintln!("{kills} kills: {finished} changes were finished and {swept} swept");
    assert!(swept > 0, "no kill ever interrupted anything");
    assert!(finished > 0 || kills < 100, "no kill ever left a record to be carried out");
}

#[test]
fn a_second_service_is_refused_as_long_as_the_first_lives() {
    let fixture = Fixture::new();
    let second = Store::open(fixture.root(), relaxed()).map(drop);
    assert!(matches!(second, Err(Error::Conflict(_))), "{second:?}");
    let other_handle = fixture.store.clone();
    let Fixture { store, temp } = fixture;
    drop(store);
    assert!(Store::open(temp.path(), relaxed()).is_err());
    drop(other_handle);
    Store::open(temp.path(), relaxed()).unwrap();
}

#[test]
fn a_store_of_another_layout_is_refused_and_one_whose_first_start_was_cut_short_is_not() {
    let fixture = Fixture::new();
    let Fixture { store, temp } = fixture;
    drop(store);
    let own = temp.path().join(".filesecbox");
    std::fs::write(own.join("format"), "3\n").unwrap();
    let opened = Store::open(temp.path(), relaxed()).map(drop);
    assert!(matches!(opened, Err(Error::Unsupported(_))), "{opened:?}");
    std::fs::remove_file(own.join("format")).unwrap();
    std::fs::write(own.join("format.draft"), "").unwrap();
    Store::open(temp.path(), relaxed()).unwrap();
    assert_eq!(std::fs::read(own.join("format")).unwrap(), b"2\n");
}

#[test]
fn whatever_lies_in_the_stage_or_in_work_a_store_opens_and_sweeps_it() {
    let fixture = Fixture::new();
    let Fixture { store, temp } = fixture;
    drop(store);
    for place in ["stage", "work"] {
        let own = temp.path().join(".filesecbox").join(place);
        std::fs::create_dir_all(own.join("deep").join("d/".repeat(1000))).unwrap();
        std::fs::create_dir(own.join("unreadable")).unwrap();
        std::fs::write(own.join("unreadable/journal"), "{").unwrap();
        std::fs::write(own.join("file"), "1").unwrap();
        std::os::unix::fs::symlink("/", own.join("link")).unwrap();
    }
    let (store, recovery) = Store::open(temp.path(), relaxed()).unwrap();
    assert_eq!((recovery.finished, recovery.swept, recovery.refused), (0, 8, 0));
    Fixture { store, temp }.assert_swept();
}

/// A directory that says, in the words of the former layout and of this one, that the baseline of `s` is another.
fn forged(at: &Path) {
    std::fs::create_dir_all(at.join("0")).unwrap();
    std::fs::write(at.join("0/f"), "forged").unwrap();
    let inode = std::fs::metadata(at.join("0")).unwrap().ino();
    let former =
        format!(r#"[{{"inode":{inode},"into":"skill/baseline/agent","name":"s","keep_replaced_in":null}}]"#);
    std::fs::write(at.join("journal"), former).unwrap();
    std::fs::write(at.join("patch"), r#"{"user":"v","agent":"agent","skill":null,"steps":[{"Remove":"f"}]}"#)
        .unwrap();
}

/// A record in the words of this layout, with a proof that is made up.
fn forged_record(staged: &Path) -> String {
    let (name, inode) =
        (staged.file_name().unwrap().to_str().unwrap(), std::fs::metadata(staged).unwrap().ino());
    let item = std::fs::metadata(staged.join("0")).unwrap().ino();
    let to = r#"{"baseline":{"agent":"agent","skill":"s"}}"#;
    let text = format!(
        r#"{{"transaction":{{"staged":{{"name":"{name}","inode":{inode}}},"steps":[{{"inode":{item},"to":{to}}}]}}}}"#
    );
    format!("{}\n{text}", "0".repeat(64))
}

#[test]
fn nothing_that_is_not_proven_to_be_the_services_is_carried_out() {
    for format in ["1\n", "2\n"] {
        let fixture = Fixture::new();
        fixture.baseline("s", &Tree::of(&[("f", "1")]));
        put(&fixture.workspace("v"), "f", "v's");
        let Fixture { store, temp } = fixture;
        drop(store);
        let own = temp.path().join(".filesecbox");
        std::fs::write(own.join("format"), format).unwrap();
        for place in ["stage", "trash", "trash/0123456789abcdef-5", "work", "views", "journal"] {
            std::fs::create_dir_all(own.join(place)).unwrap();
            forged(&own.join(place).join("0123456789abcdef-0"));
        }
        let record = forged_record(&own.join("stage/0123456789abcdef-0"));
        for name in ["0123456789abcdef-1", "0123456789abcdef-2"] {
            std::fs::write(own.join("journal").join(name), &record).unwrap();
        }
        let (store, recovery) = Store::open(temp.path(), relaxed()).unwrap();
        // The directory and the two files in the journal; of the former layout, what lay in the stage as well.
        let refused = if format == "1\n" { 4 } else { 3 };
        assert_eq!((recovery.finished, recovery.refused), (0, refused));
        assert_eq!(std::fs::read_to_string(own.join("format")).unwrap(), "2\n");
        let fixture = Fixture { store, temp };
        fixture.assert_swept();
        assert_eq!(fixture.own("journal"), Vec::<String>::new());
        assert_eq!(fixture::read(&fixture.skill("u", "s"), "f").unwrap(), "1");
        assert_eq!(fixture::read(&fixture.workspace("v"), "f").unwrap(), "v's");
        fixture.wait_for_empty_trash();
    }
}

#[test]
fn what_a_run_left_behind_is_gone_after_a_start_and_the_next_run() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    let run = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    std::fs::write(run.temporary().join("t"), "1").unwrap();
    // As if the service had died here: nothing of the run is dropped, and its lock goes with its process.
    let root = fixture.root().to_owned();
    let copy = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-a").arg(root.join(".")).arg(copy.path()).status().unwrap().success());
    let (store, recovery) = Store::open(copy.path(), relaxed()).unwrap();
    assert_eq!(recovery.swept, 1);
    let fixture = Fixture { store, temp: copy };
    drop(fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap());
    fixture.assert_swept();
    // Temporary files are their user's, and outlive a run.
    assert_eq!(fixture.own("packages/u/agent/tmp"), ["t"]);
}
