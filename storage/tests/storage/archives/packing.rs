//! Archives of our own, read by ourselves.

use std::ffi::OsStr;
use std::io::{Read, Seek, Write};

use policy::RelPath;
use storage::archive::{PackEntry, PackFormat, PackLimits, PackSource, Packed, pack};
use storage::{Dir, Error};

use super::taking::{Taken, take};

/// Content by path; `None` is a directory. The mode is 0755 for names that end in `.sh`.
type Input<'text> = [(&'text str, Option<&'text [u8]>)];

fn packed(skill: &str, input: &Input<'_>) -> Result<(Packed, Vec<u8>), Error> {
    let place = tempfile::tempdir().unwrap();
    let dir = Dir::ambient_open(place.path()).unwrap();
    let entries = input.iter().enumerate().map(|(index, (path, content))| {
        let source = match content {
            None => PackSource::Directory,
            Some(content) => {
                let name = index.to_string();
                dir.create_file(OsStr::new(&name), 0o600)?.write_all(content).unwrap();
                PackSource::File(dir.open_file_entry(OsStr::new(&name))?.0)
            }
        };
        let mode = if path.ends_with(".sh") { 0o755 } else { 0o600 };
        let modified_ns = 1_709_208_001 * 1_000_000_000;
        Ok(PackEntry { path: RelPath::parse(path)?, mode, modified_ns, source })
    });
    let mut file = tempfile::tempfile().unwrap();
    let packed = pack(
        PackFormat::Zip,
        Some(skill),
        entries,
        &file,
        PackLimits { bytes: u64::MAX, admit: &mut |_| Ok(()) },
    )?;
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    Ok((packed, bytes))
}

const TREE: &Input<'_> = &[
    ("SKILL.md", Some("---\nname: 技能\n---\n".as_bytes())),
    ("empty", None),
    ("scripts", None),
    ("scripts/run.sh", Some(b"#!/bin/sh\n")),
    ("数据", None),
    ("数据/说明.md", Some("中文".as_bytes())),
];

fn checked(taken: &Taken) {
    assert_eq!(
        taken.paths(),
        [
            "技能",
            "技能/SKILL.md",
            "技能/empty",
            "技能/scripts",
            "技能/scripts/run.sh",
            "技能/数据",
            "技能/数据/说明.md"
        ]
    );
    assert_eq!(taken.mode("技能/scripts/run.sh"), 0o755);
    assert_eq!(taken.mode("技能/SKILL.md"), 0o644);
    assert_eq!(taken.text("技能/数据/说明.md"), "中文");
    assert_eq!(taken.modified["技能/SKILL.md"], 1_709_208_001);
}

#[test]
fn what_is_packed_is_taken_in_again_the_same() {
    let (packed, bytes) = packed("技能", TREE).unwrap();
    assert_eq!(packed, Packed { files: 3, bytes: 37 });
    checked(&take(&bytes).unwrap());
}

#[test]
fn names_that_are_not_ascii_are_marked_utf_8() {
    let (_, bytes) = packed("技能", TREE).unwrap();
    let flags: Vec<u16> = bytes
        .windows(46)
        .filter(|header| header.starts_with(b"PK\x01\x02"))
        .map(|header| u16::from_le_bytes([header[8], header[9]]) & 1 << 11)
        .collect();
    assert_eq!(flags, [1 << 11; 6]);
}

#[test]
fn equal_trees_pack_to_equal_bytes() {
    assert_eq!(packed("a", TREE).unwrap(), packed("a", TREE).unwrap());
}

#[test]
fn an_empty_skill_packs_to_an_empty_archive() {
    let (packed, bytes) = packed("a", &[]).unwrap();
    assert_eq!(packed, Packed::default());
    assert_eq!(bytes.len(), 22);
}

#[test]
fn a_path_given_twice_is_refused() {
    let twice: &Input<'_> = &[("x", Some(b"1")), ("x", Some(b"2"))];
    assert!(matches!(packed("a", twice), Err(Error::AlreadyExists(path)) if path == "x"));
}

#[test]
fn more_than_65_535_entries_get_zip64_records() {
    let file = tempfile::tempfile().unwrap();
    let entries = (0..70_000).map(|index| {
        let path = RelPath::parse(&format!("d{index}"))?;
        Ok(PackEntry { path, mode: 0, modified_ns: 0, source: PackSource::Directory })
    });
    pack(PackFormat::Zip, Some("a"), entries, &file, PackLimits { bytes: u64::MAX, admit: &mut |_| Ok(()) })
        .unwrap();
    let mut options = storage::archive::Options::default();
    options.limits.entries = 100_000;
    // Read as far as it can be: the structure is sound and holds no file.
    let refused = storage::archive::plan(&file, &options);
    assert!(matches!(refused, Err(Error::Archive(storage::archive::ArchiveError::Empty))), "{refused:?}");
}
