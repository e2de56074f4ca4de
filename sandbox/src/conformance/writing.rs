//! Writing files.

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::case::{Case, body, kind};
use crate::{Error, ErrorKind, FileKind, WriteMode, WriteOptions};

laws! {
    a_new_file_has_mode_644 [Changes] "unless permission bits are sent";
    permission_bits_are_exact [Changes] "600, 640, 755 and 777, under any umask";
    replacing_keeps_the_bits [Changes] "an executable script stays one";
    replacing_with_bits_sets_them [Changes] "600 over 644";
    a_shorter_text_replaces_a_longer_one [Changes] "nothing of the old end is left";
    create_makes_a_new_file [Changes] "with the bits that were sent";
    create_refuses_what_is_there [Changes] "and leaves it as it is";
    create_refuses_a_directory [Changes] "already_exists, too";
    create_replaces_no_link [Changes Links] "one to nothing is taken, or its target is made; it stays a link";
    writing_a_directory_is_is_directory [Changes] "a directory, and the workspace itself";
    writing_in_a_missing_directory_is_not_found [Changes] "and no directory is made by the way";
    writing_below_a_file_is_not_a_directory [Changes] "`file/x`";
    writing_outside_is_denied [Changes Walls] "`/outside.txt` and a sibling of the workspace";
    senseless_bits_are_invalid [Changes] "1777 and 7777 for a file, 1000 for a directory";
    a_stream_that_fails_leaves_the_old_file [Changes] "after a piece of the new one had come";
    a_stream_that_fails_makes_no_file [Changes] "nor anything else in the directory";
    a_write_leaves_nothing_beside_the_file [Changes] "no temporary files, replaced or new";
    many_small_pieces_make_one_file [Changes] "10 000 pieces of 1 to 7 bytes";
    a_stream_without_pieces_makes_an_empty_file [Changes] "size 0";
    a_slow_stream_is_waited_for [Changes] "and until it ends the old file is seen";
    a_written_file_is_a_regular_file [Changes] "of the size of what was sent";
}

fn with_bits(bits: u32) -> WriteOptions {
    WriteOptions { mode: WriteMode::Replace, permissions: Some(bits) }
}

const CREATE: WriteOptions = WriteOptions { mode: WriteMode::Create, permissions: None };

async fn a_new_file_has_mode_644(case: Case) {
    let path = case.path("new");
    case.write(&path, "x").await.unwrap();
    assert_eq!(case.mode(&path).await, 0o644);
}

async fn permission_bits_are_exact(case: Case) {
    for bits in [0o600, 0o640, 0o755, 0o777] {
        let path = case.path(&format!("{bits:o}"));
        case.write_with(&path, b"x", with_bits(bits)).await.unwrap();
        assert_eq!(case.mode(&path).await, bits);
    }
}

async fn replacing_keeps_the_bits(case: Case) {
    let path = case.path("run.sh");
    case.write_with(&path, b"old", with_bits(0o755)).await.unwrap();
    case.write(&path, "new").await.unwrap();
    assert_eq!((case.mode(&path).await, case.read(&path).await.unwrap()), (0o755, "new".into()));
}

async fn replacing_with_bits_sets_them(case: Case) {
    let path = case.put("file", "old").await;
    case.write_with(&path, b"new", with_bits(0o600)).await.unwrap();
    assert_eq!((case.mode(&path).await, case.read(&path).await.unwrap()), (0o600, "new".into()));
}

async fn a_shorter_text_replaces_a_longer_one(case: Case) {
    let path = case.put("file", "a long text").await;
    case.write(&path, "短").await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "短");
}

async fn create_makes_a_new_file(case: Case) {
    let path = case.path("new");
    case.write_with(&path, b"x", WriteOptions { permissions: Some(0o700), ..CREATE }).await.unwrap();
    assert_eq!((case.mode(&path).await, case.read(&path).await.unwrap()), (0o700, "x".into()));
}

async fn create_refuses_what_is_there(case: Case) {
    let path = case.put("there", "old").await;
    assert_eq!(kind(case.write_with(&path, b"new", CREATE).await), ErrorKind::AlreadyExists);
    assert_eq!(case.read(&path).await.unwrap(), "old");
}

async fn create_refuses_a_directory(case: Case) {
    let path = case.put_dir("there").await;
    assert_eq!(kind(case.write_with(&path, b"new", CREATE).await), ErrorKind::AlreadyExists);
}

async fn create_replaces_no_link(case: Case) {
    let link = case.put_link("target", "link").await;
    let target = case.path("target");
    match case.write_with(&link, b"new", CREATE).await {
        Ok(()) => assert_eq!(case.read(&target).await.unwrap(), "new"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert_eq!(kind(case.read(&target).await), ErrorKind::NotFound);
        }
    }
    assert_eq!(case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap()[0].kind, FileKind::Symlink);
}

