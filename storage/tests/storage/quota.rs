//! Laws of quotas: no request and no absorbed run makes a tree larger than it may be, and a refused one changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use crate::fixture::live::Way;
use crate::fixture::{self, Fixture, Tree, agent, path, put, relaxed, skill_id, skill_tree, user_id, write};
use policy::{DiskLimits, Scope, SkillId, TreeId};
use storage::{Ceiling, Condition, Dir, Error, Files, Options, Store, Use, WriteOptions};

/// A block of every file system that the store is used on, or a multiple of it.
const BLOCK: u64 = 4096;
const LIMIT: u64 = 64 * BLOCK;

fn workspace() -> TreeId {
    TreeId::Workspace(user_id("u"), agent())
}

fn limited(bytes: u64, files: u64) -> Options {
    Options { disk: DiskLimits { bytes, files, free_bytes: 0, ..DiskLimits::default() }, ..relaxed() }
}

/// Writes a file of `bytes` bytes and its parents.
fn fill(files: &Files, at: &str, bytes: u64) -> storage::Result<storage::Written> {
    let bytes = vec![b'x'; usize::try_from(bytes).unwrap()];
    write(files, at, &bytes, &WriteOptions { parents: true, ..WriteOptions::default() })
}

#[track_caller]
fn is_quota<T: std::fmt::Debug>(result: storage::Result<T>, setting: &str) {
    match result {
        Err(Error::Quota { setting: told, used, limit, needs, .. }) => {
            assert_eq!(told, setting);
            assert!(used + needs > limit, "{used} and {needs} are not more than {limit}");
        }
        other => panic!("no quota but {other:?}"),
    }
}

/// Everything in the trees of a store, to show that nothing changed.
fn everything(fixture: &Fixture) -> [Option<Tree>; 2] {
    ["skill", "sandbox"].map(|top| Tree::on_disk(&fixture.root().join(top)))
}

/// Expects that `change` is refused and leaves everything as it was.
#[track_caller]
fn refused<T: std::fmt::Debug>(
    fixture: &Fixture,
    setting: &str,
    change: impl FnOnce() -> storage::Result<T>,
) {
    let before = everything(fixture);
    is_quota(change(), setting);
    assert_eq!(everything(fixture), before);
    // A live view has a directory there.
    assert_eq!(fixture.own("stage"), Vec::<String>::new());
}

/// The trees that requests change: a workspace, a skill of the user's own, one over a baseline, one that is mounted.
fn trees(options: &Options) -> Vec<(Fixture, TreeId, &'static str)> {
    let mut trees = vec![(Fixture::with(options.clone()), workspace(), "a workspace")];
    trees.push((Fixture::with(options.clone()), skill_tree("u", "own"), "a skill of one's own"));
    let over = Fixture::with(options.clone());
    over.baseline("s", &Tree::of(&[("a", "1"), ("dir/b", "1")]));
    trees.push((over, skill_tree("u", "s"), "an overlay"));
    if let Some(live) = Fixture::live_with(Way::Detached, options.clone()) {
        live.baseline("s", &Tree::of(&[("a", "1"), ("dir/b", "1")]));
        drop(live.command(&skill_tree("u", "s")));
        trees.push((live, skill_tree("u", "s"), "a live view"));
    }
    trees
}

#[test]
fn exactly_the_limit_passes_and_one_byte_more_changes_nothing() {
    for (fixture, id, what) in trees(&limited(LIMIT, 100)) {
        println!("{what}");
        let files = fixture.store.files(id.clone());
        put(&files, "first", "1");
        let used = fixture.store.usage(&id).unwrap();
        let room = LIMIT - used.bytes;
        refused(&fixture, "limits.disk.bytes", || fill(&files, "big", room + 1));
        fill(&files, "big", room).unwrap();
        assert_eq!(fixture.store.usage(&id).unwrap(), Use { bytes: LIMIT, files: used.files + 1 });
        refused(&fixture, "limits.disk.bytes", || fill(&files, "more", 1));
        refused(&fixture, "limits.disk.bytes", || fill(&files, "dir/to/more", 1));
        refused(&fixture, "limits.disk.bytes", || files.make_dir(&path("new/dir"), 0o755, true));
        let options = WriteOptions::default();
        let longer = &mut |text: Option<&str>| Ok(format!("{}more", text.unwrap_or_default()).repeat(2000));
        refused(&fixture, "limits.disk.bytes", || files.update(&path("first"), &options, 1 << 20, longer));
        // What does not grow.
        fill(&files, "big", room).unwrap();
        files.rename(&path("big"), &path("large"), false, &Condition::Always).unwrap();
        fill(&files, "large", room - BLOCK).unwrap();
        fill(&files, "more", 1).unwrap();
        refused(&fixture, "limits.disk.bytes", || fill(&files, "again", 1));
        files.remove(&path("large"), false, &Condition::Always).unwrap();
        fill(&files, "again", 1).unwrap();
    }
}

