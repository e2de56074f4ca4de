//! Laws of status: by content, against the version an overlay began with and the one there is now.

use crate::fixture::{Fixture, Tree, agent, path, put, skill_id, skill_tree, write};
use policy::Scope;
use storage::{Change, Condition, Files, Status, WriteOptions};

use Change::{Conflict, Created, Deleted, Modified};

const BASE: [(&str, &str); 4] = [("f", "1"), ("g", "1"), ("d/x", "1"), ("d/y", "1")];

/// The baseline, what a user does, the next baseline (`None`: it stays), and the status then.
#[track_caller]
fn case(
    act: impl Fn(&Fixture, &Files),
    next: Option<&[(&str, &str)]>,
    status: Status,
    changes: &[(&str, Change)],
) {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&BASE));
    act(&fixture, &fixture.skill("u", "s"));
    if let Some(next) = next {
        fixture.baseline("s", &Tree::of(next));
    }
    let found = fixture.store.skills().status(&skill_tree("u", "s")).unwrap();
    let found_changes: Vec<_> = found.changes.iter().map(|c| (c.path.as_str(), c.change)).collect();
    assert_eq!((found.status, found_changes.as_slice()), (status, changes));
    let untouched = fixture.store.skills().status(&skill_tree("v", "s")).unwrap();
    assert_eq!((untouched.status, untouched.overlay_modified_ns), (Status::Unchanged, None));
}

fn remove(files: &Files, at: &str) {
    files.remove(&path(at), true, &Condition::Always).unwrap();
}

#[test]
fn an_untouched_skill_is_unchanged_whatever_the_baseline_does() {
    case(|_, _| {}, None, Status::Unchanged, &[]);
    case(|_, _| {}, Some(&[("other", "2")]), Status::Unchanged, &[]);
}

#[test]
fn a_changed_a_new_and_a_removed_file_are_named() {
    let act = |_: &Fixture, files: &Files| {
        put(files, "f", "2");
        put(files, "new/deep", "2");
        remove(files, "d/x");
        files.make_dir(&path("empty"), 0o755, false).unwrap();
    };
    let changes = [("d/x", Deleted), ("empty", Created), ("f", Modified), ("new/deep", Created)];
    case(act, None, Status::Modified, &changes);
}

#[test]
fn content_that_was_edited_back_is_unchanged() {
    let act = |_: &Fixture, files: &Files| {
        for text in ["2", "1"] {
            put(files, "f", text);
        }
        remove(files, "d");
        put(files, "d/x", "1");
        put(files, "d/y", "1");
    };
    case(act, None, Status::Unchanged, &[]);
}

#[test]
fn what_was_copied_up_without_a_change_is_unchanged() {
    let act = |_: &Fixture, files: &Files| {
        files.rename(&path("f"), &path("h"), false, &Condition::Always).unwrap();
        files.rename(&path("h"), &path("f"), false, &Condition::Always).unwrap();
    };
    case(act, None, Status::Unchanged, &[]);
}

#[test]
fn an_execute_bit_is_a_change_and_other_mode_bits_are_none() {
    let mode = |mode| {
        move |_: &Fixture, files: &Files| {
            let options = WriteOptions { mode: Some(mode), ..WriteOptions::default() };
            write(files, "f", b"1", &options).unwrap();
        }
    };
    case(mode(0o755), None, Status::Modified, &[("f", Modified)]);
    case(mode(0o600), None, Status::Unchanged, &[]);
}

#[test]
fn a_removed_directory_is_named_once() {
    case(|_, files| remove(files, "d"), None, Status::Modified, &[("d", Deleted)]);
}

#[test]
fn what_a_recreated_directory_hides_is_removed_at_every_depth() {
    let act = |_: &Fixture, files: &Files| {
        remove(files, "d");
        put(files, "d/new", "1");
    };
    let changes = [("d/new", Created), ("d/x", Deleted), ("d/y", Deleted)];
    case(act, None, Status::Modified, &changes);

    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("d/e/x", "1"), ("d/e/y", "1"), ("f", "1")]));
    fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&[("d/e/x", "1"), ("own", "1")]));
    let found = fixture.store.skills().status(&skill_tree("u", "s")).unwrap();
    let found: Vec<_> = found.changes.iter().map(|c| (c.path.as_str(), c.change)).collect();
    assert_eq!(found, [("d/e/y", Deleted), ("f", Deleted), ("own", Created)]);
}

