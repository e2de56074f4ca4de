//! Packages: immutable, whole or not there, and bounded together.

use std::io::{Read, Write};
use std::path::Path;

use crate::fixture::{self, Fixture};
use policy::{ArchiveLimits, RelPath, UserId, VersionId};
use sha2::{Digest, Sha256};
use storage::{Error, Options, Store};

fn version(number: u8) -> VersionId {
    VersionId::parse(&format!("{number:024x}")).unwrap()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tar of these files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if path.ends_with(".sh") { 0o755 } else { 0o644 });
        header.set_entry_type(tar::EntryType::Regular);
        // By hand: the builder refuses what an attacker would write.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn put(store: &Store, number: u8, bytes: &[u8], total: u64) -> storage::Result<storage::PutPackage> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    store.packages().put(&version(number), &file, &digest(bytes), &ArchiveLimits::default(), total)
}

fn kept(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join(".filesecbox/archives")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn staged(root: &Path) -> usize {
    std::fs::read_dir(root.join(".filesecbox/stage")).unwrap().count()
}

#[test]
fn a_package_is_kept_as_it_was_sent_and_unpacked_with_its_modes() {
    let fixture = Fixture::new();
    let bytes =
        tar(&[("a/SKILL.md", b"---\nname: a\n---\n"), ("entrypoint.sh", b"true"), ("b/SKILL.md", b"b")]);
    let put = put(&fixture.store, 1, &bytes, 1 << 30).unwrap();
    assert!(put.is_new && put.collected == 0 && put.facts.bytes == bytes.len() as u64);
    let (mut file, facts) = fixture.store.packages().open(&version(1)).unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert_eq!((read, facts), (bytes, put.facts));
    let unpacked = fixture
        .store
        .packages()
        .unpack(&version(1), &UserId::parse("alice").unwrap(), &ArchiveLimits::default())
        .unwrap();
    let paths: Vec<(&str, Option<u32>)> =
        unpacked.paths().iter().map(|(path, mode)| (path.as_str(), *mode)).collect();
    let expected = [
        ("a", None),
        ("a/SKILL.md", Some(0o644)),
        ("b", None),
        ("b/SKILL.md", Some(0o644)),
        ("entrypoint.sh", Some(0o755)),
    ];
    assert_eq!(paths, expected);
    let (mut file, length) = unpacked.open(&RelPath::parse("b/SKILL.md").unwrap()).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), length), ("b", 1));
    assert_eq!(staged(fixture.root()), 1);
    drop(unpacked);
    assert_eq!(staged(fixture.root()), 0);
}

#[test]
fn the_same_bytes_again_are_fine_and_other_bytes_are_refused() {
    let fixture = Fixture::new();
    let (one, other) = (tar(&[("a", b"1")]), tar(&[("a", b"2")]));
    assert!(put(&fixture.store, 1, &one, 1 << 30).unwrap().is_new);
    assert!(!put(&fixture.store, 1, &one, 1 << 30).unwrap().is_new);
    assert!(matches!(put(&fixture.store, 1, &other, 1 << 30), Err(Error::AlreadyExists(_))));
    assert_eq!(kept(fixture.root()), [format!("{}-{}", version(1), digest(&one))]);
    assert!(matches!(fixture.store.packages().open(&version(2)), Err(Error::NotFound(_))));
}

#[test]
fn an_archive_that_leads_out_or_lies_is_refused_and_nothing_of_it_stays() {
    let fixture = Fixture::new();
    for path in ["../x", "/x", "a/../../x"] {
        let refused = put(&fixture.store, 1, &tar(&[(path, b"x")]), 1 << 30);
        assert!(matches!(refused, Err(Error::Archive(_) | Error::Path(_))), "{path}");
    }
    for bytes in [b"no archive".as_slice(), b""] {
        assert!(put(&fixture.store, 1, bytes, 1 << 30).is_err());
    }
    assert_eq!((kept(fixture.root()).len(), staged(fixture.root())), (0, 0));
}

#[test]
fn all_packages_together_are_bounded_and_those_used_longest_ago_give_way() {
    let fixture = Fixture::new();
    let bytes = |number: u8| tar(&[("a", &[number])]);
    let size = bytes(0).len() as u64;
    for number in 1..=3 {
        put(&fixture.store, number, &bytes(number), 3 * size).unwrap();
    }
    // The oldest is used just now, so the second gives way.
    fixture.store.packages().open(&version(1)).unwrap();
    assert_eq!(put(&fixture.store, 4, &bytes(4), 3 * size).unwrap().collected, 1);
    let name = |number: u8| format!("{}-{}", version(number), digest(&bytes(number)));
    assert_eq!(kept(fixture.root()), [name(1), name(3), name(4)]);
    assert!(matches!(put(&fixture.store, 5, &bytes(5), size - 1), Err(Error::TooLarge { .. })));
    assert_eq!(kept(fixture.root()).len(), 3);
}

