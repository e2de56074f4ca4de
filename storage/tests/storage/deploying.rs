//! Laws of deploying a package in a workspace: whole or not there, its user's, and counted.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use crate::fixture::{self, Fixture, agent, path, relaxed, user_id};
use policy::{ArchiveLimits, DiskLimits, VersionId, WorkspaceId};
use sha2::{Digest, Sha256};
use storage::{Error, Options};

const SKILL: &[u8] = b"---\nname: packed\n---\n";

fn version() -> VersionId {
    numbered(1)
}

fn numbered(number: u8) -> VersionId {
    VersionId::parse(&format!("{number:024x}")).unwrap()
}

fn workspace() -> WorkspaceId {
    WorkspaceId { user: user_id("u"), agent: agent() }
}

/// A store with a workspace that has `projects`, and a package of these files.
fn packed(options: Options, files: &[(&str, &[u8])]) -> Fixture {
    let fixture = Fixture::with(options);
    fixture.workspace("u").make_dir(&path("projects"), 0o755, true).unwrap();
    put(&fixture, 1, files);
    fixture
}

/// Puts a package of these files, and tells its SHA-256.
fn put(fixture: &Fixture, number: u8, files: &[(&str, &[u8])]) -> String {
    let (file, digest) = archive(files);
    let (packages, limits) = (fixture.store.packages(), ArchiveLimits::default());
    packages.put(&numbered(number), &file, &digest, &limits, 1 << 30).unwrap();
    digest
}

/// A tar of these files, and its SHA-256.
fn archive(files: &[(&str, &[u8])]) -> (fs::File, String) {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mtime(1_700_000_000);
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    let (mut file, bytes) = (tempfile::tempfile().unwrap(), builder.into_inner().unwrap());
    file.write_all(&bytes).unwrap();
    (file, Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn deploy(fixture: &Fixture, to: &str) -> storage::Result<bool> {
    deploy_version(fixture, 1, to)
}

fn deploy_version(fixture: &Fixture, number: u8, to: &str) -> storage::Result<bool> {
    let limits = ArchiveLimits::default();
    fixture.store.packages().deploy(&numbered(number), &workspace(), &path(to), &limits)
}

fn on_disk(fixture: &Fixture, at: &str) -> PathBuf {
    fixture.root().join(format!("sandbox/u/{}", agent())).join(at)
}

#[test]
fn a_package_is_there_whole_with_its_modes_and_counts_for_the_workspace() {
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL), ("a/b/run.sh", b"true"), ("a/c", &[7; 9000])]);
    let before = fixture.store.user_usage(&user_id("u")).unwrap().0;
    assert!(deploy(&fixture, "projects/v").unwrap());
    assert_eq!(fs::read(on_disk(&fixture, "projects/v/SKILL.md")).unwrap(), SKILL);
    assert_eq!(fs::read(on_disk(&fixture, "projects/v/a/c")).unwrap(), [7; 9000]);
    for (name, mode) in
        [("", 0o755), ("a", 0o755), ("a/b", 0o755), ("a/b/run.sh", 0o755), ("SKILL.md", 0o644)]
    {
        let found = fs::metadata(on_disk(&fixture, "projects/v").join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{name}");
    }
    let after = fixture.store.user_usage(&user_id("u")).unwrap().0;
    assert_eq!(after.files - before.files, 6);
    assert!(after.bytes - before.bytes >= 9000 + 4 + SKILL.len() as u64);
    fixture.assert_swept();
}

