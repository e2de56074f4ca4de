//! Reading files and looking at them.

use std::time::{Duration, SystemTime};

use super::case::{Case, kind};
use crate::{ErrorKind, FileKind, ReadOptions, SandboxExt};

laws! {
    a_file_is_read_as_it_was_written [] "text in another script comes back byte for byte";
    an_empty_file_is_read [] "no bytes, size 0";
    all_bytes_survive [] "each of the 256 values, NUL and line ends among them";
    a_megabyte_and_a_byte_comes_whole [] "what no single piece holds comes complete and in order";
    a_range_gives_its_bytes_only [] "bytes 2 to 5 of ten";
    a_range_is_cut_at_the_end_of_the_file [] "bytes 8 to 100 of ten are two";
    a_range_beyond_the_end_gives_nothing [] "bytes 100 to 200 of ten are none, and no error";
    an_empty_range_gives_nothing [] "bytes 3 to 3 of ten are none";
    more_than_the_callers_limit_is_too_large [] "ten bytes where nine may be had";
    a_range_within_the_callers_limit_is_read [] "three of ten bytes where three may be had";
    the_limit_of_the_caller_may_be_met [] "ten bytes where ten may be had";
    an_open_file_tells_its_facts [] "name, kind, size and range come with the body";
    stat_tells_the_facts [] "name, kind, size, and a time of change that is near now";
    stat_of_a_directory_tells_its_kind [] "a directory, its name, its permission bits";
    the_workspace_is_a_directory [] "stat of the workspace itself";
    reading_what_is_not_there_is_not_found [] "read and stat of a missing file";
    reading_in_a_missing_directory_is_not_found [] "read and stat below a missing directory";
    reading_a_directory_is_is_directory [] "a directory, and the workspace, have no bytes";
    reading_below_a_file_is_not_a_directory [] "read, stat and list of `file/x`";
    exists_tells_what_is_there [] "true for files and directories, false for nothing";
    a_sibling_with_the_same_beginning_is_outside [Walls] "`/workspace-evil/x` is not below `/workspace`";
    what_is_outside_is_denied [Walls] "read, list and stat of `/` and `/etc/passwd`";
    a_way_out_and_back_in_is_inside [] "`W/../W/a` is `W/a`, by spelling";
    a_file_closed_by_its_bits_is_denied [Changes Modes] "mode 000 cannot be read";
    an_error_names_operation_and_path [] "what failed, and where, for the reader of a log";
}

async fn a_file_is_read_as_it_was_written(case: Case) {
    let path = case.put("诗.txt", "床前明月光,\n疑是地上霜。\n").await;
    assert_eq!(case.read(&path).await.unwrap(), "床前明月光,\n疑是地上霜。\n");
}

async fn an_empty_file_is_read(case: Case) {
    let path = case.put("empty", "").await;
    assert_eq!(case.read(&path).await.unwrap(), "");
    assert_eq!(case.sandbox.stat(&case.alice, &path).await.unwrap().size, 0);
}

async fn all_bytes_survive(case: Case) {
    let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let path = case.put("bytes", bytes.clone()).await;
    assert_eq!(case.read(&path).await.unwrap(), bytes);
}

async fn a_megabyte_and_a_byte_comes_whole(case: Case) {
    let bytes: Vec<u8> = (0..=1_u32 << 20).map(|at| (at % 251) as u8).collect();
    let path = case.put("megabyte", bytes.clone()).await;
    assert!(case.read(&path).await.unwrap() == bytes);
}

async fn window(case: &Case, options: ReadOptions) -> (std::ops::Range<u64>, bytes::Bytes) {
    let path = case.put("ten", "0123456789").await;
    let body = case.sandbox.read_file(&case.alice, &path, options).await.unwrap();
    (body.range.clone(), body.bytes().await.unwrap())
}

async fn a_range_gives_its_bytes_only(case: Case) {
    let options = ReadOptions { range: Some(2..5), bytes_max: None };
    assert_eq!(window(&case, options).await, (2..5, "234".into()));
}

async fn a_range_is_cut_at_the_end_of_the_file(case: Case) {
    let options = ReadOptions { range: Some(8..100), bytes_max: None };
    assert_eq!(window(&case, options).await, (8..10, "89".into()));
}

async fn a_range_beyond_the_end_gives_nothing(case: Case) {
    let options = ReadOptions { range: Some(100..200), bytes_max: None };
    assert_eq!(window(&case, options).await, (10..10, "".into()));
}

async fn an_empty_range_gives_nothing(case: Case) {
    let options = ReadOptions { range: Some(3..3), bytes_max: None };
    assert_eq!(window(&case, options).await, (3..3, "".into()));
}

async fn more_than_the_callers_limit_is_too_large(case: Case) {
    let path = case.put("ten", "0123456789").await;
    let options = ReadOptions { range: None, bytes_max: Some(9) };
    assert_eq!(kind(case.sandbox.read_file(&case.alice, &path, options).await), ErrorKind::TooLarge);
}

async fn a_range_within_the_callers_limit_is_read(case: Case) {
    let options = ReadOptions { range: Some(7..10), bytes_max: Some(3) };
    assert_eq!(window(&case, options).await, (7..10, "789".into()));
}

