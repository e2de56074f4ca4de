//! Laws of what a user may have in all: no request makes it more, however it is spread over trees, names and snapshots.

use std::fs;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, Tree, agent, path, relaxed, skill_id, skill_tree, user_id, write};
use policy::{AgentId, DiskLimits, Scope, SkillId, TreeId};
use storage::snapshot::SnapshotNote;
use storage::{Condition, Dir, Error, Files, Options, Placement, Store, Use, WorkspaceId, WriteOptions};

const BLOCK: u64 = 4096;
const LIMIT: u64 = 64 * BLOCK;

fn limited(user_bytes: u64, user_files: u64) -> Options {
    Options {
        disk: DiskLimits { user_bytes, user_files, free_bytes: 0, ..DiskLimits::default() },
        ..relaxed()
    }
}

fn workspace(number: usize) -> TreeId {
    TreeId::Workspace(user_id("u"), AgentId::parse(&format!("agent{number}")).unwrap())
}

fn fill(files: &Files, at: &str, bytes: u64) -> storage::Result<storage::Written> {
    let bytes = vec![b'x'; usize::try_from(bytes).unwrap()];
    write(files, at, &bytes, &WriteOptions { parents: true, ..WriteOptions::default() })
}

#[track_caller]
fn is_refused<T>(result: storage::Result<T>, setting: &str) {
    match result.map(|_| ()) {
        Err(Error::Quota { setting: told, used, limit, needs, tree, .. }) => {
            assert_eq!(told, setting);
            assert!(used + needs > limit, "{used} and {needs} are not more than {limit}");
            assert!(tree.contains("the user `u`"), "{tree}");
        }
        other => panic!("no quota but {other:?}"),
    }
}

/// What the user has, counted by a store that knows nothing yet.
fn afresh(fixture: Fixture) -> Use {
    let Fixture { store, temp } = fixture;
    let options = store.options().clone();
    drop(store);
    let (store, _) = Store::open(temp.path(), options).unwrap();
    store.user_usage(&user_id("u")).unwrap().0
}

#[test]
fn trees_of_all_agents_count_together_and_those_of_others_do_not() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    for number in 0..3 {
        fill(&fixture.store.files(workspace(number)), "f", 16 * BLOCK).unwrap();
    }
    is_refused(fill(&fixture.store.files(workspace(3)), "f", 16 * BLOCK), "limits.disk.user_bytes");
    is_refused(fill(&fixture.skill("u", "s"), "f", 16 * BLOCK), "limits.disk.user_bytes");
    assert!(!fixture.root().join("sandbox/u/agent3").exists());
    fill(&fixture.workspace("v"), "f", 32 * BLOCK).unwrap();
    // What is removed in one tree is room in another.
    fixture.store.files(workspace(0)).remove(&path("f"), false, &Condition::default()).unwrap();
    fill(&fixture.store.files(workspace(3)), "f", 16 * BLOCK).unwrap();
    let (taken, limits) = fixture.store.user_usage(&user_id("u")).unwrap();
    assert_eq!(limits, Use { bytes: LIMIT, files: 1000 });
    assert_eq!(afresh(fixture), taken, "a new count finds what is known");
}

#[test]
fn names_count_together_too() {
    let fixture = Fixture::with(limited(1 << 30, 20));
    let made =
        (0..20).filter(|number| fill(&fixture.store.files(workspace(*number)), "f", 0).is_ok()).count();
    // Each tree has its own directory, and the service a record of its use.
    assert!((5..=10).contains(&made), "{made}");
    is_refused(
        fixture.store.files(workspace(0)).make_dir(&path("a/b/c/d/e/f/g"), 0o755, true),
        "limits.disk.user_files",
    );
    assert!(afresh(fixture).files <= 20);
}

