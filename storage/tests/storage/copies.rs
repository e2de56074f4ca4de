//! Laws of the copies in which runs see skills where nothing can be mounted: they are kept, shared and brought up to date.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::fixture::random::Random;
use crate::fixture::{
    self, Fixture, Tree, agent, path, put, read, relaxed, skill_id, skill_tree, user_id, write,
};
use policy::{Scope, TreeId};
use storage::{Condition, Error, Placement, PreparedRun, WriteOptions};

fn begin(fixture: &Fixture) -> PreparedRun {
    fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap()
}

/// Ends a run as it ends when its command has.
fn end(run: PreparedRun) {
    run.absorb().unwrap();
}

fn tree(run: &PreparedRun) -> PathBuf {
    run.view().tree.clone()
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// The skill as its user sees it.
fn seen(fixture: &Fixture) -> Option<Tree> {
    Tree::through(&fixture.skill("u", "s"))
}

fn remove(fixture: &Fixture, name: &str) {
    fixture.skill("u", "s").remove(&path(name), true, &Condition::Always).unwrap();
}

fn published() -> Fixture {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1"), ("d/y", "1")]));
    fixture
}

#[test]
fn the_next_run_finds_the_copy_and_copies_only_what_has_changed() {
    let fixture = published();
    let first = begin(&fixture);
    let place = tree(&first);
    let inodes = ["f", "d/x"].map(|name| inode(&place.join(name)));
    first.absorb().unwrap();
    drop(first);
    let second = begin(&fixture);
    assert_eq!((tree(&second), ["f", "d/x"].map(|name| inode(&place.join(name)))), (place.clone(), inodes));
    end(second);

    put(&fixture.skill("u", "s"), "f", "2");
    put(&fixture.skill("u", "s"), "d/new", "2");
    remove(&fixture, "d/y");
    let third = begin(&fixture);
    assert_eq!(Tree::on_disk(&place), seen(&fixture));
    assert_eq!(inode(&place.join("d/x")), inodes[1]);
    end(third);

    fixture.baseline("s", &Tree::of(&[("f", "3"), ("d/x", "3"), ("g", "3")]));
    let _fourth = begin(&fixture);
    assert_eq!(Tree::on_disk(&place), seen(&fixture));
    assert_eq!(fs::read_to_string(place.join("g")).unwrap(), "3");
}

#[test]
fn what_a_run_changes_is_taken_in_once_and_is_there_for_the_next() {
    let fixture = published();
    let first = begin(&fixture);
    let place = tree(&first);
    fs::write(place.join("f"), "2").unwrap();
    fs::create_dir(place.join("new")).unwrap();
    fs::write(place.join("new/y"), "2").unwrap();
    fs::remove_dir_all(place.join("d")).unwrap();
    let absorbed = first.absorb().unwrap();
    assert_eq!((absorbed.created, absorbed.modified, absorbed.deleted), (2, 1, 1));
    drop(first);
    let second = begin(&fixture);
    assert_eq!((Tree::on_disk(&place), seen(&fixture)), (seen(&fixture), Tree::on_disk(&place)));
    let nothing = second.absorb().unwrap();
    assert_eq!((nothing.created, nothing.modified, nothing.deleted), (0, 0, 0));
    // What a command writes next goes to the copy alone, not through a file that both have.
    fs::write(place.join("f"), "3").unwrap();
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "2");
}

#[test]
fn runs_at_the_same_time_share_the_copy_and_lose_nothing() {
    let fixture = published();
    let (first, second) = (begin(&fixture), begin(&fixture));
    let place = tree(&first);
    assert_eq!(tree(&second), place);
    fs::write(place.join("f"), "first").unwrap();
    fs::write(place.join("d/x"), "second").unwrap();
    first.absorb().unwrap();
    drop(first);
    assert_eq!(read(&fixture.skill("u", "s"), "d/x").unwrap(), "second");
    // The second goes on, while a request changes another file, and a third begins.
    fs::write(place.join("d/x"), "again").unwrap();
    fs::write(place.join("made"), "second").unwrap();
    put(&fixture.skill("u", "s"), "f", "request");
    put(&fixture.skill("u", "s"), "d/y", "request");
    let third = begin(&fixture);
    assert_eq!(fs::read_to_string(place.join("d/y")).unwrap(), "request");
    assert_eq!(fs::read_to_string(place.join("d/x")).unwrap(), "again");
    second.absorb().unwrap();
    drop(second);
    third.absorb().unwrap();
    drop(third);
    let skill = fixture.skill("u", "s");
    for (name, content) in [("f", "request"), ("d/x", "again"), ("d/y", "request"), ("made", "second")] {
        assert_eq!(read(&skill, name).unwrap(), content, "{name}");
    }
    let last = begin(&fixture);
    assert_eq!(Tree::on_disk(&place), seen(&fixture));
    drop(last);
}

