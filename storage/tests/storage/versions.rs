//! Laws of the versions of a skill: their numbers, which of them stay, staging, removal, and their archives.

use std::io::Read;

use crate::fixture::{
    self, Fixture, Tree, agent, publisher, put, read, relaxed, skill_id, skill_tree, user_id,
};
use policy::{Scope, SkillId};
use storage::{
    Dir, Error, KeptVersion, Options, PINS_MAX, PublishOptions, Published, SkillVersions, Status, Version,
    VersionName, VersionNote, VersionState,
};

fn keeping(keep_versions: usize) -> Fixture {
    Fixture::with(Options { keep_versions, ..relaxed() })
}

/// Publishes the version `text` of the skill `s`.
fn publish(fixture: &Fixture, text: &str) -> Published {
    fixture.baseline("s", &Tree::of(&[("f", text)]))
}

fn stage(fixture: &Fixture, text: &str) -> Published {
    published_with(fixture, &PublishOptions { is_staged: true, ..publisher("m") }, text)
}

fn published_with(fixture: &Fixture, options: &PublishOptions<'_>, text: &str) -> Published {
    let fill = &mut |_: &SkillId, dir: &Dir| {
        Tree::of(&[("f", text)]).fill(dir);
        Ok(None)
    };
    let (user, skills) = (user_id("m"), [skill_id("s")]);
    let skills_of = fixture.store.skills();
    let mut done = skills_of.publish_with(options, Scope::Baseline, &user, &agent(), &skills, fill).unwrap();
    done.skills.remove(0)
}

fn versions(fixture: &Fixture) -> SkillVersions {
    fixture.store.skills().versions(&agent(), &skill_id("s")).unwrap()
}

/// Number and state of each version that is there.
fn there(fixture: &Fixture) -> Vec<(u64, VersionState)> {
    versions(fixture).versions.iter().map(|kept| (kept.number, kept.state)).collect()
}

fn numbers(fixture: &Fixture) -> Vec<u64> {
    versions(fixture).versions.iter().map(|kept| kept.number).collect()
}

fn remove(fixture: &Fixture, name: &VersionName, force: bool) -> Result<bool, Error> {
    let removed = fixture.store.skills().remove_version(&agent(), &skill_id("s"), name, force);
    removed.map(|removed| removed.is_last)
}

fn pin(fixture: &Fixture, name: &VersionName) -> Result<bool, Error> {
    fixture.store.skills().pin_version(&agent(), &skill_id("s"), name)
}

fn roll_back(fixture: &Fixture, name: &VersionName) -> Result<Published, Error> {
    let (skills, user) = (fixture.store.skills(), user_id("m"));
    let done = skills.rollback(&publisher("m"), &user, &agent(), &skill_id("s"), name);
    done.map(|mut done| done.skills.remove(0))
}

/// Where the log of `s` lies.
fn log_file(fixture: &Fixture) -> std::path::PathBuf {
    fixture.root().join(".filesecbox/history/agent/s/log")
}

use VersionName::Number;
use VersionState::{Current, Kept, Staged};

