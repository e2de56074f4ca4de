//! Laws of snapshots: a workspace becomes what it was, at the cost of what changed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::fixture::{self, Fixture, Tree, agent, put, relaxed, user_id};
use policy::{AgentId, DiskLimits, FileLimits, SnapshotLimits};
use storage::{Error, Options, Snapshot, SnapshotNote, Store, WorkspaceId};

fn sandbox(user: &str) -> WorkspaceId {
    WorkspaceId { user: user_id(user), agent: agent() }
}

fn workspace(fixture: &Fixture, user: &str) -> PathBuf {
    fixture.root().join("sandbox").join(user).join("agent")
}

fn kept(fixture: &Fixture, user: &str) -> PathBuf {
    fixture.root().join(".filesecbox/sandboxes").join(user).join("agent")
}

fn take(store: &Store, user: &str) -> Snapshot {
    store.snapshots().take(&sandbox(user), SnapshotNote::default()).unwrap()
}

fn restore(store: &Store, user: &str, snapshot: &Snapshot) {
    drop(store.snapshots().restore(&sandbox(user), &snapshot.id).unwrap());
}

fn on_disk(fixture: &Fixture, user: &str) -> Tree {
    Tree::on_disk(&workspace(fixture, user)).unwrap()
}

fn objects(fixture: &Fixture, user: &str) -> usize {
    let groups = std::fs::read_dir(kept(fixture, user).join("objects")).unwrap();
    groups.map(|group| std::fs::read_dir(group.unwrap().path()).unwrap().count()).sum()
}

/// A workspace with everything that one can have.
fn filled(user: &str) -> (Fixture, Tree) {
    let fixture = Fixture::new();
    put(&fixture.workspace(user), "first", "x");
    let mut tree =
        Tree::of(&[("数据/表.csv", "一,二\n"), ("a%41\u{1}b", "odd"), ("empty", ""), ("twice", "x")]);
    tree.file("bin/run.sh", "#!/bin/sh\n", 0o755).file("secret", "s", 0o600).dir("leer/tief", 0o700);
    tree.dir("closed", 0o500)
        .link("bin/current", "run.sh")
        .link("out", "/usr/bin/python3")
        .link("loop", "loop");
    tree.fill(&storage::Dir::ambient_open(&workspace(&fixture, user)).unwrap());
    let tree = on_disk(&fixture, user);
    (fixture, tree)
}

#[test]
fn a_restored_workspace_is_what_it_was_and_can_be_changed_like_any() {
    let (fixture, before) = filled("甲");
    let old = std::fs::metadata(workspace(&fixture, "甲").join("数据/表.csv")).unwrap();
    let snapshot = take(&fixture.store, "甲");
    assert_eq!((snapshot.entries, snapshot.live, snapshot.unsettled, snapshot.skipped), (15, false, 0, 0));
    let files = fixture.workspace("甲");
    files.remove(&fixture::path("数据"), true, &storage::Condition::Always).unwrap();
    put(&files, "new/file", "later");
    put(&files, "first", "changed");
    assert_ne!(on_disk(&fixture, "甲"), before);
    restore(&fixture.store, "甲", &snapshot);
    assert_eq!(on_disk(&fixture, "甲"), before);
    let new = std::fs::metadata(workspace(&fixture, "甲").join("数据/表.csv")).unwrap();
    assert_eq!((new.mtime(), new.mtime_nsec()), (old.mtime(), old.mtime_nsec()));
    put(&files, "数据/表.csv", "changed");
    put(&files, "new/file", "later");
    restore(&fixture.store, "甲", &snapshot);
    assert_eq!(on_disk(&fixture, "甲"), before);
    fixture.assert_swept();
}

