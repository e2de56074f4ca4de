//! The laws of every tree, held by each kind: a view of a baseline, a view of an overlay alone, a workspace, and the
//! first two while a command is in them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fixture::live::{Command, WAYS};
use crate::fixture::{
    Fixture, KERNEL_ATTRIBUTES, Node, Tree, assert_valid_upper, path, put, read, skill_tree, write,
};
use policy::{RelPath, Scope};
use rustix::fs::{CWD, FileType, Gid, Mode, Uid};
use storage::{Condition, Dir, ETag, Error, Files, Kind, WriteOptions};

/// One tree under test.
struct Subject {
    kind: String,
    fixture: Fixture,
    files: Files,
    /// Where commands make what the service would not: the workspace, the upper layer, or the mount.
    commands: PathBuf,
    /// The command that is in the view.
    command: Option<Command>,
}

/// Holds the law for every kind of tree with `content`, and the baseline to its own: it never changes.
fn every_tree(content: &Tree, law: impl Fn(&Subject)) {
    let live = WAYS.into_iter().flat_map(|way| [("baseline", Some(way)), ("overlay", Some(way))]);
    for (kind, way) in [("baseline", None), ("overlay", None), ("workspace", None)].into_iter().chain(live) {
        let fixture = match way {
            None => Fixture::new(),
            Some(way) => match Fixture::live(way) {
                Some(fixture) => fixture,
                None => continue,
            },
        };
        let overlay = fixture.overlay_path("u").join("s");
        let (files, commands) = match kind {
            "baseline" => {
                fixture.baseline("s", content);
                (fixture.skill("u", "s"), overlay)
            }
            "overlay" => {
                fixture.publish(Scope::Overlay, "u", "s", content);
                (fixture.skill("u", "s"), overlay)
            }
            _ => (fixture.workspace("u"), fixture.root().join("sandbox/u/agent")),
        };
        let command = way.map(|_| fixture.command(&skill_tree("u", "s")));
        let commands = command.as_ref().map_or(commands, Command::tree);
        std::fs::create_dir_all(&commands).unwrap();
        if kind == "workspace" {
            content.fill(&Dir::ambient_open(&commands).unwrap());
        }
        let published = Tree::on_disk(&fixture.baseline_path());
        let kind = way.map_or(kind.to_owned(), |way| format!("{kind}, live ({way:?})"));
        let mut subject = Subject { kind, fixture, files, commands, command };
        println!("a tree of kind `{}`", subject.kind);
        law(&subject);
        if subject.command.is_some() {
            let mounted = Tree::on_disk(&subject.commands);
            assert_eq!(Tree::through(&subject.files), mounted, "the command sees another tree");
            subject.command = None;
            subject.fixture.store.close_views().unwrap();
            assert_eq!(Tree::through(&subject.files), mounted, "another tree without the mount");
            assert_valid_upper(&subject.fixture.overlay_path("u"), &KERNEL_ATTRIBUTES);
        }
        assert_eq!(Tree::on_disk(&subject.fixture.baseline_path()), published, "the baseline changed");
        subject.fixture.assert_swept();
    }
}

fn etag(files: &Files, at: &str) -> ETag {
    files.stat(&path(at)).unwrap().0.etag()
}

fn when(condition: Condition) -> WriteOptions {
    WriteOptions { condition, ..WriteOptions::default() }
}

fn remove(files: &Files, at: &str) -> storage::Result<()> {
    files.remove(&path(at), true, &Condition::Always)
}

fn rename(files: &Files, from: &str, to: &str) -> storage::Result<()> {
    files.rename(&path(from), &path(to), false, &Condition::Always)
}

fn append(files: &Files, at: &str, text: &str) -> storage::Result<storage::Written> {
    let change = &mut |old: Option<&str>| Ok(format!("{}{text}", old.unwrap_or_default()));
    files.update(&path(at), &WriteOptions::default(), 1 << 20, change).map(|(written, _)| written)
}

#[test]
fn a_reader_beside_a_writer_sees_the_old_bytes_or_the_new_and_never_a_mix() {
    every_tree(&Tree::of(&[("f", &"a".repeat(50_000))]), |subject| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Relaxed) {
                    let text = read(&subject.files, "f").unwrap();
                    assert!(text.len() == 50_000 && text.bytes().all(|byte| byte == text.as_bytes()[0]));
                    reads += 1;
                }
                reads
            });
            for letter in ["b", "c"].into_iter().cycle().take(100) {
                put(&subject.files, "f", &letter.repeat(50_000));
            }
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
    });
}

