//! Laws of taking in what a run did: no request waits for all of it, it is bounded in time, and what is left out is
//! told.

use std::fs;
use std::path::Path;

use crate::fixture::{self, Fixture, Tree, assert_valid_upper, path, put, relaxed, skill_tree};
use policy::FileLimits;
use storage::{Absorbed, Error, Options, PreparedRun};

/// Files that a run makes: enough that taking them in takes long.
const FILES: usize = 6000;

fn fixture(absorb_ms: u64) -> Fixture {
    let files = FileLimits { absorb_ms, ..FileLimits::default() };
    let fixture = Fixture::with(Options { files, ..relaxed() });
    fixture.baseline("s", &Tree::of(&[("SKILL.md", "1"), ("zz", "1")]));
    fixture
}

/// A run of the skill `s` in which a command made many files and removed one.
fn ran(fixture: &Fixture) -> PreparedRun {
    let prepared = fixture.store.runs().prepare(&skill_tree("u", "s")).unwrap();
    fill(&prepared.view().tree);
    prepared
}

fn fill(tree: &Path) {
    for number in 0..FILES {
        fs::write(tree.join(format!("f{number:05}")), "").unwrap();
    }
    fs::remove_file(tree.join("zz")).unwrap();
}

/// Takes in what the run did while `meanwhile` acts from the moment when the first file is there. Tells whether the last
/// one was not there yet.
fn absorbing(fixture: &Fixture, prepared: &PreparedRun, meanwhile: impl FnOnce() + Send) -> (Absorbed, bool) {
    let files = fixture.skill("u", "s");
    std::thread::scope(|threads| {
        let watching = threads.spawn(move || {
            while files.stat(&path("f00000")).is_err() {
                std::thread::yield_now();
            }
            let is_under_way = files.stat(&path(&format!("f{:05}", FILES - 1))).is_err();
            meanwhile();
            is_under_way
        });
        let absorbed = prepared.absorb().unwrap();
        (absorbed, watching.join().unwrap())
    })
}

#[test]
fn requests_go_on_while_a_large_run_is_taken_in() {
    let fixture = fixture(600_000);
    let prepared = ran(&fixture);
    let files = fixture.skill("u", "s");
    let write = || {
        put(&files, "meanwhile", "1");
        // The command, which ended later, wins where both changed the same and it has not come to it.
        put(&files, "f00000", "of a request");
    };
    let (absorbed, is_under_way) = absorbing(&fixture, &prepared, write);
    assert!(is_under_way, "the whole of it was waited for");
    assert_eq!((absorbed.created, absorbed.deleted, absorbed.left_out), (FILES, 1, 0));
    assert!(absorbed.absorb_ms > 0);
    drop(prepared);
    let of_request = fixture::read(&files, "f00000").unwrap();
    assert_eq!(
        (fixture::read(&files, "meanwhile").unwrap(), of_request),
        ("1".into(), "of a request".into())
    );
    assert!(matches!(files.stat(&path("zz")), Err(Error::NotFound(_))));
    assert_eq!(files.walk(&path(""), 9, false).unwrap().len(), FILES + 2);
    assert_valid_upper(&fixture.overlay_path("u"), &[]);
    fixture.assert_swept();
}

#[test]
fn what_takes_too_long_is_left_out_and_told() {
    let fixture = fixture(0);
    let prepared = ran(&fixture);
    let absorbed = prepared.absorb().unwrap();
    assert!(absorbed.refused.unwrap().contains("limits.files.absorb_ms"));
    drop(prepared);
    let short = self::fixture(150);
    let prepared = ran(&short);
    let absorbed = prepared.absorb().unwrap();
    drop(prepared);
    let names = short.skill("u", "s").walk(&path(""), 9, false).unwrap().len();
    match &absorbed.left_out_because {
        // On any machine it either takes longer than that, or was done before: nothing goes without being told.
        Some(reason) => assert!(reason.contains("limits.files.absorb_ms") && absorbed.left_out > 0),
        None => assert!(absorbed.refused.is_some() || absorbed.left_out == 0),
    }
    if absorbed.refused.is_none() {
        assert_eq!(absorbed.created + absorbed.deleted + absorbed.left_out, FILES + 1);
        assert_eq!(names, 2 + absorbed.created - absorbed.deleted);
    }
    short.assert_swept();
    assert_valid_upper(&short.overlay_path("u"), &[]);
}

#[test]
fn what_another_request_resets_meanwhile_stays_reset() {
    let fixture = fixture(600_000);
    let prepared = ran(&fixture);
    let id = skill_tree("u", "s");
    let (absorbed, is_under_way) =
        absorbing(&fixture, &prepared, || assert!(fixture.store.skills().reset(&id).unwrap()));
    assert!(is_under_way);
    assert!(absorbed.left_out > 0 && absorbed.left_out_because.unwrap().contains("reset"));
    drop(prepared);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(Tree::of(&[("SKILL.md", "1"), ("zz", "1")])));
    fixture.assert_swept();
}
