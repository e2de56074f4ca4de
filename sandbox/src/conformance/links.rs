//! Symbolic links and named pipes, which commands leave behind.

use std::time::Duration;

use super::case::{Case, kind};
use crate::{DirEntry, ErrorKind, FileKind, SandboxExt};

laws! {
    a_link_inside_is_read_through [Links] "to a file beside it, and to one above it";
    a_link_inside_is_written_through [Links Changes] "the target changes, the link stays a link";
    a_link_to_what_is_not_there_is_written_through [Links Changes] "the target is made";
    stat_follows_a_link [Links] "and has the name that was asked for";
    a_link_to_a_directory_is_a_directory [Links] "listed, and files are read through it";
    a_listing_shows_links_as_links [Links] "with the length of their text";
    a_link_to_nothing_is_not_found [Links] "read, stat and list";
    a_link_out_is_denied [Links] "relative and absolute, to what is there: read, stat and list";
    a_link_out_is_not_written_through [Links Changes] "to what is there, and to what is not";
    nothing_is_made_or_removed_through_a_link_out [Links Changes] "mkdir_all, remove and remove_all below it";
    a_link_out_and_back_in_is_denied_or_followed [Links] "never anything else";
    a_cycle_of_links_is_denied [Links] "a link to itself, and two to each other";
    an_absolute_link_inside_is_followed_or_denied [Links] "never anything else";
    removing_a_link_keeps_its_target [Links Changes] "remove and remove_all, to files and directories";
    removing_a_link_out_removes_the_link [Links Changes] "and nothing outside";
    removing_a_tree_follows_no_link [Links Changes] "what links in it lead to stays";
    a_walk_follows_no_link [Links] "it names them, and ends, although one leads upwards";
    mkdir_all_over_a_link_to_nothing_is_not_a_directory [Links Changes] "and makes nothing";
    a_pipe_is_denied_at_once [Pipes] "read, without a wait for a writer";
    a_pipe_is_not_written [Pipes Changes] "nor replaced";
    a_pipe_is_neither_file_nor_directory [Pipes] "in stat and in listings";
}

async fn a_link_inside_is_read_through(case: Case) {
    case.put_dir("dir").await;
    case.put("file", "bytes").await;
    let beside = case.put_link("file", "beside").await;
    let above = case.put_link("../file", "dir/above").await;
    let chained = case.put_link("dir/above", "chained").await;
    for link in [beside, above, chained] {
        assert_eq!(case.read(&link).await.unwrap(), "bytes", "{link}");
    }
}

async fn a_link_inside_is_written_through(case: Case) {
    let file = case.put("file", "old").await;
    let link = case.put_link("file", "link").await;
    case.write(&link, "new").await.unwrap();
    assert_eq!(case.read(&file).await.unwrap(), "new");
    let entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
    assert_eq!(entries[1].kind, FileKind::Symlink);
}

async fn a_link_to_what_is_not_there_is_written_through(case: Case) {
    case.put_dir("dir").await;
    let link = case.put_link("dir/new", "link").await;
    case.write(&link, "made").await.unwrap();
    assert_eq!(case.read(&case.path("dir/new")).await.unwrap(), "made");
}

async fn stat_follows_a_link(case: Case) {
    case.put("file", "12345").await;
    let link = case.put_link("file", "link").await;
    let info = case.sandbox.stat(&case.alice, &link).await.unwrap();
    assert_eq!((info.name.as_str(), info.kind, info.size), ("link", FileKind::File, 5));
}

async fn a_link_to_a_directory_is_a_directory(case: Case) {
    case.put_dir("dir").await;
    case.put("dir/file", "bytes").await;
    let link = case.put_link("dir", "link").await;
    assert_eq!(case.sandbox.stat(&case.alice, &link).await.unwrap().kind, FileKind::Directory);
    assert_eq!(case.names(&link).await, ["file"]);
    assert_eq!(case.read(&case.path("link/file")).await.unwrap(), "bytes");
}

