//! The transcript over the backends of this crate.

use std::sync::Arc;

use agent::tools::Search;
use sandbox::{MemSandbox, NoneOptions, NoneSandbox, Root};

use crate::play::{Played, play};
use crate::support::user;

#[tokio::test]
async fn the_transcript_is_the_same_in_memory_and_on_the_host_by_programs_and_by_files() {
    let directory = tempfile::tempdir().unwrap();
    let none =
        Arc::new(NoneSandbox::open(NoneOptions::new(Root::PerUser(directory.path().to_owned()))).unwrap());
    let memory = MemSandbox::new();
    let mut all = Vec::new();
    for (name, search) in [("一", Search::Programs), ("二", Search::Files)] {
        all.push(play(&*none, &user(name), search, true).await);
        all.push(play(&memory, &user(name), search, false).await);
    }
    let (Played { calls, skipped }, total) = (all[1], all[1].calls + all[1].skipped);
    println!("{total} calls on the host, {calls} in memory without {skipped} of Shell, each twice");
    assert!(total >= 60 && skipped < 20);
    assert_eq!(all[0], Played { calls: total, skipped: 0 });
}