#[test]
fn a_run_that_began_with_a_baseline_keeps_it_beside_one_that_begins_later() {
    let fixture = published();
    let first = begin(&fixture);
    let place = tree(&first);
    fixture.baseline("s", &Tree::of(&[("f", "new")]));
    let second = begin(&fixture);
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "1");
    drop((first, second));
    let _third = begin(&fixture);
    assert_eq!(Tree::on_disk(&place), seen(&fixture));
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "new");
}

#[test]
fn a_run_that_is_over_and_still_being_cleaned_up_keeps_no_baseline_for_the_next() {
    let fixture = published();
    let mut first = begin(&fixture);
    let place = tree(&first);
    first.absorb().unwrap();
    first.begin_to_leave();
    fixture.baseline("s", &Tree::of(&[("f", "new")]));
    let second = begin(&fixture);
    assert_eq!(Tree::on_disk(&place), seen(&fixture));
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "new");
    // One that is dropped late is not counted out twice.
    drop(first);
    fixture.baseline("s", &Tree::of(&[("f", "newest")]));
    let third = begin(&fixture);
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "new");
    drop((second, third));
}

#[test]
fn what_is_removed_does_not_stay_in_a_copy() {
    let fixture = published();
    put(&fixture.skill("u", "s"), "secret", "2");
    let run = begin(&fixture);
    let place = tree(&run);
    end(run);
    assert!(place.join("secret").exists());
    fixture.store.skills().remove_for_user(&skill_tree("u", "s")).unwrap();
    for _ in 0..1000 {
        if !place.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!place.exists());
    fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&[("own", "1")]));
    let again = begin(&fixture);
    assert_eq!(Tree::on_disk(&tree(&again)), seen(&fixture));
}

#[test]
fn copies_that_no_run_is_in_are_bounded() {
    let fixture = Fixture::new();
    for number in 0..70 {
        fixture.baseline(&format!("s{number}"), &Tree::of(&[("f", "1")]));
    }
    for number in 0..70 {
        end(fixture.store.runs().prepare(&skill_tree("u", &format!("s{number}"))).unwrap());
    }
    let kept = fixture.own("work");
    assert_eq!(kept.len(), 64, "{kept:?}");
    // The last ones are kept.
    let last = fixture.store.runs().prepare(&skill_tree("u", "s69")).unwrap();
    assert_eq!(fixture.own("work").len(), 64);
    drop(last);
}

#[test]
fn a_workspace_has_links_to_its_skills_as_long_as_runs_need_them() {
    let fixture = published();
    let workspace = TreeId::Workspace(user_id("u"), agent());
    let prepare = || {
        fixture
            .store
            .runs()
            .plan(&workspace, Placement::InPlace, &[skill_id("s")])
            .and_then(|plan| plan.prepare())
    };
    let first = prepare().unwrap();
    let link = first.view().tree.join("skills/s");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::canonicalize(&link).unwrap(), fs::canonicalize(&first.view().skills[0]).unwrap());
    fs::write(link.join("f"), "2").unwrap();
    let second = prepare().unwrap();
    first.absorb().unwrap();
    drop(first);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "2");
    assert!(link.join("f").exists());
    drop(second);
    assert_eq!(fixture::names(&fixture.root().join("sandbox/u/agent")), Vec::<String>::new());

    // What a crash has left is replaced, what is a user's is not.
    let skills = fixture.root().join("sandbox/u/agent/skills");
    fs::create_dir(&skills).unwrap();
    let left = fixture.root().join(".filesecbox/work/former");
    std::os::unix::fs::symlink(&left, skills.join("s")).unwrap();
    drop(prepare().unwrap());
    assert_eq!(fixture::names(&skills), Vec::<String>::new());
    fs::write(skills.join("s"), "mine").unwrap();
    assert!(matches!(prepare().map(drop), Err(Error::Conflict(_))));
    assert_eq!(fs::read_to_string(skills.join("s")).unwrap(), "mine");
}