#[test]
fn with_separate_owners_everything_belongs_to_the_user() {
    if !rustix::process::geteuid().is_root() {
        return fixture::skip("root", "only root gives files away");
    }
    let fixture =
        packed(Options { separate_owners: true, ..relaxed() }, &[("SKILL.md", SKILL), ("a/b", b"b")]);
    deploy(&fixture, "projects/v").unwrap();
    let owner = fs::metadata(on_disk(&fixture, "")).unwrap().uid();
    assert_ne!(owner, 0);
    for name in ["projects/v", "projects/v/SKILL.md", "projects/v/a", "projects/v/a/b"] {
        let found = fs::metadata(on_disk(&fixture, name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (owner, owner), "{name}");
    }
}

#[test]
fn what_has_no_room_is_refused_and_nothing_of_it_is_there() {
    let disk = DiskLimits { bytes: 64 * 1024, free_bytes: 0, ..DiskLimits::default() };
    let fixture = packed(Options { disk, ..relaxed() }, &[("a", &[0; 80_000])]);
    let refused = deploy(&fixture, "projects/v").unwrap_err();
    assert!(matches!(refused, Error::Quota { .. }), "{refused:?}");
    assert!(!on_disk(&fixture, "projects/v").exists());
    let disk = DiskLimits { files: 20, free_bytes: 0, ..DiskLimits::default() };
    let files: Vec<(String, &[u8])> = (0..30).map(|number| (number.to_string(), b"".as_slice())).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    let fixture = packed(Options { disk, ..relaxed() }, &files);
    assert!(matches!(deploy(&fixture, "projects/v").unwrap_err(), Error::Quota { .. }));
    assert!(!on_disk(&fixture, "projects/v").exists());
    assert_eq!(fixture.store.in_flight(&user_id("u")), 0);
    fixture.assert_swept();
}

#[test]
fn a_package_that_the_disk_has_damaged_is_named_and_nothing_of_it_is_there() {
    let fixture = packed(Options { unpacked_bytes: 0, ..relaxed() }, &[("SKILL.md", SKILL)]);
    let kept =
        fs::read_dir(fixture.root().join(".filesecbox/archives")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&kept).unwrap();
    bytes[512] ^= 1;
    fs::write(&kept, bytes).unwrap();
    assert!(matches!(deploy(&fixture, "projects/v").unwrap_err(), Error::Damaged(_)));
    assert!(!on_disk(&fixture, "projects/v").exists() && !kept.exists());
    fixture.assert_swept();
}

#[test]
fn nothing_is_replaced_and_nothing_is_made_above() {
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL)]);
    fs::write(on_disk(&fixture, "projects/file"), "the user's").unwrap();
    fs::create_dir(on_disk(&fixture, "projects/empty")).unwrap();
    std::os::unix::fs::symlink("/nowhere", on_disk(&fixture, "projects/link")).unwrap();
    for name in ["file", "empty", "link"] {
        let refused = deploy(&fixture, &format!("projects/{name}")).unwrap_err();
        assert!(matches!(refused, Error::AlreadyExists(_)), "{name}: {refused:?}");
    }
    assert_eq!(fs::read(on_disk(&fixture, "projects/file")).unwrap(), b"the user's");
    assert!(matches!(deploy(&fixture, "missing/v").unwrap_err(), Error::NotFound(_)));
    // A link at a directory above that leads out of the workspace is not followed.
    std::os::unix::fs::symlink(fixture.temp.path(), on_disk(&fixture, "out")).unwrap();
    assert!(matches!(deploy(&fixture, "out/v").unwrap_err(), Error::Escape(_) | Error::NotFound(_)));
    assert!(!fixture.temp.path().join("v").exists());
    let other = VersionId::parse(&format!("{:024x}", 2)).unwrap();
    let absent =
        fixture.store.packages().deploy(&other, &workspace(), &path("projects/v"), &ArchiveLimits::default());
    assert!(!absent.unwrap());
    fixture.assert_swept();
}

