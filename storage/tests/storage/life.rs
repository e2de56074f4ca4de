//! Laws of a skill's life: versions, going back, publishing what a user made, carrying changes over to a new version.

use crate::fixture::live::{Command, WAYS, Way};
use crate::fixture::{
    self, Fixture, Tree, agent, assert_valid_upper, path, publisher, put, read, skill_id, skill_tree, user_id,
};
use storage::{Condition, Error, Files, Prefer, Status, Version};

const FIRST: [(&str, &str); 4] = [("f", "1"), ("g", "1"), ("d/x", "1"), ("d/y", "1")];

fn remove(files: &Files, at: &str) {
    files.remove(&path(at), true, &Condition::Always).unwrap();
}

/// What a user sees of the skill `s`.
fn seen(fixture: &Fixture, user: &str) -> Tree {
    Tree::through(&fixture.skill(user, "s")).unwrap()
}

fn status(fixture: &Fixture, user: &str) -> Status {
    fixture.store.skills().status(&skill_tree(user, "s")).unwrap().status
}

/// The kept versions of the skill `s`, the current one first.
fn versions(fixture: &Fixture) -> Vec<Version> {
    let versions = fixture.store.skills().versions(&agent(), &skill_id("s")).unwrap().versions;
    assert!(versions.iter().enumerate().all(|(at, kept)| kept.replaced_ns.is_none() == (at == 0)));
    versions.into_iter().map(|kept| kept.version).collect()
}

#[test]
fn going_back_publishes_the_former_version_and_keeps_the_one_it_replaces() {
    let fixture = Fixture::new();
    let first = fixture.baseline("s", &Tree::of(&FIRST)).version;
    put(&fixture.skill("u", "s"), "f", "mine");
    let second = fixture.baseline("s", &Tree::of(&[("f", "2")])).version;
    assert_eq!(versions(&fixture), [second.clone(), first.clone()]);
    let back = |version: &Version| {
        fixture.store.skills().rollback(
            &publisher("m"),
            &user_id("m"),
            &agent(),
            &skill_id("s"),
            &version.into(),
        )
    };
    assert_eq!(back(&first).unwrap().skills[0].version, first);
    assert_eq!(seen(&fixture, "v"), Tree::of(&FIRST));
    assert_eq!(versions(&fixture), [first.clone(), second.clone()]);
    assert_eq!(status(&fixture, "u"), Status::Modified);
    // The one that is current already, and one that never was.
    assert!(back(&first).unwrap().skills[0].unchanged);
    let never = Version::parse(&"0".repeat(32)).unwrap();
    assert!(matches!(back(&never), Err(Error::NotFound(_))));
    assert!(matches!(fixture.store.skills().versions(&agent(), &skill_id("t")), Err(Error::NotFound(_))));
    assert_eq!(back(&second).unwrap().skills[0].version, second);
    assert_eq!(seen(&fixture, "v"), Tree::of(&[("f", "2")]));
    fixture.assert_swept();
}

#[test]
fn what_one_user_made_becomes_everybodys() {
    let fixture = Fixture::new();
    let first = fixture.baseline("s", &Tree::of(&FIRST)).version;
    let files = fixture.skill("u", "s");
    put(&files, "f", "mine");
    put(&files, "新/文件", "new");
    remove(&files, "d/x");
    let mine = seen(&fixture, "u");
    let promoted = fixture
        .store
        .skills()
        .promote(&publisher("u"), &skill_tree("u", "s"), false)
        .unwrap()
        .skills
        .remove(0);
    assert_eq!((promoted.replaced, promoted.unchanged), (true, false));
    assert_eq!((seen(&fixture, "u"), seen(&fixture, "v")), (mine.clone(), mine));
    assert_eq!(versions(&fixture), [promoted.version, first]);
    // Nothing of it is the user's own any more.
    assert_eq!(fixture::names(&fixture.overlay_path("u")), Vec::<String>::new());
    assert!(matches!(
        fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), true),
        Err(Error::Conflict(_))
    ));
    fixture.assert_swept();
}

