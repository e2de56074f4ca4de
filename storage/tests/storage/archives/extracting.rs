//! Laws of extracting, on one thread and on several. That the version worked out on the way is the tree's own is
//! asserted of every archive that any test takes in; here are those that make it hard.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use storage::archive::{ArchiveError, Options, plan};
use storage::{Dir, Error};

use super::builder::*;
use super::taking::{take, upload};

/// More files than one thread is given.
const MANY: usize = 200;

/// Files of one skill; the names sort otherwise as whole paths than as entries of directories.
fn files() -> impl Strategy<Value = Vec<Entry>> {
    let directory = || prop::sample::select(vec!["a", "a-b", "a0", "数"]);
    let at = vec(directory(), 0..3).prop_flat_map(|above| {
        let name = prop::sample::select(vec!["a.txt", "b", "b.txt", "Z", "据"]);
        name.prop_map(move |name| [above.as_slice(), &[name]].concat().join("/"))
    });
    let content = (vec(any::<u8>(), 0..40), 0..1000_usize, any::<bool>(), any::<bool>());
    btree_map(at, content, 0..40).prop_map(|files| {
        let entries = files.into_iter().map(|(at, (bytes, times, is_stored, is_executable))| {
            let (name, content) = (format!("skill/{at}"), bytes.repeat(times));
            let entry = if is_stored { stored(name, &content) } else { file(name, &content) };
            let mode = if is_executable { 0o100_755 } else { 0o100_644 };
            Entry { attributes: mode << 16, ..entry }
        });
        entries.collect()
    })
}

/// A skill of `files`, with `MANY` more when `is_large`.
fn skill(files: Vec<Entry>, is_large: bool) -> Vec<Entry> {
    let more = if is_large { MANY } else { 0 };
    let numbered = (0..more).map(|number| file(format!("skill/more-{}/{number:03}", number % 7), b"more"));
    let fixed = [file("skill/SKILL.md", b"x"), directory("skill/empty/")];
    fixed.into_iter().chain(files).chain(numbered).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_file_is_written_as_packed(files in files(), is_large in any::<bool>()) {
        let entries = skill(files, is_large);
        let taken = take(&zip(entries.clone())).unwrap();
        for entry in entries.iter().filter(|entry| !entry.name.ends_with(b"/")) {
            let at = String::from_utf8(entry.name.clone()).unwrap();
            let (mode, content) = taken.tree[&at].as_ref().unwrap();
            prop_assert_eq!(*mode, entry.attributes >> 16 & 0o777);
            prop_assert_eq!((content.len() as u64, crc(content)), (u64::from(entry.size), entry.crc));
        }
    }
}

#[test]
fn of_several_damaged_files_the_first_is_named_on_every_run() {
    let damaged = [150, 61, 190, 63, 62, 149];
    let entries = (0..MANY).map(|number| {
        let content = number.to_string().repeat(100 + number * 7 % 300);
        let entry = file(format!("skill/{number:03}"), content.as_bytes());
        if damaged.contains(&number) { Entry { crc: !entry.crc, ..entry } } else { entry }
    });
    let upload = upload(&zip(entries.chain([file("skill/SKILL.md", b"x")])));
    let plan = plan(&upload, &Options::default()).unwrap();
    for _ in 0..50 {
        let place = tempfile::tempdir().unwrap();
        let into = Dir::ambient_open(place.path()).unwrap();
        match storage::archive::extract(&upload, &plan.skills[0], &into, None) {
            Err(Error::Archive(ArchiveError::Checksum { name })) => assert_eq!(name, "061"),
            other => panic!("{other:?}"),
        }
    }
}