/// Does `change` for many numbers while a thread that knows no lock looks whether `first` is ever there without `last`.
fn never_in_part(
    root: &std::path::Path,
    first: impl Fn(usize) -> String + Sync,
    last: impl Fn(usize) -> String + Sync,
    change: impl Fn(usize),
) {
    const CHANGES: usize = 200;
    let at = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while number < CHANGES {
                if root.join(first(number)).exists() {
                    assert!(
                        root.join(last(number)).exists(),
                        "`{}` without `{}`",
                        first(number),
                        last(number)
                    );
                }
                number = at.load(Ordering::Relaxed);
            }
        });
        for number in 0..CHANGES {
            at.store(number, Ordering::Relaxed);
            change(number);
        }
        at.store(CHANGES, Ordering::Relaxed);
    });
}

#[test]
fn directories_and_what_they_were_made_for_come_in_one_step() {
    every_tree(&Tree::of(&[("f", "1"), ("old/f", "1")]), |Subject { files, commands, .. }| {
        let (first, last) = (|number| format!("d{number}"), |number| format!("d{number}/e/f"));
        never_in_part(commands, first, last, |number| {
            put(files, &last(number), "1");
        });
        let (first, last) = (|number| format!("m{number}"), |number| format!("m{number}/e/f"));
        never_in_part(commands, first, last, |number| {
            assert!(files.make_dir(&path(&last(number)), 0o700, true).unwrap());
        });
        assert_eq!(files.stat(&path("m7/e")).unwrap().0.mode, 0o755);
        assert_eq!(files.stat(&path("m7/e/f")).unwrap().0.mode, 0o700);
        assert_eq!(files.stat(&path("d7/e")).unwrap().0.mode, 0o755);
        // Over a directory that was deleted, nothing of it comes back.
        remove(files, "old").unwrap();
        put(files, "old/new/g", "1");
        assert_eq!(files.list(&path("old")).unwrap().len(), 1);
    });
}

/// Does `law` as a user who is not root, where the test may become one, with a fixture of that user.
fn as_ordinary_user(law: impl FnOnce(Fixture) + Send) {
    // Not every host lets every user write where temporary files are.
    let place = tempfile::tempdir().unwrap();
    let ordinary = || {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place.path(), Some(65534), Some(65534)).unwrap();
            rustix::thread::set_thread_gid(Gid::from_raw(65534)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
        }
        law(Fixture::within(place.path()));
    };
    std::thread::scope(|scope| scope.spawn(ordinary).join().unwrap());
}

#[test]
fn a_directory_that_its_owner_may_not_write_to_is_made_moved_copied_and_removed_by_a_service_without_root() {
    as_ordinary_user(|fixture| {
        fixture.baseline("s", &Tree::of(&[("f", "1"), ("old/f", "1")]));
        for files in [fixture.workspace("u"), fixture.skill("u", "s")] {
            put(&files, "to/f", "1");
            assert!(files.make_dir(&path("closed"), 0o555, false).unwrap());
            assert!(files.make_dir(&path("a/b"), 0o500, true).unwrap());
            rename(&files, "closed", "to/closed").unwrap();
            let mode = |at| files.stat(&path(at)).unwrap().0.mode;
            assert_eq!(["to/closed", "a/b"].map(mode), [0o555, 0o500]);
            files.copy(&path("to/closed"), &path("copy"), false, true, &Condition::Always).unwrap();
            assert_eq!(mode("copy"), 0o555);
            remove(&files, "to").unwrap();
            remove(&files, "a").unwrap();
        }
        let files = fixture.skill("u", "s");
        remove(&files, "old").unwrap();
        // In the place of a whiteout.
        assert!(files.make_dir(&path("old"), 0o555, false).unwrap());
        assert_eq!(files.stat(&path("old")).unwrap().0.mode, 0o555);
        assert_valid_upper(&fixture.overlay_path("u"), &[]);
        fixture.assert_swept();
    });
}

