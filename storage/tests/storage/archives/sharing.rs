//! Laws of the files that versions of a skill share.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use policy::{RelPath, Scope, SkillId};
use storage::archive::{self, Options, plan};
use storage::{Dir, ETag, Published, VersionName};

use super::builder::*;
use super::taking::upload;
use crate::fixture::{Fixture, Tree, agent, publisher, put, relaxed, skill_id, skill_tree, user_id};

/// Uploads the skill `s` with these files, as the service does it.
fn publish(fixture: &Fixture, is_staged: bool, files: &[(&str, &[u8], u32)]) -> Published {
    let entries = files.iter().map(|(name, content, mode)| {
        let entry = if name.ends_with(".stored") {
            stored(format!("s/{name}"), content)
        } else {
            file(format!("s/{name}"), content)
        };
        Entry { attributes: (0o100_000 | mode) << 16, ..entry }
    });
    let upload = upload(&zip(entries));
    let plan = plan(&upload, &Options::default()).unwrap();
    let skills = fixture.store.skills();
    let fill = &mut |skill: &SkillId, dir: &Dir| {
        let predecessor = skills.predecessor(&agent(), skill)?;
        archive::extract(&upload, &plan.skills[0], dir, predecessor.as_ref()).map(Some)
    };
    let options = storage::PublishOptions { is_staged, ..publisher("m") };
    let (user, ids) = (user_id("m"), [skill_id("s")]);
    let mut done = skills.publish_with(&options, Scope::Baseline, &user, &agent(), &ids, fill).unwrap();
    done.skills.remove(0)
}

/// Where a file of a version lies.
fn at(fixture: &Fixture, version: &Published, path: &str) -> PathBuf {
    let former = fixture.root().join(".filesecbox/versions/agent/s").join(version.version.as_str());
    if former.is_dir() { former.join(path) } else { fixture.baseline_path().join("s").join(path) }
}

fn inode(fixture: &Fixture, version: &Published, path: &str) -> u64 {
    at(fixture, version, path).metadata().unwrap().ino()
}

fn tag(fixture: &Fixture, user: &str, path: &str) -> ETag {
    fixture.skill(user, "s").stat(&RelPath::parse(path).unwrap()).unwrap().0.etag()
}

const HEADER: (&str, &[u8], u32) = ("SKILL.md", b"---\nname: s\ndescription: d\n---\n", 0o644);

#[test]
fn a_version_shares_what_is_as_before_and_nothing_else() {
    let fixture = Fixture::new();
    let large = b"0123456789abcdef".repeat(20_000);
    let mut cut = large.clone();
    cut[200_000] ^= 1;
    let version = |late: &[u8], early: &[u8], mode, length: &[u8]| {
        let unchanged: [(&str, &[u8], u32); 4] =
            [HEADER, ("same", &large, 0o644), ("same.stored", &large, 0o755), ("数据/空", b"", 0o644)];
        let others = [
            ("late", late, 0o644),
            ("late.stored", late, 0o644),
            ("early", early, 0o644),
            ("mode", b"text", mode),
            ("length", length, 0o644),
        ];
        publish(&fixture, false, &[&unchanged[..], &others].concat())
    };
    let first = version(&large, b"one", 0o644, b"short");
    let second = version(&cut, b"two", 0o755, b"shorter");
    for path in ["SKILL.md", "same", "same.stored", "数据/空"] {
        assert_eq!(inode(&fixture, &first, path), inode(&fixture, &second, path), "{path}");
    }
    for path in ["late", "late.stored", "early", "mode", "length"] {
        assert_ne!(inode(&fixture, &first, path), inode(&fixture, &second, path), "{path}");
        assert_eq!(at(&fixture, &second, path).metadata().unwrap().nlink(), 1, "{path}");
    }
    let read = |version, path| std::fs::read(at(&fixture, version, path)).unwrap();
    assert!(
        read(&first, "late") == large && read(&second, "late") == cut && read(&second, "late.stored") == cut
    );
    for version in [&first, &second] {
        let dir = Dir::ambient_open(at(&fixture, version, "SKILL.md").parent().unwrap()).unwrap();
        assert_eq!(storage::version::digest(&dir).unwrap(), version.version);
    }
}

