//! [`Gathered`]: files that come one by one, as the archive that they would have been.
//!
//! Senders that have no archive send the files of a skill as parts of a form. They are written into a tar as they come, so that
//! everything that holds for archives holds for them: names, limits, what is left out, what is a skill.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use tar::{EntryType, Header};

use crate::core::spool::Spool;
use crate::error::{Error, Result};

/// The unit of a tar.
const BLOCK_BYTES: u64 = 512;
/// Longest name that stands in a header itself, in bytes.
const SHORT_NAME_BYTES: usize = 100;
/// What a ZIP begins with.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// What a script begins with, which may be executed: a form knows no modes.
const SCRIPT_MAGIC: &[u8] = b"#!";
/// Bytes copied at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Files that are being gathered in a spool.
pub struct Gathered {
    spool: Spool,
    /// Bytes in the spool.
    length: u64,
    files: usize,
    open: Option<OpenFile>,
    /// The first file: its name, where its content is, and whether that is a ZIP.
    first: Option<(String, u64, u64, bool)>,
}

/// The file whose content comes.
struct OpenFile {
    name: Vec<u8>,
    header_at: u64,
    /// Its first bytes.
    begin: Vec<u8>,
}

/// What was gathered.
pub enum Gathering {
    /// An archive of the files, and how many there are.
    Files(Spool, usize),
    /// The only file, which is an archive itself: copy it to a spool of its own by [`OnlyFile::copy_to`].
    Archive(OnlyFile),
}

/// A file that came alone.
pub struct OnlyFile {
    spool: Spool,
    name: String,
    from: u64,
    to: u64,
}

impl OnlyFile {
    /// The name under which it came.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Copies it into an empty spool.
    ///
    /// # Errors
    /// As [`Spool::write`]; [`Error::Io`].
    pub fn copy_to(&self, into: &mut Spool) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut at = self.from;
        while at < self.to {
            let most = usize::try_from(self.to - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            let piece = buffer.get_mut(..most).unwrap_or_default();
            read_at(self.spool.file(), piece, at)?;
            into.write(piece)?;
            at += most as u64;
        }
        Ok(())
    }
}

impl Gathered {
    /// Gathers in `spool`, which is empty.
    #[must_use]
    pub fn new(spool: Spool) -> Self {
        Self { spool, length: 0, files: 0, open: None, first: None }
    }

    /// Files so far.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// Ends the file before and begins the next one.
    ///
    /// # Errors
    /// As [`Spool::write`]; [`Error::Io`].
    pub fn begin(&mut self, name: &str) -> Result<()> {
        self.end()?;
        let name = name.as_bytes().to_vec();
        if name.len() > SHORT_NAME_BYTES {
            // The form of GNU tar: the name is the content of an entry before.
            let mut text = name.clone();
            text.push(0);
            let mut header = header(b"././@LongLink", text.len() as u64, 0o644);
            header.set_entry_type(EntryType::GNULongName);
            header.set_cksum();
            self.append(header.as_bytes())?;
            self.append(&text)?;
            self.pad()?;
        }
        let header_at = self.length;
        self.append(&[0; BLOCK_BYTES as usize])?;
        self.open = Some(OpenFile { name, header_at, begin: Vec::new() });
        self.files += 1;
        Ok(())
    }

