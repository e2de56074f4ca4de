//! Laws of the life of sandboxes: no sandbox goes from under a command, and none looks older than it is.

use std::time::{Duration, Instant};

use crate::fixture::{self, Fixture, Tree, agent, put, relaxed, skill_tree, user_id};
use policy::RelPath;
use storage::{Error, Options, SnapshotNote, Store, WorkspaceId, WriteOptions};

const IDLE: Duration = Duration::from_millis(400);

fn sandbox(user: &str) -> WorkspaceId {
    WorkspaceId { user: user_id(user), agent: agent() }
}

fn sweeping() -> Options {
    Options { idle: Some(IDLE), ..relaxed() }
}

/// One pass: looks for what is idle, and removes it.
fn sweep(store: &Store) -> Vec<String> {
    let idle = store.workspaces().idle(None, 100).unwrap();
    let gone = idle.into_iter().filter(|id| store.workspaces().sweep(id).unwrap().is_some());
    gone.map(|id| id.user.to_string()).collect()
}

fn is_there(fixture: &Fixture, user: &str) -> (bool, bool) {
    let at = |place: &str| fixture.root().join(place).join(user).join("agent").exists();
    (at("sandbox"), at(".filesecbox/packages"))
}

#[test]
fn a_sandbox_that_nobody_uses_goes_with_its_home_and_its_overlays_and_snapshots_stay() {
    let fixture = Fixture::with(sweeping());
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    put(&fixture.skill("甲", "s"), "mine", "x");
    put(&fixture.workspace("甲"), "f", "x");
    drop(fixture.store.runs().prepare(&sandbox("甲").workspace()).unwrap());
    let snapshot = fixture.store.snapshots().take(&sandbox("甲"), SnapshotNote::default()).unwrap();
    assert_eq!(is_there(&fixture, "甲"), (true, true));
    assert_eq!(sweep(&fixture.store), Vec::<String>::new(), "just used");
    std::thread::sleep(IDLE * 2);
    assert_eq!(sweep(&fixture.store), ["甲"]);
    assert_eq!(is_there(&fixture, "甲"), (false, false));
    assert_eq!(fixture::read(&fixture.skill("甲", "s"), "mine").unwrap(), "x");
    fixture.assert_swept();
    drop(fixture.store.snapshots().restore(&sandbox("甲"), &snapshot.id).unwrap());
    assert_eq!(fixture::read(&fixture.workspace("甲"), "f").unwrap(), "x");
    assert_eq!(sweep(&fixture.store), Vec::<String>::new(), "its life begins anew");
}

#[test]
fn a_sandbox_of_unknown_age_is_as_old_as_the_first_look_at_it() {
    let fixture = Fixture::with(sweeping());
    let ancient = fixture.root().join("sandbox/old/agent");
    std::fs::create_dir_all(&ancient).unwrap();
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1);
    std::fs::File::open(&ancient).unwrap().set_modified(long_ago).unwrap();
    std::thread::sleep(IDLE * 2);
    assert_eq!(sweep(&fixture.store), Vec::<String>::new());
    std::thread::sleep(IDLE * 2);
    assert_eq!(sweep(&fixture.store), ["old"]);
}

#[test]
fn every_use_puts_the_end_off() {
    let fixture = Fixture::with(sweeping());
    for user in ["used", "not"] {
        put(&fixture.workspace(user), "f", "x");
        fixture.store.workspaces().note_use(&sandbox(user)).unwrap();
    }
    let (began, mut swept) = (Instant::now(), Vec::new());
    while began.elapsed() < IDLE * 4 {
        fixture.store.workspaces().note_use(&sandbox("used")).unwrap();
        swept.extend(sweep(&fixture.store));
        std::thread::sleep(IDLE / 20);
    }
    assert_eq!(swept, ["not"]);
}

