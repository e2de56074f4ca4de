//! Archives: an upload is refused, or planned and unpacked within what the plan says, beneath its directory.

#![no_main]

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use storage::Dir;
use storage::archive::{self, Compression, Options};
use tempfile::{TempDir, tempfile_in};

static PLACE: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir_in("/dev/shm").expect("room in memory"));

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile_in(PLACE.path()).expect("a file");
    file.write_all(bytes).expect("room in memory");
    take(&file);
});

fn take(file: &File) {
    let mut options = Options::default();
    options.limits.total_bytes = 1 << 20;
    options.limits.entries = 1000;
    if let Ok(Some(compression)) = Compression::of(file) {
        let mut plain = tempfile_in(PLACE.path()).expect("a file");
        let unpacked = compression.unpack(file, &options.limits, |bytes| {
            plain.write_all(bytes).expect("room in memory");
            Ok(())
        });
        if unpacked.is_ok() {
            take_plain(&plain, &options);
        }
    } else {
        take_plain(file, &options);
    }
}

fn take_plain(file: &File, options: &Options) {
    if let Ok(plan) = archive::plan(file, options) {
        assert!(!plan.skills.is_empty(), "a plan has a skill");
        for skill in &plan.skills {
            unpacked(skill.files, skill.bytes, |into| archive::extract(file, skill, into, None).is_ok());
        }
    }
    if let Ok(whole) = archive::plan_whole(file, options) {
        unpacked(whole.files, whole.bytes, |into| archive::extract_whole(file, &whole, into).is_ok());
    }
}

/// Unpacks into a directory of its own, which holds then what was planned and has no neighbour.
fn unpacked(files: usize, bytes: u64, extract: impl FnOnce(&Dir) -> bool) {
    let place = tempfile::tempdir_in(PLACE.path()).expect("room in memory");
    let outer = Dir::ambient_open(place.path()).expect("a directory");
    let into = outer.create_dir(OsStr::new("into"), 0o755).expect("a directory");
    let is_whole = extract(&into);
    assert_eq!(outer.entries().expect("a list").len(), 1, "something was written outside");
    let (mut found, mut size) = (0, 0);
    count(&place.path().join("into"), &mut found, &mut size);
    assert!(found <= files && size <= bytes, "{found} files of {files}, {size} bytes of {bytes}");
    assert!(
        !is_whole || (found, size) == (files, bytes),
        "{found} files of {files}, {size} bytes of {bytes}"
    );
}

fn count(directory: &Path, files: &mut usize, bytes: &mut u64) {
    for entry in std::fs::read_dir(directory).expect("a list") {
        let entry = entry.expect("an entry");
        let facts = entry.metadata().expect("its facts");
        if facts.is_dir() {
            count(&entry.path(), files, bytes);
        } else {
            assert!(facts.is_file(), "neither a file nor a directory");
            *files += 1;
            *bytes += facts.len();
        }
    }
}
