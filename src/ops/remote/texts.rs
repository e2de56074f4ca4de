//! Texts of remote workspaces: read whole, changed here, written whole.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use policy::RelPath;
use sandbox::{ErrorKind, ReadOptions, Version, WriteMode, WriteOptions};
use storage::Condition;
use storage::encoding::{self, TextEncoding};
use storage::text::{self, Replacement};

use super::files::{UNTAGGED, stale, tag};
use super::{Backend, PATIENCE, Written, reading};
use crate::ops::Service;
use crate::ops::admission::{Admission, Job, Weight};
use crate::ops::error::{Error, Result};
use crate::ops::texts::{LineRange, NewText, Text, check_edits, check_encoding, check_range, part};
use crate::ops::write::Unwritten;

/// How long a whole text may take, which others wait for: the largest takes so long at a megabit in a second.
const WHOLE: Duration = Duration::from_secs(5 * 60);
/// How often a change of a text is worked out anew when the text is changed meanwhile.
const TRIES: usize = 8;

/// A text that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// Its size.
    pub bytes: u64,
    /// Whether there was none before.
    pub created: bool,
    /// How it lies there.
    pub encoding: TextEncoding,
    /// Its version, where the backend tells one.
    pub version: Option<Version>,
}

/// A text that was read.
#[derive(Debug)]
pub struct RemoteText {
    /// The text, or some of its lines.
    pub text: Text,
    /// How it lies there.
    pub encoding: TextEncoding,
    /// Its size there.
    pub bytes: u64,
    /// Its version, where the backend tells one.
    pub version: Option<Version>,
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
    pub(in crate::ops) fn text_work(&self) -> TextWork<'_> {
        TextWork { admission: &self.admission, limit: self.file_limits.text_bytes }
    }
}

/// What is there before a text is changed.
struct Found {
    /// Its bytes; `None` for more than are read.
    bytes: Option<Vec<u8>>,
    version: Option<Version>,
}

/// How a text is changed.
struct How<'a> {
    /// Whether it may be anything before, and as large as it likes.
    any: bool,
    /// Whether directories above it are made.
    parents: bool,
    /// What must hold of it before.
    condition: Condition,
    work: TextWork<'a>,
}

impl How<'_> {
    /// How the changed text is written over what was found, so that the condition holds then.
    fn mode(&self, path: &RelPath, found: Option<&Found>, is_taken: bool) -> Result<WriteMode> {
        let version = found.and_then(|found| found.version.as_ref());
        match (&self.condition, found) {
            (Condition::Missing, Some(_)) if version.is_none() => return Err(stale(path)),
            (Condition::Exists | Condition::Matches(_), Some(_)) if version.is_none() => {
                return Err(Error::Unsupported(UNTAGGED.to_owned()));
            }
            (condition, _) => condition.check_tag(path, version.map(tag))?,
        }
        Ok(match (version, &self.condition) {
            // Nothing of what was there is in the new text, and nothing was to be there.
            (_, Condition::Always) if self.any => WriteMode::Replace,
            (Some(version), _) => WriteMode::Swap(version.clone()),
            (None, _) if found.is_none() && !is_taken => WriteMode::Create,
            // The backend tells no versions; or a link to nothing is there, which is written through.
            (None, _) => WriteMode::Replace,
        })
    }
}

impl Backend {
    /// Reads a text as large as one may be, whole without a range.
    ///
    /// # Errors
    /// [`storage::Error::NotText`], [`Error::Invalid`] for a line 0, [`Error::Remote`].
    pub async fn read_text(
        &self,
        path: &RelPath,
        range: LineRange,
        work: TextWork<'_>,
    ) -> Result<RemoteText> {
        check_range(range)?;
        let TextWork { admission, limit } = work;
        let (bytes, version) = self.whole(path, limit).await?;
        let (size, path) = (bytes.len() as u64, path.clone());
        let job = Job::of(&self.user, Weight::Scan);
        let read = move || {
            let (text, encoding) = part(bytes, &path, range, limit)?;
            Ok(RemoteText { text, encoding, bytes: size, version })
        };
        admission.work(job, read).await
    }

    /// Replaces a text, or some of its lines; in the encoding that it was in, or a whole one in `encoding`. Directories
    /// above it are made.
    ///
    /// # Errors
    /// As [`Tree::edit`](crate::ops::tree::Tree::edit).
    pub async fn edit(
        &self,
        path: &RelPath,
        new: NewText,
        condition: Condition,
        work: TextWork<'_>,
    ) -> Result<Edited> {
        check_encoding(&new)?;
        let NewText { range, text: body, encoding } = new;
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
        let how = How { any: range == LineRange::ALL, parents: true, condition, work };
        self.update(path, how, change).await
    }