#[test]
fn names_are_limited_as_bytes_are() {
    for (fixture, id, what) in trees(&limited(1 << 30, 12)) {
        println!("{what}");
        let files = fixture.store.files(id.clone());
        put(&files, "first", "1");
        let used = fixture.store.usage(&id).unwrap().files;
        for number in used..12 {
            put(&files, &format!("n{number}"), "");
        }
        assert_eq!(fixture.store.usage(&id).unwrap().files, 12);
        refused(&fixture, "limits.disk.files", || fill(&files, "one", 0));
        refused(&fixture, "limits.disk.files", || files.make_dir(&path("one"), 0o755, false));
        fill(&files, "first", 10).unwrap();
        files.remove(&path("n11"), false, &Condition::Always).unwrap();
        files.make_dir(&path("one"), 0o755, false).unwrap();
    }
}

#[test]
fn a_tree_above_its_limit_can_become_smaller_and_not_larger() {
    let fixture = Fixture::with(relaxed());
    for id in [workspace(), skill_tree("u", "own")] {
        let files = fixture.store.files(id);
        for name in ["a", "b", "dir/c", "dir/d"] {
            fill(&files, name, 20 * BLOCK).unwrap();
        }
    }
    let Fixture { store, temp } = fixture;
    drop(store);
    let store = Store::open(temp.path(), limited(LIMIT, 100)).unwrap().0;
    let fixture = Fixture { store, temp };
    for id in [workspace(), skill_tree("u", "own")] {
        let files = fixture.store.files(id);
        refused(&fixture, "limits.disk.bytes", || fill(&files, "new", 1));
        refused(&fixture, "limits.disk.bytes", || fill(&files, "a", 21 * BLOCK));
        fill(&files, "a", 19 * BLOCK).unwrap();
        files.rename(&path("a"), &path("dir/a"), false, &Condition::Always).unwrap();
        refused(&fixture, "limits.disk.bytes", || fill(&files, "new", 1));
        files.remove(&path("dir"), true, &Condition::Always).unwrap();
        fill(&files, "new", 20 * BLOCK).unwrap();
    }
}

#[test]
fn what_a_rename_copies_up_counts_before_it_is_copied() {
    for way in [None, Some(Way::Detached)] {
        let options = limited(LIMIT, 100);
        let fixture = match way {
            None => Some(Fixture::with(options)),
            Some(way) => Fixture::live_with(way, options),
        };
        let Some(fixture) = fixture else { continue };
        let large = "x".repeat(usize::try_from(40 * BLOCK).unwrap());
        fixture.baseline(
            "s",
            &Tree::of(&[("large", &large), ("dir/a", &large), ("dir/b", "1"), ("small", "1")]),
        );
        let id = skill_tree("u", "s");
        let command = way.map(|_| fixture.command(&id));
        let files = fixture.store.files(id);
        fill(&files, "own", 30 * BLOCK).unwrap();
        let rename = |from: &str| files.rename(&path(from), &path("moved"), false, &Condition::Always);
        refused(&fixture, "limits.disk.bytes", || rename("large"));
        refused(&fixture, "limits.disk.bytes", || rename("dir"));
        rename("small").unwrap();
        files.remove(&path("large"), false, &Condition::Always).unwrap();
        files.remove(&path("own"), false, &Condition::Always).unwrap();
        files.rename(&path("dir"), &path("there"), false, &Condition::Always).unwrap();
        drop(command);
    }
}

