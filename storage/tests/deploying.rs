//! Laws of deploying a package in a workspace: whole or not there, its user's, and counted.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, and looks at the disk past the code it checks"
)]

mod fixture;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use fixture::{Fixture, agent, path, relaxed, user_id};
use policy::{ArchiveLimits, DiskLimits, VersionId, WorkspaceId};
use sha2::{Digest, Sha256};
use storage::{Error, Options};

const SKILL: &[u8] = b"---\nname: packed\n---\n";

fn version() -> VersionId {
    VersionId::parse(&format!("{:024x}", 1)).unwrap()
}

fn workspace() -> WorkspaceId {
    WorkspaceId { user: user_id("u"), agent: agent() }
}

/// A store with a workspace that has `projects`, and a package of these files.
fn packed(options: Options, files: &[(&str, &[u8])]) -> Fixture {
    let fixture = Fixture::with(options);
    fixture.workspace("u").make_dir(&path("projects"), 0o755, true).unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    let (mut file, bytes) = (tempfile::tempfile().unwrap(), builder.into_inner().unwrap());
    file.write_all(&bytes).unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    fixture.store.packages().put(&version(), &file, &digest, &ArchiveLimits::default(), 1 << 30).unwrap();
    fixture
}

fn deploy(fixture: &Fixture, to: &str) -> storage::Result<bool> {
    fixture.store.packages().deploy(&version(), &workspace(), &path(to), &ArchiveLimits::default())
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
    let fixture = packed(relaxed(), &[("SKILL.md", SKILL)]);
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
