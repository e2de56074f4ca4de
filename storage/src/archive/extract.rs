//! [`extract()`]: writes one planned skill beneath a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use super::plan::PlannedSkill;
use super::source::Source;
use super::tree::{Directory, Node, PackedFile};
use super::unpack::Unpacker;
use crate::dir::Dir;
use crate::error::{Error, Result};

/// Window for reading data.
const WINDOW_BYTES: usize = 256 * 1024;

/// Mode of every directory made.
const DIRECTORY_MODE: u32 = 0o755;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Files.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
}

/// Writes the files and directories of `skill` into the empty directory `into`.
///
/// `archive` is the file that was planned. Files get the mode and, where the archive has one, the modification
/// time that were planned; nothing is made durable, which is the publisher's one `syncfs`. After an error `into`
/// holds a part of the skill and is to be removed.
///
/// # Errors
/// [`Error::Archive`] when data is damaged or not as declared; [`Error::AlreadyExists`] when `into` was not
/// empty; [`Error::NoSpace`], [`Error::Io`].
pub fn extract(archive: &File, skill: &PlannedSkill, into: &Dir) -> Result<Extracted> {
    let source = Source::new(archive, WINDOW_BYTES)?;
    let mut extraction =
        Extraction { source, unpacker: Unpacker::new(), path: String::new(), done: Extracted::default() };
    extraction.directory(&skill.tree, into)?;
    Ok(extraction.done)
}

struct Extraction<'file> {
    source: Source<'file>,
    unpacker: Unpacker,
    /// Where it is, for messages.
    path: String,
    done: Extracted,
}

impl Extraction<'_> {
    /// Goes down no deeper than `tree::LEVELS_MAX`; one descriptor is open per level.
    fn directory(&mut self, tree: &Directory, into: &Dir) -> Result<()> {
        for (name, node) in &tree.children {
            let parent_bytes = self.path.len();
            if parent_bytes > 0 {
                self.path.push('/');
            }
            self.path.push_str(name);
            match node {
                Node::File(file) => self.file(file, OsStr::new(name), into)?,
                Node::Directory(below) => {
                    let made = into.create_dir(OsStr::new(name), DIRECTORY_MODE)?;
                    self.directory(below, &made)?;
                }
            }
            self.path.truncate(parent_bytes);
        }
        Ok(())
    }

    fn file(&mut self, packed: &PackedFile, name: &OsStr, into: &Dir) -> Result<()> {
        let mut file = into.create_file(name, packed.mode)?;
        let path = self.path.as_str();
        let mut bytes = 0;
        self.unpacker.unpack(&mut self.source, packed, path, |chunk| {
            bytes += chunk.len() as u64;
            file.write_all(chunk).map_err(|error| Error::from_io("write", path, error))
        })?;
        if let Some(seconds) = packed.modified {
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
            };
            rustix::fs::futimens(&file, &times).map_err(|errno| Error::from_errno("utimens", path, errno))?;
        }
        self.done.files += 1;
        self.done.bytes += bytes;
        Ok(())
    }
}