#[test]
fn a_skill_that_cannot_be_taken_in_keeps_no_other_of_the_run_from_it() {
    let fixture = published();
    fixture.baseline("t", &Tree::of(&[("f", "1")]));
    let workspace = TreeId::Workspace(user_id("u"), agent());
    let (first, second) = (skill_id("s"), skill_id("t"));
    let prepare = |skills: &[_]| {
        fixture.store.runs().plan(&workspace, Placement::InPlace, skills).unwrap().prepare().unwrap()
    };
    let run = prepare(&[first, second.clone()]);
    for skill in &run.view().skills {
        fs::write(skill.join("f"), "2").unwrap();
    }
    fixture.store.skills().remove_for_user(&skill_tree("u", "s")).unwrap();
    let absorbed = run.absorb();
    assert!(matches!(absorbed, Err(Error::Conflict(_))), "{absorbed:?}");
    drop(run);
    assert_eq!(seen(&fixture), None);
    assert_eq!(read(&fixture.skill("u", "t"), "f").unwrap(), "2");
    // And the next run sees it so.
    let next = prepare(&[second]);
    assert_eq!(fs::read_to_string(next.view().skills[0].join("f")).unwrap(), "2");
}

/// Requests and commands change a skill in any order; each run begins with what the user sees, and what it leaves is what
/// the user sees next.
#[test]
fn the_copy_is_what_the_user_sees_at_every_beginning_and_the_reverse_at_every_end() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let fixture = published();
        let names = ["f", "g", "d/x", "d/y", "d/e/z", "h/i"];
        for step in 0..30 {
            let name = names[random.below(names.len())];
            let skill = fixture.skill("u", "s");
            match random.below(8) {
                0 => {
                    let options = WriteOptions { parents: true, ..WriteOptions::default() };
                    // Refused where a file is in the way, or the skill is gone.
                    drop(write(&skill, name, format!("request {step}").as_bytes(), &options));
                }
                1 => drop(skill.remove(&path(name), true, &Condition::Always)),
                2 => drop(skill.remove(&path("d"), true, &Condition::Always)),
                3 => {
                    let text = format!("baseline {step}");
                    fixture.baseline(
                        "s",
                        &Tree::of(&[("f", text.as_str()), ("d/x", text.as_str()), ("k", "1")]),
                    );
                }
                4 => drop(fixture.store.skills().reset(&skill_tree("u", "s"))),
                _ => {
                    let Ok(run) = fixture.store.runs().prepare(&skill_tree("u", "s")) else { continue };
                    let place = tree(&run);
                    assert_eq!(Tree::on_disk(&place), seen(&fixture), "seed {seed}, step {step}");
                    for _ in 0..random.below(3) {
                        let name = names[random.below(names.len())];
                        command(&mut random, &place, name, step);
                    }
                    let left = Tree::on_disk(&place);
                    let absorbed = run.absorb().unwrap();
                    assert_eq!(absorbed.skipped, Vec::<String>::new());
                    drop(run);
                    assert_eq!(seen(&fixture), left, "seed {seed}, step {step}");
                }
            }
        }
    }
}

/// One change of a command.
fn command(random: &mut Random, place: &Path, name: &str, step: usize) {
    let file = place.join(name);
    match random.below(6) {
        0 => drop(fs::remove_file(&file)),
        1 => drop(fs::remove_dir_all(place.join("d"))),
        2 => {
            // A directory where a file was, and a file in it.
            drop(fs::remove_file(&file));
            drop(fs::create_dir_all(&file));
            drop(fs::write(file.join("below"), format!("command {step}")));
        }
        3 => drop(fs::set_permissions(&file, fs::Permissions::from_mode(0o755))),
        4 => drop(fs::set_permissions(place.join("d"), fs::Permissions::from_mode(0o750))),
        _ => {
            drop(file.parent().map(fs::create_dir_all));
            drop(fs::write(&file, format!("command {step}")));
        }
    }
}

#[test]
fn skills_that_are_more_together_than_one_may_be_are_not_copied_for_one_run() {
    let mut options = relaxed();
    options.files.view_bytes = 1000;
    let fixture = Fixture::with(options);
    let large = "x".repeat(600);
    for skill in ["one", "two"] {
        fixture.baseline(skill, &Tree::of(&[("f", &large)]));
    }
    let workspace = TreeId::Workspace(user_id("u"), agent());
    let prepare = |skills: &[&str]| {
        let skills: Vec<_> = skills.iter().map(|skill| skill_id(skill)).collect();
        fixture.store.runs().plan(&workspace, Placement::InPlace, &skills).unwrap().prepare()
    };
    for alone in ["one", "two"] {
        end(prepare(&[alone]).unwrap());
    }
    let refused = prepare(&["one", "two"]).err().unwrap();
    assert!(matches!(refused, Error::TooLarge { limit: 1000, .. }), "{refused:?}");
    // What was made for the refused run is in no other's way.
    end(prepare(&["two"]).unwrap());
}
