//! The file that a program needs in order to start: its loader, or the interpreter in its first line.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How the kernel would start a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    /// An ELF file, with its `PT_INTERP` when it is linked dynamically.
    Elf {
        /// The loader, as written in the file.
        loader: Option<PathBuf>,
    },
    /// A script.
    Script {
        /// The interpreter, as written in the first line.
        interpreter: PathBuf,
        /// The rest of the line, for `env`.
        argument: Option<String>,
    },
    /// Neither: `execve` would answer `ENOEXEC`.
    Unknown,
}

/// What is read of a file at first: in most, the program headers and the loader's path are there.
const HEAD_BYTES: usize = 4096;
/// The kernel reads this much of a script's first line (BINPRM_BUF_SIZE, execve(2)).
const LINE_BYTES: usize = 256;
/// Program headers looked at; real files have about a dozen.
const HEADERS_MAX: u16 = 64;
/// Longest loader path believed.
const LOADER_BYTES_MAX: u64 = 4096;
/// Bytes of a program header.
const HEADER_BYTES: usize = 56;

const PT_INTERP: u32 = 3;
const ELF_64_LITTLE: [u8; 6] = [0x7F, b'E', b'L', b'F', 2, 1];

/// Reads the head of the file at `path`.
///
/// # Errors
/// As `open(2)` and `read(2)`. A malformed file is [`Binary::Unknown`], not an error.
///
/// # References
/// `elf(5)`, `execve(2)`.
pub(crate) fn inspect(path: &Path) -> io::Result<Binary> {
    let mut file = File::open(path)?;
    let mut head = [0; HEAD_BYTES];
    let length = fill(&mut file, &mut head)?;
    let head = head.get(..length).unwrap_or_default();
    if head.starts_with(&ELF_64_LITTLE) {
        return Ok(Binary::Elf { loader: loader(&file, head) });
    }
    let line = head.get(..LINE_BYTES.min(length)).unwrap_or_default();
    Ok(line.strip_prefix(b"#!").and_then(script).unwrap_or(Binary::Unknown))
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

fn script(line: &[u8]) -> Option<Binary> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim();
    let (interpreter, argument) = match line.split_once(|character: char| character.is_ascii_whitespace()) {
        Some((interpreter, rest)) => (interpreter, Some(rest.trim().to_owned())),
        None => (line, None),
    };
    interpreter.starts_with('/').then(|| Binary::Script { interpreter: interpreter.into(), argument })
}

/// The `PT_INTERP` of a 64-bit little-endian file whose first bytes are `head`; `None` also where the file lies.
fn loader(file: &File, head: &[u8]) -> Option<PathBuf> {
    let (table, size, count) = (u64_at(head, 0x20)?, u16_at(head, 0x36)?, u16_at(head, 0x38)?);
    for index in 0..u64::from(count.min(HEADERS_MAX)) {
        let offset = index.checked_mul(u64::from(size)).and_then(|distance| table.checked_add(distance))?;
        let header = part(file, head, offset, HEADER_BYTES)?;
        if u32_at(&header, 0)? != PT_INTERP {
            continue;
        }
        let (start, bytes) = (u64_at(&header, 0x08)?, u64_at(&header, 0x20)?);
        let name = part(file, head, start, usize::try_from(bytes.min(LOADER_BYTES_MAX)).ok()?)?;
        let name = name.split(|byte| *byte == 0).next()?;
        return std::str::from_utf8(name).ok().filter(|name| name.starts_with('/')).map(PathBuf::from);
    }
    None
}

/// The `length` bytes of `file` at `offset`, from its first bytes `head` where they are there; `None` past its end.
fn part<'a>(file: &File, head: &'a [u8], offset: u64, length: usize) -> Option<Cow<'a, [u8]>> {
    let start = usize::try_from(offset).ok()?;
    if let Some(bytes) = head.get(start..start.checked_add(length)?) {
        return Some(Cow::Borrowed(bytes));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(Cow::Owned(bytes))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_dynamic_program_names_its_loader() {
        let Binary::Elf { loader: Some(loader) } = inspect(Path::new("/bin/sh")).unwrap() else {
            panic!("/bin/sh is not dynamic here")
        };
        assert!(loader.exists(), "{loader:?}");
    }

    #[test]
    fn a_script_names_its_interpreter_and_argument() {
        let script = file(b"#! /usr/bin/env  python3 -I\nimport os\n");
        let expected =
            Binary::Script { interpreter: "/usr/bin/env".into(), argument: Some("python3 -I".to_owned()) };
        assert_eq!(inspect(script.path()).unwrap(), expected);
    }

    #[test]
    fn a_malformed_file_is_unknown_or_static_and_never_a_panic() {
        let mut lying = ELF_64_LITTLE.to_vec();
        lying.resize(64, 0xFF);
        assert_eq!(inspect(file(&lying).path()).unwrap(), Binary::Elf { loader: None });
        for bytes in [&b""[..], b"#!", b"#!relative\n", b"\x7FELF", b"plain text"] {
            assert!(matches!(inspect(file(bytes).path()).unwrap(), Binary::Unknown), "{bytes:?}");
        }
    }
}