#[test]
fn published_skills_count_together_and_one_replaces_itself() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    let publish = |skill: &str, bytes: u64| {
        let text = "x".repeat(usize::try_from(bytes).unwrap());
        let tree = Tree::of(&[("f", &text)]);
        let fill = &mut |_: &SkillId, dir: &Dir| {
            tree.fill(dir);
            Ok(None)
        };
        let skills = [skill_id(skill)];
        fixture.store.skills().publish(Scope::Overlay, &user_id("u"), &agent(), &skills, fill).map(drop)
    };
    publish("one", 20 * BLOCK).unwrap();
    publish("two", 20 * BLOCK).unwrap();
    is_refused(publish("three", 30 * BLOCK), "limits.disk.user_bytes");
    for _ in 0..3 {
        publish("two", 30 * BLOCK).unwrap();
    }
    is_refused(publish("three", 20 * BLOCK), "limits.disk.user_bytes");
    // Several in one upload have no more room than one.
    let small = Tree::of(&[("f", &"x".repeat(usize::try_from(6 * BLOCK).unwrap()))]);
    let fill = &mut |_: &SkillId, dir: &Dir| {
        small.fill(dir);
        Ok(None)
    };
    let many = ["a", "b", "c"].map(skill_id);
    is_refused(
        fixture.store.skills().publish(Scope::Overlay, &user_id("u"), &agent(), &many, fill),
        "limits.disk.user_bytes",
    );
    assert!(afresh(fixture).bytes <= LIMIT);
}

#[test]
fn snapshots_count_and_what_none_has_any_more_does_not() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    let id = WorkspaceId { user: user_id("u"), agent: AgentId::parse("agent0").unwrap() };
    let files = fixture.store.files(workspace(0));
    fill(&files, "f", 24 * BLOCK).unwrap();
    let taken = fixture.store.snapshots().take(&id, SnapshotNote::default()).unwrap();
    is_refused(fill(&files, "g", 24 * BLOCK), "limits.disk.user_bytes");
    // Another content of the same size, for which a snapshot has no room any more.
    let other = vec![b'y'; usize::try_from(24 * BLOCK).unwrap()];
    write(&files, "f", &other, &WriteOptions::default()).unwrap();
    is_refused(fixture.store.snapshots().take(&id, SnapshotNote::default()), "limits.disk.user_bytes");
    assert_eq!(fixture.store.snapshots().list(&id).unwrap().list.len(), 1);
    // Neither a restored nor a forked one is room for nothing.
    let fork = WorkspaceId { user: user_id("u"), agent: AgentId::parse("fork").unwrap() };
    is_refused(
        fixture.store.snapshots().fork(&id, &taken.id, &fork, false).map(drop),
        "limits.disk.user_bytes",
    );
    assert!(!fixture.root().join("sandbox/u/fork").exists());
    fixture.store.snapshots().remove(&id, &taken.id).unwrap();
    fill(&files, "g", 24 * BLOCK).unwrap();
    drop(files);
    assert!(afresh(fixture).bytes <= LIMIT);
}

#[test]
fn renames_and_second_names_are_no_room() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    let files = fixture.store.files(workspace(0));
    fill(&files, "a", 40 * BLOCK).unwrap();
    for number in 0..50 {
        let (from, to) = (if number % 2 == 0 { "a" } else { "b" }, if number % 2 == 0 { "b" } else { "a" });
        files.rename(&path(from), &path(to), false, &Condition::default()).unwrap();
    }
    is_refused(fill(&fixture.store.files(workspace(1)), "f", 30 * BLOCK), "limits.disk.user_bytes");
    // A second name that a command gave it counts once; a copy of each name is refused.
    fs::hard_link(fixture.root().join("sandbox/u/agent0/a"), fixture.root().join("sandbox/u/agent0/b"))
        .unwrap();
    is_refused(
        files.copy(&path("b"), &path("c"), false, false, &Condition::default()),
        "limits.disk.user_bytes",
    );
    drop(files);
    assert!(afresh(fixture).bytes <= LIMIT);
}