    /// Makes replacements in a text: all, or none.
    ///
    /// # Errors
    /// As [`Tree::replace`](crate::ops::tree::Tree::replace).
    pub async fn replace(
        &self,
        path: &RelPath,
        edits: Vec<Replacement>,
        condition: Condition,
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
        self.update(path, How { any: false, parents: false, condition, work }, change).await
    }

    /// Changes a text; of changes through this service, one after the other. Where the backend tells versions, the change is worked
    /// out anew when the text is changed meanwhile by others, and none of their changes is lost.
    async fn update(
        &self,
        path: &RelPath,
        how: How<'_>,
        change: impl Fn(Option<Vec<u8>>) -> Result<(Vec<u8>, TextEncoding)> + Send + Sync + 'static,
    ) -> Result<Edited> {
        let TextWork { admission, limit } = how.work;
        let alone = tokio::time::timeout(PATIENCE, self.editing.lock()).await;
        let what = "other texts of this workspace are being changed";
        let _alone = alone.map_err(|_| Error::Busy { what, retry_after_seconds: 5 })?;
        let change = Arc::new(change);
        // Whether something was in the way of a new file that no reader finds: a link to nothing.
        let mut is_taken = false;
        for _ in 0..TRIES {
            let found = self.find(path, how.any, limit).await?;
            is_taken &= found.is_none();
            let mode = how.mode(path, found.as_ref(), is_taken)?;
            let created = found.is_none();
            let (place, change) = (path.clone(), Arc::clone(&change));
            let job = Job::of(&self.user, Weight::Scan);
            let changed = move || {
                let (bytes, encoding) = change(found.and_then(|found| found.bytes))?;
                if bytes.len() as u64 > limit {
                    let what = format!("`{place}` after the change");
                    return Err(storage::Error::TooLarge { what, limit }.into());
                }
                Ok((bytes, encoding))
            };
            let (bytes, encoding) = admission.work(job, changed).await?;
            if how.parents && created {
                self.make_parents(path).await?;
            }
            let pieces = stream::iter([Ok::<_, Infallible>(Bytes::from(bytes))]);
            match self.write(path, pieces, WriteOptions { mode, permissions: None }, limit).await {
                Ok(Written { bytes, version }) => return Ok(Edited { bytes, created, encoding, version }),
                Err(Unwritten::Service(Error::Storage(storage::Error::Stale { .. })))
                    if how.condition != Condition::Missing =>
                {
                    is_taken = created;
                }
                Err(Unwritten::Service(error)) => return Err(error),
                Err(Unwritten::Sender(never)) => match never {},
            }
        }
        let what = format!("`{path}` keeps changing: try again when what writes it is done");
        Err(storage::Error::Conflict(what).into())
    }

    /// What is at `path` before a change; with `any`, also what is too large to be read.
    async fn find(&self, path: &RelPath, any: bool, limit: u64) -> Result<Option<Found>> {
        match self.whole(path, limit).await {
            Ok((bytes, version)) => Ok(Some(Found { bytes: Some(bytes), version })),
            Err(Error::Remote { kind: ErrorKind::NotFound, .. }) => Ok(None),
            Err(Error::Remote { kind: ErrorKind::TooLarge, .. }) if any => {
                Ok(Some(Found { bytes: None, version: self.stat_file(path).await?.version }))
            }
            Err(other) => Err(other),
        }
    }

    /// All bytes of a file.
    async fn whole(&self, path: &RelPath, limit: u64) -> Result<(Vec<u8>, Option<Version>)> {
        let options = ReadOptions { range: None, bytes_max: Some(limit) };
        let opened = self.open(path, options).await?;
        let read = reading::whole(opened.pieces, WHOLE).await.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => self.silent("read_file"),
            _ => {
                let broken = sandbox::Error::new(ErrorKind::Disconnected, "read_file", "the file broke off");
                self.failure(broken.because(error))
            }
        });
        Ok((read?, opened.info.version))
    }
}

fn decoded(bytes: Option<Vec<u8>>, path: &RelPath) -> Result<Option<(String, TextEncoding)>> {
    let Some(bytes) = bytes else { return Ok(None) };
    Ok(Some(encoding::decode(bytes).ok_or_else(|| storage::Error::NotText(path.to_string()))?))
}