#[test]
fn a_skill_of_the_users_own_can_be_promoted_and_one_that_is_not_there_cannot() {
    let fixture = Fixture::new();
    fixture.publish(policy::Scope::Overlay, "u", "s", &Tree::of(&FIRST));
    assert!(
        !fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap().skills[0]
            .replaced
    );
    assert_eq!(seen(&fixture, "v"), Tree::of(&FIRST));
    assert_eq!(status(&fixture, "u"), Status::Unchanged);
    assert!(matches!(
        fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "t"), false),
        Err(Error::NotFound(_))
    ));
}

#[test]
fn of_two_promotions_at_once_none_is_lost_unless_it_is_refused() {
    for round in 0..40 {
        let fixture = Fixture::new();
        fixture.baseline("s", &Tree::of(&FIRST));
        let both = [("u", "f"), ("v", "g")];
        for (user, file) in both {
            put(&fixture.skill(user, "s"), file, user);
        }
        let begin = std::sync::Barrier::new(both.len());
        let promote = &|user| {
            begin.wait();
            fixture.store.skills().promote(&publisher(user), &skill_tree(user, "s"), false).map(drop)
        };
        let promoted = std::thread::scope(|scope| {
            let promoting = both.map(|(user, _)| scope.spawn(move || promote(user)));
            promoting.map(|one| one.join().unwrap())
        });
        for ((user, file), promoted) in both.iter().zip(&promoted) {
            match promoted {
                Ok(()) => assert_eq!(read(&fixture.skill("w", "s"), file).unwrap(), *user, "round {round}"),
                Err(Error::Conflict(_)) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        assert!(promoted.iter().any(Result::is_ok), "round {round}");
        fixture.assert_swept();
    }
}

#[test]
fn what_both_changed_is_promoted_by_force_only() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&FIRST));
    put(&fixture.skill("u", "s"), "f", "mine");
    let second = fixture.baseline("s", &Tree::of(&[("f", "2"), ("g", "1")])).version;
    let id = skill_tree("u", "s");
    assert!(matches!(fixture.store.skills().promote(&publisher("u"), &id, false), Err(Error::Conflict(_))));
    assert_eq!(versions(&fixture)[0], second);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "mine");
    fixture.assert_swept();
    drop(fixture.store.skills().promote(&publisher("u"), &id, true).unwrap());
    assert_eq!(seen(&fixture, "v"), Tree::of(&[("f", "mine"), ("g", "1")]));
}

/// A user changes `f`, removes `g`, adds `new` and copies `d/x` up; the application changes what `next` says.
fn pulled(next: &[(&str, &str)], prefer: Prefer) -> (Fixture, storage::Pulled) {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&FIRST));
    let files = fixture.skill("u", "s");
    put(&files, "f", "mine");
    remove(&files, "g");
    put(&files, "new", "mine");
    files.rename(&path("d/x"), &path("d/z"), false, &Condition::Always).unwrap();
    files.rename(&path("d/z"), &path("d/x"), false, &Condition::Always).unwrap();
    let version = fixture.baseline("s", &Tree::of(next)).version;
    let before = (seen(&fixture, "u"), status(&fixture, "u"));
    let told = fixture.store.skills().would_pull(&skill_tree("u", "s"), prefer).unwrap();
    assert_eq!((seen(&fixture, "u"), status(&fixture, "u")), before);
    let pulled = fixture.store.skills().pull(&skill_tree("u", "s"), prefer).unwrap();
    assert_eq!(told, pulled, "what was told is done");
    assert_eq!((pulled.version.as_ref(), pulled.moved), (Some(&version), true));
    assert_valid_upper(&fixture.overlay_path("u"), &[]);
    fixture.assert_swept();
    // Again it finds nothing to do.
    let again = fixture.store.skills().pull(&skill_tree("u", "s"), prefer).unwrap();
    assert_eq!((again.moved, again.refreshed, again.conflicts.len()), (false, 0, 0));
    (fixture, pulled)
}

#[test]
fn what_only_the_application_changed_arrives_and_what_only_the_user_changed_stays() {
    let next = [("f", "1"), ("g", "1"), ("d/x", "2"), ("d/y", "2"), ("more", "2")];
    let (fixture, pulled) = pulled(&next, Prefer::Ours);
    assert_eq!(pulled.conflicts, Vec::<String>::new());
    let expected = [("f", "mine"), ("new", "mine"), ("d/x", "2"), ("d/y", "2"), ("more", "2")];
    assert_eq!(seen(&fixture, "u"), Tree::of(&expected));
    assert_eq!(status(&fixture, "u"), Status::Modified);
}

