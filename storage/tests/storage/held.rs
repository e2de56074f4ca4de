//! Laws of files that a command gave to another run, which goes on with them when the command's own run has ended.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::fixture::{Fixture, Tree, agent, path, put, read, relaxed, skill_tree, skip, user_id};
use policy::TreeId;
use storage::{Condition, Options, Placement, PreparedRun};

fn published() -> Fixture {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "first"), ("g", "first"), ("d/x", "first"), ("d/y", "first")]));
    fixture
}

/// A run in the workspace, to which a command can give its files.
fn other(fixture: &Fixture) -> PreparedRun {
    fixture.store.runs().prepare(&TreeId::Workspace(user_id("u"), agent())).unwrap()
}

fn begin(fixture: &Fixture) -> PreparedRun {
    fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap()
}

fn open(run: &PreparedRun, name: &str) -> File {
    File::options().write(true).open(run.view().tree.join(name)).unwrap()
}

fn end(run: PreparedRun) {
    run.note_end();
    run.absorb().unwrap();
}

#[test]
fn what_is_changed_in_a_copy_while_no_run_is_in_it_is_undone_before_the_next() {
    let fixture = published();
    let holder = other(&fixture);
    let run = begin(&fixture);
    let place = run.view().tree.clone();
    let held = ["f", "g"].map(|name| open(&run, name));
    fs::hard_link(place.join("d/x"), holder.view().tree.join("linked")).unwrap();
    end(run);
    for file in &held {
        file.write_all_at(b"other", 0).unwrap();
    }
    fs::write(holder.view().tree.join("linked"), "other").unwrap();
    fs::set_permissions(place.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(place.join("d/y")).unwrap();
    fs::create_dir(place.join("made")).unwrap();
    fs::write(place.join("made/z"), "other").unwrap();
    // A request has removed what the other run has open.
    fixture.skill("u", "s").remove(&path("g"), false, &Condition::Always).unwrap();
    end(holder);

    let next = begin(&fixture);
    let seen = Tree::through(&fixture.skill("u", "s"));
    assert_eq!(Tree::on_disk(&place), seen);
    // What the holder writes now goes into files that no run and no request sees.
    held[0].write_all_at(b"later", 0).unwrap();
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "first");
    let absorbed = next.absorb().unwrap();
    assert_eq!((absorbed.created, absorbed.modified, absorbed.deleted), (0, 0, 0));
    assert_eq!(Tree::through(&fixture.skill("u", "s")), seen);
}

#[test]
fn a_run_that_is_over_and_still_being_cleaned_up_shields_no_change_from_the_next() {
    let fixture = published();
    let _holder = other(&fixture);
    let mut run = begin(&fixture);
    let place = run.view().tree.clone();
    let held = open(&run, "f");
    run.note_end();
    run.absorb().unwrap();
    run.begin_to_leave();
    held.write_all_at(b"other", 0).unwrap();
    let next = begin(&fixture);
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "first");
    // What is dropped late takes nothing from a run that is there.
    drop(run);
    next.note_end();
    assert_eq!(next.absorb().unwrap().modified, 0);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "first");
    assert_eq!(Tree::on_disk(&place), Tree::through(&fixture.skill("u", "s")));
}

#[test]
fn a_further_name_that_a_command_gave_to_a_file_is_one_of_another_file_in_the_next_run() {
    let fixture = published();
    let home = fixture.root().join(".filesecbox/packages/u/agent");
    let run = begin(&fixture);
    let place = run.view().tree.clone();
    fs::hard_link(place.join("f"), home.join("linked")).unwrap();
    end(run);
    // Nothing has changed in the copy yet, and no other run is there.
    let next = begin(&fixture);
    fs::write(home.join("linked"), "other").unwrap();
    assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "first");
    next.note_end();
    assert_eq!(next.absorb().unwrap().modified, 0);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "first");
}

#[test]
fn a_copy_that_was_filled_without_end_while_no_run_was_in_it_is_made_anew() {
    let files = policy::FileLimits { tree_entries: 20, ..policy::FileLimits::default() };
    let fixture = Fixture::with(Options { files, ..relaxed() });
    fixture.baseline("s", &Tree::of(&[("f", "first")]));
    let holder = other(&fixture);
    let run = begin(&fixture);
    let place = run.view().tree.clone();
    end(run);
    (0..50).for_each(|number| fs::write(place.join(format!("more{number}")), "").unwrap());
    for _ in 0..2 {
        let next = begin(&fixture);
        assert_eq!(Tree::on_disk(&place), Tree::through(&fixture.skill("u", "s")));
        end(next);
    }
    end(holder);
}

#[test]
fn what_is_taken_in_is_not_the_file_that_another_run_holds() {
    let fixture = published();
    let holder = other(&fixture);
    let workspace = TreeId::Workspace(user_id("u"), agent());
    put(&fixture.workspace("u"), "own", "first");
    for tree in [skill_tree("u", "s"), workspace] {
        let aside = fixture.store.runs().plan(&tree, Placement::InPlace, &[]).unwrap().aside().unwrap();
        let run = aside.prepare().unwrap();
        let mut held = File::create(run.view().tree.join("decided")).unwrap();
        held.write_all(b"looked at").unwrap();
        run.note_end();
        assert_eq!(run.absorb().unwrap().created, 1);
        held.write_all_at(b"forged at", 0).unwrap();
        let files = match &tree {
            TreeId::Skill(..) => fixture.skill("u", "s"),
            TreeId::Workspace(..) => fixture.workspace("u"),
        };
        assert_eq!(read(&files, "decided").unwrap(), "looked at", "{tree:?}");
    }
    end(holder);
}

#[test]
fn another_users_file_that_was_linked_in_is_left_out_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        return skip("root", "only root gives files away");
    }
    let fixture = Fixture::with(Options { separate_owners: true, ..relaxed() });
    fixture.baseline("s", &Tree::of(&[("f", "first")]));
    let outside = fixture.root().join("outside");
    fs::write(&outside, "another's").unwrap();
    let id = skill_tree("u", "s");
    for is_aside in [false, true] {
        let plan = fixture.store.runs().plan(&id, Placement::InPlace, &[]).unwrap();
        let run = if is_aside { plan.aside().unwrap() } else { plan }.prepare().unwrap();
        let place = run.view().tree.clone();
        fs::hard_link(&outside, place.join("linked")).unwrap();
        fs::write(place.join("own"), "own").unwrap();
        let absorbed = run.absorb().unwrap();
        assert_eq!((absorbed.created, absorbed.skipped.len()), (1, 1), "{absorbed:?}");
        assert!(absorbed.skipped[0].starts_with("`linked`"), "{absorbed:?}");
        drop(run);
        let next = begin(&fixture);
        assert_eq!(Tree::on_disk(&next.view().tree), Tree::through(&fixture.skill("u", "s")));
        fixture.skill("u", "s").remove(&path("own"), false, &Condition::Always).unwrap();
    }
    assert_eq!(fs::read(&outside).unwrap(), b"another's");
}
