//! Reading and changing texts.

use policy::RelPath;
use storage::encoding::TextEncoding;
use storage::text::Replacement;
use storage::{Condition, ETag, Layer};

use super::facts::Written;
use super::{Location, Tree};
use crate::ops::error::Result;
use crate::ops::remote;
use crate::ops::texts::{LineRange, Text};

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
    /// As [`Service::read_text`](crate::ops::Service::read_text); [`Error::Remote`](crate::ops::Error::Remote).
    pub async fn read_text(&self, path: &RelPath, range: LineRange) -> Result<ReadText> {
        match &self.location {
            Location::Local { version } => {
                let read = self.service.read_text(self.seen(version), path.clone(), range).await?;
                let (etag, size) = (Some(read.stat.etag()), read.stat.size);
                Ok(ReadText { text: read.text, encoding: read.encoding, size, etag, layer: Some(read.layer) })
            }
            Location::Remote(backend) => {
                let read = backend.read_text(path, range, self.service.text_work()).await?;
                let remote::ReadText { text, encoding, bytes, version } = read;
                let etag = version.as_ref().map(remote::tag);
                Ok(ReadText { text, encoding, size: bytes, etag, layer: None })
            }
        }
    }

    /// Replaces a text, or some of its lines; in the encoding that it was in, or a whole one in `encoding`.
    ///
    /// # Errors
    /// As [`Service::edit`](crate::ops::Service::edit); [`Error::Remote`](crate::ops::Error::Remote).
    pub async fn edit(
        &self,
        path: &RelPath,
        range: LineRange,
        body: String,
        encoding: Option<TextEncoding>,
        condition: Condition,
    ) -> Result<Written> {
        match &self.location {
            Location::Local { .. } => {
                let (id, path) = (self.id.clone(), path.clone());
                Ok(self.service.edit(id, path, range, body, encoding, condition).await?.into())
            }
            Location::Remote(backend) => {
                let work = self.service.text_work();
                Ok(backend.edit(path, range, body, encoding, condition, work).await?.into())
            }
        }
    }

    /// Makes replacements in a text: all, or none.
    ///
    /// # Errors
    /// As [`Service::replace`](crate::ops::Service::replace); [`Error::Remote`](crate::ops::Error::Remote).
    pub async fn replace(
        &self,
        path: &RelPath,
        edits: Vec<Replacement>,
        condition: Condition,
    ) -> Result<Written> {
        match &self.location {
            Location::Local { .. } => {
                Ok(self.service.replace(self.id.clone(), path.clone(), edits, condition).await?.into())
            }
            Location::Remote(backend) => {
                Ok(backend.replace(path, edits, condition, self.service.text_work()).await?.into())
            }
        }
    }
}