#[test]
fn what_both_changed_is_told_and_stays_as_preferred() {
    let next = [("f", "2"), ("g", "2"), ("new", "2"), ("d/x", "1")];
    let conflicts = ["f", "g", "new"];
    let (fixture, ours) = pulled(&next, Prefer::Ours);
    assert_eq!(ours.conflicts, conflicts);
    assert_eq!(seen(&fixture, "u"), Tree::of(&[("f", "mine"), ("new", "mine"), ("d/x", "1")]));
    // Its user has decided: it is a change like any other from now on.
    assert_eq!(status(&fixture, "u"), Status::Modified);
    let (fixture, theirs) = pulled(&next, Prefer::Theirs);
    assert_eq!(theirs.conflicts, conflicts);
    assert_eq!(seen(&fixture, "u"), Tree::of(&next));
    assert_eq!(status(&fixture, "u"), Status::Unchanged);
}

#[test]
fn what_the_application_removed_goes_unless_the_user_had_changed_it() {
    let (fixture, pulled) = pulled(&[("other", "2")], Prefer::Ours);
    assert_eq!(pulled.conflicts, ["f"]);
    assert_eq!(seen(&fixture, "u"), Tree::of(&[("f", "mine"), ("new", "mine"), ("other", "2")]));
}

#[test]
fn a_skill_without_changes_or_without_the_user_pulls_nothing() {
    let fixture = Fixture::new();
    let version = fixture.baseline("s", &Tree::of(&FIRST)).version;
    let pulled = fixture.store.skills().pull(&skill_tree("u", "s"), Prefer::Theirs).unwrap();
    assert_eq!((pulled.version, pulled.moved, pulled.refreshed), (Some(version), false, 0));
    assert!(matches!(
        fixture.store.skills().pull(&skill_tree("u", "t"), Prefer::Ours),
        Err(Error::NotFound(_))
    ));
    // An uploaded skill hides all of the application's, its new version as well.
    fixture.publish(policy::Scope::Overlay, "u", "s", &Tree::of(&[("own", "1")]));
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    assert!(fixture.store.skills().pull(&skill_tree("u", "s"), Prefer::Theirs).unwrap().moved);
    assert_eq!(seen(&fixture, "u"), Tree::of(&[("own", "1")]));
}

#[test]
fn a_command_in_the_skill_holds_off_a_pull_and_loses_nothing_by_a_promotion() {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        fixture.baseline("s", &Tree::of(&FIRST));
        put(&fixture.skill("u", "s"), "f", "mine");
        let id = skill_tree("u", "s");
        let command = fixture.command(&id);
        fixture.baseline("s", &Tree::of(&[("f", "1"), ("more", "2")]));
        assert!(matches!(fixture.store.skills().pull(&id, Prefer::Ours), Err(Error::Conflict(_))), "{way:?}");
        assert!(fixture.store.skills().would_pull(&id, Prefer::Ours).unwrap().moved, "{way:?}");
        drop(fixture.store.skills().promote(&publisher("u"), &id, true).unwrap());
        std::fs::write(command.tree().join("late"), "kept").unwrap();
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(read(&fixture.skill("u", "s"), "late").unwrap(), "kept", "{way:?}");
        assert_eq!(read(&fixture.skill("v", "s"), "f").unwrap(), "mine");
        fixture.store.skills().pull(&id, Prefer::Ours).unwrap();
        assert_eq!(status(&fixture, "u"), Status::Modified, "{way:?}");
    }
}

#[test]
fn both_sides_of_a_changed_file_are_read_up_to_a_bound() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&FIRST));
    let files = fixture.skill("u", "s");
    put(&files, "f", "mine");
    remove(&files, "g");
    put(&files, "new", "mine");
    let sides = |at: &str, most| {
        let sides = fixture.store.skills().sides(&skill_tree("u", "s"), &path(at), most).unwrap();
        let text = |side: Option<storage::Side>| {
            side.map(|side| (side.bytes, side.content.map(|bytes| String::from_utf8(bytes).unwrap())))
        };
        (text(sides.before), text(sides.after))
    };
    let some = |text: &str| Some((u64::try_from(text.len()).unwrap(), Some(text.to_owned())));
    assert_eq!(sides("f", 4), (some("1"), some("mine")));
    assert_eq!(sides("f", 3), (some("1"), Some((4, None))));
    assert_eq!(sides("g", 4), (some("1"), None));
    assert_eq!(sides("new", 4), (None, some("mine")));
    assert_eq!(sides("d", 4), (None, None));
}

