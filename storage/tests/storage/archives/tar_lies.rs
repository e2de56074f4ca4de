//! Tars that lie, multiply or break, and links that do.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use storage::Error;
use storage::archive::ArchiveError::*;
use storage::archive::Options;

use super::builder::{file, stored, zip};
use super::taking::{take, take_with};
use crate::refused;

/// One entry, each field as it will be written.
fn entry(kind: u8, name: &[u8], target: &[u8], content: &[u8], size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    header.set_size(size);
    header.set_entry_type(tar::EntryType::new(kind));
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name);
    fields.linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn of(name: &str, content: &[u8]) -> Vec<u8> {
    entry(b'0', name.as_bytes(), b"", content, content.len() as u64)
}

/// A PAX header with these records.
fn pax(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        // The length counts itself.
        let mut length = rest.len() + 1;
        while length != rest.len() + length.to_string().len() {
            length = rest.len() + length.to_string().len();
        }
        content.extend_from_slice(format!("{length}{rest}").as_bytes());
    }
    entry(kind, b"PaxHeader", b"", &content, content.len() as u64)
}

fn tar(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn skill() -> Vec<u8> {
    of("a/SKILL.md", b"---\nname: a\n---\n")
}

#[test]
fn what_two_readers_would_read_differently_is_refused() {
    for (law, entries) in [
        ("two names in one PAX header", vec![pax(b'x', &[("path", "a/x"), ("path", "a/y")]), of("a/z", b"")]),
        (
            "two PAX headers",
            vec![pax(b'x', &[("path", "a/x")]), pax(b'x', &[("path", "a/y")]), of("a/z", b"")],
        ),
        (
            "a GNU name and a PAX name",
            vec![entry(b'L', b"x", b"", b"a/x", 3), pax(b'x', &[("path", "a/y")]), of("a/z", b"")],
        ),
        ("a name for all", vec![pax(b'g', &[("path", "a/x")]), of("a/z", b"")]),
        ("a size for all", vec![pax(b'g', &[("size", "0")]), of("a/z", b"data")]),
        ("another size", vec![pax(b'x', &[("size", "512")]), of("a/z", b"data")]),
        ("a size that is none", vec![pax(b'x', &[("size", "-1")]), of("a/z", b"data")]),
        ("a link with data", vec![entry(b'2', b"a/l", b"SKILL.md", b"data", 4)]),
        ("a hard link with data", vec![entry(b'1', b"a/l", b"a/SKILL.md", b"data", 4)]),
        ("a damaged PAX header", vec![entry(b'x', b"x", b"", b"999 path=a/x\n", 13), of("a/z", b"")]),
    ] {
        let bytes = tar(&[vec![skill()], entries].concat());
        match take(&bytes) {
            Err(Error::Archive(BadTar { .. })) => {}
            other => panic!("{law}: {:?}", other.map(|taken| taken.plan)),
        }
    }
    refused!(tar(&[skill(), entry(b'5', b"a/d/", b"", b"data", 4)]), DirectoryWithData { .. });
    refused!(tar(&[skill(), pax(b'x', &[("GNU.sparse.major", "1")]), of("a/z", b"")]), Sparse { .. });
    refused!(tar(&[skill(), entry(b'S', b"a/z", b"", b"", 0)]), Sparse { .. });
    refused!(tar(&[skill(), entry(b'M', b"a/z", b"", b"", 0)]), MultiVolume);
    for kind in [b'3', b'4', b'6', b'D', b'N', b'X', b'Z'] {
        refused!(tar(&[skill(), entry(kind, b"a/z", b"", b"", 0)]), Device { .. });
    }
    refused!(tar(&[skill(), skill()]), Duplicate { .. });
    refused!([tar(&[skill()]), skill()].concat(), TrailingBytes { .. });
    refused!(skill(), Truncated);
    refused!(tar(&[skill(), entry(b'0', b"a/z", b"", b"", 1 << 40)]), Truncated);
    refused!(tar(&[skill(), entry(b'L', b"x", b"", b"a/x", 3)]), Truncated);
    let mut damaged = tar(&[skill(), of("a/z", b"")]);
    damaged[1024 + 3] ^= 1;
    refused!(damaged, BadTar { index: 1, .. });
    // A name that is the head of a ZIP.
    refused!(tar(&[of("PK\x03\x04", b""), skill()]), BadTar { index: 0, .. });
}

#[test]
fn names_of_a_tar_are_as_strict_as_those_of_a_zip() {
    for name in ["../x", "/etc/passwd", "a/../../x", "C:\\x", "a\\..\\x"] {
        refused!(tar(&[skill(), of(name, b"")]), Escape { .. });
        refused!(tar(&[skill(), pax(b'x', &[("path", name)]), of("a/z", b"")]), Escape { .. });
    }
    refused!(tar(&[skill(), of("a//x", b"")]), Path { .. });
    let long = format!("a/{}", "x/".repeat(600));
    refused!(tar(&[skill(), pax(b'x', &[("path", &long)]), of("a/z", b"")]), PathTooLong { .. });
    let long = "x".repeat(5000);
    refused!(
        tar(&[skill(), entry(b'L', b"x", b"", long.as_bytes(), 5000), of("a/z", b"")]),
        PathTooLong { .. }
    );
    let gbk = encoding_rs::GBK.encode("a/数据分析.txt").0.into_owned();
    let taken = take(&tar(&[skill(), entry(b'0', &gbk, b"", b"", 0)])).unwrap();
    assert_eq!(taken.paths(), ["a", "a/SKILL.md", "a/数据分析.txt"]);
    assert_eq!(taken.plan.charset.as_str(), "gbk");
}

#[test]
fn a_hard_link_is_the_file_before_it_and_nothing_else() {
    let taken = take(&tar(&[skill(), of("./a/x", b"1"), entry(b'1', b"a/y", b"a/x", b"", 0)])).unwrap();
    assert_eq!((taken.text("a/x"), taken.text("a/y")), ("1", "1"));
    for target in [b"a/later".as_slice(), b"/etc/passwd", b"../x"] {
        refused!(tar(&[skill(), entry(b'1', b"a/y", target, b"", 0), of("a/later", b"")]), LinkLeaves { .. });
        // Beside the skills it is skipped.
        assert_eq!(take(&tar(&[skill(), entry(b'1', b"y", target, b"", 0)])).unwrap().ids(), ["a"]);
    }
}

#[test]
fn limits_hold_for_what_is_taken_of_a_tar() {
    let mut options = Options::default();
    options.limits.entries = 5;
    options.limits.file_bytes = 1000;
    options.limits.total_bytes = 1500;
    let refusal = |entries: &[Vec<u8>]| match take_with(&tar(entries), &options) {
        Err(Error::Archive(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(&[skill(), of("a/x", &[1; 1001])]), FileTooLarge { bytes: 1001, .. }));
    let both = [skill(), of("a/x", &[1; 800]), of("a/y", &[1; 800])];
    assert!(matches!(refusal(&both), TotalTooLarge { limit: 1500 }));
    // A hard link is a copy, which counts.
    let linked = [skill(), of("a/x", &[1; 800]), entry(b'1', b"a/y", b"a/x", b"", 0)];
    assert!(matches!(refusal(&linked), TotalTooLarge { .. }));
    let many: Vec<Vec<u8>> = (0..6).map(|n| of(&format!("a/{n}"), b"")).collect();
    assert!(matches!(refusal(&many), TooManyEntries { limit: 5 }));
    // What lies beside the skills is never unpacked.
    let beside = [skill(), of("video.mp4", &[1; 5000])];
    assert_eq!(take_with(&tar(&beside), &options).unwrap().ids(), ["a"]);
}

/// A link of a ZIP.
fn link(name: &str, target: &str) -> super::builder::Entry {
    super::builder::Entry { attributes: 0o120_777 << 16, ..stored(name, target.as_bytes()) }
}

#[test]
fn links_cannot_multiply_files_beyond_the_limits_nor_take_long() {
    let begun = std::time::Instant::now();
    // Each directory holds ten links to the next one.
    let mut entries = vec![file("a/SKILL.md", b""), file("a/d9/x", b"x")];
    for level in 0..9 {
        entries.extend((0..10).map(|n| link(&format!("a/d{level}/l{n}"), &format!("../d{}", level + 1))));
    }
    refused!(zip(entries), TooManyEntries { .. });
    let mut entries = vec![file("a/SKILL.md", b""), stored("a/big", &vec![1; 3_000_000])];
    entries.extend((0..100).map(|n| link(&format!("a/l{n}"), "big")));
    refused!(zip(entries), TotalTooLarge { .. });
    // A chain that is longer than any kernel follows.
    let mut entries = vec![file("a/SKILL.md", b"")];
    entries.extend((0..45).map(|n| link(&format!("a/l{n}"), &format!("l{}", n + 1))));
    entries.push(file("a/l45", b""));
    refused!(zip(entries), LinkLoop { .. });
    // Much to look up for each of many links.
    let detour = "d/../".repeat(200);
    let mut entries = vec![file("a/SKILL.md", b""), file("a/d/x", b"")];
    entries.extend((0..39).map(|n| link(&format!("a/l{n}"), &format!("{detour}l{}", n + 1))));
    entries.push(file("a/l39", b""));
    entries.extend((0..9000).map(|n| link(&format!("a/m{n}"), &format!("{detour}l0"))));
    refused!(zip(entries), LinkLoop { .. });
    refused!(zip([file("a/SKILL.md", b""), link("a/x", &"y/".repeat(600))]), PathTooLong { .. });
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn whatever_is_planned_of_a_random_tar_with_links_can_be_extracted() {
    let name = prop::sample::select(vec![
        "a/SKILL.md",
        "a/x",
        "a/d/y",
        "a/d/e/z",
        "b/SKILL.md",
        "b/x",
        "c",
        "a/d",
        "a/l",
        "./a/m",
        "b/d/l",
        "SKILL.md",
    ]);
    let target = prop::sample::select(vec![
        "x",
        "../x",
        "d",
        "../d",
        "../../a",
        "SKILL.md",
        "d/e/z",
        ".",
        "..",
        "/etc/passwd",
        "a/x",
        "l",
        "d/../x",
        "",
    ]);
    let kind = prop::sample::select(b"000125".to_vec());
    let entries = prop::collection::vec((kind, name, target), 1..9);
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let taken = std::cell::Cell::new(0_u32);
    runner
        .run(&entries, |entries| {
            let entries: Vec<Vec<u8>> = entries
                .iter()
                .map(|(kind, name, target)| match kind {
                    b'0' => of(name, name.as_bytes()),
                    kind => entry(*kind, name.as_bytes(), target.as_bytes(), b"", 0),
                })
                .collect();
            let options = Options { file_name: Some("root.tar".to_owned()), ..Options::default() };
            match take_with(&tar(&entries), &options) {
                // Reading back fails for anything but files and directories.
                Ok(_) => taken.set(taken.get() + 1),
                Err(Error::Archive(_)) => {}
                Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
            Ok(())
        })
        .unwrap();
    assert!(taken.get() > 150, "too few archives were sound: {}", taken.get());
}

#[test]
fn damage_anywhere_in_a_tar_or_a_compressed_one_never_panics() {
    let plain = tar(&[
        skill(),
        pax(b'x', &[("path", "a/long"), ("mtime", "1.5")]),
        of("a/z", b"data"),
        entry(b'2', b"a/l", b"SKILL.md", b"", 0),
    ]);
    let zstd = zstd::encode_all(plain.as_slice(), 3).unwrap();
    let gzip = {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    let sources = prop::sample::select(vec![plain, zstd, gzip]);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    proptest!(Config { cases: 1500, failure_persistence: None, ..Config::default() }, |(
        bytes in sources,
        damage in damage,
        cut in prop::option::of(any::<prop::sample::Index>()),
    )| {
        let mut bytes = bytes;
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        drop(take(&bytes));
    });
}
