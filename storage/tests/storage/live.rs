//! Laws of live views: commands and requests in one mount.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::fixture::live::{Command, WAYS, Way};
use crate::fixture::{
    self, Fixture, KERNEL_ATTRIBUTES, Tree, agent, assert_valid_upper, is_alone, path, put, read, relaxed,
};
use crate::fixture::{skill_id, skill_tree, user_id};
use policy::{RelPath, Scope, TreeId};
use rustix::io::Errno;
use storage::{
    Condition, Durability, Error, Guests, Layer, LiveOptions, Options, Placement, Role, Status, Store,
    WriteOptions,
};

fn baseline() -> Tree {
    let mut tree = Tree::of(&[("f", "1"), ("d/x", "1"), ("d/y", "1"), ("d/e/z", "1"), ("数据.md", "1")]);
    tree.file("run.sh", "1", 0o755).link("link", "f").dir("empty", 0o750);
    tree
}

#[test]
fn what_a_request_changes_a_command_sees_at_once_and_the_reverse() {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        fixture.baseline("s", &baseline());
        let files = fixture.skill("u", "s");
        let command = fixture.command(&skill_tree("u", "s"));
        put(&files, "d/x", "request");
        put(&files, "new/deep", "request");
        assert_eq!(fs::read_to_string(command.tree().join("d/x")).unwrap(), "request");
        assert_eq!(fs::read_to_string(command.tree().join("new/deep")).unwrap(), "request");
        fs::write(command.tree().join("d/x"), "command").unwrap();
        fs::write(command.tree().join("new/beside"), "command").unwrap();
        assert_eq!(read(&files, "d/x").unwrap(), "command");
        assert_eq!(read(&files, "new/beside").unwrap(), "command");
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(read(&files, "d/x").unwrap(), "command");
        fixture.assert_swept();
    }
}

/// Holds the law in each way in which live views can be had, for the skill `s` of `u` with [`baseline`].
fn every_way(law: impl Fn(&Fixture)) {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        eprintln!("live views: {way:?}");
        fixture.baseline("s", &baseline());
        law(&fixture);
        fixture.store.close_views().unwrap();
        fixture.assert_swept();
        assert_valid_upper(&fixture.overlay_path("u"), &KERNEL_ATTRIBUTES);
    }
}

fn s() -> TreeId {
    skill_tree("u", "s")
}

fn look(command: &Command, at: &str) -> String {
    fs::read_to_string(command.tree().join(at)).unwrap()
}

fn remove(files: &storage::Files, at: &str) {
    files.remove(&path(at), true, &Condition::Always).unwrap();
}

#[test]
fn a_store_says_why_it_has_no_live_views() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store.live(), Err("live views are switched off"));
    let options = Options { live: Some(LiveOptions::default()), separate_owners: true, ..relaxed() };
    let fixture = Fixture::with(options);
    if let Err(reason) = fixture.store.live() {
        assert!(!reason.contains(fixture.root().to_str().unwrap()), "{reason}");
    } else {
        // Not root: sandboxes have no ids of their own, and none are mapped.
        assert!(!rustix::process::geteuid().is_root());
    }
    fixture.assert_swept();
}

#[test]
fn a_command_that_changes_nothing_leaves_no_overlay_and_nobody_sees_one_meanwhile() {
    every_way(|fixture| {
        let before = fixture.store.skills().list(&user_id("u"), &agent()).unwrap();
        let command = fixture.command(&s());
        assert_eq!(Tree::on_disk(&command.tree()), Some(baseline()));
        for _ in 0..2 {
            let status = fixture.store.skills().status(&s()).unwrap();
            assert_eq!((status.status, status.overlay_modified_ns), (Status::Unchanged, None));
            let now = fixture.store.skills().list(&user_id("u"), &agent()).unwrap();
            assert_eq!(format!("{now:?}"), format!("{before:?}"));
            assert!(!fixture.store.skills().reset(&s()).unwrap(), "there was nothing to reset");
        }
        drop(command);
        drop(fixture.command(&s()));
        fixture.store.close_views().unwrap();
        assert_eq!(fixture::names(&fixture.overlay_path("u")), Vec::<String>::new());
        assert_eq!(fixture.own("bases/agent/s"), Vec::<String>::new());
    });
}

#[test]
fn an_overlay_that_the_user_has_is_not_taken_for_one_of_a_view() {
    every_way(|fixture| {
        // Only the user has it, and it is empty; another hides everything and is empty.
        let own = fixture.skill("u", "own");
        put(&own, "f", "1");
        remove(&own, "f");
        fixture.publish(Scope::Overlay, "u", "s", &Tree::default());
        drop(fixture.command(&skill_tree("u", "own")));
        drop(fixture.command(&s()));
        fixture.store.close_views().unwrap();
        assert_eq!(Tree::through(&own), Some(Tree::default()));
        assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(Tree::default()));
    });
}