#[test]
fn names_of_any_bytes_come_back() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "first", "x");
    let odd = OsStr::from_bytes(b"\xff\xfe\n%");
    std::fs::write(workspace(&fixture, "u").join(odd), "odd").unwrap();
    let snapshot = take(&fixture.store, "u");
    std::fs::remove_file(workspace(&fixture, "u").join(odd)).unwrap();
    restore(&fixture.store, "u", &snapshot);
    assert_eq!(std::fs::read(workspace(&fixture, "u").join(odd)).unwrap(), b"odd");
}

#[test]
fn what_a_command_writes_in_place_never_reaches_a_snapshot() {
    let (fixture, before) = filled("u");
    let snapshot = take(&fixture.store, "u");
    let at = workspace(&fixture, "u").join("secret");
    let inode = std::fs::metadata(&at).unwrap().ino();
    let written = std::fs::OpenOptions::new().write(true).open(&at).unwrap();
    written.write_all_at(b"S", 0).unwrap();
    assert_eq!(std::fs::metadata(&at).unwrap().ino(), inode);
    let second = take(&fixture.store, "u");
    assert_eq!((second.added_bytes > 0, second.bytes), (true, snapshot.bytes));
    restore(&fixture.store, "u", &snapshot);
    assert_eq!(on_disk(&fixture, "u"), before);
    restore(&fixture.store, "u", &second);
    assert_eq!(fixture::read(&fixture.workspace("u"), "secret").unwrap(), "S");
}

#[test]
fn a_change_that_keeps_size_and_modification_time_is_noticed() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "f", "one");
    std::thread::sleep(Duration::from_millis(2100));
    let first = take(&fixture.store, "u");
    let at = workspace(&fixture, "u").join("f");
    let time = std::fs::metadata(&at).unwrap().modified().unwrap();
    let written = std::fs::OpenOptions::new().write(true).open(&at).unwrap();
    written.write_all_at(b"two", 0).unwrap();
    written.set_modified(time).unwrap();
    let second = take(&fixture.store, "u");
    for (snapshot, text) in [(&first, "one"), (&second, "two")] {
        restore(&fixture.store, "u", snapshot);
        assert_eq!(fixture::read(&fixture.workspace("u"), "f").unwrap(), text);
    }
}

/// Bytes that this thread has read so far, from wherever (proc_pid_io(5)).
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_second_snapshot_reads_and_stores_only_what_changed() {
    const MIB: usize = 1024 * 1024;
    let fixture = Fixture::new();
    let files = fixture.workspace("u");
    for number in 0..32_u8 {
        let text = String::from_utf8(vec![b'a' + number % 26; MIB + usize::from(number)]).unwrap();
        put(&files, &format!("d/{number}"), &text);
    }
    std::thread::sleep(Duration::from_millis(2100));
    let first = take(&fixture.store, "u");
    assert!(first.added_bytes >= 32 * MIB as u64, "{first:?}");
    put(&files, "d/0", &"z".repeat(MIB));
    let before = bytes_read();
    let second = take(&fixture.store, "u");
    let read = bytes_read() - before;
    assert!((MIB as u64..3 * MIB as u64).contains(&read), "{read} bytes were read");
    assert!((MIB as u64..MIB as u64 + 65_536).contains(&second.added_bytes), "{second:?}");
    std::fs::rename(workspace(&fixture, "u").join("d"), workspace(&fixture, "u").join("moved")).unwrap();
    let third = take(&fixture.store, "u");
    assert_eq!(third.added_bytes, 0, "what only moved costs nothing");
    let taken = fixture.store.snapshots().list(&sandbox("u")).unwrap().taken;
    assert!(taken.bytes < 35 * MIB as u64, "{taken:?}");
}

#[test]
fn what_one_snapshot_alone_has_goes_with_it_and_the_rest_stays() {
    let (fixture, before) = filled("u");
    let first = take(&fixture.store, "u");
    put(&fixture.workspace("u"), "only", "in the second");
    let second = take(&fixture.store, "u");
    let count = objects(&fixture, "u");
    fixture.store.snapshots().remove(&sandbox("u"), &second.id).unwrap();
    assert_eq!(objects(&fixture, "u"), count - 1);
    restore(&fixture.store, "u", &first);
    assert_eq!(on_disk(&fixture, "u"), before);
    fixture.store.snapshots().remove(&sandbox("u"), &first.id).unwrap();
    assert_eq!(objects(&fixture, "u"), 0);
    let again = fixture.store.snapshots().remove(&sandbox("u"), &first.id);
    assert!(matches!(again, Err(Error::NotFound(_))), "{again:?}");
}

