//! Versions of files, and writes that are bound to one.

use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;

use super::Ability;
use super::case::{Case, body, kind};
use crate::{
    Error, ErrorKind, FileKind, ReadOptions, Result, SandboxExt, SandboxPath, Version, WriteMode,
    WriteOptions,
};

laws! {
    versions_are_told_where_files_can_be_swapped [Changes] "a backend that tells none is unsupported, and changes nothing";
    a_file_has_a_version_and_a_directory_none [Versions] "the same from stat and read_file";
    a_version_outlives_reading_and_looking [Versions] "read_file, a part, stat, read_dir";
    a_swap_of_the_right_version_replaces_the_file [Changes Versions] "with another version, and the bits that it had";
    a_swap_with_bits_sets_them [Changes Versions] "600 over 644";
    a_swap_of_an_old_version_changes_nothing [Changes Versions] "stale: bytes, version and directory are as they were";
    a_swap_of_a_missing_file_is_stale [Changes Versions] "and makes none, nor its directory where that is missing too";
    a_swap_of_a_directory_is_is_directory [Changes Versions] "a directory, and the workspace itself";
    a_swap_goes_through_a_link [Changes Versions Links] "the version is that of the target, and the link stays";
    a_swap_whose_stream_fails_leaves_the_file [Changes Versions] "with the version that it had";
    a_large_file_is_swapped_as_a_small_one [Changes Versions] "of pieces of 1 MiB, right and stale";
    each_write_tells_the_version_of_the_file [Changes Versions] "replace, create and swap, as stat tells it then";
    each_write_of_the_same_bytes_gives_another_version [Changes Versions] "twenty writes in a row, all different";
    a_file_that_is_made_anew_has_another_version [Changes Versions] "the same path and bytes, removed in between";
    of_many_swaps_from_one_version_one_succeeds [Changes Versions] "sixteen: the others are stale, the bytes the winner's";
    swaps_that_read_again_lose_no_change [Changes Versions] "six callers count to eighteen together";
    a_command_that_writes_gives_another_version [Changes Versions Commands] "and a swap from the one before is stale";
}

fn swap(version: &Version) -> WriteOptions {
    WriteOptions { mode: WriteMode::Swap(version.clone()), permissions: None }
}

impl Case {
    /// The version of a file, which there must be.
    async fn version(&self, path: &SandboxPath) -> Version {
        self.sandbox.stat(&self.alice, path).await.unwrap().version.unwrap()
    }

    async fn swap(
        &self,
        path: &SandboxPath,
        bytes: &'static [u8],
        version: &Version,
    ) -> Result<Option<Version>> {
        self.sandbox.write_file(&self.alice, path, body([bytes]), swap(version)).await
    }
}

async fn versions_are_told_where_files_can_be_swapped(case: Case) {
    let path = case.put("file", "old").await;
    let told = case.sandbox.stat(&case.alice, &path).await.unwrap().version;
    assert_eq!(told.is_some(), case.subject.abilities().contains(&Ability::Versions));
    if told.is_none() {
        let read = case.sandbox.read_file(&case.alice, &path, ReadOptions::default()).await.unwrap();
        assert_eq!(read.info.version, None);
        let version = Version::parse("0").unwrap();
        assert_eq!(kind(case.swap(&path, b"new", &version).await), ErrorKind::Unsupported);
        assert_eq!(case.read(&path).await.unwrap(), "old");
    }
}

async fn a_file_has_a_version_and_a_directory_none(case: Case) {
    let path = case.put("file", "text").await;
    let read = case.sandbox.read_file(&case.alice, &path, ReadOptions::default()).await.unwrap();
    assert_eq!(read.info.version, Some(case.version(&path).await));
    let directory = case.sandbox.stat(&case.alice, &case.dir).await.unwrap();
    assert_eq!((directory.kind, directory.version), (FileKind::Directory, None));
}