#[test]
fn what_commands_and_requests_make_is_the_services_on_disk_and_the_commands_own() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let command = fixture.command(&s());
        let own = rustix::process::geteuid().as_raw();
        let runs_as = command.view().owner.unwrap_or(own);
        put(&files, "by/request", "1");
        files.make_dir(&path("made"), 0o755, false).unwrap();
        files.rename(&path("d"), &path("moved"), false, &Condition::Always).unwrap();
        as_user(runs_as, || {
            for at in ["by/request", "moved/x", "moved/e/z", "run.sh", "f"] {
                fs::OpenOptions::new().append(true).open(command.tree().join(at)).unwrap();
            }
            fs::write(command.tree().join("made/by-command"), "2").unwrap();
            fs::remove_file(command.tree().join("by/request")).unwrap();
            symlink("f", command.tree().join("by/link")).unwrap();
        });
        let seen = |at: &str| fs::symlink_metadata(command.tree().join(at)).unwrap();
        let stored = |at: &str| fs::symlink_metadata(fixture.overlay_path("u").join("s").join(at)).unwrap();
        for at in ["", "by", "by/link", "made", "made/by-command", "moved", "moved/x", "f"] {
            assert_eq!((seen(at).uid(), seen(at).gid()), (runs_as, runs_as), "{at}");
            assert_eq!((stored(at).uid(), stored(at).gid()), (own, own), "{at}");
        }
        put(&files, "made/by-command", "3");
        assert_eq!(look(&command, "made/by-command"), "3");
    });
}

/// Does something with the file access that user `uid` has.
fn as_user(uid: u32, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Of this thread alone (setfsuid(2)); from root to another, it takes the privileges over files away.
            nix::unistd::setfsgid(uid.into());
            nix::unistd::setfsuid(uid.into());
            work();
        });
    });
}

#[test]
fn copies_and_patches_go_through_the_view_and_belong_to_the_command() {
    let patch = concat!(
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n--- /dev/null\n+++ b/new/file\n@@ -0,0 +1 @@\n+x\n",
        "diff --git a/d/x b/d/moved\nrename from d/x\nrename to d/moved\n",
    );
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let command = fixture.command(&s());
        let own = fs::metadata(command.tree().join("f")).unwrap().uid();
        files.copy(&path("run.sh"), &path("copy.sh"), false, false, &Condition::Always).unwrap();
        files.copy(&path("d"), &path("copy"), false, true, &Condition::Always).unwrap();
        let patch = storage::patch::parse(patch, &RelPath::parse).unwrap();
        let options = storage::patch::PatchOptions { limit: 1000, ..Default::default() };
        let made = files.patch(&patch, &options).unwrap();
        for (at, text) in
            [("copy.sh", "1"), ("copy/e/z", "1"), ("f", "2"), ("new/file", "x\n"), ("d/moved", "1")]
        {
            assert_eq!(look(&command, at), text, "{at}");
            assert_eq!(fs::metadata(command.tree().join(at)).unwrap().uid(), own, "{at}");
        }
        assert!(!command.tree().join("d/x").exists());
        assert_eq!(fs::metadata(command.tree().join("copy.sh")).unwrap().mode() & 0o777, 0o755);
        let (stat, _) = files.stat(&path("f")).unwrap();
        assert_eq!(made[0].stat.as_ref().map(storage::Stat::etag), Some(stat.etag()));
        // A patch that fails on its way leaves everything as it was.
        let clash = concat!(
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-2\n+3\n--- a/d/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n",
            "--- /dev/null\n+++ b/link/below\n@@ -0,0 +1 @@\n+x\n",
        );
        let clash = storage::patch::parse(clash, &RelPath::parse).unwrap();
        assert!(matches!(files.patch(&clash, &options), Err(Error::NotADirectory(_))));
        assert_eq!((look(&command, "f"), look(&command, "d/y")), ("2".into(), "1".into()));
        let before = Tree::on_disk(&command.tree());
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(Tree::through(&files), before);
    });
}

#[test]
fn tags_do_not_depend_on_whether_a_command_is_there() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let tag = |at: &str| files.stat(&path(at)).unwrap().0.etag();
        let before = tag("f");
        let command = fixture.command(&s());
        assert_eq!(tag("f"), before);
        // The kernel copies it up: then it is another file, once.
        fs::write(command.tree().join("d/x"), "2").unwrap();
        let during = tag("d/x");
        let written = fixture::write(
            &files,
            "f",
            b"2",
            &WriteOptions { condition: Condition::Matches(vec![before]), ..WriteOptions::default() },
        )
        .unwrap();
        assert_eq!((written.stat.etag(), written.created), (tag("f"), false));
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!((tag("d/x"), tag("f")), (during, written.stat.etag()));
    });
}

