//! 64 clients in one skill and its baseline.
//!
//! Every file of a version says which version it is of and proves itself whole; the counters in it are what users
//! edit. Three users share the baseline: `main` replaces the skill by uploads of its own, deletes it, edits and runs
//! commands in it; `plain` sees the baseline, edits a note beside it and resets; `steady` counts over the baseline.
//!
//! The laws, besides no answer of 500 or above:
//!
//! * a read is whole, and a listing or a download is of one version;
//! * each count of a counter of a version is acknowledged to one client, and none is skipped: no increment is lost;
//! * what a command sees is of one version.

mod counters;
mod readers;
mod writers;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::counters::Counts;
use crate::client::{Answer, Client};
use crate::random::{self, Random};
use crate::service::Service;
use crate::skill;

/// The tree of the user who uploads.
const MAIN: &str = "/v1/skills/main/agent/shared";
/// The tree of a user who has counters of their own over the baseline, and never loses them.
const STEADY: &str = "/v1/skills/steady/agent/shared";
/// The tree of the user who sees the baseline.
const PLAIN: &str = "/v1/skills/plain/agent/shared";

/// The state that the clients share.
struct Arena {
    url: String,
    until: Instant,
    /// The newest version that was asked for.
    version: AtomicU64,
    counts: Mutex<Counts>,
    /// Answers by what was done and how it ended.
    done: Mutex<BTreeMap<String, usize>>,
}

/// The request that one kind of client makes again and again.
type Work = fn(&Arena, &Client, &mut Random);

/// How many clients do what: 64 together.
const CREW: [(usize, Work); 14] = [
    (8, counters::increment),
    (8, counters::increment_steadily),
    (8, readers::read_file),
    (4, readers::read_lines),
    (6, readers::list),
    (4, readers::download),
    (2, readers::list_skills),
    (3, writers::upload_overlay),
    (2, writers::upload_baseline),
    (1, writers::delete_skill),
    (8, writers::change_notes),
    (4, writers::run),
    (4, writers::edit_over_the_baseline),
    (2, writers::read_over_the_baseline),
];

#[test]
fn sixty_four_clients_in_one_skill_lose_no_edit_and_see_nothing_half() {
    let seconds = random::setting("FILESECBOX_LOAD_SECONDS", 20);
    let seed = random::seed("concurrency");
    let temp = tempfile::tempdir().unwrap();
    let service = Service::start(&temp.path().join("root"), &temp.path().join("log"));
    let arena = Arena {
        url: service.url.clone(),
        until: Instant::now() + Duration::from_secs(u64::try_from(seconds).unwrap()),
        version: AtomicU64::new(0),
        counts: Mutex::default(),
        done: Mutex::default(),
    };
    let client = Client::new(&arena.url);
    writers::upload_baseline(&arena, &client, &mut Random::new(seed));
    writers::upload_overlay(&arena, &client, &mut Random::new(seed));
    counters::prepare(&client);
    assert_eq!(CREW.iter().map(|(clients, _)| clients).sum::<usize>(), 64);
    thread::scope(|scope| {
        let crew = CREW.iter().flat_map(|(clients, work)| std::iter::repeat_n(work, *clients));
        for (number, work) in crew.enumerate() {
            let arena = &arena;
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_add(u64::try_from(number).unwrap()));
                let client = Client::new(&arena.url);
                while Instant::now() < arena.until {
                    work(arena, &client, &mut random);
                }
            });
        }
    });
    counters::check_final(&arena, &client);
    for (what, times) in arena.done.into_inner().unwrap() {
        random::tell(&format!("concurrency: {times:>7} {what}"));
    }
}

impl Arena {
    fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts an answer, which must have one of the statuses given.
    fn note(&self, what: &str, answer: &Answer, expected: &[u16]) {
        assert!(
            expected.contains(&answer.status),
            "{what} was answered {}, not one of {expected:?}: {}",
            answer.status,
            answer.text()
        );
        *self.done.lock().unwrap().entry(format!("{what}: {}", answer.status)).or_default() += 1;
    }
}

/// The version that files of one moment are of; `None` when they hold no file of a version.
///
/// # Panics
/// When they are of several versions, or of one but not all of it.
fn version_in(what: &str, files: &[(String, Option<Vec<u8>>)]) -> Option<u64> {
    let mut names: Vec<&str> =
        files.iter().map(|(name, _)| name.as_str()).filter(|name| !is_beside(name)).collect();
    names.sort_unstable();
    let only = names.iter().find_map(|name| name.strip_prefix("lib/only-")?.strip_suffix(".txt"));
    let Some(version) = only.map(|digits| digits.parse::<u64>().unwrap()) else {
        assert!(names.is_empty(), "{what}: a skill without the file that only its version has: {names:?}");
        return None;
    };
    assert_eq!(names, skill::names(version), "{what}: half a skill");
    for (name, bytes) in files.iter().filter(|(name, _)| !is_beside(name)) {
        if let Some(bytes) = bytes {
            assert_eq!(
                skill::mark_of(name, bytes),
                version.to_string(),
                "{what}: `{name}` is of another version"
            );
        }
    }
    Some(version)
}

/// Tells whether a path is none that versions have: counters, notes, what runs write.
fn is_beside(path: &str) -> bool {
    ["counters/", "notes/", "runs/"].iter().any(|dir| path.starts_with(dir))
}
