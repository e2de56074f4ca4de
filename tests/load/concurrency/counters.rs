//! Counters that many clients edit, one line with `If-Match`, again when the file has changed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Arena, MAIN, STEADY};
use crate::client::Client;
use crate::random::Random;

/// Counters in each version.
pub(super) const COUNTERS: usize = 3;

/// Acknowledged counts: by version and counter, each count with how often it was acknowledged.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<(u64, usize), BTreeMap<u64, usize>>);

/// A counter as a file: its version and its count, a line each.
pub(super) fn text(version: u64, count: u64) -> String {
    format!("version {version}\ncount {count}\nend\n")
}

fn parse(text: &str) -> (u64, u64) {
    let mut lines = text.lines();
    let mut number = |word: &str| lines.next().and_then(|line| line.strip_prefix(word)?.parse().ok());
    let (version, count) = (number("version "), number("count "));
    let (Some(version), Some(count)) = (version, count) else { panic!("a counter is torn: {text}") };
    assert_eq!(self::text(version, count), text, "a counter is torn");
    (version, count)
}

/// Gives the user `steady` counters of their own, of version 0, which no upload has.
pub(super) fn prepare(client: &Client) {
    for counter in 0..COUNTERS {
        let target = format!("{STEADY}/edit?path=counters/{counter}.txt");
        assert!(client.put(&target, text(0, 0).as_bytes()).unwrap().is_success());
    }
}

/// Adds one to a counter of the skill that is uploaded and deleted meanwhile.
pub(super) fn increment(arena: &Arena, client: &Client, random: &mut Random) {
    increment_in(MAIN, arena, client, random.below(COUNTERS));
}

/// Adds one to a counter that stays while the baseline below it changes.
pub(super) fn increment_steadily(arena: &Arena, client: &Client, random: &mut Random) {
    increment_in(STEADY, arena, client, random.below(COUNTERS));
}

fn increment_in(tree: &str, arena: &Arena, client: &Client, counter: usize) {
    loop {
        let read = client.get(&format!("{tree}/raw/counters/{counter}.txt")).unwrap();
        arena.note("read a counter", &read, &[200, 404]);
        if read.status == 404 {
            return;
        }
        let (version, count) = parse(std::str::from_utf8(&read.body).unwrap());
        let target = format!("{tree}/edit?path=counters/{counter}.txt&start=2&end=2");
        let line = format!("count {}\n", count + 1);
        let edited = client.send("PUT", &target, read.etag.as_deref(), line.as_bytes()).unwrap();
        arena.note("add to a counter", &edited, &[200, 412]);
        if edited.is_success() {
            let mut counts = arena.counts.lock().unwrap();
            let times = counts.0.entry((version, counter)).or_default().entry(count + 1).or_default();
            *times += 1;
            assert_eq!(*times, 1, "count {} of counter {counter} in version {version} was lost", count + 1);
            return;
        }
    }
}

/// Looks whether every count up to the last was acknowledged, and whether the last ones are in the files.
pub(super) fn check_final(arena: &Arena, client: &Client) {
    let mut counts = arena.counts.lock().unwrap();
    for ((version, counter), acknowledged) in &counts.0 {
        let expected: Vec<u64> = (1..=u64::try_from(acknowledged.len()).unwrap()).collect();
        let found: Vec<u64> = acknowledged.keys().copied().collect();
        assert_eq!(found, expected, "counter {counter} of version {version} skipped a count");
    }
    for (tree, counter) in [MAIN, STEADY].into_iter().flat_map(|tree| (0..COUNTERS).map(move |n| (tree, n))) {
        let read = client.get(&format!("{tree}/raw/counters/{counter}.txt")).unwrap();
        if read.status == 200 {
            let (version, count) = parse(std::str::from_utf8(&read.body).unwrap());
            let acknowledged = match counts.0.entry((version, counter)) {
                Entry::Occupied(entry) => entry.get().len(),
                Entry::Vacant(_) => 0,
            };
            assert_eq!(count, u64::try_from(acknowledged).unwrap(), "counter {counter} of version {version}");
        }
    }
}
