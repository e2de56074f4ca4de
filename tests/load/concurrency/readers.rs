//! Clients that look: nothing they see may be half.

use serde_json::Value;

use super::{Arena, MAIN, PLAIN, version_in};
use crate::client::Client;
use crate::random::Random;
use crate::skill;

/// Reads one file whole.
pub(super) fn read_file(arena: &Arena, client: &Client, random: &mut Random) {
    let name = random.pick(&skill::FIXED).unwrap();
    let read = client.get(&format!("{MAIN}/raw/{name}")).unwrap();
    arena.note("read a file", &read, &[200, 404]);
    if read.status == 200 {
        skill::mark_of(name, &read.body);
    }
}

/// Reads one file as text, and some of its lines.
pub(super) fn read_lines(arena: &Arena, client: &Client, random: &mut Random) {
    let name = random.pick(&skill::FIXED).unwrap();
    let whole = client.get(&format!("{MAIN}/content?path={name}")).unwrap();
    arena.note("read a text", &whole, &[200, 404]);
    if whole.status == 200 {
        skill::mark_of(name, whole.json()["data"].as_str().unwrap().as_bytes());
    }
    let part = client.get(&format!("{MAIN}/content?path={name}&start=1&end=100")).unwrap();
    arena.note("read lines", &part, &[200, 404]);
    if part.status == 200 {
        let lines: Vec<String> = serde_json::from_value(part.json()["data"].clone()).unwrap();
        assert_eq!(lines.len(), 42);
        assert_eq!(lines.first(), lines.last(), "lines of two versions in one answer");
    }
}

/// Lists the skill: the names of one version.
pub(super) fn list(arena: &Arena, client: &Client, random: &mut Random) {
    let tree = if random.chance(70) { MAIN } else { PLAIN };
    let detail = if random.chance(50) { "?detail=true" } else { "" };
    let listed = client.get(&format!("{tree}/files{detail}")).unwrap();
    arena.note("list files", &listed, &[200, 404]);
    if listed.status == 200 {
        let name = |entry: &Value| entry["path"].as_str().or(entry.as_str()).unwrap().to_owned();
        let files: Vec<_> =
            listed.json()["data"].as_array().unwrap().iter().map(|entry| (name(entry), None)).collect();
        version_in("a listing", &files);
    }
}

/// Downloads the skill: names and contents of one version.
pub(super) fn download(arena: &Arena, client: &Client, random: &mut Random) {
    let tree = if random.chance(70) { MAIN } else { PLAIN };
    let download = client.get(&format!("{tree}/download")).unwrap();
    arena.note("download", &download, &[200, 404]);
    if download.status == 200 {
        let files: Vec<_> =
            skill::unpack(&download.body).into_iter().map(|(name, bytes)| (name, Some(bytes))).collect();
        version_in("a download", &files);
    }
}

/// Lists the skills of a user: at most the one there is.
pub(super) fn list_skills(arena: &Arena, client: &Client, random: &mut Random) {
    let user = if random.chance(50) { "main" } else { "plain" };
    let listed = client.get(&format!("/v1/skills/{user}/agent/list")).unwrap();
    arena.note("list skills", &listed, &[200]);
    let names: Vec<String> = listed.json()["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["skill_id"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.is_empty() || names == ["shared"], "{names:?}");
}