#[test]
fn a_new_skill_comes_with_its_first_entry_in_one_step() {
    let fixture = Fixture::new();
    let (first, last) = (|number| format!("s{number}"), |number| format!("s{number}/f"));
    let overlay = fixture.overlay_path("u");
    never_in_part(&overlay, first, last, |number| {
        put(&fixture.skill("u", &first(number)), "f", "1");
    });
    let (first, last) = (|number| format!("t{number}"), |number| format!("t{number}/d/e"));
    never_in_part(&overlay, first, last, |number| {
        put(&fixture.skill("u", &first(number)), "d/e", "1");
    });
    assert_valid_upper(&overlay, &KERNEL_ATTRIBUTES);
    fixture.assert_swept();
}

#[test]
fn parents_are_made_when_asked_and_otherwise_missing() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, .. }| {
        let written = write(files, "x/y/z", b"1", &WriteOptions::default());
        assert!(matches!(written, Err(Error::NotFound(_))), "{written:?}");
        assert!(matches!(files.stat(&path("x")), Err(Error::NotFound(_))));
        put(files, "x/y/z", "1");
        assert_eq!(read(files, "x/y/z").unwrap(), "1");
        for below_a_file in ["f/g", "f/g/h"] {
            let options = WriteOptions { parents: true, ..WriteOptions::default() };
            let written = write(files, below_a_file, b"1", &options);
            assert!(matches!(written, Err(Error::NotADirectory(_))), "{written:?}");
        }
        assert!(matches!(files.make_dir(&path("p/q"), 0o755, false), Err(Error::NotFound(_))));
        assert!(files.make_dir(&path("p/q"), 0o755, true).unwrap());
        assert!(!files.make_dir(&path("p/q"), 0o755, true).unwrap());
        assert!(matches!(files.make_dir(&path("p/q"), 0o755, false), Err(Error::AlreadyExists(_))));
        assert!(matches!(files.make_dir(&path("f"), 0o755, true), Err(Error::AlreadyExists(_))));
    });
}

#[test]
fn the_root_is_there_and_is_neither_written_nor_moved_nor_removed() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, .. }| {
        let root = RelPath::root();
        assert!(matches!(write(files, "", b"1", &WriteOptions::default()), Err(Error::IsDirectory(_))));
        assert!(matches!(remove(files, ""), Err(Error::IsDirectory(_))));
        assert!(matches!(rename(files, "", "g"), Err(Error::IntoItself { .. })));
        assert!(matches!(rename(files, "f", ""), Err(Error::AlreadyExists(_))));
        let onto = files.rename(&path("f"), &root, true, &Condition::Always);
        assert!(matches!(onto, Err(Error::IsDirectory(_))), "{onto:?}");
        assert!(matches!(files.make_dir(&root, 0o755, false), Err(Error::AlreadyExists(_))));
        assert!(!files.make_dir(&root, 0o755, true).unwrap());
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "1")])));
    });
}

#[test]
fn a_condition_that_does_not_hold_changes_nothing_and_tells_the_current_tag() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, .. }| {
        let old = etag(files, "f");
        put(files, "f", "2");
        let current = etag(files, "f");
        let stale = |result: storage::Result<()>, expected: Option<&ETag>| match result {
            Err(Error::Stale { current, .. }) => assert_eq!(current.as_ref(), expected),
            other => panic!("{other:?}"),
        };
        let outdated = Condition::Matches(vec![old.clone()]);
        stale(write(files, "f", b"3", &when(outdated.clone())).map(drop), Some(&current));
        stale(write(files, "f", b"3", &when(Condition::Missing)).map(drop), Some(&current));
        stale(write(files, "new", b"3", &when(Condition::Exists)).map(drop), None);
        stale(write(files, "new", b"3", &when(outdated.clone())).map(drop), None);
        stale(files.remove(&path("f"), false, &outdated), Some(&current));
        stale(files.remove(&path("new"), false, &Condition::Exists), None);
        stale(files.rename(&path("f"), &path("g"), false, &outdated), Some(&current));
        let change = &mut |_: Option<&str>| Ok("3".to_owned());
        stale(files.update(&path("f"), &when(outdated), 100, change).map(drop), Some(&current));
        stale(files.update(&path("new"), &when(Condition::Exists), 100, change).map(drop), None);
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "2")])));

        let either = Condition::Matches(vec![old, current]);
        let written = write(files, "f", b"3", &when(either)).unwrap();
        assert_eq!((written.stat.etag(), written.created), (etag(files, "f"), false));
        assert!(write(files, "new", b"3", &when(Condition::Missing)).unwrap().created);
        files.rename(&path("new"), &path("g"), false, &Condition::Matches(vec![etag(files, "new")])).unwrap();
        files.remove(&path("g"), false, &Condition::Matches(vec![etag(files, "g")])).unwrap();
    });
}