/// A skill of two versions in which a user has a view without runs: mounted over the second, begun with the first.
fn with_an_idle_view(way: Way, mine: impl Fn(&Fixture)) -> Option<Fixture> {
    let fixture = Fixture::live(way)?;
    fixture.baseline("s", &Tree::of(&FIRST));
    mine(&fixture);
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1"), ("more", "2")]));
    drop(fixture.command(&skill_tree("u", "s")));
    assert_eq!(fixture.store.live_views(), 1);
    Some(fixture)
}

#[test]
fn a_view_that_is_kept_for_the_next_command_holds_off_neither_a_pull_nor_a_promotion() {
    let id = skill_tree("u", "s");
    let edited = |fixture: &Fixture| {
        put(&fixture.skill("u", "s"), "g", "mine");
    };
    let uploaded = |fixture: &Fixture| {
        fixture.publish(policy::Scope::Overlay, "u", "s", &Tree::of(&[("own", "1")]));
    };
    for way in WAYS {
        for (mine, is_uploaded) in [(&edited as &dyn Fn(&Fixture), false), (&uploaded, true)] {
            let Some(fixture) = with_an_idle_view(way, mine) else { continue };
            assert!(fixture.store.skills().pull(&id, Prefer::Ours).unwrap().moved, "{way:?}");
            assert!(!fixture.store.skills().pull(&id, Prefer::Ours).unwrap().moved, "{way:?}");
            assert_eq!(status(&fixture, "u"), Status::Modified);

            let Some(fixture) = with_an_idle_view(way, mine) else { continue };
            let before = seen(&fixture, "u");
            // What the user uploaded or edited is gone from the second version.
            drop(fixture.store.skills().promote(&publisher("u"), &id, true).unwrap());
            assert_eq!((seen(&fixture, "u"), seen(&fixture, "v")), (before.clone(), before), "{is_uploaded}");
            assert_eq!(
                fixture::names(&fixture.overlay_path("u")),
                Vec::<String>::new(),
                "{way:?} {is_uploaded}"
            );
            assert_eq!(fixture.own("bases/agent/s"), Vec::<String>::new());
            fixture.assert_swept();
        }
    }
}

/// What becomes of a promotion under a command, in which `during` happens then.
fn promoted_under_a_command(way: Way, during: impl Fn(&Fixture, &Command)) -> Option<Fixture> {
    let fixture = Fixture::live(way)?;
    fixture.baseline("s", &Tree::of(&FIRST));
    let files = fixture.skill("u", "s");
    for at in ["f", "mine", "own/a", "own/b", "d/z"] {
        put(&files, at, "mine");
    }
    remove(&files, "g");
    let command = fixture.command(&skill_tree("u", "s"));
    drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap());
    let published = seen(&fixture, "v");
    assert_eq!(seen(&fixture, "u"), published);
    // No user promotes a skill that they no longer see whole.
    during(&fixture, &command);
    let left = seen(&fixture, "u");
    assert_eq!(Tree::on_disk(&command.tree()), Some(left.clone()), "{way:?}");
    drop(command);
    // The next command settles it, unless it is settled already.
    let next = fixture.command(&skill_tree("u", "s"));
    assert_eq!(Tree::on_disk(&next.tree()), Some(left.clone()), "{way:?}");
    drop(next);
    fixture.store.close_views().unwrap();
    assert_eq!((seen(&fixture, "u"), seen(&fixture, "v")), (left, published), "{way:?}");
    assert_valid_upper(&fixture.overlay_path("u"), &fixture::KERNEL_ATTRIBUTES);
    fixture.assert_swept();
    Some(fixture)
}