/// The inode of the package of a version, and the number of its names.
fn file_of(root: &Path, number: u8, bytes: &[u8]) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let path = root.join(format!(".filesecbox/archives/{}-{}", version(number), digest(bytes)));
    let stat = std::fs::metadata(path).unwrap();
    (stat.ino(), stat.nlink())
}

#[test]
fn versions_with_the_same_bytes_share_one_file_whose_bytes_count_once() {
    let fixture = Fixture::new();
    let (same, other) = (tar(&[("a", b"1")]), tar(&[("a", b"2")]));
    let size = same.len() as u64;
    for number in 1..=3 {
        let put = put(&fixture.store, number, &same, 2 * size).unwrap();
        assert!(put.is_new && put.collected == 0 && put.facts.bytes == size);
    }
    assert_eq!(file_of(fixture.root(), 1, &same), file_of(fixture.root(), 3, &same));
    assert_eq!(file_of(fixture.root(), 1, &same).1, 3);
    assert_eq!(put(&fixture.store, 4, &other, 2 * size).unwrap().collected, 0, "there is room for two");
    // All names of the file that was used longest ago give way, since only the last one frees its bytes.
    let third = tar(&[("a", b"3")]);
    assert_eq!(put(&fixture.store, 5, &third, 2 * size).unwrap().collected, 3);
    assert_eq!(kept(fixture.root()).len(), 2);
    // Without any bytes sent, where they are here already.
    let shared = fixture.store.packages().share(&version(6), &digest(&third), 2 * size).unwrap().unwrap();
    assert_eq!((shared.facts.bytes, shared.collected), (size, 0));
    assert_eq!(file_of(fixture.root(), 6, &third), file_of(fixture.root(), 5, &third));
    assert_eq!(fixture.store.packages().share(&version(7), &digest(&same), 2 * size).unwrap(), None);
}

#[test]
fn a_damaged_file_is_shared_with_no_further_version() {
    let fixture = Fixture::new();
    let bytes = tar(&[("a", b"1")]);
    put(&fixture.store, 1, &bytes, 1 << 30).unwrap();
    let path = fixture.root().join(format!(".filesecbox/archives/{}-{}", version(1), digest(&bytes)));
    let mut damaged = bytes.clone();
    damaged[512] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert_eq!(fixture.store.packages().share(&version(2), &digest(&bytes), 1 << 30).unwrap(), None);
    put(&fixture.store, 2, &bytes, 1 << 30).unwrap();
    let (mut file, _) = fixture.store.packages().open(&version(2)).unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
    assert_ne!(file_of(fixture.root(), 1, &bytes).0, file_of(fixture.root(), 2, &bytes).0);
}

#[test]
fn a_package_that_the_disk_has_damaged_is_not_unpacked_and_can_be_put_again() {
    let fixture = Fixture::with(Options { unpacked_bytes: 0, ..fixture::relaxed() });
    let bytes = tar(&[("SKILL.md", b"as it was put")]);
    let path = fixture.root().join(format!(".filesecbox/archives/{}-{}", version(1), digest(&bytes)));
    let damage = || {
        // In the content of a file, where no checksum of the archive is.
        let mut damaged = std::fs::read(&path).unwrap();
        damaged[512] ^= 1;
        std::fs::write(&path, damaged).unwrap();
    };
    let unpack = || {
        let alice = UserId::parse("alice").unwrap();
        fixture.store.packages().unpack(&version(1), &alice, &ArchiveLimits::default())
    };
    put(&fixture.store, 1, &bytes, 1 << 30).unwrap();
    damage();
    assert!(matches!(unpack().err(), Some(Error::Damaged(_))));
    assert!(matches!(unpack().err(), Some(Error::NotFound(_))));
    assert_eq!(staged(fixture.root()), 0);
    // Putting it again mends it, found damaged before or not.
    assert!(put(&fixture.store, 1, &bytes, 1 << 30).unwrap().is_new);
    damage();
    put(&fixture.store, 1, &bytes, 1 << 30).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    unpack().unwrap();
}