#[test]
fn every_write_gives_another_tag_even_of_equal_size_within_a_millisecond() {
    every_tree(&Tree::of(&[("f", "00000")]), |Subject { files, .. }| {
        let mut tags = std::collections::HashSet::from([etag(files, "f").to_string()]);
        for number in 0..500 {
            let written = put(files, "f", &format!("{:05}", number % 3));
            assert_eq!(written.stat.etag(), etag(files, "f"));
            assert!(tags.insert(written.stat.etag().to_string()), "write {number} repeats a tag");
        }
    });
}

#[test]
fn modes_survive_overwriting_editing_and_moving() {
    let mut content = Tree::default();
    content.file("run.sh", "1", 0o755).file("secret", "1", 0o600).file("d/x", "1", 0o750).dir("e", 0o700);
    every_tree(&content, |Subject { files, .. }| {
        for (at, mode) in [("run.sh", 0o755), ("secret", 0o600), ("d/x", 0o750)] {
            let mode_of = |at: &str| files.stat(&path(at)).unwrap().0.mode;
            put(files, at, "2");
            assert_eq!(mode_of(at), mode);
            append(files, at, "3").unwrap();
            assert_eq!((mode_of(at), read(files, at).unwrap()), (mode, "23".into()));
            rename(files, at, "moved").unwrap();
            assert_eq!(mode_of("moved"), mode);
            rename(files, "moved", at).unwrap();
            let options = WriteOptions { mode: Some(0o711), ..WriteOptions::default() };
            assert_eq!(write(files, at, b"4", &options).unwrap().stat.mode, 0o711);
        }
        put(files, "fresh", "1");
        assert_eq!(files.stat(&path("fresh")).unwrap().0.mode, 0o644);
        rename(files, "e", "f").unwrap();
        assert_eq!(files.stat(&path("f")).unwrap().0.mode, 0o700);
    });
}

#[test]
fn a_link_that_stays_inside_is_followed_by_reads_and_writes_alike() {
    let mut content = Tree::of(&[("d/f", "1")]);
    content
        .link("link", "d/f")
        .link("dir", "d")
        .link("d/up", "../d/f")
        .link("new", "d/new")
        .link("chain", "link");
    every_tree(&content, |Subject { files, .. }| {
        for at in ["link", "dir/f", "d/up", "chain"] {
            assert_eq!(read(files, at).unwrap(), "1");
        }
        put(files, "link", "2");
        append(files, "dir/f", "3").unwrap();
        put(files, "new", "4");
        assert_eq!(read(files, "d/f").unwrap(), "23");
        assert_eq!(read(files, "d/new").unwrap(), "4");
        let kind = |at| {
            files.list(&RelPath::root()).unwrap().into_iter().find(|(c, _)| c.name == at).unwrap().0.kind
        };
        assert_eq!((kind("link"), kind("new")), (Kind::Symlink, Kind::Symlink));
        assert_eq!(files.read_link(&path("chain")).unwrap(), "link");
        remove(files, "dir").unwrap();
        remove(files, "link").unwrap();
        assert_eq!(read(files, "d/f").unwrap(), "23");
    });
}