#[test]
fn nothing_is_restored_under_a_command_and_a_snapshot_under_one_says_so() {
    let (fixture, before) = filled("u");
    let snapshot = take(&fixture.store, "u");
    let run = fixture.store.runs().prepare(&sandbox("u").workspace()).unwrap();
    assert!(take(&fixture.store, "u").live);
    put(&fixture.workspace("u"), "first", "changed");
    let refused = fixture.store.snapshots().restore(&sandbox("u"), &snapshot.id).map(drop);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(fixture::read(&fixture.workspace("u"), "first").unwrap(), "changed");
    drop(run);
    restore(&fixture.store, "u", &snapshot);
    assert_eq!(on_disk(&fixture, "u"), before);
    assert!(!take(&fixture.store, "u").live);
}

#[test]
fn a_fork_is_a_workspace_of_its_own_and_overwrites_nothing_unasked() {
    let (fixture, before) = filled("甲");
    let snapshot = take(&fixture.store, "甲");
    let (from, to) = (sandbox("甲"), WorkspaceId { agent: AgentId::parse("别的").unwrap(), ..sandbox("乙") });
    let at = fixture.root().join("sandbox/乙/别的");
    let fork =
        |replace| fixture.store.snapshots().fork(&from, &snapshot.id, &to, replace).map(|(forked, _)| forked);
    assert!(!fork(false).unwrap().replaced);
    assert_eq!(Tree::on_disk(&at).unwrap(), before);
    std::fs::write(at.join("first"), "the fork's").unwrap();
    assert_eq!(on_disk(&fixture, "甲"), before);
    let refused = fork(false);
    assert!(matches!(refused, Err(Error::AlreadyExists(_))), "{refused:?}");
    assert_eq!(std::fs::read(at.join("first")).unwrap(), b"the fork's");
    assert!(fork(true).unwrap().replaced);
    assert_eq!(Tree::on_disk(&at).unwrap(), before);
    fixture.assert_swept();
}

#[test]
fn several_names_of_one_file_become_files_of_their_own_and_a_pipe_is_left_out() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "one", "same");
    let dir = workspace(&fixture, "u");
    std::fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let snapshot = take(&fixture.store, "u");
    assert_eq!((snapshot.entries, snapshot.skipped), (2, 1));
    restore(&fixture.store, "u", &snapshot);
    put(&fixture.workspace("u"), "one", "other");
    assert_eq!(fixture::read(&fixture.workspace("u"), "two").unwrap(), "same");
    assert!(!dir.join("pipe").exists());
}

#[test]
fn a_snapshot_beyond_a_limit_is_refused_and_leaves_nothing() {
    let limits =
        SnapshotLimits { per_workspace: 2, bytes: 1024 * 1024, files: 30, ..SnapshotLimits::default() };
    let fixture = Fixture::with(Options { snapshots: limits, ..relaxed() });
    let refused = |setting: &str| {
        let refused = fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default());
        assert!(
            matches!(&refused, Err(Error::Quota { setting: named, .. }) if *named == setting),
            "{refused:?}"
        );
        assert!(!kept(&fixture, "u").join("unfinished").exists());
        fixture.assert_swept();
    };
    let files = fixture.workspace("u");
    put(&files, "large", &"x".repeat(2 * 1024 * 1024));
    refused("limits.snapshots.bytes");
    assert_eq!(objects(&fixture, "u"), 0);
    put(&files, "large", "small");
    for number in 0..40 {
        put(&files, &format!("many/{number}"), &number.to_string());
    }
    refused("limits.snapshots.files");
    assert_eq!(objects(&fixture, "u"), 0);
    files.remove(&fixture::path("many"), true, &storage::Condition::Always).unwrap();
    take(&fixture.store, "u");
    take(&fixture.store, "u");
    refused("limits.snapshots.per_workspace");
    assert_eq!(fixture.store.snapshots().list(&sandbox("u")).unwrap().list.len(), 2);
}

