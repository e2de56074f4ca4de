//! Laws of what is on its way: it counts for its user, it is bounded, and what shares blocks is not copied apart unseen.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fixture::{self, Fixture, Tree, path, publisher, put, relaxed, skill_tree, user_id};
use policy::{DiskLimits, FileLimits};
use storage::{Condition, Error, Options, WriteOptions};

const MIB: u64 = 1024 * 1024;

/// A store with room for 16 MiB in a tree, 12 MiB on the way, and 8 MiB in a download.
fn fixture() -> Fixture {
    let disk = DiskLimits {
        bytes: 16 * MIB,
        files: 1000,
        free_bytes: 0,
        in_flight_bytes: 12 * MIB,
        ..DiskLimits::default()
    };
    let files = FileLimits { download_bytes: 8 * MIB, ..FileLimits::default() };
    Fixture::with(Options { disk, files, ..relaxed() })
}

/// Gives a file of 1 MiB so many names beside it, as a command does.
fn links(dir: &Path, count: usize) {
    fs::write(dir.join("large"), vec![b'x'; 1 << 20]).unwrap();
    for number in 0..count {
        // Names that no path of a request spells count as well.
        let name = [b"name-\xff", number.to_string().as_bytes()].concat();
        fs::hard_link(dir.join("large"), dir.join(OsStr::from_bytes(&name))).unwrap();
    }
}

#[test]
fn a_download_packs_no_more_than_its_bound_however_little_the_skill_takes() {
    let fixture = fixture();
    let own = fixture.overlay_path("u").join("s");
    put(&fixture.skill("u", "s"), "SKILL.md", "1");
    let id = skill_tree("u", "s");
    let refused = |what: &str| match fixture.store.skills().pack(&id) {
        Err(Error::Unpackable { bytes, limit, .. }) => assert!(bytes > limit, "{what}"),
        other => panic!("{what}: {:?}", other.map(|(_, bytes)| bytes)),
    };
    for number in 0..10 {
        fs::write(own.join("large"), vec![b'x'; 1 << 20]).unwrap();
        fs::hard_link(own.join("large"), own.join(format!("name-{number}"))).unwrap();
    }
    refused("one file of ten names");
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    fs::write(own.join("SKILL.md"), "1").unwrap();
    for number in 0..60 {
        fs::File::create(own.join(format!("sparse-{number}"))).unwrap().set_len(500 * MIB).unwrap();
    }
    refused("sixty holes");
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    fs::write(own.join("SKILL.md"), vec![b'x'; 8 << 20]).unwrap();
    let (spool, bytes) = fixture.store.skills().pack(&id).unwrap();
    assert!(fixture.store.in_flight(&user_id("u")) >= bytes, "a spool counts for its user");
    drop(spool);
    assert_eq!(fixture.store.in_flight(&user_id("u")), 0);
    fixture.assert_swept();
}