#[test]
fn every_publication_has_a_number_of_its_own_and_a_version_stands_for_its_last() {
    let fixture = Fixture::new();
    assert_eq!([publish(&fixture, "1"), publish(&fixture, "2")].map(|done| done.number), [Some(1), Some(2)]);
    let again = publish(&fixture, "2");
    assert_eq!((again.number, again.unchanged), (Some(2), true));
    assert_eq!(publish(&fixture, "1").number, Some(3));
    assert_eq!(there(&fixture), [(3, Current), (2, Kept)]);
    assert_eq!(roll_back(&fixture, &Number(2)).unwrap().number, Some(4));
    assert_eq!(there(&fixture), [(4, Current), (3, Kept)]);
    // Each number goes on naming what was published under it.
    let all = versions(&fixture);
    let named = |number| all.named(&Number(number)).map(|kept| kept.number);
    assert_eq!([1, 2, 3, 4, 5].map(named), [Some(3), Some(4), Some(3), Some(4), None]);
    assert_eq!(all.log.iter().map(|publication| publication.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    fixture.assert_swept();
}

#[test]
fn a_version_tells_who_published_it_and_why() {
    let fixture = Fixture::new();
    let note = VersionNote::new(Some("第一版".to_owned()), Some("the \"first\"".to_owned())).unwrap();
    let first = published_with(&fixture, &PublishOptions { note: &note, ..publisher("m") }, "1");
    publish(&fixture, "22");
    let of = |kept: &KeptVersion| (kept.by.clone(), kept.title.clone(), kept.message.clone(), kept.bytes);
    let told: Vec<_> = versions(&fixture).versions.iter().map(of).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(told, [(text("admin"), None, None, 2), (text("m"), text("第一版"), text("the \"first\""), 1)]);
    let described = fixture.store.skills().describe_versions(
        &agent(),
        &skill_id("s"),
        &[first.version, Version::parse(&"0".repeat(32)).unwrap()],
    );
    let described = described.unwrap();
    assert_eq!(described[0].as_ref().unwrap().name, "s");
    assert_eq!(described[1], None);
}

#[test]
fn of_thirty_versions_the_newest_twenty_stay_and_those_that_are_pinned_or_needed() {
    let fixture = Fixture::new();
    for number in 1..=3 {
        publish(&fixture, &number.to_string());
    }
    put(&fixture.skill("u", "s"), "g", "begun with the third");
    assert!(pin(&fixture, &Number(1)).unwrap() && pin(&fixture, &Number(2)).unwrap());
    assert!(!pin(&fixture, &Number(1)).unwrap());
    for number in 4..=30 {
        publish(&fixture, &number.to_string());
    }
    let expected: Vec<u64> = (10..=30).rev().chain([3, 2, 1]).collect();
    assert_eq!(numbers(&fixture), expected);
    let fixture = fixture.reopened(relaxed());
    assert_eq!(numbers(&fixture), expected);
    assert!(fixture.store.skills().unpin_version(&agent(), &skill_id("s"), &Number(1)).unwrap());
    fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    assert_eq!(publish(&fixture, "31").number, Some(31));
    assert_eq!(numbers(&fixture), (11..=31).rev().chain([2]).collect::<Vec<u64>>());
    assert_eq!(publish(&fixture, "1").number, Some(32), "what went and came back is published anew");
}

#[test]
fn a_staged_version_changes_nothing_until_it_is_made_current() {
    let fixture = keeping(2);
    publish(&fixture, "1");
    let staged = stage(&fixture, "2");
    assert_eq!((staged.number, staged.replaced, staged.unchanged), (Some(2), true, false));
    assert_eq!(there(&fixture), [(2, Staged), (1, Current)]);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "1");
    for (text, number) in [("2", 2), ("1", 1)] {
        let again = stage(&fixture, text);
        assert!(again.unchanged && again.number == Some(number), "{again:?}");
    }
    let fixture = fixture.reopened(Options { keep_versions: 2, ..relaxed() });
    assert_eq!(roll_back(&fixture, &VersionName::from(&staged.version)).unwrap().number, Some(3));
    assert_eq!(there(&fixture), [(3, Current), (1, Kept)]);
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "2");
    // Staged ones are as many as former ones at most, and take no place of theirs.
    for text in ["3", "4", "5"] {
        stage(&fixture, text);
    }
    assert_eq!(there(&fixture), [(6, Staged), (5, Staged), (3, Current), (1, Kept)]);
    publish(&fixture, "7");
    assert_eq!(there(&fixture), [(7, Current), (6, Staged), (5, Staged), (3, Kept), (1, Kept)]);
    fixture.assert_swept();
}

#[test]
fn a_skill_can_begin_with_a_staged_version() {
    let fixture = Fixture::new();
    let staged = stage(&fixture, "1");
    assert!(!staged.replaced);
    assert_eq!((there(&fixture), Tree::through(&fixture.skill("u", "s"))), (vec![(1, Staged)], None));
    roll_back(&fixture, &Number(1)).unwrap();
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "1");
}