#[test]
fn what_is_known_of_a_file_stays_when_versions_come_and_go() {
    let fixture = Fixture::with(storage::Options { keep_versions: 2, ..relaxed() });
    let version = |text: &'static [u8], is_staged| {
        let published =
            publish(&fixture, is_staged, &[HEADER, ("same", b"same", 0o644), ("text", text, 0o644)]);
        fixture.wait_for_empty_trash();
        published
    };
    version(b"1", false);
    let (first, text) = (tag(&fixture, "u", "same"), tag(&fixture, "u", "text"));
    let mut tags = Vec::new();
    let staged = version(b"staged", true);
    tags.push(tag(&fixture, "u", "same"));
    assert_eq!(tag(&fixture, "u", "text"), text);
    // The kernel's clock for files stands still for some milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let name = VersionName::Version(staged.version);
    fixture.store.skills().remove_version(&agent(), &skill_id("s"), &name, false).unwrap();
    fixture.wait_for_empty_trash();
    tags.push(tag(&fixture, "u", "same"));
    for text in [b"2", b"3", b"4", b"5"] {
        version(text, false);
        tags.push(tag(&fixture, "u", "same"));
    }
    // The short way of reading, and one that opens the file, tell the same.
    let path = RelPath::parse("same").unwrap();
    let files = fixture.skill("u", "s");
    tags.extend(files.open_cached(&path).map(|opened| opened.stat.etag()));
    tags.push(files.open(&path).unwrap().stat.etag());
    assert_eq!(tags, vec![first; tags.len()]);
    assert_ne!(tag(&fixture, "u", "text"), text);
    // Of the removed versions no name is left.
    let links = fixture.baseline_path().join("s/same").metadata().unwrap().nlink();
    assert_eq!(links, 3, "two former versions and the current one");
}

#[test]
fn a_promoted_skill_and_one_that_comes_back_share_too_and_a_users_own_files_are_never_shared() {
    let fixture = Fixture::new();
    let first = publish(&fixture, false, &[HEADER, ("same", b"same", 0o644), ("text", b"1", 0o644)]);
    put(&fixture.skill("u", "s"), "text", "of u");
    let own = fixture.overlay_path("u").join("s/text").metadata().unwrap().ino();
    let mut promoted = fixture.store.skills().promote(&publisher("u"), &skill_tree("u", "s"), false).unwrap();
    let second = promoted.skills.remove(0);
    assert_eq!(inode(&fixture, &first, "same"), inode(&fixture, &second, "same"));
    assert!(![own, inode(&fixture, &first, "text")].contains(&inode(&fixture, &second, "text")));
    let publish_again = |name: &VersionName| {
        let done =
            fixture.store.skills().rollback(&publisher("m"), &user_id("m"), &agent(), &skill_id("s"), name);
        done.unwrap().skills.remove(0)
    };
    publish(&fixture, false, &[HEADER, ("same", b"another", 0o644)]);
    let back = publish_again(&VersionName::Number(1));
    assert_eq!(back.version, first.version);
    for path in ["same", "text", "SKILL.md"] {
        assert_eq!(
            std::fs::read(at(&fixture, &back, path)).unwrap(),
            std::fs::read(at(&fixture, &first, path)).unwrap()
        );
    }
    // A user's change of a shared file is a copy.
    let shared = fixture.baseline_path().join("s/same");
    put(&fixture.skill("u", "s"), "same", "of u");
    assert_eq!(
        (std::fs::read(&shared).unwrap(), shared.metadata().unwrap().nlink() > 1),
        (b"same".to_vec(), true)
    );
}

#[test]
fn nothing_is_shared_with_a_tree_that_was_put_there_by_hand() {
    let fixture = Fixture::new();
    let by_hand = fixture.baseline_path().join("s");
    std::fs::create_dir_all(&by_hand).unwrap();
    std::fs::write(by_hand.join("SKILL.md"), HEADER.1).unwrap();
    let published = publish(&fixture, false, &[HEADER, ("more", b"x", 0o644)]);
    assert_eq!(at(&fixture, &published, "SKILL.md").metadata().unwrap().nlink(), 1);
}

#[test]
fn no_link_leads_an_upload_to_a_file_elsewhere() {
    let fixture = Fixture::new();
    let secret = fixture.root().join("secret");
    std::fs::write(&secret, "same").unwrap();
    // As a promoted workspace of a user may have them.
    fixture.baseline("s", &Tree::of(&[("SKILL.md", "x"), ("real/file", "same")]));
    let current = fixture.baseline_path().join("s");
    std::os::unix::fs::symlink(&secret, current.join("same")).unwrap();
    std::os::unix::fs::symlink("real", current.join("directory")).unwrap();
    let published =
        publish(&fixture, false, &[HEADER, ("same", b"same", 0o644), ("directory/file", b"same", 0o644)]);
    for path in ["same", "directory/file"] {
        assert_eq!(at(&fixture, &published, path).metadata().unwrap().nlink(), 1, "{path}");
    }
    assert_eq!(secret.metadata().unwrap().nlink(), 1);
}
