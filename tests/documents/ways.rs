//! The ways of `docs/ARCHITECTURE.md` are those that calls take, and no longer than they may be.

use std::fs;
use std::path::Path;

use crate::read;

/// The first file of each way, and the most files that it may have.
const WAYS: [(&str, usize); 4] = [
    ("src/http/tree/edit.rs", 8),
    ("src/http/skills/upload.rs", 10),
    ("src/http/tree/execute.rs", 10),
    ("src/http/tree/exec/mod.rs", 10),
];

/// A stop on a way: a file, a function in it, and whether a message leads there.
struct Stop {
    file: String,
    function: String,
    is_told: bool,
}

#[test]
fn a_call_passes_the_files_that_its_way_names() {
    let document = read("docs/ARCHITECTURE.md");
    let ways: Vec<Vec<Stop>> = document
        .split("\n\n")
        .filter(|paragraph| paragraph.starts_with("The way"))
        .map(|paragraph| stops(paragraph.split_once(": ").unwrap().1))
        .collect();
    let firsts: Vec<&str> = ways.iter().map(|way| way[0].file.as_str()).collect();
    assert_eq!(firsts, WAYS.map(|(first, _)| first));
    for (way, (first, most)) in ways.iter().zip(WAYS) {
        assert!((5..=most).contains(&way.len()), "the way from {first} has {} files", way.len());
        let mut before = String::new();
        for (index, Stop { file, function, is_told }) in way.iter().enumerate() {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            assert!(!way[..index].iter().any(|stop| stop.file == *file), "{file} is there twice");
            assert!(text.contains(&format!("fn {function}")), "{file} has no `{function}`");
            let is_called = before.contains(&format!("{function}("));
            assert!(index == 0 || *is_told || is_called, "no file before {file} calls `{function}`");
            before.push_str(&text.replace("fn ", "fn-"));
        }
    }
}

/// Reads the stops of a way: "`file` (`function`), `file` (`function`); …".
fn stops(way: &str) -> Vec<Stop> {
    let words: Vec<&str> = way.split('`').collect();
    let told = |before: &str| before.trim_end().ends_with(';');
    // Outside the quotes, a stop begins after the comma, the semicolon or nothing.
    words
        .chunks_exact(4)
        .map(|part| Stop { file: part[1].into(), function: part[3].into(), is_told: told(part[0]) })
        .collect()
}