#[test]
fn a_file_where_a_directory_was_and_the_reverse_are_modified() {
    let act = |_: &Fixture, files: &Files| {
        remove(files, "d");
        put(files, "d", "a file");
        remove(files, "f");
        put(files, "f/x", "1");
    };
    case(act, None, Status::Modified, &[("d", Modified), ("f", Modified), ("f/x", Created)]);
}

#[test]
fn the_baseline_moving_elsewhere_is_no_conflict() {
    let act = |_: &Fixture, files: &Files| {
        put(files, "f", "mine");
        remove(files, "d/x");
    };
    let next = [("f", "1"), ("g", "2"), ("d/x", "1"), ("d/y", "2"), ("new", "2")];
    case(act, Some(&next), Status::Modified, &[("d/x", Deleted), ("f", Modified)]);
}

#[test]
fn the_baseline_moving_where_the_user_changed_or_removed_is_a_conflict() {
    let act = |_: &Fixture, files: &Files| {
        put(files, "f", "mine");
        remove(files, "d/x");
        put(files, "g", "mine");
    };
    let next = [("f", "2"), ("g", "1"), ("d/x", "2"), ("d/y", "1")];
    let changes = [("d/x", Conflict), ("f", Conflict), ("g", Modified)];
    case(act, Some(&next), Status::OutOfSync, &changes);
    // The baseline removed what the user edited.
    let act = |_: &Fixture, files: &Files| {
        put(files, "f", "mine");
    };
    case(act, Some(&[("g", "1")]), Status::OutOfSync, &[("f", Conflict)]);
    // Both made a file of one name.
    let act = |_: &Fixture, files: &Files| {
        put(files, "new", "mine");
    };
    case(act, Some(&[("f", "1"), ("new", "theirs")]), Status::OutOfSync, &[("new", Conflict)]);
    // The baseline changed a directory that the user removed.
    let next = [("f", "1"), ("g", "1"), ("d/x", "1"), ("d/y", "2")];
    case(|_, files| remove(files, "d"), Some(&next), Status::OutOfSync, &[("d", Conflict)]);
}

#[test]
fn the_baseline_arriving_at_what_the_user_has_is_unchanged() {
    let act = |_: &Fixture, files: &Files| {
        put(files, "f", "2");
        remove(files, "d");
    };
    case(act, Some(&[("f", "2"), ("g", "1")]), Status::Unchanged, &[]);
}

#[test]
fn a_conflict_ends_when_the_user_takes_the_new_content() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&BASE));
    let files = fixture.skill("u", "s");
    put(&files, "f", "mine");
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    let status = || fixture.store.skills().status(&skill_tree("u", "s")).unwrap().status;
    assert_eq!(status(), Status::OutOfSync);
    put(&files, "f", "2");
    assert_eq!(status(), Status::Unchanged);
}

#[test]
fn what_only_the_user_has_is_local_before_and_after_a_baseline() {
    let fixture = Fixture::new();
    fixture.publish(Scope::Overlay, "u", "own", &Tree::of(&[("f", "1")]));
    fixture.baseline("s", &Tree::of(&BASE));
    put(&fixture.skill("u", "s"), "f", "mine");
    fixture.store.skills().remove_baseline(&agent(), &skill_id("s")).unwrap();
    for skill in ["own", "s"] {
        let found = fixture.store.skills().status(&skill_tree("u", skill)).unwrap();
        assert_eq!(found.status, Status::LocalOnly);
        assert!(found.overlay_modified_ns.is_some());
    }
    // A baseline that comes later under the same name replaces nothing of the user's.
    fixture.baseline("own", &Tree::of(&[("f", "2"), ("g", "1")]));
    let found = fixture.store.skills().status(&skill_tree("u", "own")).unwrap();
    let changes: Vec<_> = found.changes.iter().map(|c| (c.path.as_str(), c.change)).collect();
    assert_eq!((found.status, changes), (Status::OutOfSync, vec![("f", Conflict), ("g", Conflict)]));
}

#[test]
fn after_a_reset_nothing_is_changed_and_the_next_edit_begins_with_the_current_version() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&BASE));
    let files = fixture.skill("u", "s");
    put(&files, "f", "mine");
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    assert_eq!(fixture.store.skills().status(&skill_tree("u", "s")).unwrap().status, Status::Unchanged);
    put(&files, "f", "mine");
    assert_eq!(fixture.store.skills().status(&skill_tree("u", "s")).unwrap().status, Status::Modified);
}
