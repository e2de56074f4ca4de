//! Laws of runs: what a command did to the copy of a merged view is what the user finds in the overlay.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::fixture::{
    self, Fixture, Tree, agent, assert_valid_upper, path, put, read, relaxed, skill_tree, user_id,
};
use policy::{FileLimits, Scope, TreeId, WorkspaceId};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::process::Resource;
use storage::{Absorbed, Change, Condition, Error, Options, Placement, Status};

fn baseline() -> Tree {
    let mut tree = Tree::of(&[("f", "1"), ("d/x", "1"), ("d/y", "1"), ("d/e/z", "1"), ("数据.md", "1")]);
    tree.file("run.sh", "1", 0o755).link("link", "f").dir("empty", 0o750);
    tree
}

fn counts(absorbed: &Absorbed) -> (usize, usize, usize) {
    (absorbed.created, absorbed.modified, absorbed.deleted)
}

/// Runs `command` on the copy of the skill `s` and absorbs what it did.
fn run(fixture: &Fixture, command: impl FnOnce(&Path)) -> Absorbed {
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    command(&prepared.view().tree);
    let absorbed = prepared.absorb().unwrap();
    drop(prepared);
    fixture.assert_swept();
    assert_eq!(fixture.own("packages/u/agent/tmp"), Vec::<String>::new());
    assert_valid_upper(&fixture.overlay_path("u"), &[]);
    absorbed
}

/// Runs `command` and expects that the user's view is then exactly the tree the command left.
#[track_caller]
fn case(command: impl Fn(&Path), expected: (usize, usize, usize)) -> Fixture {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let published = Tree::on_disk(&fixture.baseline_path());
    let mut left = None;
    let absorbed = run(&fixture, |tree| {
        command(tree);
        left = Tree::on_disk(tree);
    });
    assert_eq!(Tree::through(&fixture.skill("u", "s")), left);
    assert_eq!((counts(&absorbed), absorbed.skipped), (expected, vec![]));
    assert_eq!(Tree::through(&fixture.skill("v", "s")), Some(baseline()));
    assert_eq!(Tree::on_disk(&fixture.baseline_path()), published);
    // What was absorbed is what the next run begins with.
    assert_eq!(counts(&run(&fixture, |tree| assert_eq!(Tree::on_disk(tree), left))), (0, 0, 0));
    fixture
}

#[test]
fn a_run_that_changes_nothing_makes_no_overlay() {
    let fixture = case(|tree| assert_eq!(Tree::on_disk(tree), Some(baseline())), (0, 0, 0));
    assert_eq!(fixture::names(&fixture.overlay_path("u")), Vec::<String>::new());
}

#[test]
fn what_a_command_makes_changes_and_removes_is_in_the_overlay() {
    let command = |tree: &Path| {
        fs::write(tree.join("new"), "2").unwrap();
        fs::create_dir_all(tree.join("deep/er")).unwrap();
        fs::write(tree.join("deep/er/new"), "2").unwrap();
        fs::write(tree.join("f"), "2").unwrap();
        fs::remove_file(tree.join("d/x")).unwrap();
    };
    let fixture = case(command, (4, 1, 1));
    let overlay = fixture.overlay_path("u").join("s");
    assert_eq!(fixture::names(&overlay), ["d", "deep", "f", "new"]);
}

#[test]
fn a_removed_directory_counts_once_and_leaves_one_whiteout() {
    let command = |tree: &Path| {
        fs::remove_dir_all(tree.join("d")).unwrap();
        fs::remove_dir_all(tree.join("empty")).unwrap();
    };
    let fixture = case(command, (0, 0, 2));
    assert_eq!(fixture::names(&fixture.overlay_path("u").join("s")), ["d", "empty"]);
}

#[test]
fn a_renamed_directory_is_removed_and_made() {
    case(|tree| fs::rename(tree.join("d"), tree.join("moved")).unwrap(), (5, 0, 1));
}

#[test]
fn modes_are_taken_over() {
    let command = |tree: &Path| {
        let chmod =
            |at: &str, mode| fs::set_permissions(tree.join(at), PermissionsExt::from_mode(mode)).unwrap();
        chmod("f", 0o755);
        chmod("run.sh", 0o600);
        chmod("d", 0o700);
        chmod("empty", 0o711);
    };
    case(command, (0, 4, 0));
}