async fn a_version_outlives_reading_and_looking(case: Case) {
    let path = case.put("file", "a text").await;
    let version = case.version(&path).await;
    case.read(&path).await.unwrap();
    let part = ReadOptions { range: Some(2..4), bytes_max: None };
    let part = case.sandbox.read_file(&case.alice, &path, part).await.unwrap();
    assert_eq!(part.info.version.as_ref(), Some(&version));
    assert_eq!(part.bytes().await.unwrap(), "te");
    case.names(&case.dir).await;
    assert_eq!(case.version(&path).await, version);
}

async fn a_swap_of_the_right_version_replaces_the_file(case: Case) {
    let path = case.path("run.sh");
    let options = WriteOptions { permissions: Some(0o755), ..WriteOptions::default() };
    case.write_with(&path, b"old", options).await.unwrap();
    let old = case.version(&path).await;
    let new = case.swap(&path, b"new", &old).await.unwrap().unwrap();
    assert_ne!(new, old);
    assert_eq!(case.version(&path).await, new);
    assert_eq!((case.mode(&path).await, case.read(&path).await.unwrap()), (0o755, "new".into()));
    assert_eq!(case.names(&case.dir).await, ["run.sh"]);
    // And on from there.
    case.swap(&path, b"newer", &new).await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "newer");
}

async fn a_swap_with_bits_sets_them(case: Case) {
    let path = case.put("file", "old").await;
    let options = WriteOptions { permissions: Some(0o600), ..swap(&case.version(&path).await) };
    case.write_with(&path, b"new", options).await.unwrap();
    assert_eq!((case.mode(&path).await, case.read(&path).await.unwrap()), (0o600, "new".into()));
}