#[test]
fn no_command_loses_its_workspace_or_its_home_whatever_it_runs_in() {
    let fixture = Fixture::with(sweeping());
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    for (user, tree) in [("u", sandbox("u").workspace()), ("v", skill_tree("v", "s"))] {
        put(&fixture.workspace(user), "f", "x");
        let run = fixture.store.runs().prepare(&tree).unwrap();
        std::thread::sleep(IDLE * 2);
        assert_eq!(sweep(&fixture.store), Vec::<String>::new());
        assert!(fixture.store.workspaces().sweep(&sandbox(user)).unwrap().is_none());
        let refused = fixture.store.workspaces().remove(&sandbox(user), false).map(drop);
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        assert_eq!(fixture.store.workspaces().occupants(&sandbox(user)), 1);
        assert_eq!(is_there(&fixture, user), (true, true));
        drop(run);
        assert_eq!(sweep(&fixture.store), Vec::<String>::new(), "a run is a use until its end");
        assert_eq!(fixture.store.workspaces().occupants(&sandbox(user)), 0);
        assert!(fixture.store.workspaces().remove(&sandbox(user), false).unwrap().0);
        assert_eq!(is_there(&fixture, user), (false, false));
    }
}

#[test]
fn neither_a_restart_nor_the_time_between_makes_a_sandbox_older() {
    let Fixture { store, temp } = Fixture::with(sweeping());
    put(&store.files(sandbox("u").workspace()), "f", "x");
    store.workspaces().note_use(&sandbox("u")).unwrap();
    drop(store);
    // Restarts without an orderly end, each long after the one before.
    for _ in 0..4 {
        std::thread::sleep(IDLE);
        let (store, _) = Store::open(temp.path(), sweeping()).unwrap();
        assert_eq!(sweep(&store), Vec::<String>::new());
        store.files(sandbox("u").workspace()).stat(&RelPath::root()).unwrap();
    }
    // What services saw of it adds up.
    let (store, _) = Store::open(temp.path(), sweeping()).unwrap();
    std::thread::sleep(IDLE * 2);
    store.workspaces().keep_uptime().unwrap();
    drop(store);
    let (store, _) = Store::open(temp.path(), sweeping()).unwrap();
    assert_eq!(sweep(&store), ["u"]);
}

#[test]
fn without_a_time_nothing_is_ever_idle() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "f", "x");
    fixture.store.workspaces().note_use(&sandbox("u")).unwrap();
    assert_eq!(sweep(&fixture.store), Vec::<String>::new());
    assert!(fixture.store.workspaces().sweep(&sandbox("u")).unwrap().is_none());
}

#[test]
fn a_name_that_nobody_has_written_to_leaves_no_trace() {
    let fixture = Fixture::with(sweeping());
    for number in 0..20 {
        fixture.store.workspaces().note_use(&sandbox(&format!("u{number}"))).unwrap();
    }
    assert_eq!(fixture.store.workspaces().list(None).unwrap(), []);
    assert!(!fixture.store.workspaces().remove(&sandbox("u1"), true).unwrap().0);
    assert_eq!(fixture.own("sandboxes"), Vec::<String>::new());
}

#[test]
fn a_removed_sandbox_takes_its_snapshots_along_when_asked_to_and_links_are_not_followed() {
    let fixture = Fixture::new();
    let outside = fixture.root().join("kept");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("f"), "x").unwrap();
    put(&fixture.workspace("u"), "f", "x");
    std::os::unix::fs::symlink(&outside, fixture.root().join("sandbox/u/agent/link")).unwrap();
    fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default()).unwrap();
    assert!(fixture.store.workspaces().remove(&sandbox("u"), false).unwrap().0);
    assert_eq!(fixture.store.snapshots().list(&sandbox("u")).unwrap().list.len(), 1);
    assert_eq!(fixture.store.workspaces().list(Some(&user_id("u"))).unwrap(), [sandbox("u")]);
    assert!(fixture.store.workspaces().remove(&sandbox("u"), true).unwrap().0);
    assert_eq!(fixture.store.workspaces().list(None).unwrap(), []);
    assert_eq!(std::fs::read(outside.join("f")).unwrap(), b"x");
    fixture.assert_swept();
}

