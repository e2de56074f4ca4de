//! Every way in which people pack skills.

use storage::Error;
use storage::archive::ArchiveError::*;
use storage::archive::{Options, SkipReason};

use super::builder::*;
use super::taking::{take, take_with};
use crate::refused;

/// Packs empty files (and directories, where the name ends in `/`).
fn shaped(names: &[&str]) -> Vec<u8> {
    zip(names.iter().map(|name| if name.ends_with('/') { directory(name) } else { file(name, b"") }))
}

#[test]
fn what_macos_and_windows_leave_behind_is_skipped_and_reported() {
    let taken = take(&shaped(&[
        "a/SKILL.md",
        "a/.DS_Store",
        "a/._SKILL.md",
        "__MACOSX/a/._SKILL.md",
        "__MACOSX/._a",
        "a/Thumbs.db",
        "a/sub/Desktop.ini",
        ".DS_Store",
    ]))
    .unwrap();
    assert_eq!(taken.paths(), ["a", "a/SKILL.md"]);
    assert_eq!(taken.plan.skipped_total, 7);
    let reasons: Vec<SkipReason> = taken.plan.skipped.iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == SkipReason::MacOs).count(), 5);
    assert_eq!(reasons.iter().filter(|reason| **reason == SkipReason::Windows).count(), 2);
}

#[test]
fn files_and_hidden_directories_beside_skills_are_skipped_and_reported() {
    let taken = take(&shaped(&["notes.txt", ".github/x.yml", "a/SKILL.md", "b/SKILL.md"])).unwrap();
    assert_eq!(taken.ids(), ["a", "b"]);
    let skipped: Vec<(&str, SkipReason)> =
        taken.plan.skipped.iter().map(|skipped| (skipped.path.as_str(), skipped.reason)).collect();
    assert_eq!(skipped, [(".github", SkipReason::Hidden), ("notes.txt", SkipReason::BesideSkills)]);
    let taken = take(&shaped(&["repo/.github/x.yml", "repo/README.md", "repo/skills/a/SKILL.md"])).unwrap();
    assert_eq!(taken.ids(), ["a"]);
}

#[test]
fn the_list_of_skipped_paths_is_bounded_and_the_count_is_not() {
    let mut names: Vec<String> = (0..300).map(|n| format!("a/._{n}")).collect();
    names.push("a/SKILL.md".to_owned());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let plan = take(&shaped(&names)).unwrap().plan;
    assert_eq!((plan.skipped.len(), plan.skipped_total), (100, 300));
}

#[test]
fn a_skill_in_the_root_is_named_by_the_upload_or_by_itself() {
    let entries = || [file("SKILL.md", b"---\nname: from-header\n---\n"), file("x/y", b"")];
    let with = |name: Option<&str>, bytes: &[u8]| {
        let options = Options { file_name: name.map(str::to_owned), ..Options::default() };
        take_with(bytes, &options)
    };
    let taken = with(Some("我的技能"), &zip(entries())).unwrap();
    assert_eq!(taken.paths(), ["from-header", "from-header/SKILL.md", "from-header/x", "from-header/x/y"]);
    assert_eq!(with(None, &zip(entries())).unwrap().ids(), ["from-header"]);
    let unnamed = || zip([file("SKILL.md", b"---\nname: From Header\n---\n"), file("x/y", b"")]);
    assert_eq!(with(Some("我的技能.zip"), &unnamed()).unwrap().ids(), ["我的技能"]);
    assert_eq!(with(Some("我的技能 (2).tar.gz"), &unnamed()).unwrap().ids(), ["我的技能"]);
    assert_eq!(with(None, &unnamed()).unwrap().ids(), ["From Header"]);
    assert_eq!(with(Some("../x"), &zip(entries())).unwrap().ids(), ["from-header"]);
    refused!(zip([file("SKILL.md", b"no header\n\nname: body\n")]), Nameless);
    refused!(zip([file("SKILL.md", b"---\nname: ../evil\n---\n")]), Nameless);
}

#[test]
fn a_damaged_skill_md_in_the_root_is_refused_while_planning() {
    let mut damaged = file("SKILL.md", b"---\nname: x\n---\n");
    damaged.crc ^= 1;
    refused!(zip([damaged]), Checksum { .. });
}

#[test]
fn archives_without_a_skill_are_refused_with_words() {
    refused!(zip([]), Empty);
    refused!(shaped(&["a/"]), Empty);
    refused!(shaped(&["__MACOSX/._a", ".DS_Store"]), Empty);
    refused!(shaped(&["run.py", "README.md"]), NoSkill);
}

#[test]
fn a_directory_that_cannot_be_an_id_is_refused() {
    for name in [".hidden/SKILL.md", " a/SKILL.md", "a /x", "\u{202E}evil/SKILL.md"] {
        refused!(shaped(&[name]), SkillName { .. });
    }
    refused!(shaped(&["ok/SKILL.md", ".hidden/SKILL.md"]), SkillName { .. });
    let long = format!("{}/SKILL.md", "x".repeat(129));
    refused!(shaped(&[&long]), SkillName { .. });
}

#[test]
fn wrappers_are_taken_off_at_any_depth() {
    let ten = format!("{}a/SKILL.md", "w/v/".repeat(5));
    assert_eq!(take(&shaped(&[&ten])).unwrap().ids(), ["a"]);
    let deep = format!("{}a/SKILL.md", "w/".repeat(480));
    assert_eq!(take(&shaped(&[&deep])).unwrap().ids(), ["a"]);
}

#[test]
fn a_skill_is_counted_as_it_is_written() {
    let bytes = zip([file("a/SKILL.md", b"12345"), file("a/b/c", b"678"), file("b/skill.md", b"9")]);
    let plan = take(&bytes).unwrap().plan;
    let counts: Vec<(&str, usize, u64)> =
        plan.skills.iter().map(|skill| (skill.id.as_str(), skill.files, skill.bytes)).collect();
    assert_eq!(counts, [("a", 2, 8), ("b", 1, 1)]);
}

#[test]
fn extracting_over_a_file_that_is_there_fails() {
    use std::ffi::OsStr;
    let place = tempfile::tempdir().unwrap();
    let into = storage::Dir::ambient_open(place.path()).unwrap();
    into.create_file(OsStr::new("SKILL.md"), 0o644).unwrap();
    let upload = super::taking::upload(&zip([file("a/SKILL.md", b"x")]));
    let plan = storage::archive::plan(&upload, &Options::default()).unwrap();
    let result = storage::archive::extract(&upload, &plan.skills[0], &into, None);
    assert!(matches!(result, Err(Error::AlreadyExists(_))));
}
