//! The content of the services: archives of known shape, the same bytes in every run.

use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::error::{Failure, Result};

/// Files of the skill that is listed.
pub(crate) const MANY_FILES: usize = 5_000;
/// Files of the skill that is uploaded, of 10 000 bytes each.
pub(crate) const BUNDLE_FILES: usize = 500;
/// Lines of the file that is edited, of 40 bytes each.
pub(crate) const LINES: usize = 2_000;
/// Size of the large file.
pub(crate) const LARGE_BYTES: usize = 16 * 1024 * 1024;

// Without a name: the skill is called as its archive is.
const HEADER: &[u8] = b"---\ndescription: A skill to measure with.\n---\n\n# Bench\n";

/// Four KiB of text.
#[must_use]
pub(crate) fn small() -> Vec<u8> {
    Words::new(1).text(4096)
}

/// The file of [`LINES`] lines.
#[must_use]
pub(crate) fn lines() -> Vec<u8> {
    (1..=LINES).flat_map(|number| format!("line {number:06} {:<27}\n", "of a file").into_bytes()).collect()
}

/// A skill with one file of each size that is read.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn demo() -> Result<Vec<u8>> {
    let large = Words::new(2).text(64 * 1024).repeat(LARGE_BYTES / (64 * 1024));
    pack([("small.txt", small()), ("lines.txt", lines()), ("large.bin", large)].into_iter())
}

/// A skill of the usual size: 3 files, 11 KB.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn tiny() -> Result<Vec<u8>> {
    pack([("scripts/run.py", Words::new(3).text(7000)), ("notes.md", Words::new(4).text(4000))].into_iter())
}

/// A skill of `files` small files in directories of 100.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn many(files: usize) -> Result<Vec<u8>> {
    pack((0..files).map(|number| (many_name(number), format!("file {number}\n").into_bytes())))
}

/// The path of a file of [`many`].
#[must_use]
pub(crate) fn many_name(number: usize) -> String {
    format!("part-{:02}/file-{number:05}.txt", number / 100)
}

/// Size of each file of [`corpus`], about.
pub(crate) const CORPUS_FILE_BYTES: usize = 20_000;

/// A skill of `files` files of text; one of ten has a line that begins `error`.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn corpus(files: usize) -> Result<Vec<u8>> {
    pack(corpus_files(files))
}

/// The files of [`corpus`], with their names.
pub(crate) fn corpus_files(files: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut words = Words::new(6);
    (0..files).map(move |number| {
        let mut text = words.text(CORPUS_FILE_BYTES / 2);
        if number % 10 == 0 {
            text.extend_from_slice(format!("\nerror {number}: disk full\n").as_bytes());
        }
        text.extend(words.text(CORPUS_FILE_BYTES / 2));
        (many_name(number), text)
    })
}

/// A skill of [`BUNDLE_FILES`] files, 5 MB. `variant` tells two versions apart.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn bundle(variant: u64) -> Result<Vec<u8>> {
    let mut words = Words::new(variant);
    pack(
        (0..BUNDLE_FILES)
            .map(move |number| (format!("d{:02}/f{number:03}.md", number / 25), words.text(10_000))),
    )
}

/// Files of [`package`].
pub(crate) const PACKAGE_FILES: usize = 50;

/// A version of a skill as platforms deploy it: [`PACKAGE_FILES`] files of 2 000 bytes, one of them a script that is run once.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn package(variant: u64, has_script: bool) -> Result<Vec<u8>> {
    let mut words = Words::new(100 + variant);
    let name = if has_script { "entrypoint.sh" } else { "run.sh" };
    let script = [(name.to_owned(), b"true\n".to_vec())];
    let files =
        (2..PACKAGE_FILES).map(move |number| (format!("d{}/f{number:02}.md", number / 10), words.text(2000)));
    pack_with(b"---\nname: packed\ndescription: A skill to deploy.\n---\n", script.into_iter().chain(files))
}

/// The name of the file whose content is what a command writes.
pub(crate) const VOLUME: &str = "volume.txt";

/// `bytes` bytes of text.
#[must_use]
pub(crate) fn volume(bytes: usize) -> Vec<u8> {
    let mut text = Words::new(5).text(64 * 1024).repeat(bytes.div_ceil(64 * 1024));
    text.truncate(bytes);
    text
}

/// A skill with `text` as its file [`VOLUME`].
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn volume_skill(text: &[u8]) -> Result<Vec<u8>> {
    pack([(VOLUME, text.to_vec())].into_iter())
}

/// `skills` small skills in one archive.
///
/// # Errors
/// [`Failure::Archive`].
pub(crate) fn several(skills: usize) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for skill in 0..skills {
        archive.start_file(format!("{}/SKILL.md", several_name(skill)), SimpleFileOptions::default())?;
        archive.write_all(HEADER).map_err(Failure::io("pack"))?;
    }
    Ok(archive.finish()?.into_inner())
}

/// The id of a skill of [`several`].
#[must_use]
pub(crate) fn several_name(number: usize) -> String {
    format!("several-{number:02}")
}

fn pack(files: impl Iterator<Item = (impl Into<String>, Vec<u8>)>) -> Result<Vec<u8>> {
    pack_with(HEADER, files)
}

fn pack_with(header: &[u8], files: impl Iterator<Item = (impl Into<String>, Vec<u8>)>) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    archive.start_file("SKILL.md", options)?;
    archive.write_all(header).map_err(Failure::io("pack"))?;
    for (name, bytes) in files {
        archive.start_file(name.into(), options)?;
        archive.write_all(&bytes).map_err(Failure::io("pack"))?;
    }
    Ok(archive.finish()?.into_inner())
}

/// Text that deflates about as well as prose: words drawn by a fixed generator (xorshift, Marsaglia 2003).
struct Words {
    state: u64,
}

impl Words {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn text(&mut self, bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 16);
        while text.len() < bytes {
            let word = self.next();
            // 4 096 words of 3 to 10 letters; a line has about ten.
            let letters = 3 + word % 8;
            let mut spelling = (word >> 8) % 4096;
            for _ in 0..letters {
                spelling =
                    spelling.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push(b'a' + u8::try_from((spelling >> 33) % 26).unwrap_or(0));
            }
            text.push(if word >> 60 == 0 { b'\n' } else { b' ' });
        }
        text.truncate(bytes);
        text
    }
}
