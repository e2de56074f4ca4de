//! Skills whose every file says which version it belongs to, so that a half skill and a torn file show.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// Files that every version has, besides the one that only it has.
pub(crate) const FIXED: [&str; 4] = ["SKILL.md", "head.txt", "lib/deep/part.txt", "lib/tail.txt"];

/// The name of the file that only version `version` has.
pub(crate) fn only(version: u64) -> String {
    format!("lib/only-{version}.txt")
}

/// The paths of a version, sorted.
pub(crate) fn names(version: u64) -> Vec<String> {
    let mut names: Vec<String> = FIXED.iter().map(ToString::to_string).chain([only(version)]).collect();
    names.sort_unstable();
    names
}

/// A text that proves itself whole: its first and its last line say `mark`, and there is a given number between.
pub(crate) fn proof(mark: &str) -> Vec<u8> {
    let mut text = format!("mark {mark}\n");
    for line in 0..40 {
        text.push_str(&format!("line {line} of a text that must never be seen in part\n"));
    }
    text.push_str(&format!("mark {mark}\n"));
    text.into_bytes()
}

/// The mark of a text that [`proof`] made.
///
/// # Panics
/// When the text is not whole.
pub(crate) fn mark_of(path: &str, bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap();
    let mark = text.lines().next().and_then(|line| line.strip_prefix("mark ")).unwrap_or_default();
    assert!(proof(mark) == bytes, "`{path}` is torn: {text}");
    mark.to_owned()
}

/// A ZIP of skills with one version.
pub(crate) fn archive(skills: &[&str], version: u64) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for skill in skills {
        for name in names(version) {
            zip.start_file(format!("{skill}/{name}"), SimpleFileOptions::default()).unwrap();
            zip.write_all(&proof(&version.to_string())).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

/// A ZIP of one skill with the files given.
pub(crate) fn archive_of<'a>(skill: &str, files: impl Iterator<Item = (&'a String, &'a Vec<u8>)>) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(format!("{skill}/{name}"), SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The files of a downloaded skill, without the skill's own directory in front.
pub(crate) fn unpack(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut zip = ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut files = Vec::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        if entry.is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.push((entry.name().unwrap().split_once('/').unwrap().1.to_owned(), bytes));
        }
    }
    files
}