#[test]
fn writes_in_many_trees_at_once_are_together_no_more_than_may_be() {
    const TREES: usize = 12;
    let fixture = Fixture::with(limited(LIMIT, 1000));
    for round in 0..8 {
        let barrier = Barrier::new(TREES);
        std::thread::scope(|scope| {
            for number in 0..TREES {
                let (files, barrier) = (fixture.store.files(workspace(number)), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    drop(fill(&files, &format!("f{round}"), 10 * BLOCK));
                });
            }
        });
        let (taken, _) = fixture.store.user_usage(&user_id("u")).unwrap();
        assert!(taken.bytes <= LIMIT, "{taken:?}");
        assert!(taken.bytes > 40 * BLOCK, "next to nothing was admitted: {taken:?}");
        for number in 0..TREES {
            let files = fixture.store.files(workspace(number));
            drop(files.remove(&path(&format!("f{round}")), false, &Condition::default()));
        }
    }
    assert!(afresh(fixture).bytes <= LIMIT);
}

#[test]
fn what_runs_made_counts_and_is_counted_again_before_it_refuses() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    let store = &fixture.store;
    fill(&store.files(workspace(0)), "f", BLOCK).unwrap();
    let made = fixture.root().join("sandbox/u/agent0/made");
    let run = || store.runs().plan(&workspace(0), Placement::InPlace, &[]).unwrap().prepare();
    let prepared = run().unwrap();
    fs::write(&made, vec![b'x'; 60 * 4096]).unwrap();
    let gauges = prepared.gauges().unwrap();
    assert_eq!(gauges[0].look().unwrap().excess, Use::default(), "a little above is no reason to end a run");
    is_refused(fill(&store.files(workspace(1)), "f", 30 * BLOCK), "limits.disk.user_bytes");
    // The command removes it again, which the next look finds.
    fs::remove_file(&made).unwrap();
    let _ = gauges[0].look().unwrap();
    fill(&store.files(workspace(1)), "f", 30 * BLOCK).unwrap();
}

#[test]
fn runs_that_go_on_filling_are_told_to_end_and_then_not_begun() {
    let fixture = Fixture::with(limited(LIMIT, 5000));
    let store = &fixture.store;
    let run = || store.runs().plan(&workspace(0), Placement::InPlace, &[]).unwrap().prepare();
    let prepared = run().unwrap();
    let dir = fixture.root().join("sandbox/u/agent0");
    let grow = |name: &str| fs::write(dir.join(name), vec![b'x'; 24 << 20]).unwrap();
    grow("first");
    let look = prepared.gauges().unwrap()[0].look().unwrap();
    assert!(look.excess.bytes > 0 && look.excess.files == 0, "{look:?}");
    let begun = Instant::now();
    // A run may begin to delete things.
    drop(run().unwrap());
    while begun.elapsed() < Duration::from_millis(1100) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = prepared.gauges().unwrap()[0].look().unwrap();
    grow("second");
    let _ = prepared.gauges().unwrap()[0].look().unwrap();
    drop(prepared);
    is_refused(run(), "limits.disk.user_bytes");
    // In no other tree either.
    is_refused(
        store.runs().plan(&workspace(1), Placement::InPlace, &[]).unwrap().prepare(),
        "limits.disk.user_bytes",
    );
    for name in ["first", "second"] {
        store.files(workspace(0)).remove(&path(name), false, &Condition::default()).unwrap();
    }
    drop(run().unwrap());
}