#[test]
fn an_absolute_link_leads_where_it_leads_inside_a_run() {
    let mut content = Tree::of(&[("d/f", "1"), ("f", "own")]);
    for (form, root) in [("skill", "/workspace/skills/s"), ("workspace", "/workspace")] {
        content
            .link(&format!("{form}-file"), &format!("{root}/d/f"))
            .link(&format!("{form}-dir"), &format!("{root}//d/."))
            .link(&format!("{form}-chain"), &format!("{root}/{form}-dir/../{form}-file"))
            .link(&format!("{form}-new"), &format!("{root}/d/{form}-made"))
            .link(&format!("{form}-root"), root)
            .link(&format!("{form}-up"), &format!("{root}/../../../f"))
            .link(&format!("{form}-loop"), &format!("{root}/{form}-loop"))
            .link(&format!("{form}-beside"), &format!("{root}-2/f"))
            .link(&format!("d/{form}-below"), &format!("{root}/f"));
    }
    content.link("host", "/etc/passwd").link("bare", "/").link("workspace-2", "/workspace2/f");
    every_tree(&content, |Subject { files, kind, commands, .. }| {
        let (own, other) = if kind == "workspace" { ("workspace", "skill") } else { ("skill", "workspace") };
        for at in ["file", "dir/f", "chain", "root/d/f"] {
            assert_eq!(read(files, &format!("{own}-{at}")).unwrap(), "1", "{kind}: {at}");
        }
        assert_eq!(read(files, &format!("d/{own}-below")).unwrap(), "own");
        assert_eq!(files.stat(&path(&format!("{own}-dir"))).unwrap().0.kind, Kind::Directory);
        assert_eq!(files.list(&path(&format!("{own}-dir"))).unwrap().len(), 3);
        let walked = files.walk(&path(&format!("{own}-root")), 1, false).unwrap();
        assert_eq!(walked.len(), files.list(&RelPath::root()).unwrap().len());
        put(files, &format!("{own}-file"), "2");
        append(files, &format!("{own}-dir/f"), "3").unwrap();
        put(files, &format!("{own}-new"), "4");
        assert_eq!(read(files, "d/f").unwrap(), "23");
        assert_eq!(read(files, &format!("d/{own}-made")).unwrap(), "4");
        files.make_dir(&path(&format!("{own}-dir/sub")), 0o755, false).unwrap();
        rename(files, &format!("{own}-dir/sub"), &format!("{own}-root/moved")).unwrap();
        remove(files, "moved").unwrap();
        remove(files, &format!("d/{own}-made")).unwrap();
        // What leads out of the tree, upwards, in circles, or to another tree, is no entry of this one.
        let refused = ["up", "loop", "beside"].map(|link| format!("{own}-{link}"));
        let foreign = ["host", "bare", "workspace-2"].map(str::to_owned);
        for link in refused.iter().chain(&foreign) {
            for result in [
                files.stat(&path(link)).map(drop),
                files.open(&path(link)).map(drop),
                files.open(&path(&format!("{link}/passwd"))).map(drop),
                files.list(&path(link)).map(drop),
                write(files, link, b"2", &WriteOptions::default()).map(drop),
                rename(files, "f", &format!("{link}/f")),
            ] {
                assert!(matches!(result, Err(Error::Escape(_))), "{kind}: {link}: {result:?}");
            }
        }
        let elsewhere = files.open(&path(&format!("{other}-file"))).map(drop);
        assert!(matches!(elsewhere, Err(Error::Escape(_) | Error::NotFound(_))), "{kind}: {elsewhere:?}");
        assert_eq!(read(files, "f").unwrap(), "own");
        assert!(!commands.join("workspace").exists() && !commands.join("skills").exists());
    });
}

#[test]
fn a_link_that_leaves_or_turns_in_circles_is_refused_by_every_operation() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), "secret").unwrap();
    let absolute = outside.path().to_str().unwrap();
    let mut content = Tree::of(&[("f", "1")]);
    content
        .link("absolute", absolute)
        .link("upward", "../../../../../../../../../../../..")
        .link("loop", "loop");
    content.link("inside-absolute", "/f").link("d/sibling", "../../s/f");
    every_tree(&content, |Subject { files, kind, .. }| {
        for link in ["absolute", "upward", "loop", "inside-absolute", "d/sibling"] {
            let below = format!("{link}/f");
            let results = [
                ("stat", files.stat(&path(link)).map(drop)),
                ("open", files.open(&path(link)).map(drop)),
                ("list", files.list(&path(link)).map(drop)),
                ("walk", files.walk(&path(link), 9, true).map(drop)),
                ("write", write(files, link, b"2", &WriteOptions::default()).map(drop)),
                ("update", append(files, link, "2").map(drop)),
                ("open below", files.open(&path(&below)).map(drop)),
                ("write below", write(files, &below, b"2", &WriteOptions::default()).map(drop)),
                ("make below", files.make_dir(&path(&below), 0o755, true).map(drop)),
                ("move from below", rename(files, &below, "g")),
                ("move below", rename(files, "f", &below)),
                ("remove below", remove(files, &below)),
            ];
            for (operation, result) in results {
                assert!(matches!(result, Err(Error::Escape(_))), "{kind}: {operation} {link}: {result:?}");
            }
            rename(files, link, "elsewhere").unwrap();
            remove(files, "elsewhere").unwrap();
        }
        assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"secret");
        assert_eq!(read(files, "f").unwrap(), "1");
    });
}

