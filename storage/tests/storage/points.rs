//! Laws of the directories that skills are attached to in a workspace: seen by no other run and no request, found again by
//! the next run that sees the same skills.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use crate::fixture::live::{WAYS, Way};
use crate::fixture::{Fixture, Tree, agent, names, skill_id, user_id, write};
use policy::attachment::Role;
use policy::{TreeId, WorkspaceId};
use storage::{Placement, PreparedRun, WriteOptions};

/// A store whose agent has the skills `s`, `t` and `r`.
fn fixture(way: Way) -> Option<Fixture> {
    let fixture = Fixture::live(way)?;
    for skill in ["s", "t", "r"] {
        fixture.baseline(skill, &Tree::of(&[("f", skill)]));
    }
    Some(fixture)
}

fn tree(user: &str) -> TreeId {
    TreeId::Workspace(user_id(user), agent())
}

fn root(fixture: &Fixture, user: &str) -> PathBuf {
    fixture.root().join("sandbox").join(user).join("agent")
}

fn run_of(fixture: &Fixture, user: &str, skills: &[&str]) -> PreparedRun {
    let skills: Vec<_> = skills.iter().map(|skill| skill_id(skill)).collect();
    fixture.store.runs().plan(&tree(user), Placement::Mounted, &skills).unwrap().prepare().unwrap()
}

fn run(fixture: &Fixture, skills: &[&str]) -> PreparedRun {
    run_of(fixture, "u", skills)
}

/// The run ends, with all its processes.
fn end(run: PreparedRun) {
    run.note_end();
    drop(run);
}

/// The inode numbers of what is in `skills` of the workspace.
fn inodes(fixture: &Fixture) -> Vec<u64> {
    let skills = root(fixture, "u").join("skills");
    names(&skills).iter().map(|name| fs::metadata(skills.join(name)).unwrap().ino()).collect()
}

/// The number of the set of directories that a run stands on.
fn number(run: &PreparedRun) -> u64 {
    run.attachments().unwrap().iter().find(|attachment| attachment.role == Role::Tree).unwrap().points
}

/// How many sets of directories wait for a run.
fn waiting(fixture: &Fixture) -> usize {
    fixture.own("stage").len()
}

#[test]
fn the_next_run_finds_the_same_directories_and_nobody_sees_them_in_between() {
    for way in WAYS {
        let Some(fixture) = fixture(way) else { continue };
        let first = run(&fixture, &["s", "t"]);
        let set = number(&first);
        assert!(!first.recurs(), "what was made for it need not be there again");
        let before = inodes(&fixture);
        end(first);
        for _ in 0..3 {
            assert_eq!((names(&root(&fixture, "u")), waiting(&fixture)), (Vec::<String>::new(), 1));
            let next = run(&fixture, &["s", "t"]);
            assert_eq!((inodes(&fixture), waiting(&fixture), next.recurs()), (before.clone(), 0, true));
            assert!(set != 0 && number(&next) == set);
            // One that begins before the end of another has them, too.
            let beside = run(&fixture, &["s", "t"]);
            end(next);
            assert_eq!((inodes(&fixture), beside.recurs()), (before.clone(), true));
            end(beside);
        }
        fixture.store.close_views().unwrap();
        fixture.assert_swept();
    }
}

#[test]
fn a_run_sees_no_directory_of_a_skill_that_it_did_not_ask_for() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let skills = root(&fixture, "u").join("skills");
    for wanted in [&["s", "t"][..], &["t"], &["s", "t"], &["r", "s"], &["t"]] {
        let run = run(&fixture, wanted);
        assert_eq!(names(&skills), wanted);
        end(run);
        assert_eq!(names(&root(&fixture, "u")), Vec::<String>::new());
    }
    // Nor do runs with skills of which another run, that found its directories again, has some.
    for is_first in [true, false] {
        let (all, one) = (run(&fixture, &["s", "t"]), run(&fixture, &["s"]));
        assert!(all.recurs());
        let (next, last, left) = if is_first { (all, one, &["s"][..]) } else { (one, all, &["s", "t"][..]) };
        end(next);
        assert_eq!(names(&skills), left);
        end(last);
        assert_eq!(names(&root(&fixture, "u")), Vec::<String>::new());
        end(run(&fixture, &["s", "t"]));
    }
    // Runs of different skills at once leave nothing either.
    let (one, other) = (run(&fixture, &["s"]), run(&fixture, &["r"]));
    assert_eq!(names(&skills), ["r", "s"]);
    end(one);
    assert_eq!(names(&skills), ["r"]);
    end(other);
    assert_eq!(names(&root(&fixture, "u")), Vec::<String>::new());
    assert_eq!(names(&root(&fixture, "other")), Vec::<String>::new());
}