#[test]
fn a_run_keeps_its_baseline_and_requests_see_what_it_sees_until_it_ends() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let command = fixture.command(&s());
        put(&files, "own", "1");
        let mut newer = baseline();
        newer.file("f", "newer", 0o644).file("added", "newer", 0o644);
        fixture.baseline("s", &newer);
        // A second one joins, although it begins later.
        let second = fixture.command(&s());
        for at in ["f", "run.sh"] {
            assert_eq!(
                (read(&files, at).unwrap(), look(&command, at), look(&second, at)),
                three("1"),
                "{at}"
            );
        }
        assert!(files.open_cached(&path("f")).is_none());
        assert!(matches!(read(&files, "added"), Err(Error::NotFound(_))));
        // Edits go to what is seen.
        put(&files, "added", "request");
        files.rename(&path("f"), &path("g"), false, &Condition::Always).unwrap();
        assert_eq!((read(&files, "g").unwrap(), look(&command, "g"), look(&second, "added")), {
            ("1".to_owned(), "1".to_owned(), "request".to_owned())
        });
        drop(command);
        assert_eq!(read(&files, "g").unwrap(), "1");
        assert!(matches!(read(&files, "f"), Err(Error::NotFound(_))));
        drop(second);
        // The next one sees the new version under what the user has.
        let mut expected = newer.clone();
        expected.nodes.remove("f");
        expected.file("g", "1", 0o644).file("added", "request", 0o644).file("own", "1", 0o644);
        assert_eq!(Tree::through(&files), Some(expected.clone()));
        let command = fixture.command(&s());
        assert_eq!(Tree::on_disk(&command.tree()), Some(expected));
        assert_eq!(fixture.store.skills().status(&s()).unwrap().status, Status::OutOfSync);
        put(&files, "run.sh", "2");
        assert_eq!(look(&command, "run.sh"), "2");
    });
}

fn three(text: &str) -> (String, String, String) {
    (text.to_owned(), text.to_owned(), text.to_owned())
}

#[test]
fn a_run_that_is_over_and_still_being_cleaned_up_keeps_no_baseline() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let mut command = fixture.command(&s());
        fixture.baseline("s", &Tree::of(&[("f", "newer")]));
        assert_eq!(read(&files, "f").unwrap(), "1");
        command.run.begin_to_leave();
        assert_eq!(read(&files, "f").unwrap(), "newer");
        let next = fixture.command(&s());
        assert_eq!(look(&next, "f"), "newer");
        drop(command);
        assert_eq!((read(&files, "f").unwrap(), look(&next, "f")), ("newer".to_owned(), "newer".to_owned()));
    });
}

#[test]
fn an_idle_view_of_a_former_baseline_is_seen_by_nobody() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        drop(fixture.command(&s()));
        fixture.baseline("s", &Tree::of(&[("f", "newer")]));
        assert_eq!(Tree::through(&files), Some(Tree::of(&[("f", "newer")])));
        put(&files, "g", "1");
        let command = fixture.command(&s());
        assert_eq!(Tree::on_disk(&command.tree()), Some(Tree::of(&[("f", "newer"), ("g", "1")])));
    });
}

#[test]
fn a_version_that_a_run_sees_is_kept_whatever_becomes_of_it() {
    for way in WAYS {
        let options = Options { keep_versions: 0, ..relaxed() };
        let Some(fixture) = Fixture::live_with(way, options) else { continue };
        let (one, two) = (Tree::of(&[("f", "1"), ("d/x", "1")]), Tree::of(&[("f", "2"), ("d/x", "2")]));
        // The second time the same version is kept already, and the directory that is mounted is surplus.
        for round in 0..2 {
            fixture.baseline("s", &one);
            if round == 0 {
                // Something that keeps the version.
                put(&fixture.skill("other", "s"), "mine", "1");
            }
            let command = fixture.command(&s());
            // No base record keeps it either.
            fixture.store.skills().reset(&s()).unwrap();
            fixture.baseline("s", &two);
            fixture.baseline("s", &Tree::of(&[("f", "3")]));
            assert_eq!(Tree::on_disk(&command.tree()), Some(one.clone()));
            drop(command);
            fixture.baseline("s", &one);
            let command = fixture.command(&s());
            fixture.store.skills().remove_baseline(&agent(), &skill_id("s")).unwrap();
            assert_eq!(Tree::on_disk(&command.tree()), Some(one.clone()));
            assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(one.clone()));
            drop(command);
            fixture.store.close_views().unwrap();
            assert_eq!(Tree::through(&fixture.skill("u", "s")), None);
        }
        fixture.store.close_views().unwrap();
        fixture.assert_swept();
    }
}