/// The contents that are kept unpacked, by their names.
fn contents(fixture: &Fixture) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for group in fs::read_dir(fixture.root().join(".filesecbox/unpacked/files")).unwrap() {
        found.extend(fs::read_dir(group.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    found.sort();
    found
}

/// Damages the archive of each package, so that nothing can be unpacked from it.
fn damage_archives(fixture: &Fixture) {
    for kept in fs::read_dir(fixture.root().join(".filesecbox/archives")).unwrap() {
        fs::write(kept.unwrap().path(), "damaged").unwrap();
    }
}

fn is_listed(fixture: &Fixture, package: &str) -> bool {
    fixture.root().join(".filesecbox/unpacked/lists").join(package).exists()
}

#[test]
fn equal_files_of_two_packages_are_kept_once_and_deployed_without_their_archives() {
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL), ("a/same", b"same"), ("a/run.sh", b"1")]);
    put(&fixture, 2, &[("SKILL.md", SKILL), ("b/same.sh", b"same"), ("empty", b""), ("a/run.sh", b"2")]);
    assert_eq!(contents(&fixture).len(), 5, "SKILL.md, same, 1, 2, and the empty one");
    damage_archives(&fixture);
    for (number, name) in [(1, "projects/1"), (2, "projects/2"), (2, "projects/again")] {
        assert!(deploy_version(&fixture, number, name).unwrap());
    }
    let read = |name: &str| fs::read(on_disk(&fixture, name)).unwrap();
    assert_eq!((read("projects/1/a/run.sh"), read("projects/2/a/run.sh")), (b"1".into(), b"2".into()));
    assert_eq!((read("projects/2/SKILL.md"), read("projects/2/empty")), (SKILL.into(), b"".into()));
    for (name, mode) in [("projects/1/a/same", 0o644), ("projects/2/b/same.sh", 0o755)] {
        assert_eq!(read(name), b"same");
        let found = fs::metadata(on_disk(&fixture, name)).unwrap();
        // What a command writes there must reach no other workspace.
        assert_eq!((found.permissions().mode() & 0o7777, found.nlink()), (mode, 1), "{name}");
        assert_eq!(found.mtime(), 1_700_000_000, "{name}");
    }
    fs::write(on_disk(&fixture, "projects/2/b/same.sh"), "changed").unwrap();
    assert_eq!(
        (read("projects/again/b/same.sh"), read("projects/1/a/same")),
        (b"same".into(), b"same".into())
    );
    // A backend elsewhere gets the same.
    let unpacked =
        fixture.store.packages().unpack(&numbered(1), &user_id("u"), &ArchiveLimits::default()).unwrap();
    let expected = ["SKILL.md", "a", "a/run.sh", "a/same"];
    assert!(unpacked.paths().iter().map(|(path, _)| path.as_str()).eq(expected));
    assert_eq!(unpacked.open(&path("a/same")).unwrap().1, 4);
    drop(unpacked);
    assert_eq!(fixture.store.in_flight(&user_id("u")), 0);
    fixture.assert_swept();
}

#[test]
fn contents_that_are_missing_cut_or_damaged_come_from_the_archive_again() {
    let large = vec![7; 300_000];
    let files: &[(&str, &[u8])] = &[("SKILL.md", SKILL), ("a/large", &large)];
    let fixture = packed(relaxed(), files);
    let is_whole = |name: &str| {
        assert!(deploy(&fixture, name).unwrap());
        assert_eq!(fs::read(on_disk(&fixture, name).join("a/large")).unwrap(), large);
        assert_eq!(fs::read(on_disk(&fixture, name).join("SKILL.md")).unwrap(), SKILL);
    };
    let damages: [fn(&PathBuf); 5] = [
        |content| fs::remove_file(content).unwrap(),
        |content| fs::write(content, "other bytes").unwrap(),
        |content| fs::write(content, "").unwrap(),
        |content| {
            let mut bytes = fs::read(content).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(content, bytes).unwrap();
        },
        |content| {
            let mut bytes = fs::read(content).unwrap();
            bytes.push(0);
            fs::write(content, bytes).unwrap();
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        assert_eq!(contents(&fixture).len(), 2, "{number}");
        contents(&fixture).iter().for_each(damage);
        is_whole(&format!("projects/{number}"));
        // The second time its files are kept again.
        is_whole(&format!("projects/{number}-again"));
        assert_eq!(fixture.store.in_flight(&user_id("u")), 0);
    }
    // So do lists that were cut, or are none.
    let list =
        fs::read_dir(fixture.root().join(".filesecbox/unpacked/lists")).unwrap().next().unwrap().unwrap();
    let whole = fs::read(list.path()).unwrap();
    for (number, bytes) in
        [&whole[..whole.len() - 9], &whole[..whole.len() - 1], b"", b"{}\n", b"\xff"].iter().enumerate()
    {
        fs::write(list.path(), bytes).unwrap();
        is_whole(&format!("projects/list-{number}"));
        assert_eq!(fs::read(list.path()).unwrap(), whole, "{number}");
    }
    fixture.assert_swept();
}

#[test]
fn a_list_leads_nowhere_outside_whatever_it_says() {
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL)]);
    let list =
        fs::read_dir(fixture.root().join(".filesecbox/unpacked/lists")).unwrap().next().unwrap().unwrap();
    let whole = fs::read_to_string(list.path()).unwrap();
    for (number, path) in ["../out", "/out", "a/../../out", "SKILL.md/x", "missing/x", ""].iter().enumerate()
    {
        fs::write(list.path(), whole.replace("\"SKILL.md\"", &format!("{path:?}"))).unwrap();
        let there = format!("projects/{number}");
        // Unpacked from the archive, or refused.
        if deploy(&fixture, &there).is_ok() {
            assert_eq!(fs::read(on_disk(&fixture, &there).join("SKILL.md")).unwrap(), SKILL, "{path}");
        }
        assert!(!on_disk(&fixture, "projects/out").exists() && !on_disk(&fixture, "out").exists(), "{path}");
        fs::write(list.path(), &whole).unwrap();
    }
}