#[test]
fn what_is_thrown_away_of_a_user_is_gone_from_the_sum() {
    let fixture = Fixture::with(limited(LIMIT, 1000));
    let store = &fixture.store;
    let id = WorkspaceId { user: user_id("u"), agent: AgentId::parse("agent0").unwrap() };
    for _ in 0..3 {
        fill(&store.files(workspace(0)), "f", 40 * BLOCK).unwrap();
        fill(&store.files(skill_tree("u", "own")), "f", BLOCK).unwrap_or_else(|error| panic!("{error}"));
        drop(store.workspaces().remove(&id, true).unwrap());
        store.skills().remove_for_user(&skill_tree("u", "own")).unwrap();
    }
    let begun = Instant::now();
    while store.user_usage(&user_id("u")).unwrap().0.bytes > 8 * BLOCK {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", store.user_usage(&user_id("u")));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn trees_of_an_agent_may_take_what_its_allowance_says() {
    let fixture = Fixture::with(Options {
        disk: DiskLimits { bytes: 16 * BLOCK, free_bytes: 0, ..DiskLimits::default() },
        ..relaxed()
    });
    let store = &fixture.store;
    let [more, less, other] = [0, 1, 2].map(|number| store.files(workspace(number)));
    let allow = |number: usize, bytes: Option<u64>, files: Option<u64>| {
        store.allow(workspace(number).agent(), storage::Allowance { bytes, files });
    };
    allow(0, Some(32 * BLOCK), None);
    allow(1, Some(8 * BLOCK), Some(4));
    fill(&more, "f", 24 * BLOCK).unwrap();
    for (files, bytes, setting) in [
        (&more, 24, "agents.disk.bytes"),
        (&less, 12, "agents.disk.bytes"),
        (&other, 24, "limits.disk.bytes"),
    ] {
        let refused = fill(files, "g", bytes * BLOCK);
        assert!(matches!(refused, Err(Error::Quota { setting: told, .. }) if told == setting), "{refused:?}");
    }
    let refused = less.make_dir(&path("a/b/c/d/e"), 0o755, true);
    assert!(matches!(refused, Err(Error::Quota { setting: "agents.disk.files", .. })), "{refused:?}");
    // From now on, and as before once it is taken back.
    allow(0, None, None);
    let refused = fill(&more, "g", BLOCK);
    assert!(matches!(refused, Err(Error::Quota { setting: "limits.disk.bytes", .. })), "{refused:?}");
}

#[test]
fn a_change_looks_through_nothing_but_its_own_tree_whatever_else_its_user_has() {
    const FILES: usize = 20_000;
    let fixture = Fixture::with(limited(1 << 40, 1 << 20));
    let store = &fixture.store;
    fill(&store.files(workspace(0)), "f", 1).unwrap();
    let crowd = fixture.root().join("sandbox/u/agent0");
    for number in 0..FILES {
        if number % 1000 == 0 {
            fs::create_dir(crowd.join(format!("d{}", number / 1000))).unwrap();
        }
        fs::write(crowd.join(format!("d{}/f{number}", number / 1000)), "").unwrap();
    }
    let counting = Instant::now();
    let taken = store.usage(&workspace(0)).unwrap();
    let walk = counting.elapsed();
    assert!(taken.files as usize > FILES);
    // Writes in other trees, also with publications between, which replace trees whole.
    let tree = Tree::of(&[("f", "x")]);
    let mut publish = |_: &SkillId, dir: &Dir| {
        tree.fill(dir);
        Ok(None)
    };
    let mut took = Vec::new();
    for number in 0..20 {
        let skills = [skill_id("s")];
        store
            .skills()
            .publish(Scope::Overlay, &user_id("u"), &agent(), &skills, &mut publish)
            .map(drop)
            .unwrap();
        let begun = Instant::now();
        fill(&store.files(workspace(1)), &format!("f{number}"), 1).unwrap();
        took.push(begun.elapsed());
        // A run makes the large tree doubtful; that is no reason to walk through it either.
        drop(
            store
                .runs()
                .plan(&workspace(0), Placement::InPlace, &[])
                .unwrap()
                .prepare()
                .unwrap()
                .gauges()
                .unwrap(),
        );
    }
    took.sort_unstable();
    let usual = took[took.len() / 2];
    assert!(usual < walk, "a write took {usual:?}, walking through the other tree {walk:?}");
    assert!(store.user_usage(&user_id("u")).unwrap().0.files as usize > FILES, "and all of it counts");
}