async fn a_listing_shows_links_as_links(case: Case) {
    case.put_link("nowhere", "link").await;
    let entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
    assert_eq!(entries, [DirEntry { name: "link".into(), kind: FileKind::Symlink, size: 7 }]);
}

async fn a_link_to_nothing_is_not_found(case: Case) {
    let link = case.put_link("nowhere", "link").await;
    assert_eq!(kind(case.read(&link).await), ErrorKind::NotFound);
    assert_eq!(kind(case.sandbox.stat(&case.alice, &link).await), ErrorKind::NotFound);
    assert_eq!(kind(case.sandbox.read_dir(&case.alice, &link).await), ErrorKind::NotFound);
    assert!(!case.sandbox.exists(&case.alice, &link).await.unwrap());
}

/// Links out of the workspace, to what every system has and to what none has.
const WAYS_OUT: [&str; 4] =
    ["../../../../../../../../tmp", "/tmp", "/no-such-directory", "../../../../../../no-such-directory"];

async fn a_link_out_is_denied(case: Case) {
    for (number, target) in WAYS_OUT.iter().enumerate() {
        let link = case.put_link(target, &format!("link{number}")).await;
        let below = link.join("no-such-file").unwrap();
        assert_eq!(kind(case.read(&below).await), ErrorKind::PermissionDenied, "{target}");
        for path in [&link, &below] {
            let looked = case.sandbox.stat(&case.alice, path).await;
            assert_eq!(kind(looked), ErrorKind::PermissionDenied, "{target}");
            let listed = case.sandbox.read_dir(&case.alice, path).await;
            assert_eq!(kind(listed), ErrorKind::PermissionDenied, "{target}");
        }
    }
}

async fn a_link_out_is_not_written_through(case: Case) {
    for (number, target) in WAYS_OUT.iter().enumerate() {
        let link = case.put_link(target, &format!("dir{number}")).await;
        let written = case.write(&link.join("no-such-file").unwrap(), "x").await;
        assert_eq!(kind(written), ErrorKind::PermissionDenied, "{target}");
        let file = case.put_link(&format!("{target}/no-such-file"), &format!("file{number}")).await;
        assert_eq!(kind(case.write(&file, "x").await), ErrorKind::PermissionDenied, "{target}");
    }
}

async fn nothing_is_made_or_removed_through_a_link_out(case: Case) {
    for (number, target) in WAYS_OUT.iter().enumerate() {
        let below = case.put_link(target, &format!("link{number}")).await.join("no-such-entry/x").unwrap();
        let made = case.sandbox.mkdir_all(&case.alice, &below, 0o755).await;
        assert_eq!(kind(made), ErrorKind::PermissionDenied, "{target}");
        let removed = case.sandbox.remove(&case.alice, &below).await;
        assert_eq!(kind(removed), ErrorKind::PermissionDenied, "{target}");
        let removed = case.sandbox.remove_all(&case.alice, &below).await;
        assert_eq!(kind(removed), ErrorKind::PermissionDenied, "{target}");
    }
}

async fn a_link_out_and_back_in_is_denied_or_followed(case: Case) {
    case.put("file", "bytes").await;
    let (name, law) = (case.workspace.file_name().unwrap(), case.dir.file_name().unwrap());
    let link = case.put_link(&format!("../../{name}/{law}/file"), "link").await;
    followed_or_denied(case.read(&link).await);
}

