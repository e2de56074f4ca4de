//! Archives that other programs make of one Chinese tree, and our archives read by other programs.
//!
//! A program that is not installed skips its test loudly; `FILESECBOX_REQUIRE=zip-tools` makes that a failure.
//! Debian: `zip`, `unzip`, `python3`, `default-jdk-headless`, `7zip`, `libarchive-tools`, `git`, `zstd`.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::Command;

use policy::RelPath;
use storage::Dir;
use storage::archive::{NameEncoding, PackEntry, PackFormat, PackLimits, PackSource, pack};
use tempfile::TempDir;

use super::taking::{Taken, Tree, read_back, take};

pub(crate) const SKILL: &str = "数据分析";

/// Every file of the tree, with its mode; `脚本/空` is an empty directory beside them.
fn files() -> Vec<(&'static str, u32, Vec<u8>)> {
    let noise = (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 15) as u8).collect();
    vec![
        ("SKILL.md", 0o644, "---\nname: 数据分析\ndescription: 分析数据。\n---\n# 数据\n".into()),
        ("脚本/运行.sh", 0o755, b"#!/bin/sh\necho ok\n".to_vec()),
        ("参考/说明 文档.md", 0o644, "第一行\r\n第二行\n".repeat(2000).into()),
        ("参考/系统/一.txt", 0o644, b"x".to_vec()),
        ("data.bin", 0o644, noise),
        ("empty.txt", 0o644, Vec::new()),
    ]
}

/// The tree on disk, in a directory of its own.
pub(crate) fn source() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let skill = Dir::ambient_open(place.path()).unwrap().create_dir(OsStr::new(SKILL), 0o755).unwrap();
    for (path, mode, content) in files() {
        let path = RelPath::parse(path).unwrap();
        let parent = skill.ensure_path(&path.parent().unwrap()).unwrap();
        let name = OsStr::new(path.file_name().unwrap());
        parent.create_file(name, mode).unwrap().write_all(&content).unwrap();
    }
    skill.ensure_path(&RelPath::parse("脚本/空").unwrap()).unwrap();
    place
}

pub(crate) fn expected(has_empty_directory: bool) -> Tree {
    let mut tree = Tree::new();
    for directory in ["", "/脚本", "/参考", "/参考/系统"] {
        tree.insert(format!("{SKILL}{directory}"), None);
    }
    if has_empty_directory {
        tree.insert(format!("{SKILL}/脚本/空"), None);
    }
    for (path, mode, content) in files() {
        tree.insert(format!("{SKILL}/{path}"), Some((mode, content)));
    }
    tree
}

/// The same, as a program without Unix modes keeps it.
fn without_modes(mut tree: Tree) -> Tree {
    for (mode, _) in tree.values_mut().flatten() {
        *mode = 0o644;
    }
    tree
}