#[test]
fn a_planted_pipe_socket_or_device_is_listed_and_removed_but_never_opened() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, commands, kind, .. }| {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, commands.join("pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(commands.join("socket")).unwrap();
        let mut planted = vec!["pipe", "socket"];
        // Only root makes devices; any user makes a whiteout, which in an upper layer is no entry.
        let tty = rustix::fs::makedev(5, 0);
        if rustix::fs::mknodat(CWD, commands.join("tty"), FileType::CharacterDevice, mode, tty).is_ok() {
            planted.push("tty");
        }
        if kind == "workspace" {
            rustix::fs::mknodat(CWD, commands.join("null"), FileType::CharacterDevice, mode, 0).unwrap();
            planted.push("null");
        }
        std::os::unix::fs::symlink("pipe", commands.join("link")).unwrap();
        assert_eq!(files.list(&RelPath::root()).unwrap().len(), planted.len() + 2);
        for at in planted.iter().copied().chain(["link"]) {
            for result in [
                files.open(&path(at)).map(drop),
                write(files, at, b"2", &WriteOptions::default()).map(drop),
                append(files, at, "2").map(drop),
            ] {
                assert!(matches!(result, Err(Error::NotAFile(_))), "{kind}: {at}: {result:?}");
            }
        }
        for at in planted.into_iter().chain(["link"]) {
            remove(files, at).unwrap();
        }
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "1")])));
    });
}

#[test]
fn names_that_no_path_can_hold_break_no_listing_and_go_with_their_directory() {
    every_tree(&Tree::of(&[("d/f", "1")]), |Subject { files, commands, .. }| {
        std::fs::create_dir_all(commands.join("d")).unwrap();
        let hostile: [&[u8]; 4] = [b"\xFF\xFE", b"a\nb", b"\x1b[2J", &[b'x'; 255]];
        for name in hostile {
            std::fs::write(commands.join("d").join(OsStr::from_bytes(name)), "x").unwrap();
        }
        let listed = files.list(&path("d")).unwrap();
        assert_eq!(listed.len(), 5);
        assert!(listed.iter().all(|(_, stat)| stat.is_some()));
        assert!(listed.is_sorted_by(|a, b| a.0.name.as_bytes() < b.0.name.as_bytes()));
        // Walks give paths, so they pass over what no path can hold.
        assert_eq!(files.walk(&RelPath::root(), 9, true).unwrap().len(), 3);
        rename(files, "d", "e").unwrap();
        assert_eq!(files.list(&path("e")).unwrap().len(), 5);
        remove(files, "e").unwrap();
        assert_eq!(files.list(&RelPath::root()).unwrap(), []);
    });
}

#[test]
fn a_directory_with_entries_is_removed_only_recursively() {
    every_tree(&Tree::of(&[("d/f", "1"), ("e/g", "1")]), |Subject { files, .. }| {
        let refused = files.remove(&path("d"), false, &Condition::Always);
        assert!(matches!(refused, Err(Error::NotEmpty(_))), "{refused:?}");
        remove(files, "d/f").unwrap();
        files.remove(&path("d"), false, &Condition::Always).unwrap();
        remove(files, "e").unwrap();
        assert!(matches!(remove(files, "e"), Err(Error::NotFound(_))));
        assert!(matches!(remove(files, "e/g"), Err(Error::NotFound(_))));
        // What is made anew shows nothing of what was removed.
        put(files, "d/new", "1");
        files.make_dir(&path("e"), 0o755, false).unwrap();
        let mut expected = Tree::of(&[("d/new", "1")]);
        expected.dir("e", 0o755);
        assert_eq!(Tree::through(files), Some(expected));
    });
}