#[test]
fn a_version_is_removed_unless_something_needs_it() {
    let fixture = Fixture::new();
    for text in ["1", "2", "3", "4"] {
        publish(&fixture, text);
        if text == "2" {
            put(&fixture.skill("u", "s"), "g", "mine");
        }
    }
    pin(&fixture, &Number(1)).unwrap();
    for number in [4, 2, 1] {
        let refused = remove(&fixture, &Number(number), false);
        assert!(matches!(refused, Err(Error::Conflict(_))), "{number}: {refused:?}");
    }
    assert!(matches!(remove(&fixture, &Number(4), true), Err(Error::Conflict(_))), "the current one");
    assert!(matches!(remove(&fixture, &Number(5), true), Err(Error::NotFound(_))));
    assert!(!remove(&fixture, &Number(3), false).unwrap());
    assert_eq!(numbers(&fixture), [4, 2, 1]);
    assert!(!remove(&fixture, &Number(2), true).unwrap() && !remove(&fixture, &Number(1), true).unwrap());
    // The user keeps the change, and the application's version shows below it.
    assert_eq!(read(&fixture.skill("u", "s"), "g").unwrap(), "mine");
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "4");
    let status = fixture.store.skills().status(&skill_tree("u", "s")).unwrap();
    assert_eq!(status.status, Status::Modified);
    assert!(remove(&fixture, &Number(4), false).unwrap());
    assert!(Tree::through(&fixture.skill("v", "s")).is_none());
    assert!(matches!(remove(&fixture, &Number(4), false), Err(Error::NotFound(_))));
    // A number is never given out again, whatever has gone.
    assert_eq!(publish(&fixture, "4").number, Some(5));
    fixture.assert_swept();
}

#[test]
fn only_so_many_versions_can_be_pinned() {
    let fixture = keeping(200);
    let most = u64::try_from(PINS_MAX).unwrap();
    for number in 1..=most + 1 {
        publish(&fixture, &number.to_string());
    }
    for number in 1..=most {
        pin(&fixture, &Number(number)).unwrap();
    }
    assert!(matches!(pin(&fixture, &Number(most + 1)), Err(Error::Conflict(_))));
    assert!(matches!(pin(&fixture, &Number(most + 2)), Err(Error::NotFound(_))));
}

#[test]
fn a_store_without_a_log_numbers_the_versions_that_it_has_by_time() {
    let fixture = Fixture::new();
    for text in ["1", "2", "3"] {
        publish(&fixture, text);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let names = |fixture: &Fixture| -> Vec<(u64, Version)> {
        let versions = versions(fixture).versions;
        versions.into_iter().map(|kept| (kept.number, kept.version)).collect()
    };
    let before = names(&fixture);
    std::fs::remove_file(log_file(&fixture)).unwrap();
    let fixture = fixture.reopened(relaxed());
    assert_eq!(names(&fixture), before);
    assert!(!log_file(&fixture).exists(), "looking writes nothing");
    assert_eq!(publish(&fixture, "4").number, Some(4));
    assert_eq!(std::fs::read_to_string(log_file(&fixture)).unwrap().lines().count(), 4);
}

#[test]
fn a_tree_that_was_put_there_by_hand_has_a_number_and_no_publisher() {
    let fixture = Fixture::new();
    let by_hand = fixture.baseline_path().join("s");
    std::fs::create_dir_all(&by_hand).unwrap();
    std::fs::write(by_hand.join("f"), "by hand").unwrap();
    let seen = versions(&fixture).versions.remove(0);
    assert_eq!((seen.number, seen.by, seen.files, seen.bytes), (1, None, 1, 7));
    assert_eq!(publish(&fixture, "2").number, Some(2));
    assert_eq!(there(&fixture), [(2, Current), (1, Kept)]);
    let fixture = fixture.reopened(relaxed());
    assert_eq!(there(&fixture), [(2, Current), (1, Kept)]);
}

#[test]
fn a_service_that_died_before_it_wrote_the_log_loses_no_number_and_gives_none_twice() {
    let fixture = Fixture::new();
    publish(&fixture, "1");
    publish(&fixture, "2");
    let before = std::fs::read(log_file(&fixture)).unwrap();
    let third = publish(&fixture, "3");
    // As if it had died between the two renames.
    std::fs::write(log_file(&fixture), before).unwrap();
    let fixture = fixture.reopened(relaxed());
    assert_eq!(there(&fixture), [(3, Current), (2, Kept), (1, Kept)]);
    assert!(!remove(&fixture, &Number(1), false).unwrap());
    assert_eq!(versions(&fixture).named(&Number(3)).unwrap().version, third.version);
    assert_eq!(publish(&fixture, "4").number, Some(4));
}

#[test]
fn a_log_that_cannot_be_written_refuses_no_publication() {
    let fixture = Fixture::new();
    publish(&fixture, "1");
    // A directory where the log is to be: no rename puts a file there.
    std::fs::remove_file(log_file(&fixture)).unwrap();
    std::fs::create_dir_all(log_file(&fixture).join("in the way")).unwrap();
    publish(&fixture, "2");
    assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), "2");
    std::fs::remove_dir_all(log_file(&fixture)).unwrap();
    assert_eq!(publish(&fixture, "3").number, Some(3));
}