#[test]
fn what_replaces_an_overlay_leaves_the_commands_in_the_former_one_alone() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let replaced: [(&str, &dyn Fn()); 3] = [
            ("upload", &|| drop(fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&[("new", "1")])))),
            ("reset", &|| assert!(fixture.store.skills().reset(&s()).unwrap())),
            ("remove", &|| fixture.store.skills().remove_for_user(&s()).unwrap()),
        ];
        for (how, replace) in replaced {
            for idle in [false, true] {
                put(&files, "f", "mine");
                let staged = files.stage().unwrap();
                let command = fixture.command(&s());
                let in_view = files.stage().unwrap();
                let command = (!idle).then_some(command);
                replace();
                let now = Tree::through(&files);
                if let Some(command) = &command {
                    // The command goes on in the tree it had; no request sees its changes there.
                    assert_eq!(look(command, "f"), "mine", "{how}");
                    fs::write(command.tree().join("f"), "command").unwrap();
                    fs::write(command.tree().join("more"), "command").unwrap();
                    assert_eq!(Tree::through(&files), now, "{how}");
                }
                // What was begun in either place is placed in the new one.
                for (at, file) in [("staged", staged), ("in-view", in_view)] {
                    files.write(&path(at), file, &WriteOptions::default()).unwrap();
                    assert_eq!(read(&files, at).unwrap(), "", "{how}");
                }
                let second = fixture.command(&s());
                assert_eq!(Tree::on_disk(&second.tree()), Tree::through(&files), "{how}");
                drop(command);
                put(&files, "d/late", how);
                assert_eq!(look(&second, "d/late"), how);
            }
            drop(fixture.store.skills().reset(&s()));
        }
    });
}

#[test]
fn a_file_begun_before_a_view_is_placed_in_it_and_one_begun_in_it_survives_it() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let mut before = files.stage().unwrap();
        before.write(b"before").unwrap();
        let command = fixture.command(&s());
        let mut in_view = files.stage().unwrap();
        in_view.write(b"in view").unwrap();
        let options = WriteOptions { mode: Some(0o751), ..WriteOptions::default() };
        files.write(&path("before"), before, &options).unwrap();
        assert_eq!(look(&command, "before"), "before");
        drop(command);
        // The file on its way keeps the view, and the former baseline with it.
        fixture.baseline("s", &Tree::of(&[("f", "newer")]));
        assert_eq!(read(&files, "f").unwrap(), "1");
        let written = files.write(&path("in-view"), in_view, &options).unwrap();
        assert_eq!(written.stat.mode, 0o751);
        assert_eq!(read(&files, "f").unwrap(), "newer");
        assert_eq!((read(&files, "before").unwrap(), read(&files, "in-view").unwrap()), {
            ("before".to_owned(), "in view".to_owned())
        });
    });
}