#[test]
fn a_move_replaces_a_file_when_asked_and_a_directory_never() {
    every_tree(
        &Tree::of(&[("a", "a"), ("b", "b"), ("d/x", "x"), ("e/y", "y")]),
        |Subject { files, .. }| {
            let over = |from: &str, to: &str| files.rename(&path(from), &path(to), true, &Condition::Always);
            assert!(matches!(rename(files, "a", "b"), Err(Error::AlreadyExists(_))));
            assert!(matches!(rename(files, "no", "b"), Err(Error::NotFound(_))));
            assert!(matches!(rename(files, "a", "no/b"), Err(Error::NotFound(_))));
            assert!(matches!(rename(files, "a", "b/c"), Err(Error::NotADirectory(_))));
            assert!(matches!(over("a", "d"), Err(Error::IsDirectory(_))));
            assert!(matches!(over("d", "e"), Err(Error::IsDirectory(_))));
            assert!(matches!(over("d", "a"), Err(Error::NotADirectory(_))));
            assert!(matches!(over("d", "d/x/z"), Err(Error::IntoItself { .. })));
            assert!(matches!(over("d", "d"), Err(Error::IntoItself { .. })));
            over("a", "b").unwrap();
            rename(files, "d", "e/d").unwrap();
            rename(files, "e", "a").unwrap();
            assert_eq!(Tree::through(files), Some(Tree::of(&[("b", "a"), ("a/y", "y"), ("a/d/x", "x")])));
        },
    );
}

#[test]
fn a_directory_is_not_moved_into_itself_through_a_link_either() {
    let mut content = Tree::of(&[("d/sub/f", "1")]);
    content.link("link", "d/sub");
    every_tree(&content, |Subject { files, kind, .. }| {
        let moved = rename(files, "d", "link/d");
        assert!(matches!(moved, Err(Error::IntoItself { .. })), "{kind}: {moved:?}");
        put(files, "own/sub/f", "1");
        rename(files, "link", "own/link").unwrap();
        assert_eq!(read(files, "d/sub/f").unwrap(), "1");
    });
}

#[test]
fn a_tree_deeper_than_any_walk_is_refused_by_walks_and_still_removed() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, commands, .. }| {
        let mut dir = Dir::ambient_open(commands).unwrap();
        for _ in 0..1500 {
            dir = dir.create_dir(OsStr::new("deep-deep"), 0o755).unwrap();
        }
        drop(dir);
        let walked = files.walk(&RelPath::root(), usize::MAX, false);
        assert!(matches!(walked, Err(Error::TooManyEntries(_))), "{walked:?}");
        assert_eq!(files.walk(&RelPath::root(), 50, false).unwrap().len(), 51);
        assert_eq!(files.list(&RelPath::root()).unwrap().len(), 2);
        remove(files, "deep-deep").unwrap();
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "1")])));
    });
}

#[test]
fn what_is_made_level_by_level_stays_within_what_a_run_can_copy() {
    let fixture = Fixture::new();
    let files = fixture.skill("u", "s");
    let mut at = "d".to_owned();
    while files.make_dir(&path(&at), 0o755, true).is_ok() {
        at.push_str("/d");
    }
    let levels = at.split('/').count() - 1;
    assert!(levels > 100, "{levels}");
    assert_eq!(files.walk(&RelPath::root(), usize::MAX, true).unwrap().len(), levels);
    drop(fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap());
}

#[test]
fn a_large_tree_with_closed_directories_is_removed_whole() {
    every_tree(&Tree::of(&[("f", "1")]), |Subject { files, commands, kind, .. }| {
        let top = Dir::ambient_open(commands).unwrap().create_dir(OsStr::new("top"), 0o755).unwrap();
        for number in 0..40 {
            let dir = top.create_dir(OsStr::new(&number.to_string()), 0o755).unwrap();
            for number in 0..50 {
                dir.create_file(OsStr::new(&number.to_string()), 0).unwrap();
            }
            dir.set_mode(0).unwrap();
        }
        if kind == "workspace" {
            // In an overlay nothing is left closed: a run's changes are opened when they are absorbed.
            top.set_mode(0).unwrap();
        }
        remove(files, "top").unwrap();
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "1")])));
    });
}

#[test]
fn two_users_never_see_each_other() {
    let content = Tree::of(&[("f", "1"), ("d/g", "1")]);
    every_tree(&content, |Subject { files, fixture, kind, .. }| {
        let other =
            if kind == "workspace" { fixture.workspace("other") } else { fixture.skill("other", "s") };
        let before = Tree::through(&other);
        put(files, "f", "2");
        remove(files, "d").unwrap();
        put(files, "mine", "1");
        assert_eq!(Tree::through(&other), before);
        put(&other, "theirs", "1");
        assert_eq!(Tree::through(files), Some(Tree::of(&[("f", "2"), ("mine", "1")])));
    });
}

