//! Trees that a command made to hurt the service when it looks at them, each test named after the attack.

use std::ffi::OsStr;
use std::fs;

use crate::fixture::{self, Fixture, Tree, path, relaxed, skill_tree};
use policy::{FileLimits, RelPath};
use storage::{Dir, Error, Options};

/// A store whose trees may have 1000 entries, and so 256 000 bytes of paths.
fn small() -> Fixture {
    let files = FileLimits { tree_entries: 1000, ..FileLimits::default() };
    Fixture::with(Options { files, ..relaxed() })
}

/// Goes `levels` down from `root`, each with a name as long as names can be.
fn deep(root: &std::path::Path, levels: usize) -> Dir {
    let mut dir = Dir::ambient_open(root).unwrap();
    for _ in 0..levels {
        dir = dir.create_dir(OsStr::new(&"d".repeat(255)), 0o755).unwrap();
    }
    dir
}

fn fill(dir: &Dir, files: usize) {
    for number in 0..files {
        dir.create_file(OsStr::new(&format!("{number:0255}")), 0o644).unwrap();
    }
}

#[test]
fn nesting_the_longest_names_and_having_them_absorbed() {
    let fixture = small();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    fill(&deep(&prepared.view().tree, 10), 200);
    assert!(matches!(prepared.absorb(), Err(Error::TooLarge { .. })));
    drop(prepared);
    fixture.assert_swept();
}

#[test]
fn nesting_beyond_the_longest_path_costs_only_what_lies_there() {
    let fixture = small();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    fill(&deep(&prepared.view().tree, 100), 900);
    fs::write(prepared.view().tree.join("g"), "2").unwrap();
    let absorbed = prepared.absorb().unwrap();
    assert_eq!((absorbed.created, absorbed.skipped.len()), (17, 1));
    assert!(absorbed.skipped.iter().all(|text| text.len() < 1000), "{absorbed:?}");
    drop(prepared);
    fixture.assert_swept();
    assert_eq!(fixture::read(&fixture.skill("u", "s"), "g").unwrap(), "2");
}

#[test]
fn nesting_the_longest_names_and_having_them_listed_or_copied() {
    let fixture = small();
    for (files, root) in [
        (fixture.workspace("u"), fixture.root().join("sandbox/u/agent")),
        (fixture.skill("u", "s"), fixture.overlay_path("u").join("s")),
    ] {
        fixture::put(&files, "f", "1");
        fill(&deep(&root, 10), 200);
        assert!(matches!(files.walk(&RelPath::root(), usize::MAX, false), Err(Error::TooLarge { .. })));
        assert_eq!(files.list(&RelPath::root()).unwrap().len(), 2);
    }
    assert!(matches!(fixture.store.runs().prepare(&skill_tree("u", "s")), Err(Error::TooLarge { .. })));
    fixture.assert_swept();
}

#[test]
fn filling_one_directory_with_more_names_than_are_held_at_once() {
    let fixture = small();
    let files = fixture.workspace("u");
    fixture::put(&files, "wide/f", "1");
    let wide = Dir::ambient_open(&fixture.root().join("sandbox/u/agent/wide")).unwrap();
    for number in 0..10_100 {
        wide.create_file(OsStr::new(&format!("f{number}")), 0o644).unwrap();
        let below = wide.create_dir(OsStr::new(&number.to_string()), 0o755).unwrap();
        below.create_file(OsStr::new("f"), 0o644).unwrap();
    }
    assert!(matches!(files.walk(&RelPath::root(), 9, false), Err(Error::TooManyEntries(1000))));
    let always = storage::Condition::Always;
    assert!(matches!(files.remove(&path("wide"), false, &always), Err(Error::NotEmpty(_))));
    files.remove(&path("wide"), true, &always).unwrap();
    fixture.assert_swept();
}

#[test]
fn filling_the_directory_of_temporary_files_keeps_nobody_from_running() {
    let fixture = small();
    drop(fixture.store.runs().prepare(&skill_tree("u", "s")).err());
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    drop(fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap());
    let home = fixture.root().join(".filesecbox/packages/u/agent/tmp");
    fill(&Dir::ambient_open(&home).unwrap(), 3000);
    drop(fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap());
}