#[test]
fn many_threads_in_and_around_one_view_lose_nothing() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        put(&files, "count", "0");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let files = &files;
                scope.spawn(move || {
                    for round in 0..20 {
                        let command = fixture.command(&s());
                        let change = &mut |text: Option<&str>| {
                            Ok((text.unwrap_or_default().parse::<u32>().unwrap() + 1).to_string())
                        };
                        files.update(&path("count"), &WriteOptions::default(), 100, change).unwrap();
                        fs::write(command.tree().join(format!("c{number}-{round}")), "").unwrap();
                        put(files, &format!("r{number}/{round}"), "");
                        assert!(read(files, "f").is_ok());
                        drop(command);
                        if round % 7 == number % 7 {
                            // Under the feet of the others.
                            fixture.store.close_views().unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(read(&files, "count").unwrap(), "160");
        assert_eq!(files.walk(&RelPath::root(), 2, false).unwrap().len(), 9 + 1 + 160 + 8 + 160);
    });
}

#[test]
fn reading_holds_while_a_command_makes_and_removes_what_is_read() {
    every_way(|fixture| {
        let files = fixture.skill("u", "s");
        let command = fixture.command(&s());
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tree = command.tree();
                for _ in 0..2000 {
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    for at in ["a", "b", "d/e/c"] {
                        fs::create_dir_all(tree.join(at).join("deep/er")).unwrap();
                        fs::write(tree.join(at).join("deep/f"), "1").unwrap();
                        fs::write(tree.join(at).join("deep/er/f"), "1").unwrap();
                        fs::remove_dir_all(tree.join(at)).unwrap();
                        fs::write(tree.join(at), "1").unwrap();
                        fs::remove_file(tree.join(at)).unwrap();
                    }
                }
            });
            for _ in 0..60 {
                files.walk(&RelPath::root(), 99, true).unwrap();
                files.list(&RelPath::root()).unwrap();
                fixture.store.skills().list(&user_id("u"), &agent()).unwrap();
                fixture.store.skills().pack(&s()).unwrap();
                let status = fixture.store.skills().status(&s());
                assert!(matches!(status, Ok(_) | Err(Error::Conflict(_))), "{status:?}");
                assert_eq!(read(&files, "f").unwrap(), "1");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

#[test]
fn a_small_table_holds_few_mounts_and_loses_no_change() {
    if !is_alone("live::a_small_table_holds_few_mounts_and_loses_no_change") {
        return;
    }
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    for way in WAYS {
        let Some(options) = way.options(relaxed()) else { continue };
        let live = options.live.clone().map(|live| LiveOptions { views_max: 8, ..live });
        let fixture = Fixture::with(Options { live, ..options });
        if fixture.store.live().is_err() {
            continue;
        }
        fixture.baseline("s", &baseline());
        let before = descriptors();
        for round in 0..2 {
            for number in 0..200 {
                let id = skill_tree(&format!("u{number}"), "s");
                let command = fixture.command(&id);
                fs::write(command.tree().join("f"), format!("{number}")).unwrap();
                put(&fixture.store.files(id), "g", &round.to_string());
                // Three each for those held, and for those on their way out, and what the trash is emptied with. All 200
                // together would have 600.
                let held = descriptors().saturating_sub(before);
                assert!(held < 3 * (8 + 64) + 128, "{held} descriptors");
                assert!(fixture.own("views").len() <= 8 + 64 + 2);
            }
        }
        fixture.store.close_views().unwrap();
        for number in 0..200 {
            let files = fixture.skill(&format!("u{number}"), "s");
            assert_eq!(read(&files, "f").unwrap(), number.to_string());
            assert_eq!(read(&files, "g").unwrap(), "1");
        }
        fixture.assert_swept();
    }
}

#[test]
fn views_in_use_are_not_evicted_however_many() {
    let Some(options) = Way::Detached.options(relaxed()) else { return };
    let live = options.live.clone().map(|live| LiveOptions { views_max: 2, ..live });
    let Some(fixture) = Fixture::with(Options { live, ..options }).with_views() else { return };
    fixture.baseline("s", &baseline());
    let commands: Vec<Command> =
        (0..20).map(|number| fixture.command(&skill_tree(&format!("u{number}"), "s"))).collect();
    for (number, command) in commands.iter().enumerate() {
        put(&fixture.skill(&format!("u{number}"), "s"), "f", "2");
        assert_eq!(look(command, "f"), "2");
    }
}

/// The generations of views that it was to let go of.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<u64>>);

impl Guests for Told {
    fn let_go(&self, generation: u64) {
        self.0.lock().unwrap().push(generation);
    }
}

#[test]
fn whoever_keeps_clones_is_told_of_each_view_that_goes_and_of_no_other() {
    let Some(options) = Way::Detached.options(relaxed()) else { return };
    let told = Arc::new(Told::default());
    let guests = Some(Arc::clone(&told) as Arc<dyn Guests>);
    let live = options.live.clone().map(|live| LiveOptions { views_max: 2, guests, ..live });
    let Some(fixture) = Fixture::with(Options { live, ..options }).with_views() else { return };
    fixture.baseline("s", &baseline());
    let inside = fixture.command(&skill_tree("u0", "s"));
    for number in 1..4 {
        drop(fixture.command(&skill_tree(&format!("u{number}"), "s")));
    }
    // Those that go together go in no order.
    let sorted = || {
        let mut told = told.0.lock().unwrap().clone();
        told.sort_unstable();
        told
    };
    fixture.store.close_views().unwrap();
    assert_eq!(sorted(), [2, 3, 4]);
    drop(inside);
    fixture.store.close_views().unwrap();
    assert_eq!(sorted(), [1, 2, 3, 4]);
}

/// Lets go of no view until its gate is open, as it is in the end: a law that fails must not wait for ever.
#[derive(Debug, Default)]
struct Stubborn {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Guests for Stubborn {
    fn let_go(&self, _: u64) {
        let is_open = self.is_open.lock().unwrap();
        let longest = Duration::from_secs(120);
        let (mut is_open, _) = self.opened.wait_timeout_while(is_open, longest, |is_open| !*is_open).unwrap();
        *is_open = true;
    }
}

#[test]
fn a_run_begins_to_leave_without_waiting_for_views_to_be_closed() {
    // More than are closed side by side and wait for that together.
    const RUNS: usize = 96;
    let Some(options) = Way::Detached.options(relaxed()) else { return };
    let stubborn = Arc::new(Stubborn::default());
    let guests = Some(Arc::clone(&stubborn) as Arc<dyn Guests>);
    let live = options.live.clone().map(|live| LiveOptions { views_max: RUNS, guests, ..live });
    let Some(fixture) = Fixture::with(Options { live, ..options }).with_views() else { return };
    fixture.baseline("s", &baseline());
    let command = |number| fixture.command(&skill_tree(&format!("u{number}"), "s"));
    let mut commands: Vec<Command> = (0..RUNS).map(command).collect();
    fixture.baseline("s", &Tree::of(&[("f", "newer")]));
    let (all_left, have_all_left) = mpsc::channel();
    let leaving = std::thread::spawn(move || {
        commands.iter_mut().for_each(|command| command.run.begin_to_leave());
        all_left.send(()).unwrap();
        commands
    });
    let have_left = have_all_left.recv_timeout(Duration::from_secs(60));
    *stubborn.is_open.lock().unwrap() = true;
    stubborn.opened.notify_all();
    have_left.expect("a run waits for views to be closed");
    drop(leaving.join().unwrap());
    for number in [0, RUNS - 1] {
        assert_eq!(read(&fixture.skill(&format!("u{number}"), "s"), "f").unwrap(), "newer");
    }
    fixture.store.close_views().unwrap();
    fixture.assert_swept();
}

#[test]
fn a_copy_that_a_run_works_in_is_absorbed_into_the_view() {
    every_way(|fixture| {
        let command = fixture.command(&s());
        let copied = fixture.store.runs().prepare(&s()).unwrap();
        assert!(copied.is_copy() && !command.is_copy());
        let tree = &copied.view().tree;
        fs::write(tree.join("f"), "copy").unwrap();
        fs::remove_dir_all(tree.join("d")).unwrap();
        fs::remove_file(tree.join("link")).unwrap();
        symlink("run.sh", tree.join("link")).unwrap();
        fs::create_dir(tree.join("made")).unwrap();
        let left = Tree::on_disk(tree);
        copied.absorb().unwrap();
        assert_eq!(Tree::on_disk(&command.tree()), left);
        assert_eq!(Tree::through(&fixture.skill("u", "s")), left);
    });
}

#[test]
fn a_skill_that_nests_deeper_than_any_walk_spoils_no_listing() {
    every_way(|fixture| {
        let command = fixture.command(&s());
        let mut dir = storage::Dir::ambient_open(&command.tree()).unwrap();
        for _ in 0..600 {
            dir = dir.create_dir("deep".as_ref(), 0o755).unwrap();
        }
        drop(dir);
        let skills = fixture.store.skills().list(&user_id("u"), &agent()).unwrap();
        assert_eq!((skills.len(), skills[0].status.status), (1, Status::Modified));
        assert!(matches!(fixture.store.skills().status(&s()), Err(Error::TooManyEntries(_))));
        remove(&fixture.skill("u", "s"), "deep");
        assert_eq!(Tree::on_disk(&command.tree()), Some(baseline()));
    });
}

#[test]
fn a_run_is_told_where_everything_stands() {
    every_way(|fixture| {
        fixture.baseline("t", &Tree::of(&[("g", "1")]));
        let at = |run: &storage::PreparedRun| -> Vec<(String, Role, bool)> {
            let attachments = run.attachments().unwrap();
            attachments.into_iter().map(|one| (one.at, one.role, one.generation > 0)).collect()
        };
        let home = ("/home/sandbox".to_owned(), Role::Home, false);
        let temporary = ("/tmp".to_owned(), Role::Temporary, false);
        let command = fixture.command(&s());
        assert_eq!(
            at(&command),
            [("/workspace/skills/s".to_owned(), Role::Tree, true), home.clone(), temporary.clone()]
        );
        assert_eq!(command.leases().len(), 1);
        let view = command.view();
        assert_eq!(view.tree, Path::new("/workspace/skills/s"));
        assert_eq!((view.scratch.as_path(), command.temporary()), {
            (Path::new("/home/sandbox"), Path::new("/tmp"))
        });
        assert_eq!(
            view.aliases,
            [fixture.root().join("skill/overlay/u/agent/s"), fixture.root().join("skill/baseline/agent/s")]
        );

        let workspace = TreeId::Workspace(user_id("u"), agent());
        let skills = ["s", "t", "s"].map(skill_id);
        let run =
            fixture.store.runs().plan(&workspace, Placement::Mounted, &skills).unwrap().prepare().unwrap();
        assert_eq!(
            at(&run),
            [
                ("/workspace".to_owned(), Role::Tree, false),
                ("/workspace/skills/s".to_owned(), Role::Skill, true),
                ("/workspace/skills/t".to_owned(), Role::Skill, true),
                home,
                temporary
            ]
        );
        assert_eq!((run.leases().len(), run.is_copy()), (2, false));
        assert_eq!(run.view().aliases, [fixture.root().join("sandbox/u/agent")]);
    });
}

#[test]
fn a_workspace_has_the_places_of_skills_as_long_as_runs_need_them() {
    every_way(|fixture| {
        fixture.baseline("t", &Tree::of(&[("g", "1")]));
        let workspace = TreeId::Workspace(user_id("u"), agent());
        let prepare = |skills: &[&str]| {
            let skills: Vec<_> = skills.iter().map(|skill| skill_id(skill)).collect();
            fixture.store.runs().plan(&workspace, Placement::Mounted, &skills)?.prepare()
        };
        let root = fixture.root().join("sandbox/u/agent");
        let places = || fixture::names(&root.join("skills"));
        let first = prepare(&["s", "t"]).unwrap();
        let second = prepare(&["s"]).unwrap();
        assert_eq!(places(), ["s", "t"]);
        if let Some(owner) = first.view().owner {
            assert_eq!(fs::metadata(root.join("skills/s")).unwrap().uid(), owner);
        }
        drop(first);
        assert_eq!(places(), ["s"]);
        fs::write(root.join("skills/s/kept"), "").unwrap();
        drop(second);
        assert_eq!(places(), ["s"]);
        fs::remove_dir_all(root.join("skills")).unwrap();
        drop(prepare(&["s"]).unwrap());
        assert_eq!(fixture::names(&root), Vec::<String>::new());
        // What was there before stays.
        fs::create_dir_all(root.join("skills/t")).unwrap();
        drop(prepare(&["s", "t"]).unwrap());
        assert_eq!(places(), ["t"]);

        fs::remove_dir_all(root.join("skills")).unwrap();
        let outside = fixture.root().join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, root.join("skills")).unwrap();
        assert!(matches!(prepare(&["s"]).map(drop), Err(Error::Conflict(_))));
        fs::remove_file(root.join("skills")).unwrap();
        fs::create_dir(root.join("skills")).unwrap();
        symlink(&outside, root.join("skills/t")).unwrap();
        assert!(matches!(prepare(&["s", "t"]).map(drop), Err(Error::Conflict(_))));
        assert_eq!((places(), fixture::names(&outside)), (vec!["t".to_owned()], vec![]));

        assert!(matches!(prepare(&["s", "none"]).map(drop), Err(Error::NotFound(_))));
        let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(prepare(&many).map(drop), Err(Error::Unsupported(_))));
        let plan =
            |id: &TreeId, placement| fixture.store.runs().plan(id, placement, &[skill_id("s")]).map(drop);
        assert!(matches!(plan(&s(), Placement::Mounted), Err(Error::Unsupported(_))));
    });
}

#[test]
fn without_live_views_a_mounted_run_has_copies() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let workspace = TreeId::Workspace(user_id("u"), agent());
    for (id, skills) in [(s(), vec![]), (workspace, vec![skill_id("s")])] {
        let run = fixture.store.runs().plan(&id, Placement::Mounted, &skills).unwrap().prepare().unwrap();
        assert!(run.is_copy() && run.leases().is_empty());
        let attachments = run.attachments().unwrap();
        let skill = attachments.iter().find(|one| one.at == "/workspace/skills/s").unwrap();
        let tree = format!("/proc/self/fd/{}", skill.directory.as_raw_fd());
        fs::write(Path::new(&tree).join("f"), "command").unwrap();
        assert_eq!(run.absorb().unwrap().modified, 1);
        assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "command");
        fixture.store.skills().reset(&s()).unwrap();
    }
    fixture.assert_swept();
}

