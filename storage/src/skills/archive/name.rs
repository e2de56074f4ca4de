//! Turns a decoded name into a path, or tells which rule it breaks.
//!
//! The ZIP format wants `/` between segments; some Windows programs write `\`. A backslash becomes a separator
//! when the entry comes from an MS-DOS or Windows file system, or when no name of the archive has a `/`; elsewhere
//! it is an ordinary character of a Unix name. A name that would climb or be absolute under *either* reading is
//! refused, because the next program to see it may take the other one; so are two names that one of the readings
//! makes one path.
//!
//! `./` before a name means nothing: `tar -cf x.zip .` writes it before every one.

use std::collections::BTreeMap;

use policy::{ArchiveLimits, PathError, RelPath};

use super::charset::is_fat;
use super::entry::RawEntry;
use crate::error::{ArchiveError, excerpt};

/// Bits of a Unix mode that tell the type of a file (inode(7)).
const TYPE_MASK: u32 = 0o170_000;
const TYPE_PIPE: u32 = 0o010_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_REGULAR: u32 = 0o100_000;
const TYPE_LINK: u32 = 0o120_000;
/// The directory bit of MS-DOS attributes.
const DOS_DIRECTORY: u32 = 0x10;
/// Systems that keep a Unix mode: Unix and OS X.
const UNIX_HOSTS: [u8; 2] = [3, 19];

/// The file or directory that an entry becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// A file with these permission bits, 0644 or 0755.
    File {
        /// Permission bits.
        mode: u32,
    },
    /// A directory.
    Directory,
    /// A symbolic link, whose target is its content.
    Link,
}

/// The paths of all entries, whose decoded names are `names`; the root stands for `.`.
///
/// # Errors
/// [`ArchiveError`]: `Escape`, `Path`, `PathTooLong`, `Device`, `DirectoryWithData`, `Ambiguous`.
pub(super) fn all(
    entries: &[RawEntry],
    names: &[String],
    limits: &ArchiveLimits,
) -> Result<Vec<(RelPath, Becomes)>, ArchiveError> {
    let has_slash = names.iter().any(|name| name.contains('/'));
    let paths = entries.iter().zip(names).map(|(entry, name)| {
        let converted = is_fat(entry) || !has_slash;
        let spelled = if converted { name.replace('\\', "/") } else { name.clone() };
        let (spelled, ends_as_directory) = match spelled.strip_suffix('/') {
            Some(stem) => (stem.to_owned(), true),
            None => (spelled, false),
        };
        let becomes = becomes(entry, ends_as_directory)?;
        Ok((path(&spelled, becomes == Becomes::Directory, limits)?, becomes))
    });
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    check_separators(paths.iter().map(|(path, _)| path))?;
    Ok(paths)
}

/// Makes a path of a name whose separators are `/`; that of a directory has none at its end any more.
///
/// # Errors
/// [`ArchiveError`]: `Escape`, `Path`, `PathTooLong`.
pub(super) fn path(name: &str, is_directory: bool, limits: &ArchiveLimits) -> Result<RelPath, ArchiveError> {
    let mut spelled = name;
    while let Some(rest) = spelled.strip_prefix("./") {
        spelled = rest;
    }
    if is_directory && (spelled == "." || (spelled.is_empty() && !name.is_empty())) {
        return Ok(RelPath::root());
    }
    let shown = || excerpt(spelled.as_bytes());
    if spelled.len() > limits.path_bytes {
        return Err(ArchiveError::PathTooLong { name: shown(), limit: limits.path_bytes });
    }
    if leads_out(spelled) {
        return Err(ArchiveError::Escape { name: shown() });
    }
    RelPath::parse(spelled).map_err(|source| {
        let source = bounded(source);
        ArchiveError::Path { name: shown(), source }
    })
}

/// Refuses paths that are different only where `\\` is no separator.
///
/// # Errors
/// [`ArchiveError::Ambiguous`].
pub(super) fn check_separators<'path>(
    paths: impl Iterator<Item = &'path RelPath> + Clone,
) -> Result<(), ArchiveError> {
    if !paths.clone().any(|path| path.as_str().contains('\\')) {
        return Ok(());
    }
    let mut read: BTreeMap<String, &str> = BTreeMap::new();
    for path in paths {
        let other = read.entry(path.as_str().replace('\\', "/")).or_insert(path.as_str());
        if *other != path.as_str() {
            let (name, other) = (excerpt(path.as_str().as_bytes()), excerpt(other.as_bytes()));
            return Err(ArchiveError::Ambiguous { name, other });
        }
    }
    Ok(())
}

/// A climbing, absolute or drive-relative name, whichever of the two separators counts.
pub(super) fn leads_out(name: &str) -> bool {
    let is_separator = |character| matches!(character, '/' | '\\');
    let drive = {
        let mut characters = name.chars();
        characters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && characters.next() == Some(':')
    };
    drive || name.starts_with(is_separator) || name.split(is_separator).any(|segment| segment == "..")
}

/// Path errors repeat the text; an archive's text is repeated only in part.
fn bounded(error: PathError) -> PathError {
    match error {
        PathError::Absolute(text) => PathError::Absolute(excerpt(text.as_bytes())),
        PathError::Parent(text) => PathError::Parent(excerpt(text.as_bytes())),
        PathError::EmptySegment(text) => PathError::EmptySegment(excerpt(text.as_bytes())),
        other => other,
    }
}

/// The kind of the entry by its name, mode and attributes.
///
/// Type bits of every system count: a link is one even in an archive that says it comes from DOS. Info-ZIP marks
/// what it read from a pipe as a pipe, so a pipe with data is a file.
fn becomes(entry: &RawEntry, ends_as_directory: bool) -> Result<Becomes, ArchiveError> {
    let mode = entry.attributes >> 16;
    let is_directory = match mode & TYPE_MASK {
        TYPE_LINK => return Ok(Becomes::Link),
        TYPE_DIRECTORY => true,
        TYPE_REGULAR => ends_as_directory,
        0 => ends_as_directory || (is_fat(entry) && entry.attributes & DOS_DIRECTORY != 0),
        TYPE_PIPE if entry.size > 0 => ends_as_directory,
        _ => return Err(ArchiveError::Device { name: entry.shown() }),
    };
    if is_directory {
        // An empty deflate stream takes two bytes; more would be hidden data.
        return if entry.size == 0 && entry.packed <= 2 {
            Ok(Becomes::Directory)
        } else {
            Err(ArchiveError::DirectoryWithData { name: entry.shown() })
        };
    }
    let is_executable = UNIX_HOSTS.contains(&entry.host) && mode & 0o111 != 0;
    Ok(Becomes::File { mode: if is_executable { 0o755 } else { 0o644 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_found_under_both_separators() {
        for name in [
            "..",
            "../x",
            "a/../b",
            "a/..",
            "/abs",
            "\\abs",
            "..\\x",
            "a\\..\\x",
            "C:\\x",
            "C:x",
            "c:/x",
            "C:",
            "//host/x",
            "\\\\host\\x",
        ] {
            assert!(leads_out(name), "{name}");
        }
        for name in ["a..b", "...", "..a/b", "数:据", "a/b\\c", "ab:c", "a/b:c"] {
            assert!(!leads_out(name), "{name}");
        }
    }
}