#[test]
fn a_removed_sandbox_without_snapshots_leaves_no_record_whatever_was_in_it() {
    let fixture = Fixture::with(sweeping());
    let (store, user) = (&fixture.store, user_id("u"));
    let record = fixture.root().join(".filesecbox/sandboxes/u/agent");
    let fill = || {
        put(&fixture.workspace("u"), "f", "x");
        let snapshot = store.snapshots().take(&sandbox("u"), SnapshotNote::default()).unwrap();
        store.snapshots().remove(&sandbox("u"), &snapshot.id).unwrap();
        // A death while a snapshot was taken.
        let group = record.join("objects/00");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("0".repeat(64)), "an orphan").unwrap();
        std::fs::write(record.join("unfinished"), "").unwrap();
    };
    fill();
    assert!(store.workspaces().remove(&sandbox("u"), false).unwrap().0);
    assert_eq!(store.workspaces().list(Some(&user)).unwrap(), []);
    assert!(!store.workspaces().remove(&sandbox("u"), true).unwrap().0);
    fill();
    while store.workspaces().idle(None, 1).unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(store.workspaces().sweep(&sandbox("u")).unwrap().unwrap());
    assert_eq!(store.workspaces().list(Some(&user)).unwrap(), []);
    // What was swept while a snapshot of it was under way goes at a later look.
    std::fs::create_dir_all(record.join("objects/00")).unwrap();
    while !store.workspaces().list(Some(&user)).unwrap().is_empty() {
        assert_eq!(store.workspaces().idle(None, 1).unwrap(), []);
        std::thread::sleep(Duration::from_millis(20));
    }
    fixture.assert_swept();
}

/// Keeps an unused sandbox aside for four times as long as it took to get there.
fn keeping() -> Options {
    Options { keep: IDLE * 4, ..sweeping() }
}