#[test]
fn with_strict_durability_changes_through_a_view_are_made_too() {
    for way in WAYS {
        let options = Options { durability: Durability::Strict, ..relaxed() };
        let Some(fixture) = Fixture::live_with(way, options) else { continue };
        fixture.baseline("s", &baseline());
        let files = fixture.skill("u", "s");
        let command = fixture.command(&s());
        put(&files, "d/e/z", "2");
        put(&files, "new/deep/er", "2");
        files.rename(&path("d"), &path("new/d"), false, &Condition::Always).unwrap();
        let options = WriteOptions { mode: Some(0o600), ..WriteOptions::default() };
        fixture::write(&files, "f", b"2", &options).unwrap();
        remove(&files, "empty");
        assert_eq!(Tree::on_disk(&command.tree()), Tree::through(&files));
        assert_eq!(files.stat(&path("f")).unwrap().1, Layer::Overlay);
    }
}

/// Where the child finds its store, and which way. Without it the child's test does nothing.
const CHILD: &str = "FILESECBOX_LIVE_CHILD";

#[test]
fn child_of_the_test_below() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let Some(options) = Way::Detached.options(relaxed()) else { return };
    let (store, _) = Store::open(Path::new(&root), options).unwrap();
    let files = store.files(s());
    let prepare = |id: &TreeId| {
        let run = store.runs().plan(id, Placement::Mounted, &[]).unwrap().prepare().unwrap();
        Command::of(run)
    };
    let command = prepare(&s());
    put(&files, "request", "1");
    fs::write(command.tree().join("command"), "1").unwrap();
    fs::write(command.tree().join(".filesecbox-0123456789abcdef-1a"), "left by a change").unwrap();
    let idle = prepare(&skill_tree("idle", "s"));
    // What a first process of a run inherits, in a process that outlives this one.
    for lease in command.leases() {
        rustix::io::fcntl_setfd(&lease, rustix::io::FdFlags::empty()).unwrap();
        std::mem::forget(lease);
    }
    drop(idle);
    let mut sleeper = std::process::Command::new("sleep").arg("2").stdout(Stdio::null()).spawn().unwrap();
    println!("ready");
    sleeper.wait().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn start_child(root: &Path) -> Option<Child> {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "live::child_of_the_test_below", "--nocapture"])
        .env(CHILD, root)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = [0; 256];
    while !said.contains("ready") {
        match out.read(&mut buffer).unwrap() {
            0 => {
                child.wait().unwrap();
                return None;
            }
            read => said.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
    Some(child)
}

#[test]
fn a_service_that_is_killed_leaves_overlays_that_the_next_one_waits_for_and_mends() {
    let Some(options) = Way::Detached.options(relaxed()) else { return };
    let Some(fixture) = Fixture::with(options.clone()).with_views() else { return };
    fixture.baseline("s", &baseline());
    let Fixture { store, temp } = fixture;
    drop(store);
    let Some(mut child) = start_child(temp.path()) else { return };
    let started = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    // Two seconds: as long as the process lives that has the lease.
    let (store, recovery) = Store::open(temp.path(), options).unwrap();
    assert!(started.elapsed() > Duration::from_millis(1000), "{:?}", started.elapsed());
    assert!(recovery.swept >= 1, "{recovery:?}");
    let fixture = Fixture { store, temp };
    fixture.assert_swept();
    let mut expected = baseline();
    expected.file("request", "1", 0o644).file("command", "1", 0o644);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(expected.clone()));
    // The view without any change has left nothing.
    assert_eq!(fixture::names(&fixture.overlay_path("idle")), Vec::<String>::new());
    assert_eq!(fixture.own("bases/agent/s"), ["u"]);
    let command = fixture.command(&s());
    assert_eq!(Tree::on_disk(&command.tree()), Some(expected));
}