async fn the_limit_of_the_caller_may_be_met(case: Case) {
    let options = ReadOptions { range: None, bytes_max: Some(10) };
    assert_eq!(window(&case, options).await, (0..10, "0123456789".into()));
}

async fn an_open_file_tells_its_facts(case: Case) {
    let path = case.put("facts.txt", "12345").await;
    let body = case.sandbox.read_file(&case.alice, &path, ReadOptions::default()).await.unwrap();
    assert_eq!((body.info.name.as_str(), body.info.kind, body.info.size), ("facts.txt", FileKind::File, 5));
    assert_eq!(body.range, 0..5);
}

async fn stat_tells_the_facts(case: Case) {
    let path = case.put("facts.txt", "12345").await;
    let info = case.sandbox.stat(&case.alice, &path).await.unwrap();
    assert_eq!(
        (info.name.as_str(), info.kind, info.size, info.mode),
        ("facts.txt", FileKind::File, 5, 0o644)
    );
    let now = SystemTime::now();
    let apart = now.duration_since(info.modified).unwrap_or_else(|later| later.duration());
    assert!(apart < Duration::from_secs(600), "{apart:?}");
}

async fn stat_of_a_directory_tells_its_kind(case: Case) {
    let path = case.put_dir("目录").await;
    let info = case.sandbox.stat(&case.alice, &path).await.unwrap();
    assert_eq!((info.name.as_str(), info.kind, info.mode), ("目录", FileKind::Directory, 0o755));
}

async fn the_workspace_is_a_directory(case: Case) {
    let info = case.sandbox.stat(&case.alice, &case.workspace).await.unwrap();
    assert_eq!((Some(info.name.as_str()), info.kind), (case.workspace.file_name(), FileKind::Directory));
}

async fn reading_what_is_not_there_is_not_found(case: Case) {
    let path = case.path("missing");
    assert_eq!(kind(case.read(&path).await), ErrorKind::NotFound);
    assert_eq!(kind(case.sandbox.stat(&case.alice, &path).await), ErrorKind::NotFound);
}

async fn reading_in_a_missing_directory_is_not_found(case: Case) {
    let path = case.path("missing/file");
    assert_eq!(kind(case.read(&path).await), ErrorKind::NotFound);
    assert_eq!(kind(case.sandbox.stat(&case.alice, &path).await), ErrorKind::NotFound);
}

async fn reading_a_directory_is_is_directory(case: Case) {
    assert_eq!(kind(case.read(&case.dir).await), ErrorKind::IsDirectory);
    assert_eq!(kind(case.read(&case.workspace).await), ErrorKind::IsDirectory);
}

async fn reading_below_a_file_is_not_a_directory(case: Case) {
    case.put("file", "bytes").await;
    let path = case.path("file/x");
    assert_eq!(kind(case.read(&path).await), ErrorKind::NotADirectory);
    assert_eq!(kind(case.sandbox.stat(&case.alice, &path).await), ErrorKind::NotADirectory);
    assert_eq!(kind(case.sandbox.read_dir(&case.alice, &path).await), ErrorKind::NotADirectory);
}

async fn exists_tells_what_is_there(case: Case) {
    let path = case.put("there", "").await;
    assert!(case.sandbox.exists(&case.alice, &path).await.unwrap());
    assert!(case.sandbox.exists(&case.alice, &case.dir).await.unwrap());
    assert!(!case.sandbox.exists(&case.alice, &case.path("not there")).await.unwrap());
}

async fn a_sibling_with_the_same_beginning_is_outside(case: Case) {
    for text in [format!("{}-evil/x", case.workspace), format!("{}x", case.workspace)] {
        let path = text.parse().unwrap();
        assert_eq!(kind(case.read(&path).await), ErrorKind::PermissionDenied, "{text}");
        let listed = case.sandbox.read_dir(&case.alice, &path).await;
        assert_eq!(kind(listed), ErrorKind::PermissionDenied, "{text}");
    }
}

async fn what_is_outside_is_denied(case: Case) {
    for text in ["/", "/etc/passwd", "/workspac", "/proc/self/environ"] {
        let path = text.parse().unwrap();
        assert_eq!(kind(case.read(&path).await), ErrorKind::PermissionDenied, "{text}");
        assert_eq!(kind(case.sandbox.stat(&case.alice, &path).await), ErrorKind::PermissionDenied, "{text}");
        let listed = case.sandbox.read_dir(&case.alice, &path).await;
        assert_eq!(kind(listed), ErrorKind::PermissionDenied, "{text}");
    }
}

async fn a_way_out_and_back_in_is_inside(case: Case) {
    case.put("a", "bytes").await;
    let name = case.dir.file_name().unwrap();
    let around = case.path(&format!("../{name}/../{name}/a"));
    assert_eq!(case.read(&around).await.unwrap(), "bytes");
}

async fn a_file_closed_by_its_bits_is_denied(case: Case) {
    let path = case.path("closed");
    let options = crate::WriteOptions { permissions: Some(0), ..Default::default() };
    case.write_with(&path, b"secret", options).await.unwrap();
    assert_eq!(kind(case.read(&path).await), ErrorKind::PermissionDenied);
}

async fn an_error_names_operation_and_path(case: Case) {
    let path = case.path("missing");
    let error = case.read(&path).await.unwrap_err();
    assert_eq!((error.operation(), error.path()), ("read_file", Some(&path)));
    assert!(!error.message().is_empty());
}
