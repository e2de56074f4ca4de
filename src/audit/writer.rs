//! The one thread that writes records.
//!
//! It takes all that waits, writes it at once and makes it durable at once, so that many changes share one wait for
//! the disk. What cannot be written it keeps and tries again every second; meanwhile changes are refused.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use storage::{Dir, Result};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::record::{Entry, Head, line};
use super::{Settings, State, files};
use crate::metrics::Shared;

/// Records written at once.
const BATCH_MAX: usize = 256;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// A record to be written.
pub(super) struct Job {
    pub(super) entry: Entry,
    /// Told when it is written.
    pub(super) written: Option<oneshot::Sender<()>>,
    /// Given back when it is written.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

pub(super) struct Writer {
    dir: Dir,
    settings: Settings,
    state: Arc<State>,
    metrics: Shared,
    head: Head,
    current: Option<Current>,
    /// The record of the start, until it is written.
    started: Option<Entry>,
}

/// The file being written.
struct Current {
    file: File,
    bytes: u64,
}

impl Writer {
    /// Finds the end of the log in `dir`.
    ///
    /// # Errors
    /// Those of reading files.
    pub(super) fn open(dir: Dir, settings: Settings, state: Arc<State>, metrics: Shared) -> Result<Self> {
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
        let started = Some(Entry { torn, ..Entry::of_service("start") });
        Ok(Self { dir, settings, state, metrics, head, current: None, started })
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        if let Some(started) = self.started.take() {
            self.write_out(vec![Job { entry: started, written: None, permit: None }]);
        }
        while let Some(first) = queue.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX
                && let Ok(next) = queue.try_recv()
            {
                batch.push(next);
            }
            self.write_out(batch);
        }
    }

    /// Writes a batch, however often that takes.
    fn write_out(&mut self, batch: Vec<Job>) {
        let mut text = String::new();
        let mut head = self.head.clone();
        let count = u64::try_from(batch.len()).unwrap_or(0);
        let mut told = Vec::with_capacity(batch.len());
        for job in batch {
            let (line, next) = line(&head, job.entry);
            text.push_str(&line);
            head = next;
            told.push((job.written, job.permit));
        }
        while let Err(error) = self.append(text.as_bytes()) {
            if !self.state.is_failing.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "the audit log cannot be written; changes are refused");
            }
            let is_full = matches!(&error, storage::Error::NoSpace(_))
                || matches!(&error, storage::Error::Io { source, .. } if is_no_space(source));
            self.state.is_full_disk.store(is_full, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        if self.state.is_failing.swap(false, Ordering::Relaxed) {
            tracing::warn!("the audit log can be written again");
        }
        self.head = head;
        self.metrics.audited.inc_by(count);
        for (written, permit) in told {
            drop(permit);
            if let Some(written) = written {
                let _ = written.send(());
            }
        }
    }

    fn append(&mut self, text: &[u8]) -> Result<()> {
        if self.current.as_ref().is_some_and(|current| current.bytes >= self.settings.file_bytes) {
            self.current = None;
        }
        let current = match &mut self.current {
            Some(current) => current,
            empty => {
                let file = self.dir.create_file(&files::name(self.head.seq + 1), 0o600)?;
                if self.settings.is_strict {
                    self.dir.sync()?;
                }
                let current = empty.insert(Current { file, bytes: 0 });
                remove_oldest(&self.dir, self.settings);
                current
            }
        };
        let failed = |source| storage::Error::Io { operation: "write", path: "audit".to_owned(), source };
        let written = current
            .file
            .write_all(text)
            .and_then(|()| if self.settings.is_strict { current.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // What was half written is not there for anybody yet; the next try writes it whole.
            let _ = current.file.set_len(current.bytes);
            let _ = std::io::Seek::seek(&mut current.file, std::io::SeekFrom::Start(current.bytes));
            return Err(failed(error));
        }
        current.bytes += u64::try_from(text.len()).unwrap_or(0);
        Ok(())
    }
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

fn is_no_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
