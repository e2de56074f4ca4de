//! Clients that change: whole skills, notes beside the versions, commands.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::counters::{self, COUNTERS};
use super::{Arena, MAIN, PLAIN};
use crate::client::Client;
use crate::random::Random;
use crate::skill;

/// A ZIP of a version with its counters at 0.
fn archive(version: u64) -> Vec<u8> {
    let mut files: BTreeMap<String, Vec<u8>> =
        skill::names(version).into_iter().map(|name| (name, skill::proof(&version.to_string()))).collect();
    for counter in 0..COUNTERS {
        files.insert(format!("counters/{counter}.txt"), counters::text(version, 0).into_bytes());
    }
    skill::archive_of("shared", files.iter())
}

/// Replaces the skill for the user `main`.
pub(super) fn upload_overlay(arena: &Arena, client: &Client, random: &mut Random) {
    let uploaded = client.upload("main/agent", "overlay", &archive(arena.next_version())).unwrap();
    arena.note("upload an overlay", &uploaded, &[200]);
    // Leaves the counters of a version some time to count.
    thread::sleep(Duration::from_millis(u64::try_from(random.below(500)).unwrap()));
}

/// Replaces the skill for all users.
pub(super) fn upload_baseline(arena: &Arena, client: &Client, random: &mut Random) {
    let uploaded = client.upload("main/agent", "baseline", &archive(arena.next_version())).unwrap();
    arena.note("upload a baseline", &uploaded, &[200]);
    thread::sleep(Duration::from_millis(u64::try_from(random.below(500)).unwrap()));
}

/// Deletes the skill for the user `main`; the next upload makes it again.
pub(super) fn delete_skill(arena: &Arena, client: &Client, random: &mut Random) {
    let deleted = client.delete("/v1/skills/main/agent/shared?scope=overlay").unwrap();
    arena.note("delete the skill", &deleted, &[200, 404]);
    thread::sleep(Duration::from_millis(100 + u64::try_from(random.below(400)).unwrap()));
}

/// Writes, moves and deletes notes beside the version. The last note of a deleted skill may make it again.
pub(super) fn change_notes(arena: &Arena, client: &Client, random: &mut Random) {
    let (one, other) = (random.below(6), random.below(6));
    let note = format!("{MAIN}/raw/notes/{one}.txt");
    match random.below(5) {
        0 | 1 => {
            let mark = random.below(1 << 30).to_string();
            let written = client.put(&format!("{note}?parents=true"), &skill::proof(&mark)).unwrap();
            arena.note("write a note", &written, &[200, 201]);
        }
        2 => {
            let read = client.get(&note).unwrap();
            arena.note("read a note", &read, &[200, 404]);
            if read.status == 200 {
                skill::mark_of(&note, &read.body);
            }
        }
        3 => arena.note("delete a note", &client.delete(&note).unwrap(), &[200, 404]),
        _ => {
            let body = json!({
                "from": format!("notes/{one}.txt"), "to": format!("notes/{other}.txt"), "overwrite": true
            });
            let moved = client.post(&format!("{MAIN}/move"), &body).unwrap();
            // 400: a file cannot be moved into itself.
            let expected: &[u16] = if one == other { &[400, 404] } else { &[200, 404] };
            arena.note("move a note", &moved, expected);
        }
    }
}

/// Runs a command that reads the version whole and writes a file of its own.
pub(super) fn run(arena: &Arena, client: &Client, random: &mut Random) {
    let mark = random.below(1 << 30);
    let line = format!(
        "mkdir -p runs; echo {mark} > runs/{}.txt; if [ -e SKILL.md ]; then \
         grep -h '^mark' SKILL.md head.txt lib/deep/part.txt lib/tail.txt lib/only-*.txt | sort -u; fi",
        random.below(4)
    );
    let ran = client.shell(MAIN, &line).unwrap();
    // 409: the skill was deleted while the command ran. 429: too many run.
    arena.note("run a command", &ran, &[200, 404, 409, 429]);
    if ran.status == 200 {
        let result = &ran.json()["data"];
        let marks: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert!(marks.len() <= 1, "a command sees two versions: {marks:?}");
        assert_eq!(result["stderr"], "", "a command misses a file");
    }
}

/// Edits a note over the baseline, and drops the edits now and then.
pub(super) fn edit_over_the_baseline(arena: &Arena, client: &Client, random: &mut Random) {
    if random.chance(5) {
        let reset = client.send("POST", &format!("{PLAIN}/reset"), None, b"").unwrap();
        arena.note("reset", &reset, &[200]);
        return;
    }
    let mark = random.below(1 << 30).to_string();
    let target = format!("{PLAIN}/edit?path=notes/{}.txt", random.below(3));
    let edited = client.put(&target, &skill::proof(&mark)).unwrap();
    arena.note("edit over the baseline", &edited, &[200]);
}

/// Reads the baseline and the notes over it.
pub(super) fn read_over_the_baseline(arena: &Arena, client: &Client, random: &mut Random) {
    let note = format!("notes/{}.txt", random.below(3));
    for (name, expected) in
        [(note.as_str(), [200, 404].as_slice()), ("head.txt", &[200]), ("lib/tail.txt", &[200])]
    {
        let read = client.get(&format!("{PLAIN}/raw/{name}")).unwrap();
        arena.note("read over the baseline", &read, expected);
        if read.status == 200 {
            skill::mark_of(name, &read.body);
        }
    }
}