#[test]
fn an_uploaded_overlay_is_limited_and_a_baseline_is_not() {
    let fixture = Fixture::with(limited(LIMIT, 10));
    let of = |bytes: u64| Tree::of(&[("f", &"x".repeat(usize::try_from(bytes).unwrap()))]);
    let publish = |tree: &Tree| {
        let fill = &mut |_: &SkillId, dir: &Dir| {
            tree.fill(dir);
            Ok(None)
        };
        let (user, skill) = (user_id("u"), skill_id("s"));
        fixture.store.skills().publish(Scope::Overlay, &user, &agent(), &[skill], fill).map(|_| ())
    };
    fixture.baseline("s", &of(LIMIT * 2));
    refused(&fixture, "limits.disk.bytes", || publish(&of(LIMIT)));
    publish(&of(LIMIT - 8 * BLOCK)).unwrap();
    refused(&fixture, "limits.disk.bytes", || publish(&of(LIMIT)));
    let many: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    refused(&fixture, "limits.disk.files", || publish(&Tree::of(&many)));
    publish(&of(1)).unwrap();
    fill(&fixture.skill("u", "s"), "g", LIMIT - 8 * BLOCK).unwrap();
}

#[test]
fn writers_at_once_never_exceed_the_limit_together() {
    for (fixture, id, what) in trees(&limited(LIMIT, 1000)) {
        println!("{what}");
        let placed: u64 = std::thread::scope(|threads| {
            let write = |thread: usize| {
                let files = fixture.store.files(id.clone());
                let tries = (0..10).map(move |number| fill(&files, &format!("{thread}-{number}"), 3 * BLOCK));
                tries.map(|written| u64::from(written.is_ok())).sum::<u64>()
            };
            let writers: Vec<_> = (0..16).map(|thread| threads.spawn(move || write(thread))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        let used = fixture.store.usage(&id).unwrap().bytes;
        assert!(used <= LIMIT, "{used} of {LIMIT}");
        // Nearly all of it is used: what was refused had no room.
        assert!(placed >= 18, "{placed} files of 3 blocks");
    }
}

#[test]
fn nothing_is_written_when_the_disk_is_to_stay_free_and_removals_go_on() {
    let fixture = Fixture::with(relaxed());
    put(&fixture.workspace("u"), "f", "1");
    let Fixture { store, temp } = fixture;
    drop(store);
    let disk = DiskLimits { free_bytes: u64::MAX, ..DiskLimits::default() };
    let store = Store::open(temp.path(), Options { disk, ..relaxed() }).unwrap().0;
    let fixture = Fixture { store, temp };
    let before = everything(&fixture);
    let files = fixture.workspace("u");
    let refused = [
        fill(&files, "g", 1).map(drop),
        files.make_dir(&path("d"), 0o755, false).map(drop),
        fixture.store.spool(&user_id("u")).map(drop),
        fixture
            .store
            .skills()
            .publish(Scope::Baseline, &user_id("u"), &agent(), &[skill_id("s")], &mut |_, _| Ok(None))
            .map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Full { floor: u64::MAX, .. })), "{refused:?}");
    }
    assert_eq!(everything(&fixture), before);
    fixture.assert_swept();
    files.remove(&path("f"), false, &Condition::Always).unwrap();
}

/// Runs `command` on the copy of the skill `s`.
fn run(fixture: &Fixture, command: impl FnOnce(&Path)) -> storage::Absorbed {
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    command(&prepared.view().tree);
    prepared.absorb().unwrap()
}

#[test]
fn what_a_command_did_is_taken_in_whole_or_not_at_all() {
    let fixture = Fixture::with(limited(LIMIT, 100));
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("g", "1")]));
    let blocks = |count: u64| vec![b'x'; usize::try_from(count * BLOCK).unwrap()];
    let before = everything(&fixture);
    let absorbed = run(&fixture, |tree| {
        fs::remove_file(tree.join("g")).unwrap();
        fs::write(tree.join("a"), blocks(40)).unwrap();
        fs::write(tree.join("b"), blocks(40)).unwrap();
    });
    let refused = absorbed.refused.unwrap();
    assert!(refused.contains("limits.disk.bytes"), "{refused}");
    assert_eq!((absorbed.created, absorbed.modified, absorbed.deleted), (0, 0, 0));
    assert_eq!(everything(&fixture), before);
    fixture.assert_swept();

    let absorbed = run(&fixture, |tree| fs::write(tree.join("a"), blocks(40)).unwrap());
    assert_eq!((absorbed.created, absorbed.refused), (1, None));
    // What replaces something counts for the difference.
    let absorbed = run(&fixture, |tree| {
        fs::write(tree.join("a"), blocks(30)).unwrap();
        fs::write(tree.join("b"), blocks(20)).unwrap();
    });
    assert_eq!((absorbed.created, absorbed.modified, absorbed.refused), (1, 1, None));
}