#[test]
fn files_with_more_bytes_than_they_take_cannot_make_a_snapshot_read_for_ever() {
    let limits = SnapshotLimits { bytes: 1024 * 1024, ..SnapshotLimits::default() };
    let fixture = Fixture::with(Options { snapshots: limits, ..relaxed() });
    put(&fixture.workspace("u"), "f", "x");
    let sparse = |name: &str, bytes: u64| {
        std::fs::File::create(workspace(&fixture, "u").join(name)).unwrap().set_len(bytes).unwrap();
    };
    sparse("one", 1 << 40);
    let begun = std::time::Instant::now();
    let refused = fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default());
    assert!(matches!(refused, Err(Error::Quota { .. })), "{refused:?}");
    // Many names of one content cost one, but not all at once when they come back.
    let fixture = Fixture::with(Options {
        disk: DiskLimits { bytes: 1024 * 1024, ..DiskLimits::default() },
        ..relaxed()
    });
    put(&fixture.workspace("u"), "f", &"x".repeat(400_000));
    for name in ["g", "h"] {
        std::fs::hard_link(workspace(&fixture, "u").join("f"), workspace(&fixture, "u").join(name)).unwrap();
    }
    let refused = fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default());
    assert!(matches!(refused, Err(Error::Quota { setting: "limits.disk.bytes", .. })), "{refused:?}");
    assert_eq!(objects(&fixture, "u"), 0);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_damaged_content_is_noticed_and_the_workspace_stays() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "f", "content");
    let snapshot = take(&fixture.store, "u");
    let group = std::fs::read_dir(kept(&fixture, "u").join("objects")).unwrap().next().unwrap().unwrap();
    let object = std::fs::read_dir(group.path()).unwrap().next().unwrap().unwrap();
    std::fs::write(object.path(), "CONTENT").unwrap();
    put(&fixture.workspace("u"), "f", "later");
    let refused = fixture.store.snapshots().restore(&sandbox("u"), &snapshot.id).map(drop);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(fixture::read(&fixture.workspace("u"), "f").unwrap(), "later");
    std::fs::remove_file(object.path()).unwrap();
    let refused = fixture.store.snapshots().restore(&sandbox("u"), &snapshot.id).map(drop);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    fixture.assert_swept();
}

#[test]
fn what_a_death_left_among_the_objects_goes_with_the_next_change() {
    let (fixture, before) = filled("u");
    let snapshot = take(&fixture.store, "u");
    let count = objects(&fixture, "u");
    let group = kept(&fixture, "u").join("objects/00");
    std::fs::create_dir_all(&group).unwrap();
    std::fs::write(group.join("0".repeat(64)), "an orphan").unwrap();
    std::fs::write(kept(&fixture, "u").join("unfinished"), "").unwrap();
    take(&fixture.store, "u");
    assert_eq!(objects(&fixture, "u"), count);
    restore(&fixture.store, "u", &snapshot);
    assert_eq!(on_disk(&fixture, "u"), before);
}

#[test]
fn links_with_long_targets_cannot_make_a_snapshot_hold_them_all_in_memory() {
    let limits = FileLimits { tree_entries: 50, ..FileLimits::default() };
    let fixture = Fixture::with(Options { files: limits, ..relaxed() });
    put(&fixture.workspace("u"), "f", "x");
    let target = OsStr::from_bytes(&[0xff; 4000]);
    for number in 0..40 {
        let link = workspace(&fixture, "u").join(number.to_string());
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let refused = fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default());
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(objects(&fixture, "u"), 0);
    fixture.assert_swept();
}