    /// Adds to the content of the file that was begun.
    ///
    /// # Errors
    /// As [`Spool::write`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(open) = &mut self.open {
            let wanted = ZIP_MAGIC.len().saturating_sub(open.begin.len());
            open.begin.extend(bytes.iter().take(wanted));
        }
        self.append(bytes)
    }

    /// Ends the last file, and with it the archive.
    ///
    /// # Errors
    /// As [`Spool::write`]; [`Error::Io`].
    pub fn finish(mut self) -> Result<Gathering> {
        self.end()?;
        if let (1, Some((name, from, to, true))) = (self.files, self.first.take()) {
            return Ok(Gathering::Archive(OnlyFile { spool: self.spool, name, from, to }));
        }
        self.append(&[0; 2 * BLOCK_BYTES as usize])?;
        Ok(Gathering::Files(self.spool, self.files))
    }

    fn end(&mut self) -> Result<()> {
        let Some(OpenFile { name, header_at, begin }) = self.open.take() else { return Ok(()) };
        let from = header_at + BLOCK_BYTES;
        let mode = if begin.starts_with(SCRIPT_MAGIC) { 0o755 } else { 0o644 };
        let header = header(&name, self.length - from, mode);
        let written = self.spool.file().write_all_at(header.as_bytes(), header_at);
        written.map_err(|error| Error::from_io("write", "spool", error))?;
        if self.first.is_none() {
            let name = String::from_utf8_lossy(&name).into_owned();
            self.first = Some((name, from, self.length, begin == ZIP_MAGIC));
        }
        self.pad()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.spool.write(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        let over = usize::try_from(self.length % BLOCK_BYTES).unwrap_or(0);
        if over == 0 {
            return Ok(());
        }
        let block = [0; BLOCK_BYTES as usize];
        self.append(block.get(over..).unwrap_or_default())
    }
}

/// The header of a file of the name `name`, of which it holds what fits.
fn header(name: &[u8], bytes: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    header.set_cksum();
    header
}

fn read_at(file: &File, buffer: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(buffer, at).map_err(|error| Error::from_io("read", "spool", error))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::{Read, Seek};

    use policy::{ArchiveLimits, RelPath, UserId};

    use super::*;
    use crate::core::options::Options;
    use crate::core::store::Store;
    use crate::dir::Dir;
    use crate::skills::archive::{self, Charset};

    fn gather(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Store, Gathering) {
        let temp = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
        let mut gathered = Gathered::new(store.spool(&UserId::parse("u").unwrap()).unwrap());
        for (name, content) in files {
            gathered.begin(name).unwrap();
            content.chunks(3).for_each(|piece| gathered.write(piece).unwrap());
        }
        let gathering = gathered.finish().unwrap();
        (temp, store, gathering)
    }

    #[test]
    fn files_become_an_archive_that_is_read_as_any_other() {
        let long = format!("s/{}/{}.txt", "目录".repeat(40), "n".repeat(120));
        let files: [(&str, &[u8]); 4] = [
            ("s/SKILL.md", b"---\nname: s\ndescription: d\n---\n"),
            ("s/run.sh", b"#!/bin/sh\n"),
            (&long, &[7; 1500]),
            ("s/empty", b""),
        ];
        let (temp, _store, gathering) = gather(&files);
        let Gathering::Files(spool, 4) = gathering else { panic!("no archive of four files") };
        let limits = ArchiveLimits::default();
        let options = archive::Options { limits, charset: Charset::Auto, file_name: None };
        let plan = archive::plan(spool.file(), &options).unwrap();
        assert_eq!(plan.skills.len(), 1, "{plan:?}");
        let root = Dir::ambient_open(temp.path()).unwrap();
        let dir = root.create_dir(OsStr::new("out"), 0o755).unwrap();
        archive::extract(spool.file(), &plan.skills[0], &dir, None).unwrap();
        for (name, content) in files {
            let path = RelPath::parse(name.strip_prefix("s/").unwrap()).unwrap();
            let (mut file, stat) = dir.open_file(&path).unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
            assert_eq!((read.as_slice(), stat.mode & 0o777), (content, mode), "{name}");
        }
    }

    #[test]
    fn an_archive_that_comes_alone_is_taken_as_it_is_and_one_among_others_is_a_file() {
        let archive = b"PK\x03\x04and the rest of it";
        let (_temp, store, gathering) = gather(&[("skill.zip", archive)]);
        let Gathering::Archive(only) = gathering else { panic!("an archive of an archive") };
        let mut copy = store.spool(&UserId::parse("u").unwrap()).unwrap();
        only.copy_to(&mut copy).unwrap();
        let (mut file, _flight) = copy.into_parts();
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, archive);
        for files in [&[("a.zip", archive.as_slice()), ("SKILL.md", b"x")][..], &[("a", b"x".as_slice())]] {
            assert!(matches!(gather(files).2, Gathering::Files(..)));
        }
    }
}