#[test]
fn what_changes_its_kind_is_replaced() {
    let command = |tree: &Path| {
        fs::remove_file(tree.join("f")).unwrap();
        fs::create_dir(tree.join("f")).unwrap();
        fs::write(tree.join("f/new"), "2").unwrap();
        fs::remove_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("d"), "a file").unwrap();
        fs::remove_dir(tree.join("empty")).unwrap();
        symlink("d", tree.join("empty")).unwrap();
    };
    case(command, (1, 3, 0));
}

#[test]
fn a_file_in_the_place_of_a_link_replaces_the_link_and_not_what_it_leads_to() {
    let command = |tree: &Path| {
        fs::remove_file(tree.join("link")).unwrap();
        fs::write(tree.join("link"), "2").unwrap();
    };
    let fixture = case(command, (0, 1, 0));
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "1");
}

#[test]
fn links_are_taken_over_wherever_they_lead_and_never_followed() {
    let command = |tree: &Path| {
        symlink("/nonexistent/secret", tree.join("absolute")).unwrap();
        symlink("../../..", tree.join("upward")).unwrap();
        fs::remove_file(tree.join("link")).unwrap();
        symlink("run.sh", tree.join("link")).unwrap();
    };
    let fixture = case(command, (2, 1, 0));
    let opened = fixture.skill("u", "s").open(&path("absolute"));
    assert!(matches!(opened, Err(Error::Escape(_))), "{opened:?}");
}

#[test]
fn hard_links_become_files_of_their_own() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    run(&fixture, |tree| {
        fs::write(tree.join("a"), "2").unwrap();
        fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
        fs::hard_link(tree.join("f"), tree.join("g")).unwrap();
    });
    let overlay = fixture.overlay_path("u").join("s");
    for name in ["a", "b", "g"] {
        assert_eq!(fs::metadata(overlay.join(name)).unwrap().nlink(), 1, "{name}");
    }
    // Only its change time tells that it was linked, and before Linux 6.13 that moves by ticks of some milliseconds.
    assert!(fs::metadata(overlay.join("f")).is_ok_and(|f| f.nlink() == 1) || !overlay.join("f").exists());
    let files = fixture.skill("u", "s");
    assert_eq!(["a", "b", "f", "g"].map(|at| read(&files, at).unwrap()), ["2", "2", "1", "1"]);
}

#[test]
fn many_names_of_a_file_that_is_one_hole_fill_no_disk() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    run(&fixture, |tree| {
        fs::File::create(tree.join("hole")).unwrap().set_len(64 * 1024 * 1024).unwrap();
        for number in 0..20 {
            fs::hard_link(tree.join("hole"), tree.join(format!("name{number}"))).unwrap();
        }
    });
    let files = fs::read_dir(fixture.overlay_path("u").join("s")).unwrap();
    let taken: u64 = files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum();
    assert!(taken < 1024 * 1024, "{taken}");
}

/// Gives a file of others a name in a tree. Tells whether that is so: where the kernel keeps quotas, it refuses to.
fn linked_in(fixture: &Fixture, from: &Path, to: &Path) -> bool {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            assert!(fixture.store.kernel_keeps_quotas().is_ok(), "{error}");
            false
        }
        linked => linked.map(|()| true).unwrap(),
    }
}

#[test]
fn a_file_linked_in_from_elsewhere_is_copied_and_stays_as_it_is() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let outside = fixture.root().join("outside");
    fs::write(&outside, "theirs").unwrap();
    fs::set_permissions(&outside, PermissionsExt::from_mode(0o640)).unwrap();
    let mut is_linked = false;
    run(&fixture, |tree| is_linked = linked_in(&fixture, &outside, &tree.join("stolen")));
    if !is_linked {
        return;
    }
    put(&fixture.skill("u", "s"), "stolen", "mine");
    assert_eq!(fs::read(&outside).unwrap(), b"theirs");
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn pipes_devices_and_unspeakable_names_are_left_out_with_the_reason() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let absorbed = run(&fixture, |tree| {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, tree.join("pipe"), FileType::Fifo, mode, 0).unwrap();
        // Any user may make the kernel's whiteout: it must not become one in the overlay.
        fs::remove_file(tree.join("f")).unwrap();
        rustix::fs::mknodat(CWD, tree.join("forged"), FileType::CharacterDevice, mode, 0).unwrap();
        fs::write(tree.join(std::ffi::OsStr::from_bytes(b"\xFF")), "2").unwrap();
        fs::write(tree.join("a\nb"), "2").unwrap();
        fs::write(tree.join("good"), "2").unwrap();
    });
    assert_eq!((counts(&absorbed), absorbed.skipped.len()), ((1, 0, 1), 4), "{absorbed:?}");
    let mut expected = baseline();
    expected.nodes.remove("f");
    expected.file("good", "2", 0o644);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(expected));
}

