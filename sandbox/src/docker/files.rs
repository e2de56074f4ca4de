//! The output of scripts about files, as facts.

use std::time::{Duration, SystemTime};

use crate::{DirEntry, FileInfo, FileKind, SandboxPath, Version};

/// The type of a file in the bits of its mode (inode(7)).
fn kind(mode: u32) -> FileKind {
    match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// The version that a script tells; `None` for `-`.
pub(super) fn version(word: &str) -> Option<Version> {
    Version::parse(word.trim_end()).ok().filter(|version| version.as_str() != "-")
}

/// The facts in a line `MODE SIZE SECONDS VERSION`, the mode in hexadecimal digits, and what follows them.
pub(super) fn info<'a>(line: &'a str, path: &SandboxPath) -> Option<(FileInfo, Vec<&'a str>)> {
    let mut words = line.split_ascii_whitespace();
    let mode = u32::from_str_radix(words.next()?, 16).ok()?;
    let size = words.next()?.parse().ok()?;
    let seconds: i64 = words.next()?.parse().ok()?;
    let version = version(words.next()?);
    let kind = kind(mode);
    let since = Duration::from_secs(seconds.unsigned_abs());
    let modified = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    let info = FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind,
        size,
        mode: mode & 0o7777,
        modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
        version: version.filter(|_| kind == FileKind::File),
    };
    Some((info, words.collect()))
}

/// The entries in lines `MODE SIZE DIRECTORY/NAME` after one with the directory; names may have line ends in them.
pub(super) fn entries(output: &[u8]) -> Option<Vec<DirEntry>> {
    let (directory, lines) = output.split_at(output.iter().position(|byte| *byte == b'\n')?);
    let mut entries: Vec<(Vec<u8>, FileKind, u64)> = Vec::new();
    let lines = lines.get(1..)?;
    for line in
        lines.strip_suffix(b"\n").unwrap_or(lines).split(|byte| *byte == b'\n').filter(|_| !lines.is_empty())
    {
        match entry(line, directory) {
            Some(entry) => entries.push(entry),
            None => {
                let (name, ..) = entries.last_mut()?;
                name.push(b'\n');
                name.extend_from_slice(line);
            }
        }
    }
    entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let entry = |(name, kind, size): (Vec<u8>, FileKind, u64)| DirEntry {
        name: String::from_utf8_lossy(&name).into_owned(),
        kind,
        size,
    };
    Some(entries.into_iter().map(entry).collect())
}

fn entry(line: &[u8], directory: &[u8]) -> Option<(Vec<u8>, FileKind, u64)> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let mode = u32::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok()?;
    let size = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let name = words.next()?.strip_prefix(directory)?.strip_prefix(b"/")?;
    Some((name.to_owned(), kind(mode), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_of_files_alone_and_where_there_is_one() {
        let path = SandboxPath::workspace();
        let told = |line: &str| info(line, &path).map(|(info, rest)| (info.version, rest.len()));
        let version = "77-5-1795467721.262641210-1795467721.262641211";
        let file = format!("81a4 5 1795467721 {version} 0 5");
        assert_eq!(told(&file), Some((Version::parse(version).ok(), 2)));
        assert_eq!(told("81a4 5 1795467721 -\n"), Some((None, 0)));
        assert_eq!(told(&format!("41ed 4096 1795467721 {version}")), Some((None, 0)));
        assert_eq!(told("81a4 5 1795467721"), None);
    }

    #[test]
    fn lines_are_read_as_entries_whatever_names_hold() {
        let output = b"/workspace/d\n81a4 5 /workspace/d/b c\n41ed 4096 /workspace/d/a\nsecond line\na1ff 3 /workspace/d/\xff\n";
        let entries = entries(output).unwrap();
        let entries: Vec<_> =
            entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.size)).collect();
        assert_eq!(
            entries,
            [
                ("a\nsecond line", FileKind::Directory, 4096),
                ("b c", FileKind::File, 5),
                ("\u{fffd}", FileKind::Symlink, 3),
            ]
        );
        assert_eq!(super::entries(b"/workspace\n"), Some(Vec::new()));
        assert_eq!(super::entries(b""), None);
    }
}