/// Runs a program; `None`, loudly, when it is not installed.
#[expect(clippy::print_stderr, reason = "a skip is loud")]
pub(crate) fn run(place: &TempDir, program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let result = Command::new(program)
        .args(arguments)
        .current_dir(place.path())
        .env("LC_ALL", "C.UTF-8")
        // Eight hours from UTC, so that a time taken for a local one shows.
        .env("TZ", "CST-8")
        .output();
    let output = match result {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
            let is_required = required.split(',').any(|word| matches!(word, "zip-tools" | "all"));
            assert!(!is_required, "`{program}` is not installed and FILESECBOX_REQUIRE asks for it");
            eprintln!("SKIPPED: `{program}` is not installed");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    Some(output.stdout)
}

/// What `program` makes of the tree, taken in; the archive is its standard output or the file `out.…`.
pub(crate) fn made_by(program: &str, arguments: &[&str]) -> Option<Taken> {
    let place = source();
    let output = run(&place, program, arguments)?;
    let bytes = match arguments.iter().find(|argument| argument.starts_with("out.")) {
        Some(out) => read(&place, out),
        None => output,
    };
    Some(take(&bytes).unwrap_or_else(|error| panic!("{program} {arguments:?}: {error:?}")))
}

fn read(place: &TempDir, name: &str) -> Vec<u8> {
    let name = RelPath::parse(name).unwrap();
    let (mut file, _) = Dir::ambient_open(place.path()).unwrap().open_file(&name).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn info_zip_archives_are_taken_in_whole() {
    for arguments in [
        &["-qr", "out.zip", SKILL][..],
        &["-qrX", "out.zip", SKILL],
        &["-qr0", "out.zip", SKILL],
        &["-qrfz", "out.zip", SKILL],
        // Into a pipe: sizes follow the data.
        &["-qr", "-", SKILL],
    ] {
        let Some(taken) = made_by("zip", arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{arguments:?}");
        assert_eq!(taken.plan.charset, NameEncoding::Utf8);
    }
}

#[test]
fn info_zip_keeps_modification_times_to_the_second() {
    let place = source();
    let Some(_) = run(&place, "touch", &["-d", "@1700000001", "数据分析/data.bin"]) else { return };
    let Some(bytes) = run(&place, "zip", &["-qr", "-", SKILL]) else { return };
    assert_eq!(take(&bytes).unwrap().modified["数据分析/data.bin"], 1_700_000_001);
}

#[test]
fn what_info_zip_reads_from_a_pipe_is_a_file() {
    let place = source();
    let script = "cat 数据分析/SKILL.md | zip -q - - | cat";
    let Some(_) = run(&place, "zip", &["-v"]) else { return };
    let bytes = run(&place, "sh", &["-c", script]).unwrap();
    let error = take(&bytes).unwrap_err();
    // The one file is called `-` and lies in the root.
    assert!(error.to_string().contains("neither a directory nor a `SKILL.md`"), "{error}");
}

const PYTHON: &str = r"
import io, os, sys, zipfile
kind, skill, out = sys.argv[1:4]
class Pipe(io.RawIOBase):
    def __init__(self, inner): self.inner = inner
    def writable(self): return True
    def write(self, data): return self.inner.write(data)
class Gbk(zipfile.ZipInfo):
    def _encodeFilenameFlags(self): return self.filename.encode('gbk'), self.flag_bits & ~0x800
method = zipfile.ZIP_STORED if kind == 'stored' else zipfile.ZIP_DEFLATED
target = Pipe(sys.stdout.buffer) if kind == 'pipe' else out
with zipfile.ZipFile(target, 'w', method) as archive:
    for base, directories, names in os.walk(skill):
        if kind != 'bare':
            archive.write(base)
        for name in names:
            path = os.path.join(base, name)
            if kind == 'gbk':
                info = Gbk(path); info.create_system = 0; info.compress_type = method
                archive.writestr(info, open(path, 'rb').read())
            elif kind == 'wide':
                info = zipfile.ZipInfo.from_file(path); info.compress_type = method
                with archive.open(info, 'w', force_zip64=True) as file:
                    file.write(open(path, 'rb').read())
            else:
                archive.write(path)
";

#[test]
fn python_archives_are_taken_in_whole() {
    for kind in ["plain", "stored", "wide", "bare"] {
        let Some(taken) = made_by("python3", &["-c", PYTHON, kind, SKILL, "out.zip"]) else { return };
        assert_eq!(taken.tree, expected(kind != "bare"), "{kind}");
    }
    let Some(taken) = made_by("python3", &["-c", PYTHON, "pipe", SKILL, "-"]) else { return };
    assert_eq!(taken.tree, expected(true));
}

#[test]
fn gbk_archives_of_python_are_taken_in_whole() {
    let place = source();
    let script = PYTHON.replace("archive.write(base)", "pass");
    let Some(_) = run(&place, "python3", &["-c", &script, "gbk", SKILL, "out.zip"]) else { return };
    let (mut file, _) =
        Dir::ambient_open(place.path()).unwrap().open_file(&RelPath::parse("out.zip").unwrap()).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let taken = take(&bytes).unwrap();
    assert_eq!(taken.tree, without_modes(expected(false)));
    assert_eq!(taken.plan.charset, NameEncoding::Gbk);
}

#[test]
fn jar_archives_are_taken_in_whole() {
    for options in ["cMf", "cM0f"] {
        let Some(taken) = made_by("jar", &[options, "out.zip", SKILL]) else { return };
        assert_eq!(taken.tree, without_modes(expected(true)), "{options}");
    }
}

#[test]
fn seven_zip_archives_are_taken_in_whole() {
    for arguments in [
        &["a", "-bd", "-tzip", "out.zip", SKILL][..],
        &["a", "-bd", "-tzip", "-mx0", "out.zip", SKILL],
        &["a", "-bd", "-tzip", "-mx9", "-mcu=on", "out.zip", SKILL],
    ] {
        let Some(taken) = made_by("7zz", arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{arguments:?}");
    }
}

#[test]
fn bsdtar_archives_are_taken_in_whole() {
    for arguments in [
        &["--format=zip", "-cf", "out.zip", SKILL][..],
        &["--format=zip", "-cf", "-", SKILL],
        &["--format=zip", "--options=zip:compression=store", "-cf", "out.zip", SKILL],
    ] {
        let Some(taken) = made_by("bsdtar", arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{arguments:?}");
    }
}

#[test]
fn git_archives_are_taken_in_whole() {
    let place = source();
    for arguments in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"],
    ] {
        let Some(_) = run(&place, "git", arguments) else { return };
    }
    // As a code host offers it: under one directory named after the branch, with the commit as comment.
    let bytes = run(&place, "git", &["archive", "--format=zip", "--prefix=repo-main/", "HEAD"]).unwrap();
    assert_eq!(take(&bytes).unwrap().tree, expected(false));
}

/// Our own archive of the tree, as `ours.zip` in a directory of its own.
fn ours() -> TempDir {
    let sources = source();
    let place = tempfile::tempdir().unwrap();
    let out = Dir::ambient_open(place.path()).unwrap().create_file(OsStr::new("ours.zip"), 0o644).unwrap();
    let skill = RelPath::parse(SKILL).unwrap();
    let skill = Dir::ambient_open(sources.path()).unwrap().open_dir(&skill).unwrap();
    let directories = ["参考", "参考/系统", "脚本", "脚本/空"].map(|path| (path, 0o755, None));
    let all =
        directories.into_iter().chain(files().into_iter().map(|(path, mode, _)| (path, mode, Some(()))));
    let entries = all.map(|(path, mode, file)| {
        let path = RelPath::parse(path)?;
        let source = match file {
            None => PackSource::Directory,
            Some(()) => PackSource::File(skill.open_file(&path)?.0),
        };
        Ok(PackEntry { path, mode, modified_ns: 1_700_000_001_000_000_000, source })
    });
    pack(PackFormat::Zip, Some(SKILL), entries, &out, PackLimits { bytes: u64::MAX, admit: &mut |_| Ok(()) })
        .unwrap();
    place
}

#[test]
fn our_archives_are_unpacked_the_same_by_every_program() {
    const EXTRACT: &str = "import sys, zipfile; zipfile.ZipFile('ours.zip').extractall('out')";
    for (program, arguments, keeps_modes) in [
        ("unzip", &["-q", "ours.zip", "-d", "out"][..], true),
        ("python3", &["-c", EXTRACT], false),
        ("7zz", &["x", "-bd", "-oout", "ours.zip"], true),
        ("bsdtar", &["-xf", "ours.zip", "-C", "out"], true),
    ] {
        let place = ours();
        let dir = Dir::ambient_open(place.path()).unwrap();
        dir.create_dir(OsStr::new("out"), 0o755).unwrap();
        if run(&place, program, arguments).is_none() {
            continue;
        }
        let (mut tree, mut modified) = (Tree::new(), std::collections::BTreeMap::new());
        read_back(&dir.open_dir_entry(OsStr::new("out")).unwrap(), "", &mut tree, &mut modified);
        if keeps_modes {
            assert_eq!(tree, expected(true), "{program}");
            assert_eq!(modified["数据分析/data.bin"], 1_700_000_001, "{program}");
        } else {
            assert_eq!(without_modes(tree), without_modes(expected(true)), "{program}");
        }
    }
}

#[test]
fn our_archives_pass_the_integrity_tests_of_other_programs() {
    for (program, arguments) in [
        ("zip", &["-T", "ours.zip"][..]),
        ("unzip", &["-tq", "ours.zip"]),
        ("7zz", &["t", "-bd", "ours.zip"]),
        ("jar", &["tf", "ours.zip"]),
        ("python3", &["-m", "zipfile", "-t", "ours.zip"]),
    ] {
        let place = ours();
        run(&place, program, arguments);
    }
}

#[test]
fn what_we_pack_we_take_in() {
    let place = ours();
    let (mut file, _) =
        Dir::ambient_open(place.path()).unwrap().open_file(&RelPath::parse("ours.zip").unwrap()).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(take(&bytes).unwrap().tree, expected(true));
}