#[test]
fn a_package_is_judged_again_under_other_limits() {
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL), ("a", b"a")]);
    let limits = ArchiveLimits { entries: 1, ..ArchiveLimits::default() };
    let refused = fixture.store.packages().deploy(&version(), &workspace(), &path("projects/v"), &limits);
    assert!(matches!(refused, Err(Error::Archive(_))), "{refused:?}");
    assert!(!on_disk(&fixture, "projects/v").exists());
    fixture.assert_swept();
}

#[test]
fn unpacked_files_have_a_bound_and_those_of_packages_used_longest_ago_go() {
    let large: Vec<Vec<u8>> = (0..8).map(|number| vec![number; 40_000]).collect();
    let fixture = packed(Options { unpacked_bytes: 200_000, ..relaxed() }, &[("SKILL.md", SKILL)]);
    let digests: Vec<String> = (0..8)
        .map(|number| {
            let files: [(&str, &[u8]); 2] = [("SKILL.md", SKILL), ("large", &large[usize::from(number)])];
            let digest = put(&fixture, 2 + number, &files);
            let room: u64 =
                contents(&fixture).iter().map(|path| fs::metadata(path).unwrap().blocks() * 512).sum();
            assert!(room <= 200_000, "{number}: {room}");
            digest
        })
        .collect();
    assert!(is_listed(&fixture, &digests[7]) && !is_listed(&fixture, &digests[0]));
    for number in 0..8 {
        deploy_version(&fixture, 2 + number, &format!("projects/{number}")).unwrap();
        let there = on_disk(&fixture, &format!("projects/{number}/large"));
        assert_eq!(fs::read(there).unwrap(), large[usize::from(number)]);
    }
    // One that alone would take most of the room is not kept, and displaces nothing.
    let before = contents(&fixture);
    let huge = put(&fixture, 20, &[("huge", &[9; 150_000])]);
    assert_eq!((contents(&fixture), is_listed(&fixture, &huge)), (before, false));
    fixture.assert_swept();
}

#[test]
fn a_package_that_was_fetched_is_kept_unpacked_when_it_is_deployed_again_and_none_without_room() {
    for room in [1 << 20, 0] {
        let fixture = packed(Options { unpacked_bytes: room, ..relaxed() }, &[("other", b"other")]);
        let others = contents(&fixture).len();
        let (file, digest) = archive(&[("SKILL.md", SKILL)]);
        fixture.store.packages().keep(&numbered(2), &file, &digest, 1 << 30).unwrap();
        for (name, is_kept) in [("projects/1", false), ("projects/2", room > 0), ("projects/3", room > 0)] {
            deploy_version(&fixture, 2, name).unwrap();
            assert_eq!(fs::read(on_disk(&fixture, name).join("SKILL.md")).unwrap(), SKILL);
            assert_eq!(is_listed(&fixture, &digest), is_kept, "{name}");
        }
        assert_eq!(contents(&fixture).len(), others + usize::from(room > 0));
        fixture.assert_swept();
    }
}

#[test]
fn a_disk_with_little_room_keeps_no_unpacked_files() {
    let mut options = relaxed();
    let fixture = packed(options.clone(), &[("SKILL.md", SKILL)]);
    assert_eq!(contents(&fixture).len(), 1);
    // No disk has as much as that free.
    options.unpacked_bytes = 1 << 60;
    let Fixture { store, temp } = fixture;
    drop(store);
    let (store, _) = storage::Store::open(temp.path(), options).unwrap();
    let fixture = Fixture { store, temp };
    put(&fixture, 2, &[("SKILL.md", SKILL), ("a", b"a")]);
    assert_eq!(contents(&fixture).len(), 0);
    assert!(deploy(&fixture, "projects/1").unwrap() && deploy_version(&fixture, 2, "projects/2").unwrap());
    assert_eq!(fs::read(on_disk(&fixture, "projects/2/a")).unwrap(), b"a");
    fixture.assert_swept();
}