#[test]
fn sixteen_threads_that_count_in_one_file_lose_nothing() {
    every_tree(&Tree::of(&[("count", "0")]), |Subject { files, .. }| {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let change = &mut |text: Option<&str>| {
                            let count: u32 = text.unwrap().parse().unwrap();
                            Ok((count + 1).to_string())
                        };
                        files.update(&path("count"), &WriteOptions::default(), 100, change).unwrap();
                    }
                });
            }
        });
        assert_eq!(read(files, "count").unwrap(), "160");
    });
}

#[test]
fn an_update_that_fails_or_grows_too_large_changes_nothing() {
    every_tree(&Tree::of(&[("f", "12345")]), |Subject { files, commands, .. }| {
        let before = etag(files, "f");
        let update = |limit, change: &mut dyn FnMut(Option<&str>) -> storage::Result<String>| {
            files.update(&path("f"), &WriteOptions::default(), limit, change)
        };
        assert!(matches!(update(4, &mut |_| Ok(String::new())), Err(Error::TooLarge { .. })));
        assert!(matches!(update(5, &mut |_| Ok("123456".into())), Err(Error::TooLarge { .. })));
        assert!(matches!(update(9, &mut |_| Err(Error::NotText("f".into()))), Err(Error::NotText(_))));
        assert_eq!(etag(files, "f"), before);
        std::fs::write(commands.join("f"), b"\xFF").unwrap();
        assert!(matches!(update(9, &mut |_| Ok(String::new())), Err(Error::NotText(_))));
    });
}

#[test]
fn a_tree_that_nobody_made_has_nothing_and_is_made_by_the_first_write() {
    let fixture = Fixture::new();
    for files in [fixture.workspace("u"), fixture.skill("u", "s")] {
        for result in
            [files.stat(&path("x")).map(drop), files.open(&path("x")).map(drop), remove(&files, "x")]
        {
            match result {
                Err(Error::NotFound(at)) => assert_eq!(at, "x", "the sender's own path is named"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(write(&files, "x/y", b"1", &WriteOptions::default()), Err(Error::NotFound(_))));
        put(&files, "x", "1");
        assert_eq!(Tree::through(&files), Some(Tree::of(&[("x", "1")])));
    }
    assert_eq!(fixture.workspace("v").list(&RelPath::root()).unwrap(), []);
    assert!(matches!(fixture.skill("v", "s").list(&RelPath::root()), Err(Error::NotFound(_))));
}

#[test]
fn a_name_with_the_shape_of_a_foreign_marker_is_a_name() {
    every_tree(
        &Tree::of(&[(".wh.f", "1"), ("f", "1"), (".wh..wh..opq", "1")]),
        |Subject { files, .. }| {
            remove(files, ".wh.f").unwrap();
            put(files, "d/.wh..wh..opq", "2");
            let expected = Tree::of(&[("f", "1"), (".wh..wh..opq", "1"), ("d/.wh..wh..opq", "2")]);
            assert_eq!(Tree::through(files), Some(expected));
        },
    );
}

#[test]
fn what_is_moved_away_leaves_nothing_behind() {
    let mut content = Tree::of(&[("d/f", "1"), ("d/e/g", "2")]);
    content.dir("d/empty", 0o700).link("d/link", "f");
    every_tree(&content, |Subject { files, .. }| {
        put(files, "d/own", "3");
        remove(files, "d/f").unwrap();
        rename(files, "d", "moved").unwrap();
        files.make_dir(&path("d"), 0o755, false).unwrap();
        let mut expected = Tree::of(&[("moved/own", "3"), ("moved/e/g", "2")]);
        expected.dir("moved/empty", 0o700).link("moved/link", "f").dir("d", 0o755);
        assert_eq!(Tree::through(files), Some(expected));
        rename(files, "moved/e", "d/e").unwrap();
        assert_eq!(
            Tree::through(files).unwrap().nodes.get("d/e/g"),
            Some(&Node::File { mode: 0o644, bytes: b"2".into() })
        );
    });
}