#[test]
fn what_is_removed_after_a_promotion_stays_removed_when_the_command_ends() {
    for way in WAYS {
        let fixture = promoted_under_a_command(way, |fixture, command| {
            let files = fixture.skill("u", "s");
            remove(&files, "mine");
            remove(&files, "d/z");
            std::fs::remove_dir_all(command.tree().join("own")).unwrap();
            std::fs::write(command.tree().join("g"), "back").unwrap();
            std::fs::write(command.tree().join("d/y"), "later").unwrap();
        });
        let Some(fixture) = fixture else { continue };
        let found = fixture.store.skills().status(&skill_tree("u", "s")).unwrap();
        let paths: Vec<&str> = found.changes.iter().map(|changed| changed.path.as_str()).collect();
        assert_eq!(
            (found.status, paths),
            (Status::Modified, vec!["d/y", "d/z", "g", "mine", "own"]),
            "{way:?}"
        );
        // From now on it is a change like any other.
        assert!(!fixture.store.skills().pull(&skill_tree("u", "s"), Prefer::Ours).unwrap().moved);
        fixture.baseline("s", &Tree::of(&[("f", "3"), ("mine", "3")]));
        assert_eq!(status(&fixture, "u"), Status::OutOfSync);
    }
}

#[test]
fn who_changes_nothing_after_a_promotion_under_a_command_stays_unchanged() {
    for way in WAYS {
        let Some(fixture) = promoted_under_a_command(way, |_, _| {}) else { continue };
        assert_eq!(fixture::names(&fixture.overlay_path("u")), Vec::<String>::new(), "{way:?}");
        assert_eq!(fixture.own("bases/agent/s"), Vec::<String>::new());
        fixture.baseline("s", &Tree::of(&[("f", "3")]));
        assert_eq!(
            (status(&fixture, "u"), seen(&fixture, "u")),
            (Status::Unchanged, Tree::of(&[("f", "3")]))
        );
        // Also when the next version comes before the command has ended.
        let fixture = promoted_under_a_command(way, |_, _| {}).unwrap();
        let command = fixture.command(&skill_tree("u", "s"));
        put(&fixture.skill("u", "s"), "again", "mine");
        drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap());
        let refused = fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), true);
        assert!(matches!(refused, Err(Error::Conflict(_))), "{way:?}");
        fixture.baseline("s", &Tree::of(&[("f", "4")]));
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(
            (status(&fixture, "u"), seen(&fixture, "u")),
            (Status::Unchanged, Tree::of(&[("f", "4")]))
        );
    }
}

#[test]
fn what_a_service_that_died_left_of_a_promotion_under_a_command_is_settled_by_the_next() {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        fixture.baseline("s", &Tree::of(&FIRST));
        put(&fixture.skill("u", "s"), "mine", "mine");
        put(&fixture.skill("u", "s"), "more", "mine");
        let command = fixture.command(&skill_tree("u", "s"));
        drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap());
        remove(&fixture.skill("u", "s"), "mine");
        let left = seen(&fixture, "u");
        // As a death leaves it: the lease and the overlay, and no view.
        let at_death = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp")
            .args(["-a", "--preserve=all"])
            .args([fixture.root().join("."), at_death.path().to_owned()])
            .status();
        assert!(copied.unwrap().success());
        drop(command);
        let (store, _) = storage::Store::open(at_death.path(), fixture::relaxed()).unwrap();
        let reopened = Fixture { store, temp: at_death };
        assert_eq!(seen(&reopened, "u"), left, "{way:?}");
        assert_eq!(status(&reopened, "u"), Status::Modified, "{way:?}");
    }
}

#[test]
fn a_copy_that_a_run_works_in_is_absorbed_over_what_its_user_published_meanwhile() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&FIRST));
    put(&fixture.skill("u", "s"), "mine", "mine");
    let run = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap());
    assert_eq!(status(&fixture, "u"), Status::Unchanged);
    std::fs::remove_file(run.view().tree.join("mine")).unwrap();
    std::fs::write(run.view().tree.join("late"), "1").unwrap();
    assert_eq!(run.absorb().unwrap().deleted, 1);
    drop(run);
    let mut expected = FIRST.to_vec();
    expected.push(("late", "1"));
    assert_eq!(seen(&fixture, "u"), Tree::of(&expected));
    assert_eq!(status(&fixture, "u"), Status::Modified);
    fixture.assert_swept();
}