#[test]
fn what_a_user_sees_has_the_version_that_it_has_when_it_is_published() {
    let fixture = Fixture::new();
    fixture.baseline(
        "s",
        &Tree::of(&[("f", "1"), ("d/g", "2"), ("d/gone", "3"), ("SKILL.md", "# S\n\nabout s")]),
    );
    let (files, skills) = (fixture.skill("u", "s"), fixture.store.skills());
    put(&files, "d/new/数据", "4");
    put(&files, "f", "mine");
    files.remove(&fixture::path("d/gone"), false, &storage::Condition::Always).unwrap();
    let (version, said) = skills.seen(&skill_tree("u", "s")).unwrap();
    assert_eq!(said.description, "about s");
    let seen = {
        let (spool, _) = skills.pack_seen(&skill_tree("u", "s")).unwrap();
        let mut packed = Vec::new();
        spool.into_parts().0.read_to_end(&mut packed).unwrap();
        packed
    };
    let promoted = skills.promote(&publisher("m"), &skill_tree("u", "s"), false).unwrap().skills.remove(0);
    assert_eq!(promoted.version, version);
    assert_eq!(packed(&fixture, &version, false), seen);
    assert!(matches!(skills.seen(&skill_tree("u", "none")), Err(Error::NotFound(_))));
    assert_eq!(skills.baseline_ids(&agent()).unwrap(), [skill_id("s")]);
    skills.remove_baseline(&agent(), &skill_id("s")).unwrap();
    assert_eq!(
        (skills.baseline_ids(&agent()).unwrap(), skills.logged_ids(&agent()).unwrap().len()),
        (vec![], 1)
    );
}

/// The archive of the version `name` of the skill `s`.
fn packed(fixture: &Fixture, version: &Version, is_flat: bool) -> Vec<u8> {
    let skills = fixture.store.skills();
    let (spool, bytes) = skills.pack_version(&skill_tree("u", "s"), version, is_flat).unwrap();
    let mut packed = Vec::new();
    spool.into_parts().0.read_to_end(&mut packed).unwrap();
    assert_eq!(u64::try_from(packed.len()).unwrap(), bytes);
    packed
}

#[test]
fn equal_versions_become_equal_archives_whenever_and_wherever_they_were_published() {
    let mut tree = Tree::of(&[("数据/b", "2"), ("a.txt", "1"), ("a/z", "3")]);
    tree.file("run.sh", "#!/bin/sh", 0o755);
    let make = |tree: &Tree, text: &str| {
        let fixture = Fixture::new();
        let version = fixture.baseline("s", tree).version;
        publish(&fixture, text);
        (fixture, version)
    };
    let (first, version) = make(&tree, "1");
    tree.file("run.sh", "#!/bin/sh", 0o700);
    let (second, same) = make(&tree, "2");
    let old =
        std::fs::File::open(second.root().join(".filesecbox/versions/agent/s").join(same.as_str())).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(version, same);
    // A user's changes are no part of a version.
    put(&first.skill("u", "s"), "own", "mine");
    for is_flat in [false, true] {
        assert_eq!(packed(&first, &version, is_flat), packed(&second, &version, is_flat), "{is_flat}");
    }
    let names: Vec<String> = {
        let archive = zip::ZipArchive::new(std::io::Cursor::new(packed(&first, &version, false))).unwrap();
        archive.file_names().map(|name| name.unwrap().into_owned()).collect()
    };
    assert_eq!(names, ["s/a/", "s/a.txt", "s/a/z", "s/run.sh", "s/数据/", "s/数据/b"]);
    let never = Version::parse(&"0".repeat(32)).unwrap();
    let gone = first.store.skills().pack_version(&skill_tree("u", "s"), &never, false);
    assert!(matches!(gone.map(drop), Err(Error::NotFound(_))));
}
