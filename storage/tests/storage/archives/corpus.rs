//! The shapes of `shapes.txt`, each as ZIP, tar, tar.gz and tar.zst.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use storage::Error;
use storage::archive::Options;

use super::builder;
use super::taking::{Taken, take_with};

/// The shapes; their form is told at their beginning.
const SHAPES: &str = include_str!("shapes.txt");

/// One shape.
struct Shape<'text> {
    law: &'text str,
    file_name: Option<String>,
    entries: Vec<&'text str>,
    expected: Vec<&'text str>,
}

fn shapes() -> Vec<Shape<'static>> {
    let mut shapes: Vec<Shape<'static>> = Vec::new();
    for line in SHAPES.lines().filter(|line| !line.is_empty() && !line.starts_with("# ") && *line != "#") {
        if let Some(head) = line.strip_prefix("== ") {
            let (law, file) = head.split_once(" |").expect("a law and a file's name");
            let file_name = Some(file.trim().to_owned()).filter(|name| !name.is_empty());
            shapes.push(Shape { law, file_name, entries: Vec::new(), expected: Vec::new() });
            continue;
        }
        let shape = shapes.last_mut().expect("a law before its entries");
        match line.strip_prefix("=> ") {
            Some(expected) => shape.expected.push(expected),
            None => shape.entries.push(line),
        }
    }
    shapes
}

/// One entry of a shape.
enum Entry<'shape> {
    Directory(&'shape str),
    File(&'shape str, Vec<u8>),
    Link(&'shape str, &'shape str),
}

fn entries<'shape>(shape: &[&'shape str]) -> impl Iterator<Item = Entry<'shape>> {
    shape.iter().map(|entry| {
        if let Some((path, target)) = entry.split_once("->") {
            return Entry::Link(path, target);
        }
        if let Some((path, text)) = entry.split_once(':') {
            return Entry::File(path, text.as_bytes().to_vec());
        }
        match entry.split_once('=') {
            Some((path, name)) => {
                Entry::File(path, format!("---\nname: {name}\ndescription: d\n---\n").into_bytes())
            }
            None if entry.ends_with('/') => Entry::Directory(entry),
            None => Entry::File(entry, Vec::new()),
        }
    })
}

fn zip(shape: &[&str]) -> Vec<u8> {
    builder::zip(entries(shape).map(|entry| match entry {
        Entry::Directory(path) => builder::directory(path),
        Entry::File(path, content) => builder::file(path, &content),
        Entry::Link(path, target) => {
            let mut link = builder::stored(path, target.as_bytes());
            link.attributes = 0o120_777 << 16;
            link
        }
    }))
}

fn tar(shape: &[&str]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries(shape) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        let mut append = |path: &str, kind, content: &[u8], target: &str| {
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            // Written raw: the crate refuses what an attacker would write.
            let fields = header.as_gnu_mut().unwrap();
            fields.name[..path.len()].copy_from_slice(path.as_bytes());
            fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_cksum();
            builder.append(&header, content).unwrap();
        };
        match entry {
            Entry::Directory(path) => append(path, tar::EntryType::Directory, b"", ""),
            Entry::File(path, content) => append(path, tar::EntryType::Regular, &content, ""),
            Entry::Link(path, target) => append(path, tar::EntryType::Symlink, b"", target),
        }
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Each skill with its files, sorted, or the variant of the refusal.
fn told(taken: Result<Taken, Error>) -> Vec<String> {
    let taken = match taken {
        Ok(taken) => taken,
        Err(Error::Archive(error)) => {
            let variant = format!("{error:?}");
            let variant = variant.split([' ', '(', '{']).next().unwrap().to_owned();
            return vec![format!("refused {variant}")];
        }
        Err(other) => panic!("{other:?}"),
    };
    let of = |id: &str| {
        let is_file = |path: &&String| path.starts_with(&format!("{id}/")) && taken.tree[*path].is_some();
        let files: Vec<&str> = taken.tree.keys().filter(is_file).map(|path| &path[id.len() + 1..]).collect();
        files.join(" ")
    };
    taken.ids().into_iter().map(|id| format!("{id}: {}", of(id))).collect()
}

#[test]
fn every_shape_becomes_exactly_these_skills_in_every_format() {
    let shapes = shapes();
    assert!(shapes.len() >= 60, "{}", shapes.len());
    for Shape { law, file_name, entries, expected } in shapes {
        let options = Options { file_name, ..Options::default() };
        let tar = tar(&entries);
        let zstd = zstd::encode_all(tar.as_slice(), 3).unwrap();
        for (format, bytes) in
            [("zip", zip(&entries)), ("tar.gz", gzip(&tar)), ("tar.zst", zstd), ("tar", tar)]
        {
            assert_eq!(told(take_with(&bytes, &options)), expected, "{law}, {format}");
        }
    }
}