#[test]
fn markers_of_overlayfs_cannot_be_forged_by_attributes() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    run(&fixture, |tree| {
        fs::write(tree.join("new"), "").unwrap();
        for (at, name) in [
            ("new", "user.overlay.whiteout"),
            ("f", "user.overlay.metacopy"),
            ("d", "user.overlay.opaque"),
            ("d/x", "user.mine"),
        ] {
            rustix::fs::setxattr(tree.join(at), name, b"y", XattrFlags::empty()).unwrap();
        }
        fs::write(tree.join("d/x"), "2").unwrap();
    });
    let mut expected = baseline();
    expected.file("new", "", 0o644).file("d/x", "2", 0o644);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(expected));
}

#[test]
fn what_a_command_closed_is_taken_over_and_stays_open_to_the_service() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    run(&fixture, |tree| {
        fs::write(tree.join("d/new"), "2").unwrap();
        let close = |at: &str| fs::set_permissions(tree.join(at), PermissionsExt::from_mode(0o000)).unwrap();
        ["d/new", "d/e", "d", "f", ""].into_iter().for_each(close);
    });
    let mut expected = baseline();
    expected.dir("d", 0o700).dir("d/e", 0o700).file("d/new", "2", 0o400).file("f", "1", 0o400);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(expected));
}

#[test]
fn times_that_a_command_set_are_kept() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let before = fixture.skill("u", "s").stat(&path("run.sh")).unwrap().0.modified_ns;
    run(&fixture, |tree| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::write(tree.join("made"), "2").unwrap();
        fs::File::options().write(true).open(tree.join("made")).unwrap().set_modified(time).unwrap();
        fs::set_permissions(tree.join("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
    });
    let modified = |at| fixture.skill("u", "s").stat(&path(at)).unwrap().0.modified_ns;
    assert_eq!((modified("made"), modified("run.sh")), (1_000_000_000_000_000_000, before));
}

#[test]
fn what_other_requests_changed_meanwhile_stays_unless_the_command_changed_it_too() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let files = fixture.skill("u", "s");
    run(&fixture, |tree| {
        put(&files, "d/x", "request");
        put(&files, "request", "request");
        put(&files, "f", "request");
        files.remove(&path("数据.md"), false, &Condition::Always).unwrap();
        files.rename(&path("run.sh"), &path("moved.sh"), false, &Condition::Always).unwrap();
        fs::write(tree.join("f"), "command").unwrap();
        fs::remove_file(tree.join("d/y")).unwrap();
        fs::write(tree.join("command"), "command").unwrap();
    });
    let mut expected = baseline();
    expected.file("d/x", "request", 0o644).file("request", "request", 0o644);
    expected.file("f", "command", 0o644).file("command", "command", 0o644).file("moved.sh", "1", 0o755);
    for gone in ["d/y", "数据.md", "run.sh"] {
        expected.nodes.remove(gone);
    }
    assert_eq!(Tree::through(&files), Some(expected));
}

#[test]
fn another_kind_put_there_meanwhile_is_not_overwritten_and_costs_nothing_else() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let files = fixture.skill("u", "s");
    let absorbed = run(&fixture, |tree| {
        files.remove(&path("f"), false, &Condition::Always).unwrap();
        put(&files, "f/inside", "request");
        put(&files, "both", "request");
        fs::write(tree.join("f"), "command").unwrap();
        fs::create_dir(tree.join("both")).unwrap();
        fs::write(tree.join("both/inside"), "command").unwrap();
        fs::write(tree.join("z"), "command").unwrap();
    });
    assert_eq!((counts(&absorbed), absorbed.skipped.len()), ((1, 0, 0), 3), "{absorbed:?}");
    assert_eq!(read(&files, "f/inside").unwrap(), "request");
    assert_eq!(files.stat(&path("both")).unwrap().0.mode, 0o644);
    assert_eq!(read(&files, "z").unwrap(), "command");
}

#[test]
fn a_skill_that_was_removed_meanwhile_stays_removed() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let tree = skill_tree("u", "s");
    let prepared = fixture.store.runs().prepare(&tree).unwrap();
    fs::write(prepared.view().tree.join("f"), "2").unwrap();
    fixture.store.skills().remove_for_user(&tree).unwrap();
    let absorbed = prepared.absorb();
    drop(prepared);
    assert!(matches!(absorbed, Err(Error::Conflict(_))), "{absorbed:?}");
    assert_eq!(Tree::through(&fixture.skill("u", "s")), None);
    fixture.assert_swept();
}