#[test]
fn a_gauge_measures_what_the_run_has() {
    let fixture = Fixture::with(limited(LIMIT, 100));
    let run = fixture.store.runs().prepare(&workspace()).unwrap();
    let gauges = run.gauges().unwrap();
    let [gauge, temporary] = gauges.as_slice() else { panic!("the workspace, and its temporary files") };
    let before = gauge.look().unwrap().taken;
    let before_temporary = temporary.look().unwrap().taken;
    fs::write(run.view().tree.join("a"), vec![1; 40 * 4096]).unwrap();
    fs::hard_link(run.view().tree.join("a"), run.view().tree.join("same")).unwrap();
    fs::write(run.view().scratch.join("in-home"), vec![1; 4096]).unwrap();
    fs::write(run.temporary().join("temporary"), vec![1; 4096]).unwrap();
    let look = gauge.look().unwrap();
    assert_eq!(look.taken.minus(before), Use { bytes: 42 * BLOCK, files: 4 });
    assert!(look.is_whole);
    // Temporary files count by themselves, too.
    let look = temporary.look().unwrap();
    assert_eq!(look.taken.minus(before_temporary), Use { bytes: BLOCK, files: 1 });
    let limits = Use { bytes: DiskLimits::default().tmp_bytes, files: 100 };
    assert_eq!((temporary.limits(), temporary.ceiling()), (limits, Ceiling::Unknown));
    assert!(temporary.afterwards().is_none(), "they are in the workspace");

    // Of a copy, what is more than at first, on top of the overlay.
    let large = "x".repeat(40 * 4096);
    fixture.baseline("s", &Tree::of(&[("f", &large)]));
    fill(&fixture.skill("u", "s"), "own", 4 * BLOCK).unwrap();
    let own = fixture.store.usage(&skill_tree("u", "s")).unwrap();
    let run = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    let gauges = run.gauges().unwrap();
    let [_, gauge, _] = gauges.as_slice() else { panic!("a run of a skill has three gauges") };
    fs::write(run.view().tree.join("new"), vec![1; 8 * 4096]).unwrap();
    let taken = gauge.look().unwrap().taken;
    let expected = own.bytes + 8 * BLOCK;
    assert!((expected..=expected + 2 * BLOCK).contains(&taken.bytes), "{taken:?}");
}

#[test]
fn a_run_that_begins_above_the_limit_may_let_the_tree_grow_a_little() {
    let fixture = Fixture::with(limited(LIMIT, 100));
    let ceiling = |fixture: &Fixture| {
        let run = fixture.store.runs().prepare(&workspace()).unwrap();
        run.gauges().unwrap().iter().map(storage::Gauge::ceiling).next().unwrap()
    };
    let limits = Use { bytes: LIMIT, files: 100 };
    assert_eq!(ceiling(&fixture), Ceiling::Unknown, "nothing is counted when a run begins");
    fixture.store.usage(&workspace()).unwrap();
    assert_eq!(ceiling(&fixture), Ceiling::At(limits));
    fs::write(fixture.root().join("sandbox/u/agent/large"), vec![1; 80 * 4096]).unwrap();
    let used = fixture.store.usage(&workspace()).unwrap();
    assert_eq!(ceiling(&fixture), Ceiling::At(Use { bytes: used.bytes + (16 << 20), files: 100 }));
    assert_eq!(Ceiling::Unknown.seen(Use::default(), limits), Ceiling::At(limits));
}

