//! [`Records`]: what is to be done again after a crash, and the proof that the service wrote it.
//!
//! A record is one file in a directory of its own, closed to every other user id. The service makes it (`O_EXCL`),
//! and no rename ever brings anything else there. It is a line with a keyed digest (BLAKE3) of the record's name and
//! text, and the text; the digest is an extended attribute of the file, too, which no command can set. What is not proven
//! so is never carried out: it is kept aside for the operator.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::durability::Durability;
use crate::stat::Kind;

/// Length of a record's line of digits, without its end.
const DIGITS: usize = 64;
/// A record of as many steps as an archive can hold skills.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Records that a start looks at. A service has one for each change under way.
const RECORDS_MAX: usize = 100_000;
/// The most files that are kept aside for the operator; more are thrown away.
const REFUSED_MAX: usize = 64;
const ATTRIBUTE: &str = "user.filesecbox.record";
const DRAFT: &str = ".draft";

/// The key that proves records: 32 bytes that only the service knows.
pub(crate) type Key = [u8; 32];

/// The records of one store.
pub(crate) struct Records {
    dir: Dir,
    refused: Dir,
    key: Key,
    durability: Durability,
}

/// The finding about a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The service wrote this text, all of it.
    Genuine(Vec<u8>),
    /// It was never whole: its change was not begun.
    Draft,
    /// Not the service's own, or damaged; for this reason.
    Refused(&'static str),
}

impl Records {
    /// The records in `dir`; what is not proven by `key` is moved to `refused`.
    pub(crate) fn new(dir: Dir, refused: Dir, key: Key, durability: Durability) -> Self {
        Self { dir, refused, key, durability }
    }

    /// Writes the record `name`, which must not exist. With strict durability, and for a publication with relaxed one,
    /// `sync` has what it names on the disk before it counts. After this the change is done, even across a crash.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn write(
        &self,
        name: &OsStr,
        text: &[u8],
        is_publication: bool,
        sync: impl FnOnce(&File) -> Result<()>,
    ) -> Result<()> {
        let digits = self.digits(name, text);
        let draft = draft_of(name);
        let is_strict = self.durability == Durability::Strict;
        let written = || {
            let mut file = self.dir.create_file(&draft, 0o600)?;
            file.write_all(format!("{digits}\n").as_bytes())
                .and_then(|()| file.write_all(text))
                .map_err(|error| Error::from_io("write", "record", error))?;
            rustix::fs::fsetxattr(&file, ATTRIBUTE, digits.as_bytes(), XattrFlags::CREATE)
                .map_err(|errno| Error::from_errno("setxattr", "record", errno))?;
            let waits = match self.durability {
                Durability::Strict => true,
                Durability::Relaxed => is_publication,
                Durability::Never => false,
            };
            if waits {
                sync(&file)?;
            }
            interrupt::commit()?;
            self.dir.rename_new(&draft, &self.dir, name)
        };
        if let Err(error) = written() {
            drop(self.dir.remove_file(&draft));
            return Err(error);
        }
        if is_strict { self.dir.sync() } else { Ok(()) }
    }

    /// Forgets the record `name`: what it says is done, or taken back.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn remove(&self, name: &OsStr) -> Result<()> {
        match self.dir.remove_file(name) {
            Err(Error::NotFound(_)) => Ok(()),
            removed => removed,
        }
    }

    /// Waits until what was removed is gone across a loss of power, with strict durability.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn settle(&self) -> Result<()> {
        if self.durability == Durability::Strict { self.dir.sync() } else { Ok(()) }
    }

    /// The names of all records, in the order in which they were made as far as one service made them.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        let entries = self.dir.entries_at_most(RECORDS_MAX)?;
        let mut names: Vec<OsString> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        Ok(names)
    }

    /// Reads the record `name` and what proves it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self, name: &OsStr) -> Result<Proof> {
        if name.as_bytes().ends_with(DRAFT.as_bytes()) {
            return Ok(Proof::Draft);
        }
        if self.dir.stat_entry(name)?.is_none_or(|stat| stat.kind != Kind::File) {
            return Ok(Proof::Refused("it is no file"));
        }
        self.dir.open_up_file(name)?;
        let (file, stat) = self.dir.open_file_entry(name)?;
        if stat.owner != rustix::process::geteuid().as_raw() || stat.links != 1 {
            return Ok(Proof::Refused("it is another user's"));
        }
        let mut attribute = [0; DIGITS];
        let has_attribute = rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut attribute) == Ok(DIGITS);
        let mut text = Vec::new();
        file.take(RECORD_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|error| Error::from_io("read", "record", error))?;
        let (Some(digits), Some(b'\n')) = (text.get(..DIGITS), text.get(DIGITS)) else {
            return Ok(Proof::Refused("it is torn"));
        };
        if !has_attribute || digits != attribute {
            return Ok(Proof::Refused("it has no proof"));
        }
        let told = std::str::from_utf8(digits).ok().and_then(|digits| blake3::Hash::from_hex(digits).ok());
        let body = text.get(DIGITS + 1..).unwrap_or_default();
        // Compared in constant time.
        if told != Some(self.digest(name, body)) {
            return Ok(Proof::Refused("its proof is another's"));
        }
        Ok(Proof::Genuine(text.split_off(DIGITS + 1)))
    }

    /// Keeps the record `name` aside, for the operator to look at. It is never read again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn refuse(&self, name: &OsStr) -> Result<()> {
        keep_aside(&self.refused, &self.dir, name)
    }

    /// The directory in which is kept what was refused.
    pub(crate) fn refused(&self) -> &Dir {
        &self.refused
    }

    fn digits(&self, name: &OsStr, text: &[u8]) -> String {
        self.digest(name, text).to_hex().to_string()
    }

    fn digest(&self, name: &OsStr, text: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(name.as_bytes()).update(&[0]).update(text);
        hasher.finalize()
    }
}