async fn a_swap_of_an_old_version_changes_nothing(case: Case) {
    let path = case.put("file", "old").await;
    let old = case.version(&path).await;
    case.write(&path, "between").await.unwrap();
    let between = case.version(&path).await;
    for version in [&old, &Version::parse("made-up").unwrap()] {
        assert_eq!(kind(case.swap(&path, b"new", version).await), ErrorKind::Stale);
    }
    assert_eq!(case.read(&path).await.unwrap(), "between");
    assert_eq!(case.version(&path).await, between);
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn a_swap_of_a_missing_file_is_stale(case: Case) {
    let path = case.put("file", "old").await;
    let version = case.version(&path).await;
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    assert_eq!(kind(case.swap(&path, b"new", &version).await), ErrorKind::Stale);
    assert_eq!(case.names(&case.dir).await, [""; 0]);
    let missing = case.path("missing/file");
    assert_eq!(kind(case.swap(&missing, b"new", &version).await), ErrorKind::Stale);
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn a_swap_of_a_directory_is_is_directory(case: Case) {
    let version = case.version(&case.put("file", "text").await).await;
    let path = case.put_dir("there").await;
    for directory in [&path, &case.workspace] {
        assert_eq!(kind(case.swap(directory, b"new", &version).await), ErrorKind::IsDirectory);
    }
}

async fn a_swap_goes_through_a_link(case: Case) {
    let target = case.put("target", "old").await;
    let link = case.put_link("target", "link").await;
    let version = case.version(&link).await;
    assert_eq!(case.version(&target).await, version);
    case.swap(&link, b"new", &version).await.unwrap();
    assert_eq!(case.read(&target).await.unwrap(), "new");
    assert_eq!(kind(case.swap(&link, b"newer", &version).await), ErrorKind::Stale);
    let entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
    assert_eq!(entries[0].kind, FileKind::Symlink);
}

async fn a_swap_whose_stream_fails_leaves_the_file(case: Case) {
    let path = case.put("file", "old").await;
    let version = case.version(&path).await;
    let pieces = [Ok("new".into()), Err(Error::new(ErrorKind::Disconnected, "law", "broken off"))];
    let failing = stream::iter(pieces).boxed();
    case.sandbox.write_file(&case.alice, &path, failing, swap(&version)).await.unwrap_err();
    assert_eq!((case.read(&path).await.unwrap(), case.version(&path).await), ("old".into(), version));
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn a_large_file_is_swapped_as_a_small_one(case: Case) {
    static PIECE: [u8; 1 << 20] = [b'x'; 1 << 20];
    let path = case.put("file", "old").await;
    let old = case.version(&path).await;
    let write = |version: &Version| {
        let pieces = body([&PIECE, &PIECE, b"the end"]);
        case.sandbox.write_file(&case.alice, &path, pieces, swap(version))
    };
    let new = write(&old).await.unwrap();
    let info = case.sandbox.stat(&case.alice, &path).await.unwrap();
    assert_eq!((info.size, &info.version), (2 * (1 << 20) + 7, &new));
    assert_eq!(kind(write(&old).await), ErrorKind::Stale);
    assert_eq!(case.sandbox.stat(&case.alice, &path).await.unwrap(), info);
}

async fn each_write_tells_the_version_of_the_file(case: Case) {
    let path = case.path("file");
    let mut mode = WriteMode::Create;
    for bytes in [&b"first"[..], b"second", b""] {
        let options = WriteOptions { mode, permissions: None };
        let written = case.sandbox.write_file(&case.alice, &path, body([bytes]), options).await.unwrap();
        assert_eq!(written, Some(case.version(&path).await));
        mode = WriteMode::Swap(written.unwrap());
    }
    let written = case.sandbox.write_file(&case.alice, &path, body([b"last"]), WriteOptions::default()).await;
    assert_eq!(written.unwrap(), Some(case.version(&path).await));
}

async fn each_write_of_the_same_bytes_gives_another_version(case: Case) {
    let path = case.path("file");
    let mut versions = HashSet::new();
    for _ in 0..20 {
        case.write(&path, "the same").await.unwrap();
        versions.insert(case.version(&path).await);
    }
    assert_eq!(versions.len(), 20);
}

async fn a_file_that_is_made_anew_has_another_version(case: Case) {
    let path = case.path("file");
    case.write(&path, "the same").await.unwrap();
    let old = case.version(&path).await;
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    case.write(&path, "the same").await.unwrap();
    assert_ne!(case.version(&path).await, old);
    assert_eq!(kind(case.swap(&path, b"new", &old).await), ErrorKind::Stale);
}

async fn of_many_swaps_from_one_version_one_succeeds(case: Case) {
    let path = case.put("file", "old").await;
    let version = case.version(&path).await;
    let callers = (0..16_u8).map(|number| {
        let (case, path, version) = (case.clone(), path.clone(), version.clone());
        tokio::spawn(async move {
            let swapped = case.sandbox.swap(&case.alice, &path, vec![number; 10_000].into(), version).await;
            (number, swapped)
        })
    });
    let mut winners = Vec::new();
    for ended in join_all(callers).await {
        match ended.unwrap() {
            (number, Ok(version)) => winners.push((number, version)),
            (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Stale),
        }
    }
    assert_eq!(winners.len(), 1);
    let (number, version) = winners.remove(0);
    assert_eq!(case.read(&path).await.unwrap(), vec![number; 10_000]);
    assert_eq!(version, Some(case.version(&path).await));
}

async fn swaps_that_read_again_lose_no_change(case: Case) {
    let path = case.put("count", "0").await;
    let callers = (0..6).map(|_| {
        let (case, path) = (case.clone(), path.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while done < 3 {
                let (bytes, version) = case.sandbox.read_versioned(&case.alice, &path).await.unwrap();
                let count: u32 = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
                let next = (count + 1).to_string().into();
                match case.sandbox.swap(&case.alice, &path, next, version.unwrap()).await {
                    Ok(_) => done += 1,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Stale),
                }
            }
        })
    });
    join_all(callers).await.into_iter().for_each(|ended| ended.unwrap());
    assert_eq!(case.read(&path).await.unwrap(), "18");
}

async fn a_command_that_writes_gives_another_version(case: Case) {
    let path = case.put("file", "old").await;
    let old = case.version(&path).await;
    assert!(case.shell("printf ' and more' >> file").await.is_success());
    assert_ne!(case.version(&path).await, old);
    assert_eq!(kind(case.swap(&path, b"new", &old).await), ErrorKind::Stale);
    assert_eq!(case.read(&path).await.unwrap(), "old and more");
}
