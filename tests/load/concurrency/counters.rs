//! Counters that many clients edit, one line with `If-Match`, again when the file has changed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Arena, MAIN};
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

/// Adds one to a counter, unless the skill goes meanwhile.
pub(super) fn increment(arena: &Arena, client: &Client, random: &mut Random) {
    let counter = random.below(COUNTERS);
    loop {
        let read = client.get(&format!("{MAIN}/raw/counters/{counter}.txt")).unwrap();
        arena.note("read a counter", &read, &[200, 404]);
        if read.status == 404 {
            return;
        }
        let (version, count) = parse(std::str::from_utf8(&read.body).unwrap());
        let target = format!("{MAIN}/edit?path=counters/{counter}.txt&start=2&end=2");
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
    for counter in 0..COUNTERS {
        let read = client.get(&format!("{MAIN}/raw/counters/{counter}.txt")).unwrap();
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
