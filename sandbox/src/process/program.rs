//! [`found`]: the file of a program that is named without a path.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// What the kernel itself starts: a binary, or a script that names its interpreter (execve(2)).
const BEGINNINGS: [&[u8]; 2] = [b"\x7fELF", b"#!"];

/// Any of the three bits that let somebody execute a file.
const EXECUTABLE: u32 = 0o111;

/// The file that `program` means in the directories `path`, a value of `PATH`, if that is plain: the first file of that name, which the
/// kernel starts. `None` where execvp(3) has to decide: `program` is a path itself, a directory is relative, the first file may not be
/// executed or is something else, or there is none.
///
/// The standard library starts a program whose file it knows without copying this process first (posix_spawn(3)); one that it
/// has to look for in a `PATH` of its own it does not.
pub(crate) fn found(program: &str, path: &str) -> Option<PathBuf> {
    if program.is_empty() || program.contains('/') {
        return None;
    }
    for directory in path.split(':') {
        if !directory.starts_with('/') {
            return None;
        }
        let file = Path::new(directory).join(program);
        match is_started_by_kernel(&file) {
            Ok(is_so) => return is_so.then_some(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    None
}

fn is_started_by_kernel(file: &Path) -> std::io::Result<bool> {
    // A pipe in its place would keep the reader waiting.
    let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(file)?;
    let found = opened.metadata()?;
    if !found.is_file() || found.mode() & EXECUTABLE == 0 {
        return Ok(false);
    }
    let mut begin = Vec::new();
    opened.take(4).read_to_end(&mut begin)?;
    Ok(BEGINNINGS.iter().any(|known| begin.starts_with(known)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "programs of a host are no stored files")]
    fn the_first_file_of_a_name_is_found_and_what_is_not_plain_is_left_to_others() {
        let temp = tempfile::tempdir().unwrap();
        let make = |at: &str, content: &[u8], mode: u32| {
            let file = temp.path().join(at);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, content).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        };
        make("a/other", b"#!/bin/sh\n", 0o755);
        make("b/tool", b"#!/bin/sh\n", 0o755);
        make("c/tool", b"\x7fELF", 0o755);
        make("closed/tool", b"#!/bin/sh\n", 0o644);
        make("text/tool", b"echo without an interpreter\n", 0o755);
        std::fs::create_dir_all(temp.path().join("directory/tool")).unwrap();
        std::fs::create_dir_all(temp.path().join("pipe")).unwrap();
        let pipe = temp.path().join("pipe/tool");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        let path = |names: &[&str]| {
            let full = names.iter().map(|name| temp.path().join(name).display().to_string());
            full.collect::<Vec<_>>().join(":")
        };
        assert_eq!(found("tool", &path(&["none", "a", "b", "c"])), Some(temp.path().join("b/tool")));
        assert_eq!(found("tool", &path(&["c", "b"])), Some(temp.path().join("c/tool")));
        for first in ["closed", "text", "directory", "pipe"] {
            assert_eq!(found("tool", &path(&[first, "b"])), None, "{first}");
        }
        assert_eq!(found("none", &path(&["a", "b"])), None);
        assert_eq!(found("tool", &format!(":{}", path(&["b"]))), None);
        assert_eq!(found("tool", &format!("relative:{}", path(&["b"]))), None);
        assert_eq!(found("./tool", &path(&["b"])), None);
        assert_eq!(found("", &path(&["b"])), None);
    }
}
