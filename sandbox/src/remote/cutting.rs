//! [`Pieces`]: a caller's stream on its way to a runner, cut as the wire wants it and never longer than a file may be.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;

use crate::wire::PIECE_BYTES;
use crate::{ByteStream, Error, ErrorKind, FILE_BYTES_MAX, Result, SandboxPath};

/// Cuts a caller's stream into pieces.
pub(super) struct Pieces<'a> {
    waiting: BytesMut,
    total: u64,
    path: &'a SandboxPath,
}

impl<'a> Pieces<'a> {
    /// Nothing of the file at `path` has come yet.
    pub(super) fn new(path: &'a SandboxPath) -> Self {
        Self { waiting: BytesMut::new(), total: 0, path }
    }

    /// How many bytes have come.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The next piece, of [`PIECE_BYTES`] unless it is the last, and whether it is.
    pub(super) async fn next(&mut self, body: &mut ByteStream) -> Result<(Bytes, bool)> {
        // One byte more than a piece tells that another follows.
        while self.waiting.len() <= PIECE_BYTES {
            let Some(came) = self.came(body).await? else { return Ok((self.waiting.split().freeze(), true)) };
            self.waiting.extend_from_slice(&came);
        }
        Ok((self.waiting.split_to(PIECE_BYTES).freeze(), false))
    }

    /// What comes next, of any length.
    pub(super) async fn any(&mut self, body: &mut ByteStream) -> Result<Option<Bytes>> {
        match self.waiting.is_empty() {
            true => self.came(body).await,
            false => Ok(Some(self.waiting.split().freeze())),
        }
    }

    async fn came(&mut self, body: &mut ByteStream) -> Result<Option<Bytes>> {
        let Some(came) = body.try_next().await? else { return Ok(None) };
        self.total += came.len() as u64;
        if self.total > FILE_BYTES_MAX {
            return Err(Error::about(ErrorKind::TooLarge, "write_file", self.path));
        }
        Ok(Some(came))
    }
}