#[test]
fn what_was_put_into_such_a_directory_stays_in_the_workspace() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let skills = root(&fixture, "u").join("skills");
    let by_request = |place: &str| {
        let place = format!("skills/{place}");
        write(&fixture.store.files(tree("u")), &place, b"", &WriteOptions::default()).unwrap();
    };
    let by_another_run = |place: &str| {
        let other = run(&fixture, &[]);
        fs::write(skills.join(place), "").unwrap();
        end(other);
    };
    for (place, left) in [("s/kept", "s"), ("kept", "kept")] {
        for put in [&by_request as &dyn Fn(&str), &by_another_run] {
            end(run(&fixture, &["s", "t"]));
            let next = run(&fixture, &["s", "t"]);
            assert!(next.recurs());
            put(place);
            end(next);
            assert_eq!((names(&skills), waiting(&fixture)), (vec![left.to_owned()], 0));
            fs::remove_dir_all(&skills).unwrap();
        }
    }
    // A run that was there before the next began, and ends before it does.
    end(run(&fixture, &["s", "t"]));
    let other = run(&fixture, &[]);
    let next = run(&fixture, &["s", "t"]);
    fs::write(skills.join("s/kept"), "").unwrap();
    end(other);
    end(next);
    assert_eq!((names(&skills), waiting(&fixture)), (vec!["s".to_owned()], 0));
}

#[test]
fn directories_to_which_something_was_done_are_made_anew() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let skills = root(&fixture, "u").join("skills");
    let aside = root(&fixture, "u").join("aside");
    let changes: [(&str, &dyn Fn()); 4] = [
        ("removed", &|| fs::remove_dir(skills.join("s")).unwrap()),
        ("moved", &|| fs::rename(skills.join("s"), skills.join("x")).unwrap()),
        ("all moved", &|| fs::rename(&skills, &aside).unwrap()),
        ("closed", &|| fs::set_permissions(&skills, fs::Permissions::from_mode(0o500)).unwrap()),
    ];
    for (what, change) in changes {
        end(run(&fixture, &["s", "t"]));
        let next = run(&fixture, &["s", "t"]);
        assert!(next.recurs(), "{what}");
        change();
        // Also for one that begins before the end of this one.
        let beside = run(&fixture, &["s", "t"]);
        let seen = names(&skills);
        assert!(seen.contains(&"s".to_owned()) && seen.contains(&"t".to_owned()), "{what}: {seen:?}");
        // What was mounted in the former ones need not be where it was.
        let before = number(&next);
        assert!(before != 0 && number(&beside) != before, "{what}");
        end(next);
        end(beside);
        let after = run(&fixture, &["s", "t"]);
        assert_ne!(number(&after), before, "{what}");
        let seen = names(&skills);
        assert!(seen.contains(&"s".to_owned()) && seen.contains(&"t".to_owned()), "{what}: {seen:?}");
        end(after);
        let _gone = (fs::remove_dir_all(&skills), fs::remove_dir_all(&aside));
    }
}

#[test]
fn another_run_that_could_fill_such_a_directory_outside_the_workspace_gets_no_chance_to() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let other = run(&fixture, &[]);
    end(run(&fixture, &["s", "t"]));
    assert_eq!((names(&root(&fixture, "u")), waiting(&fixture)), (Vec::<String>::new(), 0));
    end(other);
    end(run(&fixture, &["s", "t"]));
    assert_eq!(waiting(&fixture), 1);
}

