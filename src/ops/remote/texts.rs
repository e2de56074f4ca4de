//! Texts of remote workspaces: read whole, changed here, written whole.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use policy::RelPath;
use sandbox::{ErrorKind, ReadOptions, WriteMode, WriteOptions};
use storage::encoding::{self, TextEncoding};
use storage::text::{self, Replacement};

use super::files::stale;
use super::{Backend, PATIENCE, reading};
use crate::ops::Service;
use crate::ops::admission::{Admission, Job, Weight};
use crate::ops::error::{Error, Result};
use crate::ops::files::{LineRange, Text, check_edits, check_encoding, check_range, part};
use crate::ops::write::Unwritten;

/// How long a whole text may take, which others wait for: the largest takes so long at a megabit in a second.
const WHOLE: Duration = Duration::from_secs(5 * 60);

/// A text that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edited {
    /// Its size.
    pub bytes: u64,
    /// Whether there was none before.
    pub created: bool,
    /// How it lies there.
    pub encoding: TextEncoding,
}

/// The place and bounds of work on texts.
#[derive(Clone, Copy)]
pub struct TextWork<'a> {
    admission: &'a Admission,
    /// The most bytes that a text may have, before and after.
    limit: u64,
}

impl Service {
    /// What work on texts of remote workspaces may take.
    #[must_use]
    pub fn text_work(&self) -> TextWork<'_> {
        TextWork { admission: &self.admission, limit: self.file_limits.text_bytes }
    }
}

/// How a text is changed.
struct How<'a> {
    /// Whether it may be anything before, and as large as it likes.
    any: bool,
    /// Whether directories above it are made.
    parents: bool,
    /// Whether it must be new.
    mode: WriteMode,
    work: TextWork<'a>,
}

impl Backend {
    /// Reads a text as large as one may be, whole without a range; and tells its size.
    ///
    /// # Errors
    /// [`storage::Error::NotText`], [`Error::Invalid`] for a line 0, [`Error::Remote`].
    pub async fn read_text(
        &self,
        path: &RelPath,
        range: LineRange,
        work: TextWork<'_>,
    ) -> Result<(Text, TextEncoding, u64)> {
        check_range(range)?;
        let TextWork { admission, limit } = work;
        let bytes = self.whole(path, limit).await?;
        let (size, path) = (bytes.len() as u64, path.clone());
        let job = Job::of(&self.user, Weight::Scan);
        let read = move || {
            let (text, encoding) = part(bytes, &path, range, limit)?;
            Ok((text, encoding, size))
        };
        admission.work(job, read).await
    }

    /// Replaces a text, or some of its lines; in the encoding that it was in, or a whole one in `encoding`. Directories
    /// above it are made.
    ///
    /// # Errors
    /// As [`Service::edit`](crate::ops::Service::edit); [`Error::Remote`].
    pub async fn edit(
        &self,
        path: &RelPath,
        range: LineRange,
        body: String,
        encoding: Option<TextEncoding>,
        mode: WriteMode,
        work: TextWork<'_>,
    ) -> Result<Edited> {
        check_encoding(range, encoding)?;
        let place = path.clone();
        let change = move |before: Option<Vec<u8>>| -> Result<(Vec<u8>, TextEncoding)> {
            if range == LineRange::ALL {
                let found = || before.and_then(encoding::decode).map(|(_, encoding)| encoding);
                let encoding = encoding.or_else(found).unwrap_or_default();
                return Ok((storage::files::encode(&body, encoding, place.as_str())?.into_owned(), encoding));
            }
            let (text, encoding) = decoded(before, &place)?.unwrap_or_default();
            let text = text::edit_lines(&text, place.as_str(), range.start, range.end, &body)?;
            Ok((storage::files::encode(&text, encoding, place.as_str())?.into_owned(), encoding))
        };
        let how = How { any: range == LineRange::ALL, parents: true, mode, work };
        self.update(path, how, change).await
    }

    /// Makes replacements in a text: all, or none.
    ///
    /// # Errors
    /// As [`Service::replace`](crate::ops::Service::replace); [`Error::Remote`].
    pub async fn replace(
        &self,
        path: &RelPath,
        edits: Vec<Replacement>,
        mode: WriteMode,
        work: TextWork<'_>,
    ) -> Result<Edited> {
        check_edits(&edits)?;
        let limit = work.limit;
        let place = path.clone();
        let change = move |before: Option<Vec<u8>>| {
            let (text, encoding) =
                decoded(before, &place)?.ok_or_else(|| storage::Error::NotFound(place.to_string()))?;
            let text = text::replace(&text, place.as_str(), &edits, limit)?;
            Ok((storage::files::encode(&text, encoding, place.as_str())?.into_owned(), encoding))
        };
        self.update(path, How { any: false, parents: false, mode, work }, change).await
    }

    /// Changes a text; of changes through this service, one after the other.
    async fn update(
        &self,
        path: &RelPath,
        How { any, parents, mode, work }: How<'_>,
        change: impl FnOnce(Option<Vec<u8>>) -> Result<(Vec<u8>, TextEncoding)> + Send + 'static,
    ) -> Result<Edited> {
        let TextWork { admission, limit } = work;
        let alone = tokio::time::timeout(PATIENCE, self.editing.lock()).await;
        let what = "other texts of this workspace are being changed";
        let _alone = alone.map_err(|_| Error::Busy { what, retry_after_seconds: 5 })?;
        let (before, created) = match self.whole(path, limit).await {
            Ok(bytes) => (Some(bytes), false),
            Err(Error::Remote { kind: ErrorKind::NotFound, .. }) => (None, true),
            Err(Error::Remote { kind: ErrorKind::TooLarge, .. }) if any => (None, false),
            Err(other) => return Err(other),
        };
        if mode == WriteMode::Create && !created {
            return Err(stale(path));
        }
        let place = path.clone();
        let job = Job::of(&self.user, Weight::Scan);
        let changed = move || {
            let (bytes, encoding) = change(before)?;
            if bytes.len() as u64 > limit {
                let what = format!("`{place}` after the change");
                return Err(storage::Error::TooLarge { what, limit }.into());
            }
            Ok((bytes, encoding))
        };
        let (bytes, encoding) = admission.work(job, changed).await?;
        if parents && created {
            self.make_parents(path).await?;
        }
        let pieces = stream::iter([Ok::<_, Infallible>(Bytes::from(bytes))]);
        let options = WriteOptions { mode, permissions: None };
        match self.write(path, pieces, options, limit).await {
            Ok(bytes) => Ok(Edited { bytes, created, encoding }),
            Err(Unwritten::Service(error)) => Err(error),
            Err(Unwritten::Sender(never)) => match never {},
        }
    }

    /// All bytes of a file.
    async fn whole(&self, path: &RelPath, limit: u64) -> Result<Vec<u8>> {
        let options = ReadOptions { range: None, bytes_max: Some(limit) };
        let opened = self.open(path, options).await?;
        reading::whole(opened.pieces, WHOLE).await.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => self.silent("read_file"),
            _ => {
                let broken = sandbox::Error::new(ErrorKind::Disconnected, "read_file", "the file broke off");
                self.failure(broken.because(error))
            }
        })
    }
}

fn decoded(bytes: Option<Vec<u8>>, path: &RelPath) -> Result<Option<(String, TextEncoding)>> {
    let Some(bytes) = bytes else { return Ok(None) };
    Ok(Some(encoding::decode(bytes).ok_or_else(|| storage::Error::NotText(path.to_string()))?))
}