#[test]
fn no_upper_directory_is_mounted_twice() {
    // With `index` off the kernel only logs it, so ask by trying what `index` on would refuse.
    every_way(|fixture| {
        let commands: Vec<Command> = (0..3).map(|_| fixture.command(&s())).collect();
        let generations: Vec<u64> =
            commands.iter().map(|command| command.attachments().unwrap()[0].generation).collect();
        assert!(generations.windows(2).all(|pair| pair[0] == pair[1]), "{generations:?}");
        let views = fixture.own("views");
        assert_eq!(views.len(), 1, "{views:?}");
        let view = fixture.root().join(".filesecbox/views").join(&views[0]);
        let mode = fs::metadata(&view).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        let lease = fs::File::open(view.join("lease")).unwrap();
        let locked = rustix::fs::flock(&lease, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK));
    });
}

/// What a call takes, in microseconds: by the clock, and of this thread's processor time, which other load on the
/// machine hardly touches.
#[derive(Clone, Copy)]
struct Cost(f64, f64);

impl std::fmt::Display for Cost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.0} ({:.0}) µs", self.0, self.1)
    }
}

fn cost(work: impl FnOnce()) -> Cost {
    let processor = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (clock, before) = (Instant::now(), processor());
    work();
    let (elapsed, after) = (clock.elapsed(), processor());
    let seconds = |time: rustix::fs::Timespec| time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3;
    Cost(elapsed.as_secs_f64() * 1e6, seconds(after) - seconds(before))
}

