//! Laws of whiteouts whose directory the baseline no longer has: commands see none of them, and they still hold.

use std::path::Path;
use std::process::Command as Program;

use crate::fixture::live::{WAYS, Way};
use crate::fixture::{
    Fixture, KERNEL_ATTRIBUTES, Tree, agent, assert_valid_upper, path, publisher, put, skill_id, skill_tree,
    user_id,
};
use storage::{Condition, Status, Version};

const FIRST: [(&str, &str); 6] =
    [("f", "1"), ("d/x", "1"), ("d/y", "1"), ("d/e/z", "1"), ("only/a", "1"), ("only/b", "1")];

fn remove(fixture: &Fixture, at: &str) {
    fixture.skill("u", "s").remove(&path(at), true, &Condition::Always).unwrap();
}

fn seen(fixture: &Fixture) -> Tree {
    Tree::through(&fixture.skill("u", "s")).unwrap()
}

/// A user who deleted and added something in directories that the application then drops, or makes files of.
fn dropped(way: Way, next: &[(&str, &str)]) -> Option<(Fixture, Version)> {
    let fixture = Fixture::live(way)?;
    let first = fixture.baseline("s", &Tree::of(&FIRST)).version;
    for at in ["d/x", "d/e/z", "only/a"] {
        remove(&fixture, at);
    }
    for at in ["d/own", "d/e/own", "new/own"] {
        put(&fixture.skill("u", "s"), at, "mine");
    }
    fixture.baseline("s", &Tree::of(next));
    Some((fixture, first))
}

fn succeeds(program: &str, arguments: &[&str], within: &Path) {
    let done = Program::new(program).args(arguments).current_dir(within).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{program} {arguments:?}: {told}");
}

const NEXT: [&[(&str, &str)]; 3] =
    [&[("f", "2")], &[("f", "2"), ("d", "a file"), ("only", "a file")], &[("d/e", "a file")]];

#[test]
fn a_command_sees_no_whiteout_in_a_directory_that_the_application_dropped() {
    for way in WAYS {
        for next in NEXT {
            let Some((fixture, _)) = dropped(way, next) else { continue };
            let before = seen(&fixture);
            for _ in 0..2 {
                let command = fixture.command(&skill_tree("u", "s"));
                assert_eq!(Tree::on_disk(&command.tree()), Some(before.clone()), "{way:?} {next:?}");
                let copy = tempfile::tempdir().unwrap();
                succeeds("cp", &["-r", "d", copy.path().to_str().unwrap()], &command.tree());
                succeeds("tar", &["-cf", copy.path().join("t").to_str().unwrap(), "."], &command.tree());
                drop(command);
                fixture.store.close_views().unwrap();
            }
            assert_eq!(seen(&fixture), before);
            assert_valid_upper(&fixture.overlay_path("u"), &KERNEL_ATTRIBUTES);
            fixture.assert_swept();
        }
    }
}

#[test]
fn such_a_directory_is_removed_moved_and_copied_by_commands_and_by_requests() {
    for way in WAYS {
        for next in NEXT {
            for (by_command, is_mounted) in [(true, true), (false, true), (false, false)] {
                let Some((fixture, _)) = dropped(way, next) else { continue };
                let command = is_mounted.then(|| fixture.command(&skill_tree("u", "s")));
                let files = fixture.skill("u", "s");
                match &command {
                    Some(command) if by_command => {
                        succeeds("mv", &["d", "moved"], &command.tree());
                        succeeds("cp", &["-r", "moved", "d"], &command.tree());
                        succeeds("rm", &["-r", "moved/e", "d", "new"], &command.tree());
                    }
                    _ => {
                        files.rename(&path("d"), &path("moved"), false, &Condition::Always).unwrap();
                        files.copy(&path("moved"), &path("d"), false, true, &Condition::Always).unwrap();
                        for at in ["moved/e", "d", "new"] {
                            remove(&fixture, at);
                        }
                    }
                }
                let left = seen(&fixture);
                assert!(left.nodes.contains_key("moved/own") && !left.nodes.contains_key("d"), "{left:?}");
                if let Some(command) = &command {
                    assert_eq!(Tree::on_disk(&command.tree()), Some(left.clone()), "{way:?} {next:?}");
                }
                drop(command);
                fixture.store.close_views().unwrap();
                assert_eq!(seen(&fixture), left, "{way:?} {next:?}");
                // What was deleted at one place was never at another.
                fixture.baseline("s", &Tree::of(&[("moved/x", "3"), ("moved/e/z", "3")]));
                let now = seen(&fixture);
                assert!(now.nodes.contains_key("moved/own"), "{now:?}");
                if !is_mounted {
                    assert!(now.nodes.contains_key("moved/x"), "{now:?}");
                }
                fixture.assert_swept();
            }
        }
    }
}

#[test]
fn what_a_user_deleted_stays_deleted_when_the_application_goes_back() {
    for way in WAYS {
        for next in NEXT {
            let Some((fixture, first)) = dropped(way, next) else { continue };
            // Whether or not a command ran meanwhile.
            drop(fixture.command(&skill_tree("u", "s")));
            drop(
                fixture
                    .store
                    .skills()
                    .rollback(&publisher("m"), &user_id("m"), &agent(), &skill_id("s"), &(&first).into())
                    .unwrap(),
            );
            let mut expected = Tree::of(&[("f", "1"), ("d/y", "1"), ("only/b", "1")]);
            for at in ["d/own", "d/e/own", "new/own"] {
                expected.file(at, "mine", 0o644);
            }
            assert_eq!(seen(&fixture), expected, "{way:?} {next:?}");
            let command = fixture.command(&skill_tree("u", "s"));
            assert_eq!(Tree::on_disk(&command.tree()), Some(expected), "{way:?} {next:?}");
            assert_eq!(
                fixture.store.skills().status(&skill_tree("u", "s")).unwrap().status,
                Status::Modified
            );
        }
    }
}

#[test]
fn a_skill_that_the_application_dropped_shows_no_whiteouts_either() {
    for way in WAYS {
        let Some((fixture, _)) = dropped(way, &[("d/x", "2")]) else { continue };
        fixture.store.skills().remove_baseline(&agent(), &skill_id("s")).unwrap();
        let mut expected = Tree::default();
        for at in ["d/own", "d/e/own", "new/own"] {
            expected.file(at, "mine", 0o644);
        }
        // `only` lost everything: the directory itself is the user's still.
        expected.dir("only", 0o755);
        let command = fixture.command(&skill_tree("u", "s"));
        assert_eq!(Tree::on_disk(&command.tree()), Some(expected.clone()), "{way:?}");
        succeeds("rm", &["-r", "d"], &command.tree());
        drop(command);
        fixture.store.close_views().unwrap();
        assert!(!seen(&fixture).nodes.contains_key("d"), "{way:?}");
    }
}
