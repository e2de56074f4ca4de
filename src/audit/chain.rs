//! [`Chain`]: the end of the log, to which records are appended one after the other.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use storage::{Dir, Error, Result};

use super::record::{Entry, Head, line};
use super::{Settings, Syncs, files};

/// The end of the log.
pub(super) struct Chain {
    dir: Dir,
    settings: Settings,
    head: Head,
    current: Option<Current>,
}

/// The file being written.
struct Current {
    file: Arc<File>,
    bytes: u64,
}

impl Chain {
    /// Finds the end of the log in `dir`. Returns it with the record of this start, which is to be the first.
    ///
    /// # Errors
    /// Those of reading files.
    pub(super) fn open(dir: Dir, settings: Settings) -> Result<(Self, Entry)> {
        let end = files::end(&dir)?;
        files::clear(&dir, &end)?;
        let files::End { head, torn, .. } = end;
        match &torn {
            Some(torn) if torn.is_damage => {
                tracing::error!(bytes = torn.bytes, "the end of the audit log is damaged; a record says so");
            }
            Some(torn) => {
                tracing::warn!(bytes = torn.bytes, "a crash tore the last audit record; a record says so")
            }
            None => {}
        }
        let started = Entry { torn, ..Entry::of_service("start") };
        Ok((Self { dir, settings, head, current: None }, started))
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
            // What was half written is not there for anybody yet; the next try writes it whole.
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
            if let Some(full) = self.current.as_ref().filter(|_| self.settings.syncs != Syncs::Nothing) {
                sync(&full.file)?;
            }
            self.current = None;
        }
        match &mut self.current {
            Some(current) => Ok(current),
            empty => {
                let file = Arc::new(self.dir.create_file(&files::name(self.head.seq + 1), 0o600)?);
                if self.settings.syncs != Syncs::Nothing {
                    self.dir.sync()?;
                }
                remove_oldest(&self.dir, self.settings);
                Ok(empty.insert(Current { file, bytes: 0 }))
            }
        }
    }
}

/// Waits until a file is on the disk.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync(file: &File) -> Result<()> {
    file.sync_data().map_err(|source| Error::Io { operation: "sync", path: "audit".to_owned(), source })
}

/// Removes the oldest files until all together have no more than they may. The newest two stay.
fn remove_oldest(dir: &Dir, settings: Settings) {
    let removed = files::list(dir).and_then(|segments| {
        let sizes =
            segments.iter().map(|segment| Ok(dir.stat_entry(&segment.name)?.map_or(0, |stat| stat.size)));
        let sizes = sizes.collect::<Result<Vec<u64>>>()?;
        let mut total: u64 = sizes.iter().sum();
        for (segment, size) in segments.iter().zip(sizes).take(segments.len().saturating_sub(2)) {
            if total <= settings.total_bytes {
                break;
            }
            dir.remove_file(&segment.name)?;
            total = total.saturating_sub(size);
            tracing::info!(first = segment.first, "the oldest file of the audit log was removed");
        }
        Ok(())
    });
    if let Err(error) = removed {
        tracing::warn!(%error, "old files of the audit log stay");
    }
}