#[test]
fn an_overlay_that_a_run_makes_begins_with_the_baseline_that_the_run_saw() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    let tree = skill_tree("u", "s");
    let prepared = fixture.store.runs().prepare(&tree).unwrap();
    fs::write(prepared.view().tree.join("f"), "command").unwrap();
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    prepared.absorb().unwrap();
    let status = fixture.store.skills().status(&tree).unwrap();
    let changes: Vec<_> = status.changes.iter().map(|changed| changed.change).collect();
    assert_eq!((status.status, changes), (Status::OutOfSync, vec![Change::Conflict]));
}

#[test]
fn thousands_of_files_in_hundreds_of_directories_are_absorbed() {
    // The limit below is one of the whole process.
    if !fixture::is_alone("runs::thousands_of_files_in_hundreds_of_directories_are_absorbed") {
        return;
    }
    // The usual limit on descriptors: what is held must not grow with what is absorbed.
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.current.map(|current| current.min(1024)).or(Some(1024));
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    // However slow the machine is.
    let files = FileLimits { absorb_ms: 600_000, ..FileLimits::default() };
    let fixture = Fixture::with(Options { files, ..relaxed() });
    fixture.baseline("s", &baseline());
    let absorbed = run(&fixture, |tree| {
        for number in 0..300 {
            let dir = tree.join(format!("made/{number}"));
            fs::create_dir_all(&dir).unwrap();
            for number in 0..20 {
                fs::write(dir.join(number.to_string()), "2").unwrap();
            }
        }
    });
    assert_eq!((counts(&absorbed), absorbed.skipped), ((6301, 0, 0), vec![]));
}

#[test]
fn what_lies_too_deep_is_dropped_by_name_and_the_rest_is_absorbed() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let absorbed = run(&fixture, |tree| {
        fs::create_dir_all(tree.join("d/".repeat(600))).unwrap();
        fs::write(tree.join("z"), "2").unwrap();
    });
    assert_eq!(absorbed.skipped.len(), 1, "{absorbed:?}");
    assert_eq!(read(&fixture.skill("u", "s"), "z").unwrap(), "2");
    // What is kept is kept within the bounds that the next run needs.
    assert_eq!(counts(&run(&fixture, |_| {})), (0, 0, 0));
}

#[test]
fn a_run_that_is_dropped_absorbs_nothing_and_its_changes_go_to_no_later_run() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    fs::write(prepared.view().tree.join("f"), "2").unwrap();
    fs::write(prepared.temporary().join("t"), "2").unwrap();
    fs::set_permissions(prepared.temporary(), PermissionsExt::from_mode(0o000)).unwrap();
    drop(prepared);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "1");
    fixture.assert_swept();
    assert_eq!(fixture.own("packages/u/agent/tmp"), ["t"]);
    let next = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    assert_eq!(fs::read_to_string(next.view().tree.join("f")).unwrap(), "1");
    assert_eq!(counts(&next.absorb().unwrap()), (0, 0, 0));
}

#[test]
fn a_command_that_spoils_its_home_spoils_no_later_run() {
    let fixture = Fixture::new();
    fixture.baseline("s", &baseline());
    let tree = skill_tree("u", "s");
    for spoil in [
        |home: &Path| fs::remove_dir_all(home.join("tmp")).unwrap(),
        |home: &Path| {
            fs::remove_dir_all(home.join("tmp")).unwrap();
            symlink("/", home.join("tmp")).unwrap();
        },
        |home: &Path| {
            fs::remove_file(home.join("tmp")).or_else(|_| fs::remove_dir_all(home.join("tmp"))).unwrap();
            fs::write(home.join("tmp"), "").unwrap();
        },
    ] {
        let prepared = fixture.store.runs().prepare(&tree).unwrap();
        assert!(prepared.temporary().is_dir());
        spoil(&prepared.view().scratch);
        prepared.absorb().unwrap();
        drop(prepared);
        fixture.assert_swept();
    }
    drop(fixture.store.runs().prepare(&tree).unwrap());
}

#[test]
fn a_workspace_is_seen_as_it_is() {
    let fixture = Fixture::new();
    let tree = TreeId::Workspace(user_id("u"), agent());
    let prepared = fixture.store.runs().prepare(&tree).unwrap();
    assert_eq!(prepared.view().tree, fixture.root().join("sandbox/u/agent"));
    fs::write(prepared.view().tree.join("f"), "command").unwrap();
    let files = fixture.workspace("u");
    assert_eq!(read(&files, "f").unwrap(), "command");
    put(&files, "g", "request");
    assert_eq!(fs::read(prepared.view().tree.join("g")).unwrap(), b"request");
    assert_eq!(prepared.absorb().unwrap(), Absorbed::default());
    drop(prepared);
    assert_eq!(fixture.own("packages/u/agent/tmp"), Vec::<String>::new());
}

