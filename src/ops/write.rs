//! Writing a file whose bytes come piece by piece: bounded, and never a large one whole in memory.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use policy::{RelPath, TreeId};
use storage::stage::StagedFile;
use storage::{Files, WriteOptions, Written};

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};

/// Bytes collected before they are written at once. What has no more is written in one go.
const WRITE_BYTES: usize = 512 * 1024;
/// Pieces collected before they are written, however small they are.
const WRITE_PIECES: usize = 4096;

/// Why a file was not written; what was there still is.
#[derive(Debug)]
pub enum Unwritten<E> {
    /// Its bytes did not all come.
    Sender(E),
    /// It could not be written.
    Service(Error),
}

impl<E> From<Error> for Unwritten<E> {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

impl Service {
    /// Writes the file `path` of at most `limit` bytes, which come as `pieces`.
    ///
    /// # Errors
    /// [`Unwritten::Sender`] for the first failure among `pieces`; [`storage::Error::TooLarge`]; as
    /// [`storage::Files::write`].
    pub async fn write<E>(
        &self,
        id: TreeId,
        path: RelPath,
        mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
        options: WriteOptions,
        limit: u64,
    ) -> Result<Written, Unwritten<E>> {
        let (piece, last) = (Job::of(id.user(), Weight::Light), Job::change(&id));
        let files = self.store.files(id);
        let (mut staged, mut left) = (None, limit);
        loop {
            let (some, is_last) = gather(&mut pieces, &mut left, limit).await?;
            let (former, files) = (staged.take(), files.clone());
            if is_last {
                let write = move || {
                    let staged = append(&files, former, some)?;
                    Ok(files.write(&path, staged, &options)?)
                };
                return Ok(self.work(last, write).await?);
            }
            let at = path.clone();
            let append = move || {
                let staged = append(&files, former, some)?;
                files.admit_arriving(&at)?;
                Ok(staged)
            };
            staged = Some(self.work(piece.clone(), append).await?);
        }
    }
}

/// The next pieces, as many as are written at once, and whether they are the last.
pub(super) async fn gather<E>(
    pieces: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    left: &mut u64,
    limit: u64,
) -> Result<(Vec<Bytes>, bool), Unwritten<E>> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    while bytes <= WRITE_BYTES && some.len() < WRITE_PIECES {
        let Some(piece) = pieces.next().await else { return Ok((some, true)) };
        let piece = piece.map_err(Unwritten::Sender)?;
        let rest = left.checked_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        *left = rest
            .ok_or_else(|| Error::Storage(storage::Error::TooLarge { what: "the file".to_owned(), limit }))?;
        bytes += piece.len();
        if !piece.is_empty() {
            some.push(piece);
        }
    }
    Ok((some, false))
}

/// Writes pieces behind those that were written to `former`, if there is one.
fn append(files: &Files, former: Option<StagedFile>, pieces: Vec<Bytes>) -> Result<StagedFile> {
    let mut staged = former.map_or_else(|| files.stage(), Ok)?;
    for piece in pieces {
        staged.write(&piece)?;
    }
    Ok(staged)
}
