//! [`Chain`]: the end of the log, to which records are appended one after the other.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use storage::{Dir, Error, Result};

use super::key::Key;
use super::record::{Entry, Head, line, now};
use super::seals::{Sealed, Seals};
use super::standing::{Standing, standing};
use super::{Settings, Syncs, files, retention};

/// The end of the log.
pub(super) struct Chain {
    dir: Dir,
    settings: Settings,
    head: Head,
    current: Option<Current>,
    key: Key,
    seals: Seals,
    is_overdue: bool,
}

/// The file being written.
struct Current {
    file: Arc<File>,
    first: u64,
    bytes: u64,
}

impl Chain {
    /// Finds the end of the log in `dir`, and seals what is not sealed yet with the key in `keys`. Returns it with the
    /// record of this start, which is to be the first.
    ///
    /// # Errors
    /// Those of reading and writing files.
    pub(super) fn open(dir: Dir, keys: &Dir, settings: Settings) -> Result<(Self, Entry)> {
        let end = files::end(&dir)?;
        files::clear(&dir, &end)?;
        let Standing { key, seals, broken } = standing(&dir, keys, &end.head)?;
        let files::End { head, torn, .. } = end;
        match &torn {
            Some(torn) if torn.is_damage => {
                tracing::error!(
                    bytes = torn.bytes,
                    "the end of the audit log is damaged: the record of this start says so"
                );
            }
            Some(torn) => {
                tracing::warn!(
                    bytes = torn.bytes,
                    "a crash tore the last audit record: the record of this start says so"
                )
            }
            None => {}
        }
        if let Some(broken) = &broken {
            tracing::error!(
                %broken,
                "another program has changed the audit log: the record of this start says so"
            );
        }
        let started = Entry { torn, broken, ..Entry::of_service("start") };
        let mut chain = Self { dir, settings, head, current: None, key, seals, is_overdue: false };
        chain.make_room();
        Ok((chain, started))
    }

    /// Tells whether the log is larger than it is to be because its files are too young to go.
    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    /// Tells whether a record can be appended without making another file.
    pub(super) fn has_room(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.bytes < self.settings.file_bytes)
    }

    /// The file that was written last.
    pub(super) fn file(&self) -> Option<Arc<File>> {
        self.current.as_ref().map(|current| Arc::clone(&current.file))
    }

    /// Appends `entries`, all or none.
    ///
    /// # Errors
    /// Those of writing. What came before is still there, and so is the place of what is to be appended.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<()> {
        let mut text = String::new();
        let mut head = self.head.clone();
        for entry in entries {
            let (line, next) = line(&head, entry.clone());
            text.push_str(&line);
            head = next;
        }
        let current = self.current()?;
        let mut file = current.file.as_ref();
        if let Err(source) = file.write_all(text.as_bytes()) {
            // The half record is cut off again; the next try writes it whole.
            let _ = file.set_len(current.bytes);
            let _ = file.seek(SeekFrom::Start(current.bytes));
            return Err(Error::Io { operation: "write", path: "audit".to_owned(), source });
        }
        current.bytes += u64::try_from(text.len()).unwrap_or(0);
        self.head = head;
        Ok(())
    }

    /// The file to write to; another one when the last has become too large.
    fn current(&mut self) -> Result<&mut Current> {
        if !self.has_room() {
            self.seal()?;
        }
        if self.current.is_none() {
            let first = self.head.seq + 1;
            let file = Arc::new(self.dir.create_file(&files::name(first), 0o600)?);
            if self.settings.syncs != Syncs::Nothing {
                self.dir.sync()?;
            }
            self.current = Some(Current { file, first, bytes: 0 });
            self.make_room();
        }
        self.current.as_mut().ok_or_else(|| Error::NotFound("audit".to_owned()))
    }

    /// Ends the file that is being written, if there is one: what is appended next goes to another.
    ///
    /// # Errors
    /// Those of writing. The file is written on then.
    pub(super) fn seal(&mut self) -> Result<()> {
        let Some(full) = &self.current else { return Ok(()) };
        let is_durable = self.settings.syncs != Syncs::Nothing;
        if is_durable {
            sync(&full.file)?;
        }
        // A file that failed to take its first record is no more than an empty name.
        if self.head.seq >= full.first && !self.seals.has(full.first) {
            let mut seals = self.seals.clone();
            let sealed =
                Sealed { first: full.first, last: self.head.clone(), bytes: full.bytes, ended: now() };
            seals.files.push(sealed);
            seals.write(&self.dir, &self.key, is_durable)?;
            self.seals = seals;
        }
        self.current = None;
        Ok(())
    }

    /// Removes the oldest files while all together have more than they may and these are old enough to go.
    pub(super) fn make_room(&mut self) {
        let current = self.current.as_ref().map_or(0, |current| current.bytes);
        let kept = retention::Kept {
            bytes: self.settings.total_bytes,
            least_age: self.settings.least_age,
            current_bytes: current,
        };
        let planned = kept.plan(&self.seals, time::OffsetDateTime::now_utc());
        if !planned.removed.is_empty() {
            let is_durable = self.settings.syncs != Syncs::Nothing;
            // The seals name the removed files before their removal: so a crash leaves files too many and never too
            // few.
            if let Err(error) = planned.seals.write(&self.dir, &self.key, is_durable) {
                tracing::warn!(%error, "failed to seal the audit log: its old files stay until the next try");
                return;
            }
            self.seals = planned.seals;
            for first in planned.removed {
                match self.dir.remove_file(&files::name(first)) {
                    Ok(()) => tracing::info!(first, "removed the oldest file of the audit log"),
                    Err(error) => {
                        tracing::warn!(
                            %error, first,
                            "failed to remove an old file of the audit log: the file stays"
                        )
                    }
                }
            }
        }
        if planned.is_overdue && !self.is_overdue {
            tracing::error!(
                "the audit log is larger than `audit.total_bytes`, and its files are younger than `audit.keep_days`: \
                 raise the one or lower the other"
            );
        }
        self.is_overdue = planned.is_overdue;
    }
}

/// Waits until a file is on the disk.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync(file: &File) -> Result<()> {
    file.sync_data().map_err(|source| Error::Io { operation: "sync", path: "audit".to_owned(), source })
}
