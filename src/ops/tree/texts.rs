//! Reading and changing texts.

use policy::RelPath;
use storage::encoding::TextEncoding;
use storage::text::{self, Replacement};
use storage::{Condition, ETag, Files, Layer, WriteOptions};

use super::facts::Written;
use super::{Location, Tree};
use crate::ops::admission::{Job, Weight};
use crate::ops::error::{Error, Result};
use crate::ops::files::of_texts;
use crate::ops::remote;
use crate::ops::seen::Seen;
use crate::ops::texts::{
    self, LineRange, NewText, Text, check_edits, check_encoding, check_range, part, read_from,
};

/// Size from which reading a text is no light work, in bytes.
const LARGE_TEXT_BYTES: u64 = 1024 * 1024;

/// The part that was read of a text.
#[derive(Debug)]
pub struct ReadText {
    /// The text, or some of its lines.
    pub text: Text,
    /// How it lies on the disk.
    pub encoding: TextEncoding,
    /// The size of the file, in bytes.
    pub size: u64,
    /// The tag of its content.
    pub etag: Option<ETag>,
    /// Which layer it comes from.
    pub layer: Option<Layer>,
}

impl Tree {
    /// Reads a text, whole without a range.
    ///
    /// # Errors
    /// [`storage::Error::NotText`], [`storage::Error::TooLarge`], [`Error::Invalid`] for a line 0; [`Error::Remote`].
    pub async fn read_text(&self, path: &RelPath, range: LineRange) -> Result<ReadText> {
        match &self.location {
            Location::Local { version } => {
                let read = self.read_own(self.seen(version), path.clone(), range).await?;
                let (etag, size) = (Some(read.stat.etag()), read.stat.size);
                Ok(ReadText { text: read.text, encoding: read.encoding, size, etag, layer: Some(read.layer) })
            }
            Location::Remote(backend) => {
                let read = backend.read_text(path, range, self.service.text_work()).await?;
                let remote::RemoteText { text, encoding, bytes, version } = read;
                let etag = version.as_ref().map(remote::tag);
                Ok(ReadText { text, encoding, size: bytes, etag, layer: None })
            }
        }
    }

    /// Reads a text of this service.
    async fn read_own(&self, seen: Seen, path: RelPath, range: LineRange) -> Result<texts::LocalText> {
        let job = Job::read(&seen.id);
        let files = self.service.store.files(seen.id).of_version(seen.version);
        let limit = self.service.file_limits.text_bytes;
        check_range(range)?;
        if let Some((bytes, stat, layer)) = files.read_cached(&path).filter(|(_, stat, _)| stat.size <= limit)
        {
            let (text, encoding) = part(bytes, &path, range, limit)?;
            return Ok(texts::LocalText { text, encoding, stat, layer });
        }
        let (small, place) = (files.clone(), path.clone());
        let look = move || {
            if small.stat(&place)?.0.size > LARGE_TEXT_BYTES {
                return Ok(None);
            }
            match read_from(&small, &place, range, limit.min(LARGE_TEXT_BYTES)) {
                // It has grown since, or many short lines are asked for.
                Err(Error::Storage(storage::Error::TooLarge { .. })) => Ok(None),
                read => read.map(Some),
            }
        };
        match self.service.work(job.clone(), look).await? {
            Some(read) => Ok(read),
            // Large texts take the places of work on whole texts, of which there are few.
            None => {
                let job = Job { weight: Weight::Scan, ..job }.giving_way_if(true);
                self.service.work(job, move || read_from(&files, &path, range, limit)).await
            }
        }
    }

    /// Replaces a text, or some of its lines; in the encoding that it was in, or a whole one in that of `new`. Directories
    /// above it are made.
    ///
    /// # Errors
    /// As [`storage::Files::update`] and [`text::edit_lines`]; [`Error::Invalid`] for lines with an encoding; [`Error::Remote`].
    pub async fn edit(&self, path: &RelPath, new: NewText, condition: Condition) -> Result<Written> {
        if let Location::Remote(backend) = &self.location {
            return Ok(backend.edit(path, new, condition, self.service.text_work()).await?.into());
        }
        check_encoding(&new)?;
        let NewText { range, text: body, encoding } = new;
        let options = WriteOptions { condition, parents: true, mode: None };
        let job = Job::change(&self.id);
        let edited = self.change_own(job, path.clone(), move |files, path, limit| {
            if range == LineRange::ALL {
                let encoding = encoding.map_or_else(|| files.encoding_of(path, limit), Ok)?;
                let bytes = storage::files::encode(&body, encoding, path.as_str())?;
                let mut staged = files.stage()?;
                staged.write(&bytes)?;
                return Ok((files.write(path, staged, &options)?, encoding));
            }
            files.update(path, &options, limit, &mut |text| {
                text::edit_lines(text.unwrap_or_default(), path.as_str(), range.start, range.end, &body)
            })
        });
        Ok(edited.await?.into())
    }

    /// Makes replacements in a text: all, or none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no edits, too many, or an empty old text; as [`storage::Files::update`] and
    /// [`text::replace`]; [`Error::Remote`].
    pub async fn replace(
        &self,
        path: &RelPath,
        edits: Vec<Replacement>,
        condition: Condition,
    ) -> Result<Written> {
        if let Location::Remote(backend) = &self.location {
            return Ok(backend.replace(path, edits, condition, self.service.text_work()).await?.into());
        }
        check_edits(&edits)?;
        let bytes = edits.iter().map(|edit| edit.old.len().saturating_add(edit.new.len())).sum();
        let job = of_texts(Job::change(&self.id), edits.len(), bytes);
        let options = WriteOptions { condition, parents: false, mode: None };
        let replaced = self.change_own(job, path.clone(), move |files, path, limit| {
            files.update(path, &options, limit, &mut |text| match text {
                Some(text) => text::replace(text, path.as_str(), &edits, limit),
                None => Err(storage::Error::NotFound(path.to_string())),
            })
        });
        Ok(replaced.await?.into())
    }

    /// Changes a text of this service: `change` gets the longest text there may be, in bytes.
    async fn change_own<T: Send + 'static>(
        &self,
        job: Job,
        path: RelPath,
        change: impl FnOnce(&Files, &RelPath, u64) -> storage::Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.service.store.files(self.id.clone());
        let limit = self.service.file_limits.text_bytes;
        self.service.work(job, move || Ok(change(&files, &path, limit)?)).await
    }
}
