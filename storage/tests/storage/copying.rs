//! Laws of copying skills for runs that have not enough time for it, or fail on the way.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::fixture::{Fixture, Tree, agent, path, put, read, relaxed, skill_id, skill_tree, user_id};
use policy::TreeId;
use storage::{Condition, Error, Interrupt, Placement, PlannedRun};

/// A run in the workspace that sees skills.
fn plan(fixture: &Fixture, skills: &[&str]) -> PlannedRun {
    let workspace = TreeId::Workspace(user_id("u"), agent());
    let skills: Vec<_> = skills.iter().map(|skill| skill_id(skill)).collect();
    fixture.store.runs().plan(&workspace, Placement::InPlace, &skills).unwrap()
}

/// A time that is over.
fn over() -> Interrupt {
    Interrupt::after(Duration::ZERO)
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn copying_ends_with_its_time_and_whole_copies_stay_for_the_next_run() {
    let fixture = Fixture::new();
    for skill in ["first", "second"] {
        fixture.baseline(skill, &Tree::of(&[("f", "1"), ("d/x", "1")]));
    }
    let run = plan(&fixture, &["first"]).prepare().unwrap();
    let place = run.view().skills[0].clone();
    let made = inode(&place.join("d/x"));
    run.absorb().unwrap();
    drop(run);

    let late = plan(&fixture, &["first", "second"]).copying_within(over()).prepare();
    assert!(matches!(late, Err(Error::TooLong { .. })), "{:?}", late.map(drop));
    let left = over();
    left.abandon();
    let left = plan(&fixture, &["first", "second"]).copying_within(left).prepare();
    assert!(matches!(left, Err(Error::Abandoned)), "{:?}", left.map(drop));
    // No link to a copy stays in the workspace, and no request waits for the skill.
    let skills = fixture.root().join("sandbox/u/agent/skills");
    assert!(!skills.exists());
    put(&fixture.skill("u", "second"), "f", "2");

    let next = plan(&fixture, &["first", "second"]).copying_within(Interrupt::after(Duration::MAX)).prepare();
    let next = next.unwrap();
    assert_eq!(inode(&place.join("d/x")), made, "copied again");
    assert_eq!(Tree::on_disk(&next.view().skills[1]), Tree::through(&fixture.skill("u", "second")));
}

#[test]
fn a_copy_that_was_not_brought_up_to_date_in_time_is_gone_on_with() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1")]));
    let run = plan(&fixture, &["s"]).prepare().unwrap();
    let place = run.view().skills[0].clone();
    let made = inode(&place.join("d/x"));
    run.absorb().unwrap();
    drop(run);
    put(&fixture.skill("u", "s"), "f", "2");
    let late = plan(&fixture, &["s"]).copying_within(over()).prepare();
    assert!(matches!(late, Err(Error::TooLong { .. })));
    let next = plan(&fixture, &["s"]).prepare().unwrap();
    assert_eq!(Tree::on_disk(&place), Tree::through(&fixture.skill("u", "s")));
    assert_eq!(inode(&place.join("d/x")), made, "copied again");
    assert_eq!(next.absorb().unwrap().created, 0);
}

#[test]
fn a_run_takes_in_nothing_that_the_failure_of_another_run_left_in_their_copy() {
    let mut options = relaxed();
    options.files.view_bytes = 1000;
    let fixture = Fixture::with(options);
    fixture.baseline("s", &Tree::of(&[("a", "1"), ("d/x", "1"), ("e/y", "1"), ("m", "1"), ("z", "1")]));
    let skill = fixture.skill("u", "s");
    let first = plan(&fixture, &["s"]).prepare().unwrap();
    let place = first.view().skills[0].clone();
    // Copied anew, new, and larger than a copy may be: what comes before it in the alphabet is copied then.
    put(&skill, "a", "2");
    put(&skill, "d/new", "2");
    fixture.skill("u", "s").remove(&path("e"), true, &Condition::Always).unwrap();
    put(&skill, "e", "2");
    put(&skill, "m", &"x".repeat(2000));
    let failed = plan(&fixture, &["s"]).prepare();
    assert!(matches!(failed, Err(Error::TooLarge { .. })), "{:?}", failed.map(drop));
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "2", "the control: it began");
    let copied = inode(&place.join("d/new"));

    let seen = Tree::through(&skill);
    fs::write(place.join("own"), "1").unwrap();
    let absorbed = first.absorb().unwrap();
    assert_eq!((absorbed.created, absorbed.modified, absorbed.deleted), (1, 0, 0));
    drop(first);
    fixture.skill("u", "s").remove(&path("own"), false, &Condition::Always).unwrap();
    assert_eq!(Tree::through(&skill), seen);

    put(&skill, "m", "2");
    let next = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    assert_eq!(Tree::on_disk(&place), Tree::through(&skill));
    assert_eq!(inode(&place.join("d/new")), copied, "copied again");
    drop(next);
}

#[test]
fn a_directory_whose_mode_a_command_has_changed_keeps_its_entries_in_the_copy() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1"), ("d/e/y", "1")]));
    let run = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    let place = run.view().tree.clone();
    fs::set_permissions(place.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    run.absorb().unwrap();
    drop(run);
    put(&fixture.skill("u", "s"), "f", "2");
    let next = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    assert_eq!(Tree::on_disk(&place), Tree::through(&fixture.skill("u", "s")));
    assert_eq!(next.absorb().unwrap().deleted, 0);
    assert_eq!(read(&fixture.skill("u", "s"), "d/x").unwrap(), "1");
}

#[test]
fn a_directory_that_is_given_another_mode_keeps_what_a_run_that_goes_on_has_made_in_it() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1")]));
    let prepare = || fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    let (first, second) = (prepare(), prepare());
    let place = first.view().tree.clone();
    fs::set_permissions(place.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    first.absorb().unwrap();
    drop(first);
    fs::write(place.join("d/own"), "2").unwrap();
    put(&fixture.skill("u", "s"), "f", "2");
    put(&fixture.skill("u", "s"), "d/new", "2");
    let third = prepare();
    let found = ["f", "d/x", "d/own", "d/new"].map(|name| fs::read_to_string(place.join(name)).unwrap());
    assert_eq!(found, ["2", "1", "2", "2"]);
    second.absorb().unwrap();
    drop((second, third));
    let skill = fixture.skill("u", "s");
    assert_eq!(["f", "d/x", "d/own", "d/new"].map(|name| read(&skill, name).unwrap()), found);
}