#[test]
fn at_the_paths_of_the_host_the_way_to_temporary_files_is_short_whatever_the_ids_are() {
    let fixture = Fixture::new();
    let plan = |user: &str| {
        let tree = TreeId::Workspace(user_id(user), agent());
        fixture.store.runs().plan(&tree, Placement::InPlace, &[]).unwrap()
    };
    let user = "u".repeat(128);
    let way = plan(&user).temporary().to_owned();
    let below = way.strip_prefix(fixture.root()).unwrap();
    assert!(below.as_os_str().len() <= 32, "{}", below.display());
    assert_eq!(plan(&user).temporary(), way);
    assert_ne!(plan("other").temporary(), way);
    for _ in 0..2 {
        let prepared = plan(&user).prepare().unwrap();
        fs::write(way.join("f"), "command").unwrap();
        let home = &prepared.view().scratch;
        assert_eq!(fs::read(home.join("tmp/f")).unwrap(), b"command");
        // What follows no link, such as find(1), is led there too.
        assert!(fs::symlink_metadata(&way).unwrap().is_dir());
    }
    drop(
        fixture
            .store
            .workspaces()
            .remove(&WorkspaceId { user: user_id(&user), agent: agent() }, true)
            .unwrap(),
    );
    assert_eq!(fixture.own("t"), Vec::<String>::new());
    drop(plan("other").prepare().unwrap());
    assert_eq!(fixture.own("t").len(), 1);
    assert_eq!(fixture.reopened(relaxed()).own("t"), Vec::<String>::new());
}

#[test]
fn a_view_larger_than_its_limits_is_not_prepared() {
    let limits = |bytes, entries| {
        let files = FileLimits { view_bytes: bytes, tree_entries: entries, ..Default::default() };
        let fixture = Fixture::with(Options { files, ..relaxed() });
        fixture.baseline("s", &baseline());
        let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).map(drop);
        fixture.assert_swept();
        prepared
    };
    assert!(matches!(limits(5, 100), Err(Error::TooLarge { .. })));
    assert!(matches!(limits(100, 9), Err(Error::TooManyEntries(_))));
    limits(6, 10).unwrap();
}

#[test]
fn with_separate_owners_the_command_owns_its_copy_and_the_service_the_overlay() {
    if !rustix::process::geteuid().is_root() {
        return fixture::skip("root", "only root gives files away");
    }
    let fixture = Fixture::with(Options { separate_owners: true, ..relaxed() });
    fixture.baseline("s", &baseline());
    fixture.publish(Scope::Overlay, "v", "s", &baseline());
    let owner = |at: &Path| fs::symlink_metadata(at).unwrap().uid();
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    let uid = prepared.view().owner.unwrap();
    let tree = prepared.view().tree.clone();
    for at in ["", "f", "d", "d/e/z", "empty"] {
        assert_eq!(owner(&tree.join(at)), uid, "{at}");
    }
    for private in [tree.as_path(), &prepared.view().scratch] {
        assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o700);
    }
    assert_eq!((owner(prepared.temporary()), owner(&prepared.view().scratch)), (uid, uid));
    for at in ["f", "new"] {
        fs::write(tree.join(at), "2").unwrap();
        std::os::unix::fs::chown(tree.join(at), Some(uid), Some(uid)).unwrap();
    }
    prepared.absorb().unwrap();
    for at in ["f", "new"] {
        let metadata = fs::metadata(fixture.overlay_path("u").join("s").join(at)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{at}");
    }

    let files = fixture.workspace("u");
    put(&files, "made/by/request", "1");
    let workspace = fixture.root().join("sandbox/u/agent");
    for at in ["", "made", "made/by", "made/by/request"] {
        assert_eq!(owner(&workspace.join(at)), uid, "{at}");
    }
    assert_eq!(fs::metadata(&workspace).unwrap().permissions().mode() & 0o777, 0o700);
    // A stranger's file that was linked in is not read through the workspace.
    fs::write(fixture.root().join("strange"), "secret").unwrap();
    if !linked_in(&fixture, &fixture.root().join("strange"), &workspace.join("strange")) {
        return;
    }
    let opened = files.open(&path("strange"));
    assert!(matches!(opened, Err(Error::Escape(_))), "{opened:?}");
}