#[test]
fn a_download_is_of_one_moment() {
    let fixture = fixture();
    let files = fixture.skill("u", "s");
    // The content tells which change it is of; all files of one change are placed one after the other.
    let number_of = |zip: &[u8], name: &str| {
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(zip)).unwrap();
        let mut text = String::new();
        archive.by_name(&format!("s/{name}")).unwrap().read_to_string(&mut text).unwrap();
        text.trim_end_matches('x').parse::<u64>().unwrap()
    };
    let write = |number: u64| {
        for name in ["a", "b"] {
            put(&files, name, &format!("{number}{}", "x".repeat(200_000)));
        }
    };
    write(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut number = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                write(number);
            }
        });
        for _ in 0..20 {
            let (spool, bytes) = fixture.store.skills().pack(&skill_tree("u", "s")).unwrap();
            let mut zip = vec![0; usize::try_from(bytes).unwrap()];
            spool.file().read_exact_at(&mut zip, 0).unwrap();
            let (a, b) = (number_of(&zip, "a"), number_of(&zip, "b"));
            assert!(a == b || a == b + 1, "`a` of change {a} with `b` of change {b}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn changes_are_made_while_a_large_skill_is_packed() {
    let fixture = Fixture::with(relaxed());
    let files = fixture.skill("u", "s");
    put(&files, "small", "0");
    // Takes much longer than a change.
    fs::File::create(fixture.overlay_path("u").join("s/sparse")).unwrap().set_len(200 * MIB).unwrap();
    let timed = |work: &dyn Fn()| {
        let begun = std::time::Instant::now();
        work();
        begun.elapsed()
    };
    std::thread::scope(|threads| {
        let packing =
            threads.spawn(|| timed(&|| drop(fixture.store.skills().pack(&skill_tree("u", "s")).unwrap())));
        let (mut longest, mut number) = (std::time::Duration::ZERO, 0);
        while !packing.is_finished() {
            number += 1;
            longest = longest.max(timed(&|| {
                put(&files, &format!("n-{}", number % 10), "1");
            }));
        }
        let packed = packing.join().unwrap();
        assert!(longest < packed / 2, "a change took {longest:?} beside a download of {packed:?}");
    });
}

#[test]
fn what_is_on_its_way_counts_for_its_user_until_it_is_placed_or_dropped() {
    let fixture = fixture();
    let piece = vec![b'x'; 4 << 20];
    let (files, user) = (fixture.workspace("u"), user_id("u"));
    let staged = |user: &str| {
        let mut staged = fixture.workspace(user).stage()?;
        staged.write(&piece)?;
        Ok(staged)
    };
    let mut unfinished: Vec<_> = (0..3).map(|_| staged("u").unwrap()).collect();
    let refused: storage::Result<storage::stage::StagedFile> = staged("u");
    assert!(matches!(refused, Err(Error::InFlight { used, .. }) if used == 12 * MIB));
    let mut spool = fixture.store.spool(&user).unwrap();
    assert!(matches!(spool.write(b"1"), Err(Error::InFlight { .. })), "of any kind");
    // Of one user alone.
    drop(staged("other").unwrap());
    let refused = files.copy(&path("a"), &path("b"), false, false, &Condition::Always);
    assert!(matches!(refused, Err(Error::NotFound(_))));
    files.write(&path("a"), unfinished.pop().unwrap(), &WriteOptions::default()).unwrap();
    assert_eq!(fixture.store.in_flight(&user), 8 * MIB);
    unfinished.clear();
    assert_eq!(fixture.store.in_flight(&user), 0);
    let mut alone = fixture.store.spool(&user).unwrap();
    let too_large = alone.write(&vec![0; 13 << 20]);
    assert!(
        matches!(too_large, Err(Error::TooLarge { limit, .. }) if limit == 12 * MIB),
        "it never has room"
    );
    drop((spool, alone));
    fixture.assert_swept();
}

#[test]
fn what_has_no_room_in_its_tree_is_refused_before_all_of_it_has_come() {
    let fixture = fixture();
    let files = fixture.workspace("u");
    put(&files, "there", &"x".repeat(10 << 20));
    let mut arriving: Vec<_> = (0..2).map(|_| files.stage().unwrap()).collect();
    arriving[0].write(&vec![1; 5 << 20]).unwrap();
    files.admit_arriving(&path("new")).unwrap();
    arriving[1].write(&vec![1; 2 << 20]).unwrap();
    assert!(matches!(files.admit_arriving(&path("new")), Err(Error::Quota { .. })), "both together");
    files.admit_arriving(&path("there")).unwrap();
    arriving.clear();
    files.admit_arriving(&path("new")).unwrap();
}

#[test]
fn second_names_are_not_copied_apart_without_room_for_each() {
    let fixture = fixture();
    fixture.baseline("s", &Tree::of(&[("SKILL.md", "1"), ("dir/f", "1")]));
    let files = fixture.skill("u", "s");
    put(&files, "dir/g", "1");
    links(&fixture.overlay_path("u").join("s/dir"), 30);
    let id = skill_tree("u", "s");
    fixture.store.usage(&id).unwrap();
    let names = || {
        [fixture.overlay_path("u").join("s"), fixture.baseline_path().join("s/dir")]
            .map(|dir| fixture::names(&dir))
    };
    let before = names();
    let always = Condition::Always;
    for (what, refused) in [
        ("a copy", files.copy(&path("dir"), &path("copy"), false, true, &always).map(drop)),
        ("a rename of what both layers have", files.rename(&path("dir"), &path("moved"), false, &always)),
        ("a promotion", fixture.store.skills().promote(&publisher("u"), &id, false).map(drop)),
    ] {
        assert!(
            matches!(refused, Err(Error::Quota { setting: "limits.disk.bytes", .. })),
            "{what}: {refused:?}"
        );
    }
    assert_eq!(names(), before);
    fixture.assert_swept();
    let files = fixture.workspace("u");
    put(&files, "dir/f", "1");
    links(&fixture.root().join("sandbox/u/agent/dir"), 30);
    let refused = files.copy(&path("dir"), &path("copy"), false, true, &always);
    assert!(matches!(refused, Err(Error::Quota { .. })), "{refused:?}");
    // The control: with room for each it is copied.
    fs::remove_dir_all(fixture.root().join("sandbox/u/agent/dir")).unwrap();
    put(&files, "dir/f", "1");
    links(&fixture.root().join("sandbox/u/agent/dir"), 5);
    files.copy(&path("dir"), &path("copy"), false, true, &always).unwrap();
}