fn mode(fixture: &Fixture, at: &str) -> u32 {
    fixture.skill("u", "s").stat(&path(at)).unwrap().0.mode
}

#[test]
fn a_mode_of_the_users_own_outlives_the_settling_of_a_promotion_and_a_pull() {
    use std::os::unix::fs::PermissionsExt;
    for way in WAYS {
        let fixture = promoted_under_a_command(way, |_, command| {
            for (at, mode) in [("own", 0o750), ("mine", 0o600), ("d", 0o711)] {
                let at = command.tree().join(at);
                std::fs::set_permissions(at, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        });
        let Some(fixture) = fixture else { continue };
        let modes = |fixture: &Fixture| ["own", "mine", "d", "d/y"].map(|at| mode(fixture, at));
        assert_eq!(modes(&fixture), [0o750, 0o600, 0o711, 0o644], "{way:?}");
        // A mode alone is no change.
        assert_eq!(status(&fixture, "u"), Status::Unchanged, "{way:?}");
        let mut next = seen(&fixture, "v");
        next.file("new", "2", 0o644);
        next.file("mine", "theirs", 0o644);
        fixture.baseline("s", &next);
        assert!(fixture.store.skills().pull(&skill_tree("u", "s"), Prefer::Ours).unwrap().moved);
        // Nor does it keep what the application changed.
        assert_eq!(modes(&fixture), [0o750, 0o644, 0o711, 0o644], "{way:?}");
        assert_eq!(read(&fixture.skill("u", "s"), "mine").unwrap(), "theirs");
    }
}

#[test]
fn of_a_directory_that_both_made_only_the_users_part_goes_when_the_user_removes_it() {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        fixture.baseline("s", &Tree::of(&FIRST));
        let files = fixture.skill("u", "s");
        let command = fixture.command(&skill_tree("u", "s"));
        std::fs::create_dir(command.tree().join("merged")).unwrap();
        put(&files, "merged/mine", "mine");
        files.make_dir(&path("replaced"), 0o755, false).unwrap();
        // Nothing of the application's shows in what a request makes in a view.
        fixture.baseline("s", &Tree::of(&[("merged/theirs", "2"), ("replaced/theirs", "2")]));
        drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), true).unwrap());
        let published = seen(&fixture, "v");
        assert!(published.nodes.contains_key("merged/mine") && published.nodes.contains_key("merged/theirs"));
        assert!(!published.nodes.contains_key("replaced/theirs"), "{way:?}");
        remove(&files, "merged");
        remove(&files, "replaced");
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(seen(&fixture, "u"), Tree::of(&[("merged/theirs", "2")]), "{way:?}");
        assert_eq!(seen(&fixture, "v"), published, "{way:?}");
        assert_valid_upper(&fixture.overlay_path("u"), &fixture::KERNEL_ATTRIBUTES);
        fixture.assert_swept();
    }
}

#[test]
fn a_deep_tree_near_the_bound_of_entries_is_settled_after_a_promotion() {
    const DEPTH: usize = 12;
    let deep: String = (0..DEPTH).map(|level| format!("{level}/")).collect();
    let theirs = format!("{deep}theirs");
    for way in WAYS {
        let mut options = fixture::relaxed();
        // Fifteen entries are in the skill; the walk of them for each level would take ninety.
        options.files.tree_entries = 24;
        let Some(fixture) = Fixture::live_with(way, options) else { continue };
        fixture.baseline("s", &Tree::of(&[("f", "1")]));
        let command = fixture.command(&skill_tree("u", "s"));
        std::fs::create_dir_all(command.tree().join(&deep)).unwrap();
        put(&fixture.skill("u", "s"), &format!("{deep}mine"), "mine");
        fixture.baseline("s", &Tree::of(&[("f", "1"), (theirs.as_str(), "2")]));
        drop(fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), true).unwrap());
        std::fs::remove_dir_all(command.tree().join("0")).unwrap();
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(seen(&fixture, "u"), Tree::of(&[("f", "1"), (theirs.as_str(), "2")]), "{way:?}");
        assert_eq!(status(&fixture, "u"), Status::Modified, "{way:?}");
        assert_valid_upper(&fixture.overlay_path("u"), &fixture::KERNEL_ATTRIBUTES);
        fixture.assert_swept();
    }
}