/// Waits until a sandbox is set aside.
fn until_aside(store: &Store, user: &str) {
    let begun = Instant::now();
    while !store.workspaces().facts(&sandbox(user)).unwrap().is_kept {
        sweep(store);
        assert!(begun.elapsed() < Duration::from_secs(30), "{user} is not set aside");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_sandbox_that_is_set_aside_comes_back_whole_with_the_next_use() {
    let fixture = Fixture::with(keeping());
    put(&fixture.workspace("甲"), "f", "x");
    let run = fixture.store.runs().prepare(&sandbox("甲").workspace()).unwrap();
    drop(run);
    std::fs::write(fixture.root().join(".filesecbox/packages/甲/agent/mine"), "y").unwrap();
    until_aside(&fixture.store, "甲");
    assert_eq!(is_there(&fixture, "甲"), (false, false));
    assert_eq!(fixture.store.workspaces().list(None).unwrap(), [sandbox("甲")], "it is still listed");
    // Of many first uses at once one brings it back, and none goes on before it is there.
    let back: usize = std::thread::scope(|threads| {
        let uses: Vec<_> = (0..8)
            .map(|_| {
                threads.spawn(|| {
                    let is_back = fixture.store.workspaces().note_use(&sandbox("甲")).unwrap();
                    assert_eq!(fixture::read(&fixture.workspace("甲"), "f").unwrap(), "x");
                    usize::from(is_back)
                })
            })
            .collect();
        uses.into_iter().map(|used| used.join().unwrap()).sum()
    });
    assert_eq!(back, 1);
    assert_eq!(is_there(&fixture, "甲"), (true, true));
    assert_eq!(std::fs::read(fixture.root().join(".filesecbox/packages/甲/agent/mine")).unwrap(), b"y");
    assert_eq!(sweep(&fixture.store), Vec::<String>::new(), "its life begins anew");
    assert!(!fixture.store.workspaces().facts(&sandbox("甲")).unwrap().is_kept);
}

#[test]
fn what_is_aside_counts_for_its_workspace() {
    let fixture = Fixture::with(keeping());
    let tree = sandbox("u").workspace();
    put(&fixture.workspace("u"), "f", &"x".repeat(1 << 20));
    let before = fixture.store.usage(&tree).unwrap();
    assert!(before.bytes >= 1 << 20, "the control: {before:?}");
    until_aside(&fixture.store, "u");
    let aside = fixture.store.usage(&tree).unwrap();
    assert!(aside.bytes >= before.bytes, "{aside:?} of {before:?}");
    assert!(fixture.store.workspaces().note_use(&sandbox("u")).unwrap());
    assert_eq!(fixture.store.usage(&tree).unwrap(), before);
    // A death between the two renames leaves one aside and another in its place: together they have one bound.
    let bytes = before.bytes + 65_536;
    let disk = policy::DiskLimits { bytes, ..policy::DiskLimits::default() };
    let fixture = Fixture::with(Options { disk, ..keeping() });
    put(&fixture.workspace("u"), "f", &"x".repeat(1 << 20));
    until_aside(&fixture.store, "u");
    let options = WriteOptions { parents: true, ..WriteOptions::default() };
    let refused = fixture::write(&fixture.workspace("u"), "g", &[0; 1 << 20], &options);
    assert!(matches!(refused, Err(Error::Quota { .. })), "{refused:?}");
}

#[test]
fn what_is_aside_goes_in_the_end_or_when_somebody_removes_it() {
    let fixture = Fixture::with(keeping());
    for user in ["left", "removed"] {
        put(&fixture.workspace(user), "f", "x");
    }
    until_aside(&fixture.store, "left");
    until_aside(&fixture.store, "removed");
    assert!(fixture.store.workspaces().remove(&sandbox("removed"), false).unwrap().0);
    assert!(!fixture.store.workspaces().bring_back(&sandbox("removed")).unwrap());
    let begun = Instant::now();
    while !fixture.store.workspaces().list(None).unwrap().is_empty() {
        sweep(&fixture.store);
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!fixture.store.workspaces().note_use(&sandbox("left")).unwrap());
    assert_eq!(is_there(&fixture, "left"), (false, false));
    fixture.assert_swept();
}

#[test]
fn a_death_while_a_sandbox_is_moved_leaves_both_halves_for_the_next_use() {
    let fixture = Fixture::with(Options { keep: Duration::from_secs(3600), ..sweeping() });
    let root = fixture.root().to_owned();
    put(&fixture.workspace("u"), "f", "x");
    drop(fixture.store.runs().prepare(&sandbox("u").workspace()).unwrap());
    let (home, aside) = (root.join(".filesecbox/packages/u/agent"), root.join(".filesecbox/kept/u/agent"));
    // Between the renames, in either direction, before and after the next look, and after a restart.
    for half in ["home", "workspace"] {
        until_aside(&fixture.store, "u");
        let place = if half == "home" { home.clone() } else { root.join("sandbox/u/agent") };
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(aside.join(half), place).unwrap();
        if half == "workspace" {
            until_aside(&fixture.store, "u");
            sweep(&fixture.store);
        }
        assert!(fixture.store.workspaces().note_use(&sandbox("u")).unwrap());
        assert_eq!(is_there(&fixture, "u"), (true, true), "{half}");
        assert_eq!(fixture::read(&fixture.workspace("u"), "f").unwrap(), "x");
    }
    until_aside(&fixture.store, "u");
    let Fixture { store, temp } = fixture;
    drop(store);
    let (store, _) = Store::open(temp.path(), sweeping()).unwrap();
    assert!(store.workspaces().note_use(&sandbox("u")).unwrap());
    assert_eq!(fixture::read(&store.files(sandbox("u").workspace()), "f").unwrap(), "x");
}