#[test]
fn a_directory_of_the_workspaces_own_is_neither_hidden_nor_taken_away() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let skills = root(&fixture, "u").join("skills");
    end(run(&fixture, &["s", "t"]));
    fs::create_dir_all(skills.join("own")).unwrap();
    for _ in 0..2 {
        let run = run(&fixture, &["s", "t"]);
        assert_eq!(names(&skills), ["own", "s", "t"]);
        end(run);
        assert_eq!(names(&skills), ["own"]);
    }
    // Those of the skills themselves are where they were for the next run, too.
    fs::create_dir(skills.join("s")).unwrap();
    assert!(run(&fixture, &["s"]).recurs());
    assert_eq!(names(&skills), ["own", "s"]);
}

#[test]
fn directories_that_wait_are_few_and_go_with_their_workspace() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    for skills in [&["s"][..], &["t"], &["r"], &["s", "t"], &["t", "r"], &["s", "r"]] {
        end(run(&fixture, skills));
    }
    assert_eq!(waiting(&fixture), 4);
    for number in 0..20 {
        end(run_of(&fixture, &format!("u{number}"), &["s"]));
    }
    assert_eq!(waiting(&fixture), 16);
    let last = WorkspaceId::of(&tree("u19"));
    drop(fixture.store.workspaces().remove(&last, true).unwrap());
    assert_eq!(waiting(&fixture), 15);
}

#[test]
fn the_ids_that_are_known_are_those_that_are_there() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    let (user, agent) = (user_id("u"), agent());
    let known = || fixture.store.skills().known_ids(&user, &agent);
    let ids = || {
        let listed = fixture.store.skills().list(&user, &agent).unwrap().into_iter().map(|skill| skill.id);
        let ids = fixture.store.skills().ids(&user, &agent).unwrap();
        assert_eq!(ids, listed.collect::<Vec<_>>());
        assert!(known().is_none_or(|known| known == ids));
        ids
    };
    // Until their last change shows in any case.
    let until_known = || {
        for _ in 0..1000 {
            if ids() == known().unwrap_or_default() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("never known");
    };
    until_known();
    fixture
        .store
        .skills()
        .remove_for_user(&TreeId::Skill(user.clone(), agent.clone(), skill_id("s")))
        .unwrap();
    assert_eq!(known(), None);
    assert_eq!(ids(), ["r", "t"].map(skill_id));
    until_known();
    fixture.baseline("新", &Tree::of(&[("f", "1")]));
    assert_eq!(known(), None);
    assert_eq!(ids().len(), 3);
    until_known();
    fixture.store.skills().remove_baseline(&agent, &skill_id("t")).unwrap();
    assert_eq!(known(), None);
    until_known();
    fixture.publish(policy::Scope::Overlay, "u", "own", &Tree::of(&[("f", "1")]));
    assert_eq!(known(), None);
    assert_eq!(ids().len(), 3);
}

#[test]
fn the_directories_of_a_run_that_may_still_have_processes_do_not_wait() {
    let Some(fixture) = fixture(Way::Detached) else { return };
    drop(run(&fixture, &["s", "t"]));
    assert_eq!((names(&root(&fixture, "u")), waiting(&fixture)), (Vec::<String>::new(), 0));
    // Nor do they when a run was in the workspace meanwhile that may have them open.
    let (plain, other) = (run(&fixture, &[]), run(&fixture, &["s", "t"]));
    drop(plain);
    end(other);
    assert_eq!((names(&root(&fixture, "u")), waiting(&fixture)), (Vec::<String>::new(), 0));
    // Nor do they when another run that had them ends well.
    let (killed, other) = (run(&fixture, &["s", "t"]), run(&fixture, &["s", "t"]));
    drop(killed);
    end(other);
    assert_eq!((names(&root(&fixture, "u")), waiting(&fixture)), (Vec::<String>::new(), 0));
}