fn followed_or_denied(read: crate::Result<bytes::Bytes>) {
    match read {
        Ok(bytes) => assert_eq!(bytes, "bytes"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
    }
}

async fn a_cycle_of_links_is_denied(case: Case) {
    let itself = case.put_link("self", "self").await;
    let one = case.put_link("two", "one").await;
    case.put_link("one", "two").await;
    for link in [itself, one] {
        assert_eq!(kind(case.read(&link).await), ErrorKind::PermissionDenied, "{link}");
        assert_eq!(kind(case.sandbox.stat(&case.alice, &link).await), ErrorKind::PermissionDenied, "{link}");
        let below = case.read(&link.join("x").unwrap()).await;
        assert_eq!(kind(below), ErrorKind::PermissionDenied, "{link}");
    }
}

async fn an_absolute_link_inside_is_followed_or_denied(case: Case) {
    let file = case.put("file", "bytes").await;
    let link = case.put_link(file.as_str(), "link").await;
    followed_or_denied(case.read(&link).await);
}

async fn removing_a_link_keeps_its_target(case: Case) {
    case.put_dir("dir").await;
    case.put("dir/file", "kept").await;
    for (number, target) in ["dir", "dir/file", "dir", "dir/file"].iter().enumerate() {
        let link = case.put_link(target, "link").await;
        if number < 2 {
            case.sandbox.remove(&case.alice, &link).await.unwrap();
        } else {
            case.sandbox.remove_all(&case.alice, &link).await.unwrap();
        }
        assert_eq!(case.names(&case.dir).await, ["dir"]);
    }
    assert_eq!(case.read(&case.path("dir/file")).await.unwrap(), "kept");
}

async fn removing_a_link_out_removes_the_link(case: Case) {
    for target in ["../../../../../../../no-such-directory/x", "/no-such-directory"] {
        let link = case.put_link(target, "link").await;
        case.sandbox.remove(&case.alice, &link).await.unwrap();
        let link = case.put_link(target, "link").await;
        case.sandbox.remove_all(&case.alice, &link).await.unwrap();
    }
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn removing_a_tree_follows_no_link(case: Case) {
    case.put_dir("kept").await;
    case.put("kept/file", "kept").await;
    case.put_dir("tree/below").await;
    case.put_link("../kept", "tree/dir").await;
    case.put_link("../../kept/file", "tree/below/file").await;
    case.put_link("../..", "tree/up").await;
    case.sandbox.remove_all(&case.alice, &case.path("tree")).await.unwrap();
    assert_eq!(case.names(&case.dir).await, ["kept"]);
    assert_eq!(case.read(&case.path("kept/file")).await.unwrap(), "kept");
}

async fn a_walk_follows_no_link(case: Case) {
    case.put_dir("dir").await;
    case.put("dir/file", "x").await;
    case.put_link("..", "dir/up").await;
    let (found, more) = case.sandbox.walk(&case.alice, &case.dir, 1000).await.unwrap();
    let found: Vec<_> = found.iter().map(|(path, entry)| (path.as_str(), entry.kind)).collect();
    assert_eq!((found, more), (vec![("dir/file", FileKind::File), ("dir/up", FileKind::Symlink)], false));
}

async fn mkdir_all_over_a_link_to_nothing_is_not_a_directory(case: Case) {
    let link = case.put_link("nowhere", "link").await;
    assert_eq!(kind(case.sandbox.mkdir_all(&case.alice, &link, 0o755).await), ErrorKind::NotADirectory);
    assert_eq!(case.names(&case.dir).await, ["link"]);
}

async fn a_pipe_is_denied_at_once(case: Case) {
    let path = case.path("pipe");
    case.subject.pipe(&case.alice, &path).await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(20), case.read(&path)).await;
    assert_eq!(kind(read.unwrap()), ErrorKind::PermissionDenied);
}

async fn a_pipe_is_not_written(case: Case) {
    let path = case.path("pipe");
    case.subject.pipe(&case.alice, &path).await.unwrap();
    let written = tokio::time::timeout(Duration::from_secs(20), case.write(&path, "x")).await;
    assert_eq!(kind(written.unwrap()), ErrorKind::PermissionDenied);
}

async fn a_pipe_is_neither_file_nor_directory(case: Case) {
    let path = case.path("pipe");
    case.subject.pipe(&case.alice, &path).await.unwrap();
    assert_eq!(case.sandbox.stat(&case.alice, &path).await.unwrap().kind, FileKind::Other);
    let entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
    assert_eq!(entries[0].kind, FileKind::Other);
}