/// Moves the entry `name` of `from` to `refused`, or removes it when enough is kept there.
pub(crate) fn keep_aside(refused: &Dir, from: &Dir, name: &OsStr) -> Result<()> {
    if refused.first_entries(REFUSED_MAX)?.len() >= REFUSED_MAX {
        return from.remove_tree(name);
    }
    match from.rename_new(name, refused, name) {
        Err(Error::AlreadyExists(_)) => from.remove_tree(name),
        Err(Error::Closed(_)) => {
            drop(from.open_closed_dir(name)?);
            from.rename_new(name, refused, name)
        }
        moved => moved,
    }
}

fn draft_of(name: &OsStr) -> OsString {
    let mut draft = name.to_owned();
    draft.push(DRAFT);
    draft
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "an attacker does not go through `Dir`")]
mod tests {
    use std::io::{Seek, SeekFrom};
    use std::path::PathBuf;

    use super::*;

    struct Fixture {
        temp: tempfile::TempDir,
        records: Records,
    }

    const NAME: &str = "0123456789abcdef-0";

    impl Fixture {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let dir = Dir::ambient_open(temp.path()).unwrap();
            let (of, refused) = (OsStr::new("journal"), OsStr::new("refused"));
            let (of, refused) = (dir.create_dir(of, 0o700).unwrap(), dir.create_dir(refused, 0o700).unwrap());
            let records = Records::new(of, refused, [7; 32], Durability::Relaxed);
            records.write(OsStr::new(NAME), b"text", false, |_| Ok(())).unwrap();
            Self { temp, records }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.temp.path().join("journal").join(name)
        }

        fn read(&self, name: &str) -> Proof {
            self.records.read(OsStr::new(name)).unwrap()
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(Fixture::new().read(NAME), Proof::Genuine(b"text".to_vec()));
    }

    #[test]
    fn a_record_that_was_changed_torn_copied_or_renamed_is_refused() {
        let fixture = Fixture::new();
        let genuine = std::fs::read(fixture.path(NAME)).unwrap();
        let copy = "0123456789abcdef-1";
        std::fs::write(fixture.path(copy), &genuine).unwrap();
        assert_eq!(fixture.read(copy), Proof::Refused("it has no proof"), "a copy has no attribute");
        std::fs::hard_link(fixture.path(NAME), fixture.path("0123456789abcdef-2")).unwrap();
        assert_eq!(fixture.read(NAME), Proof::Refused("it is another user's"), "a second name");
        std::fs::remove_file(fixture.path("0123456789abcdef-2")).unwrap();
        std::fs::rename(fixture.path(NAME), fixture.path("0123456789abcdef-3")).unwrap();
        assert_eq!(fixture.read("0123456789abcdef-3"), Proof::Refused("its proof is another's"));
        std::fs::rename(fixture.path("0123456789abcdef-3"), fixture.path(NAME)).unwrap();
        let mut file = File::options().read(true).write(true).open(fixture.path(NAME)).unwrap();
        file.seek(SeekFrom::End(-1)).unwrap();
        file.write_all(b"T").unwrap();
        assert_eq!(fixture.read(NAME), Proof::Refused("its proof is another's"), "another text");
        file.set_len(10).unwrap();
        assert_eq!(fixture.read(NAME), Proof::Refused("it is torn"));
        std::fs::create_dir(fixture.path("directory")).unwrap();
        std::fs::write(fixture.path("directory/journal"), "[]").unwrap();
        assert_eq!(fixture.read("directory"), Proof::Refused("it is no file"));
    }

    #[test]
    fn a_record_of_another_key_is_refused_and_kept_aside() {
        let Fixture { temp, records } = Fixture::new();
        let Records { dir, refused, .. } = records;
        let records = Records::new(dir, refused, [8; 32], Durability::Relaxed);
        assert_eq!(records.read(OsStr::new(NAME)).unwrap(), Proof::Refused("its proof is another's"));
        records.refuse(OsStr::new(NAME)).unwrap();
        assert_eq!(records.names().unwrap(), Vec::<OsString>::new());
        assert!(temp.path().join("refused").join(NAME).exists());
    }

    #[test]
    fn what_is_kept_aside_is_bounded() {
        let fixture = Fixture::new();
        for number in 0..REFUSED_MAX + 5 {
            std::fs::create_dir(fixture.path(&number.to_string())).unwrap();
            fixture.records.refuse(OsStr::new(&number.to_string())).unwrap();
        }
        assert_eq!(fixture.records.refused().entries().unwrap().len(), REFUSED_MAX);
        assert_eq!(fixture.records.names().unwrap().len(), 1);
    }
}