fn median(costs: impl Iterator<Item = Cost>) -> Cost {
    let (mut clock, mut processor): (Vec<f64>, Vec<f64>) = costs.map(|cost| (cost.0, cost.1)).unzip();
    for times in [&mut clock, &mut processor] {
        times.sort_by(f64::total_cmp);
    }
    Cost(clock[clock.len() / 2], processor[processor.len() / 2])
}

/// Figures, on demand: `cargo test --release -p storage --test storage live:: -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn what_live_views_cost() {
    let bytes = vec![b'x'; 4096];
    for (way, durability) in [
        (Way::Detached, Durability::Relaxed),
        (Way::Owners, Durability::Relaxed),
        (Way::Attached, Durability::Relaxed),
        (Way::Owners, Durability::Strict),
    ] {
        let options = Options { durability, ..relaxed() };
        let Some(fixture) = Fixture::live_with(way, options) else { continue };
        fixture.baseline("s", &baseline());
        let id = |number: usize| skill_tree(&format!("u{number}"), "s");
        let prepare =
            |id: &TreeId| fixture.store.runs().plan(id, Placement::Mounted, &[]).unwrap().prepare().unwrap();
        let workspace = |number: usize| TreeId::Workspace(user_id(&format!("u{number}")), agent());
        // What every run costs besides: its home and temporary directory, which are there after the first.
        let run =
            |of: &dyn Fn(usize) -> TreeId| median((0..100).map(|number| cost(|| drop(prepare(&of(number))))));
        run(&workspace);
        let bare = run(&workspace);
        let first = run(&id);
        fixture.store.close_views().unwrap();
        let (made, cached) = (run(&id), run(&id));
        fixture.store.close_views().unwrap();
        let dirty: Vec<storage::PreparedRun> = (0..100)
            .map(|number| {
                let run = prepare(&id(number));
                put(&fixture.store.files(id(number)), "f", "dirty");
                run
            })
            .collect();
        drop(dirty);
        let start = Instant::now();
        fixture.store.close_views().unwrap();
        let gone = start.elapsed().as_secs_f64() * 1e6 / 100.0;
        let _run = prepare(&skill_tree("b", "s"));
        let write = |user: &str, number: usize| {
            let at = format!("file-{}", number % 50);
            let files = fixture.skill(user, "s");
            cost(|| {
                fixture::write(&files, &at, &bytes, &WriteOptions::default()).unwrap();
            })
        };
        let times: Vec<(Cost, Cost)> =
            (0..500).map(|number| (write("a", number), write("b", number))).skip(100).collect();
        let union = median(times.iter().map(|times| times.0));
        let mounted = median(times.iter().map(|times| times.1));
        eprintln!(
            "{way:?}, {durability:?}: a run without a view {bare}; with the user's first view {first}, with one made \
             {made}, with one there {cached}; closing one {gone:.0} µs; a write of 4 KiB {union}, through a view \
             {mounted}"
        );
    }
}
