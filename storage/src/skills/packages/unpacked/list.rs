//! [`List`]: what one package holds, and copying that.
//!
//! Lines of JSON. The first is the [`Header`]; every other is an entry, `[path, file]`, a directory before what is in it, whose `file`
//! is `null`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};

use policy::{ArchiveLimits, RelPath};
use serde::{Deserialize, Serialize};

use super::FILES_MAX;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::copy_hashed::copy_hashed;
use crate::skills::archive::parallel::{self, Extent};
use crate::skills::archive::{DIRECTORY_MODE, Written, WrittenFile, set_modified};
use crate::stat::Use;

/// Longest line: a path of 4096 bytes, each of which JSON may spell with six.
const LINE_BYTES_MAX: u64 = 32 * 1024;

/// What a package holds, directories before what is in them.
pub(in crate::skills::packages) struct List {
    pub(super) entries: Vec<Written>,
}

/// The first line of a list.
#[derive(Serialize, Deserialize)]
struct Header {
    /// The limits that the package was unpacked under: under others its archive has to be judged again.
    limits: String,
    /// How many lines follow.
    entries: usize,
}

/// Each other line.
#[derive(Serialize, Deserialize)]
struct Line(String, Option<FileLine>);

#[derive(Serialize, Deserialize)]
struct FileLine {
    mode: u32,
    size: u64,
    /// Seconds since 1970.
    modified: Option<i64>,
    /// The BLAKE3 of its bytes, in 64 hexadecimal digits.
    digest: String,
}

impl List {
    /// Reads a list that was written under `limits`, or under any. `None` for an empty one, one of other limits, and one that a
    /// loss of power has cut.
    ///
    /// # Errors
    /// [`Error::Io`]; those of [`interrupt::check`].
    pub(super) fn read(file: File, limits: Option<&ArchiveLimits>) -> Result<Option<Self>> {
        let mut rest = BufReader::new(file);
        let Some(header) = read_line::<Header>(&mut rest)? else { return Ok(None) };
        let is_bounded = u64::try_from(header.entries).is_ok_and(|entries| entries <= FILES_MAX);
        if !is_bounded || limits.is_some_and(|limits| header.limits != spelled(limits)) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for _ in 0..header.entries {
            interrupt::check()?;
            let Some(entry) = read_line::<Line>(&mut rest)?.and_then(Line::entry) else { return Ok(None) };
            entries.push(entry);
        }
        Ok(Some(Self { entries }))
    }

    /// Writes the list of a package that was unpacked under `limits`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn write(into: &File, limits: &ArchiveLimits, entries: &[Written]) -> Result<()> {
        let failed = |error: std::io::Error| Error::from_io("write", "list", error);
        let mut out = BufWriter::new(into);
        let header = Header { limits: spelled(limits), entries: entries.len() };
        serde_json::to_writer(&mut out, &header).map_err(|error| failed(error.into()))?;
        for Written { path, file } in entries {
            let line = |file: WrittenFile| {
                let WrittenFile { mode, size, modified, digest } = file;
                FileLine { mode, size, modified, digest: digest.to_hex().to_string() }
            };
            out.write_all(b"\n").map_err(failed)?;
            let line = Line(path.to_string(), file.map(line));
            serde_json::to_writer(&mut out, &line).map_err(|error| failed(error.into()))?;
        }
        out.write_all(b"\n").and_then(|()| out.flush()).map_err(failed)
    }

    /// The room that it is taken to need where it is copied to: whole blocks for each file and each directory, that of all included.
    pub(in crate::skills::packages) fn taken(&self) -> Use {
        taken(&self.entries)
    }

    /// Every path in it, directories before what is in them; of a file its permission bits, of a directory `None`.
    pub(in crate::skills::packages) fn paths(&self) -> Vec<(RelPath, Option<u32>)> {
        let path = |entry: &Written| (entry.path.clone(), entry.file.map(|file| file.mode));
        self.entries.iter().map(path).collect()
    }

    /// Copies everything from the directory of contents, `files`, into the empty directory `into`. After an error a part of it may be
    /// there.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a content is missing or is not what its name says: then it is gone; [`Error::NoSpace`],
    /// [`Error::Io`]; those of [`interrupt::check`].
    pub(super) fn copy(&mut self, files: &Dir, into: &Dir) -> Result<()> {
        for Written { path, .. } in self.entries.iter().filter(|entry| entry.file.is_none()) {
            let (above, name) = path.parent().zip(path.file_name()).ok_or_else(|| damaged(path))?;
            into.open_dir(&above)?.create_dir(OsStr::new(name), DIRECTORY_MODE)?;
        }
        let sizes = self.entries.iter().filter_map(|entry| entry.file).map(|file| file.size);
        let extent = Extent { files: self.entries.len(), bytes: sizes.fold(0, u64::saturating_add) };
        parallel::each(
            &mut self.entries,
            extent,
            || files.reopen(),
            |files, Written { path, file }| match file {
                Some(file) => copy_content(files, file, into, path),
                None => Ok(()),
            },
        )
    }
}

/// The room that entries are taken to need.
pub(super) fn taken(entries: &[Written]) -> Use {
    let taken = |entry: &Written| entry.file.map_or(Use::DIRECTORY, |file| Use::of_file(file.size));
    entries.iter().fold(Use::DIRECTORY, |all, entry| all.plus(taken(entry)))
}

/// The directory of a content, and its name there.
pub(super) fn place_of(digest: &blake3::Hash) -> (String, String) {
    let name = digest.to_hex().to_string();
    (name.chars().take(2).collect(), name)
}

/// Copies one content. One that is not what its name says is removed.
fn copy_content(files: &Dir, file: &WrittenFile, into: &Dir, path: &RelPath) -> Result<()> {
    let (group, name) = place_of(&file.digest);
    let group = files.open_dir_entry(OsStr::new(&group));
    let found = group.and_then(|group| {
        let (content, _) = group.open_file_entry(OsStr::new(&name))?;
        Ok((group, content))
    });
    let (group, content) = match found {
        Err(Error::NotFound(_)) => return Err(damaged(path)),
        found => found?,
    };
    let made = into.create_file_beneath(path, file.mode & 0o777)?;
    if copy_hashed(&content, &made, file.size)? != file.digest {
        match group.remove_file(OsStr::new(&name)) {
            Ok(()) | Err(Error::NotFound(_)) => return Err(damaged(path)),
            Err(error) => return Err(error),
        }
    }
    set_modified(&made, file.modified, path)
}

fn damaged(path: &RelPath) -> Error {
    Error::Damaged(path.to_string())
}

/// Limits as one line of text.
fn spelled(limits: &ArchiveLimits) -> String {
    format!("{limits:?}")
}

impl Line {
    /// `None` when it is none.
    fn entry(self) -> Option<Written> {
        let path = RelPath::parse(&self.0).ok().filter(|path| !path.is_root())?;
        let file = match self.1 {
            None => None,
            Some(FileLine { mode, size, modified, digest }) => {
                let digest = blake3::Hash::from_hex(&digest).ok()?;
                Some(WrittenFile { mode, size, modified, digest })
            }
        };
        Some(Written { path, file })
    }
}

fn read_line<T: for<'de> Deserialize<'de>>(from: &mut BufReader<File>) -> Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .map_err(|error| Error::from_io("read", "list", error))?;
    Ok(line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok()))
}