async fn writing_a_directory_is_is_directory(case: Case) {
    let path = case.put_dir("there").await;
    assert_eq!(kind(case.write(&path, "x").await), ErrorKind::IsDirectory);
    assert_eq!(kind(case.write(&case.workspace, "x").await), ErrorKind::IsDirectory);
}

async fn writing_in_a_missing_directory_is_not_found(case: Case) {
    assert_eq!(kind(case.write(&case.path("missing/file"), "x").await), ErrorKind::NotFound);
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn writing_below_a_file_is_not_a_directory(case: Case) {
    case.put("file", "old").await;
    assert_eq!(kind(case.write(&case.path("file/x"), "x").await), ErrorKind::NotADirectory);
}

async fn writing_outside_is_denied(case: Case) {
    for text in ["/outside.txt".to_owned(), format!("{}-evil/x", case.workspace)] {
        let path = text.parse().unwrap();
        assert_eq!(kind(case.write(&path, "x").await), ErrorKind::PermissionDenied, "{text}");
        let made = case.sandbox.mkdir_all(&case.alice, &path, 0o755).await;
        assert_eq!(kind(made), ErrorKind::PermissionDenied, "{text}");
        let removed = case.sandbox.remove_all(&case.alice, &path).await;
        assert_eq!(kind(removed), ErrorKind::PermissionDenied, "{text}");
    }
}

async fn senseless_bits_are_invalid(case: Case) {
    for bits in [0o1777, 0o7777, u32::MAX] {
        let path = case.path("file");
        assert_eq!(kind(case.write_with(&path, b"x", with_bits(bits)).await), ErrorKind::Invalid, "{bits:o}");
    }
    let made = case.sandbox.mkdir_all(&case.alice, &case.path("dir"), 0o1000).await;
    assert_eq!(kind(made), ErrorKind::Invalid);
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

fn failing() -> crate::ByteStream {
    let pieces =
        [Ok(Bytes::from(vec![b'n'; 100_000])), Err(Error::new(ErrorKind::Disconnected, "law", "broken off"))];
    stream::iter(pieces).boxed()
}

async fn a_stream_that_fails_leaves_the_old_file(case: Case) {
    let path = case.put("file", "old").await;
    case.sandbox.write_file(&case.alice, &path, failing(), WriteOptions::default()).await.unwrap_err();
    assert_eq!(case.read(&path).await.unwrap(), "old");
}

async fn a_stream_that_fails_makes_no_file(case: Case) {
    let path = case.path("file");
    let written = case.sandbox.write_file(&case.alice, &path, failing(), WriteOptions::default()).await;
    assert_eq!(kind(written), ErrorKind::Disconnected, "the error of the stream itself");
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn a_write_leaves_nothing_beside_the_file(case: Case) {
    let path = case.path("file");
    case.write(&path, "first").await.unwrap();
    case.write(&path, "second").await.unwrap();
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn many_small_pieces_make_one_file(case: Case) {
    let pieces: Vec<Bytes> =
        (0..10_000_usize).map(|at| Bytes::from(vec![(at % 256) as u8; at % 7 + 1])).collect();
    let (whole, path) = (pieces.concat(), case.path("file"));
    let pieces = stream::iter(pieces).map(Ok).boxed();
    case.sandbox.write_file(&case.alice, &path, pieces, WriteOptions::default()).await.unwrap();
    assert!(case.read(&path).await.unwrap() == whole);
}

async fn a_stream_without_pieces_makes_an_empty_file(case: Case) {
    let path = case.put("file", "old").await;
    case.sandbox.write_file(&case.alice, &path, body([]), WriteOptions::default()).await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "");
}

async fn a_slow_stream_is_waited_for(case: Case) {
    let path = case.put("file", "old").await;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let late = async move { Ok(Bytes::from(receiver.await.unwrap_or("never"))) };
    let pieces = stream::once(async { Ok(Bytes::from("new and ")) }).chain(stream::once(late)).boxed();
    let writing = case.sandbox.write_file(&case.alice, &path, pieces, WriteOptions::default());
    let reading = async {
        assert_eq!(case.read(&path).await.unwrap(), "old");
        sender.send("complete").unwrap();
    };
    let (written, ()) = tokio::join!(writing, reading);
    written.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "new and complete");
}

async fn a_written_file_is_a_regular_file(case: Case) {
    let path = case.path("file");
    case.write(&path, "12345").await.unwrap();
    let info = case.sandbox.stat(&case.alice, &path).await.unwrap();
    assert_eq!((info.kind, info.size), (FileKind::File, 5));
}