#[test]
fn a_tree_too_deep_to_be_counted_takes_nothing_until_it_is_removed() {
    let fixture = Fixture::with(limited(1 << 30, 10_000));
    let run = fixture.store.runs().prepare(&workspace()).unwrap();
    let mut dir = fs::canonicalize(&run.view().tree).unwrap();
    for _ in 0..300 {
        dir.push("d");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let gauges = run.gauges().unwrap();
    assert!(!gauges.iter().all(|gauge| gauge.look().unwrap().is_whole));
    drop((gauges, run));
    let files = fixture.workspace("u");
    assert!(matches!(fill(&files, "f", 1), Err(Error::Countless(_))));
    assert!(matches!(fixture.store.runs().prepare(&workspace()), Err(Error::Countless(_))));
    files.remove(&path("d"), true, &Condition::Always).unwrap();
    fill(&files, "f", 1).unwrap();
    drop(fixture.store.runs().prepare(&workspace()).unwrap());
}

#[test]
fn a_restart_counts_again() {
    let fixture = Fixture::with(limited(LIMIT, 100));
    fill(&fixture.workspace("u"), "f", 50 * BLOCK).unwrap();
    let Fixture { store, temp } = fixture;
    drop(store);
    let store = Store::open(temp.path(), limited(LIMIT, 100)).unwrap().0;
    let fixture = Fixture { store, temp };
    refused(&fixture, "limits.disk.bytes", || fill(&fixture.workspace("u"), "g", 20 * BLOCK));
}

/// Not a law but a figure: `cargo test -p storage --release --test quota figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    let fixture = Fixture::with(Options::default());
    let relaxed = Fixture::with(relaxed());
    let without = Fixture::with(Options {
        disk: DiskLimits { free_bytes: 0, ..DiskLimits::default() },
        ..fixture::relaxed()
    });
    let text = "x".repeat(4096);
    for (what, fixture) in [("strict", &fixture), ("relaxed", &relaxed), ("relaxed, no floor", &without)] {
        let files = fixture.workspace("u");
        let mut times: Vec<u128> = (0..2000)
            .map(|number| {
                let begun = Instant::now();
                put(&files, &format!("f{}", number % 100), &text);
                begun.elapsed().as_nanos() / 1000
            })
            .collect();
        times.sort_unstable();
        println!("write of 4 KiB, {what}: p50 {} µs, p90 {} µs", times[1000], times[1800]);
    }
    let files = relaxed.workspace("big");
    for number in 0..10_000 {
        put(&files, &format!("d{}/f{number}", number % 100), "1");
    }
    let id = TreeId::Workspace(user_id("big"), agent());
    let mut times: Vec<u128> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            relaxed.store.usage(&id).unwrap();
            begun.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    println!("count of 10 000 files: p50 {} µs", times[10]);
}

#[test]
fn what_was_thrown_away_counts_until_it_is_removed() {
    let mut fixture = Fixture::with(limited(LIMIT, 100));
    let id = storage::WorkspaceId { user: user_id("u"), agent: agent() };
    let files = fixture.store.files(workspace());
    fill(&files, "d/big", LIMIT - 8 * BLOCK).unwrap();
    let (_, leftovers) = fixture.store.workspaces().remove(&id, false).unwrap();
    assert!(fixture.store.usage(&workspace()).unwrap().bytes >= LIMIT - 8 * BLOCK);
    is_quota(fill(&files, "again", LIMIT - 8 * BLOCK), "limits.disk.bytes");
    // Another user's do not.
    let other = fixture.store.files(TreeId::Workspace(user_id("v"), agent()));
    fill(&other, "big", LIMIT - 8 * BLOCK).unwrap();
    drop(leftovers);
    fill(&files, "again", LIMIT - 8 * BLOCK).unwrap();

    // A service that dies leaves it, and the next one removes it.
    let (_, leftovers) = fixture.store.workspaces().remove(&id, false).unwrap();
    std::mem::forget(leftovers);
    drop(files);
    drop(other);
    fixture = fixture.reopened(limited(LIMIT, 100));
    fixture.wait_for_empty_trash();
    assert_eq!(fixture.store.usage(&workspace()).unwrap(), Use::default());
    fill(&fixture.store.files(workspace()), "again", LIMIT - 8 * BLOCK).unwrap();
}
