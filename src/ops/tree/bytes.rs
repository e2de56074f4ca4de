//! Reading and writing files as bytes.

use std::fs::File;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use policy::RelPath;
use sandbox::{ReadOptions, WriteMode};
use storage::{Version, WriteOptions};

use super::facts::{Facts, Written};
use super::{Location, Tree};
use crate::ops::admission::reads::Reads;
use crate::ops::error::{Error, Result};
use crate::ops::remote::{self, Backend};
use crate::ops::write::Unwritten;

/// How much of a file a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// A part. Which bytes are meant follows from the facts of the file, for which a backend is asked first.
    Part,
}

/// Which bytes of a file are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the reader has them.
    Nothing,
    /// All.
    All,
    /// These.
    Part(Range<u64>),
}

/// A file that is being read.
pub struct Opened {
    /// Its facts.
    pub facts: Facts,
    /// Which of its bytes are wanted.
    pub wanted: Wanted,
    /// Where they come from.
    pub content: Content,
}

/// Where the wanted bytes of a file come from.
pub enum Content {
    /// They are read from this file.
    File(File, Reads),
    /// They come as these pieces.
    Pieces(BoxStream<'static, io::Result<Bytes>>),
}

impl Tree {
    /// Tells what `path` is, which must be a regular file.
    ///
    /// # Errors
    /// As [`Service::open`](crate::ops::Service::open); [`Error::Remote`].
    pub async fn stat_file(&self, path: &RelPath) -> Result<Facts> {
        match &self.location {
            Location::Local { version } => {
                let opened = self.service.open(self.seen(version), path.clone()).await?;
                Ok(Facts::local(opened.stat, Some(opened.layer)))
            }
            Location::Remote(backend) => Ok(Facts::remote(backend.stat_file(path).await?)),
        }
    }

    /// Opens the file `path`. `choose` says from its facts which bytes are wanted. It may be asked more than once, where the file
    /// can change between a look and a read.
    ///
    /// # Errors
    /// As [`Service::open`](crate::ops::Service::open); [`Error::Remote`]; those of `choose`.
    pub async fn open<E: From<Error>>(
        &self,
        path: &RelPath,
        extent: Extent,
        choose: impl Fn(&Facts) -> Result<Wanted, E>,
    ) -> Result<Opened, E> {
        match &self.location {
            Location::Local { version } => Ok(self.open_here(version, path, choose).await?),
            Location::Remote(backend) => open_remote(backend, path, extent, choose).await,
        }
    }

    async fn open_here<E: From<Error>>(
        &self,
        version: &Option<Version>,
        path: &RelPath,
        choose: impl Fn(&Facts) -> Result<Wanted, E>,
    ) -> Result<Opened, E> {
        let reads = self.service.admission.reads_of(self.id.user());
        let opened = self.service.open(self.seen(version), path.clone()).await?;
        let facts = Facts::local(opened.stat, Some(opened.layer));
        Ok(Opened { wanted: choose(&facts)?, facts, content: Content::File(opened.file, reads) })
    }

    /// Writes the file `path`, whose bytes come as `pieces`: as many as a file may have.
    ///
    /// Whether there was no file before, no backend tells; but one that was to be new is new, and one that was swapped was there.
    ///
    /// # Errors
    /// As [`Service::write`](crate::ops::Service::write); [`Error::Remote`].
    pub async fn write<E: Send + 'static>(
        &self,
        path: &RelPath,
        pieces: impl Stream<Item = Result<Bytes, E>> + Unpin + Send + 'static,
        options: WriteOptions,
    ) -> Result<Written, Unwritten<E>> {
        let limit = self.service.file_limits.raw_bytes;
        let backend = match &self.location {
            Location::Local { .. } => {
                let (id, path) = (self.id.clone(), path.clone());
                return Ok(self.service.write(id, path, pieces, options, limit).await?.into());
            }
            Location::Remote(backend) => backend,
        };
        let mode = backend.mode(path, &options.condition).await?;
        let created = match &mode {
            WriteMode::Replace => None,
            WriteMode::Create => Some(true),
            WriteMode::Swap(_) => Some(false),
        };
        // Above a file that is there nothing is missing.
        if options.parents && created != Some(false) {
            backend.make_parents(path).await?;
        }
        let options = sandbox::WriteOptions { mode, permissions: options.mode };
        let remote::Written { bytes, version } = backend.write(path, pieces, options, limit).await?;
        Ok(Written { size: bytes, etag: version.as_ref().map(remote::tag), created, encoding: None })
    }
}

/// Opens a file that a backend holds.
async fn open_remote<E: From<Error>>(
    backend: &Backend,
    path: &RelPath,
    extent: Extent,
    choose: impl Fn(&Facts) -> Result<Wanted, E>,
) -> Result<Opened, E> {
    let part = match extent {
        Extent::Whole => None,
        Extent::Part => {
            let facts = Facts::remote(backend.stat_file(path).await?);
            match choose(&facts)? {
                Wanted::Nothing => {
                    let content = Content::Pieces(stream::empty().boxed());
                    return Ok(Opened { facts, wanted: Wanted::Nothing, content });
                }
                Wanted::All => None,
                Wanted::Part(range) => Some(range),
            }
        }
    };
    if let Some(range) = part {
        let options = ReadOptions { range: Some(range.clone()), bytes_max: None };
        let opened = backend.open(path, options).await?;
        let facts = Facts::remote(opened.info);
        let wanted = match choose(&facts)? {
            // A file that has grown since the look has this part, too.
            Wanted::Part(_) if !opened.range.is_empty() => Some(Wanted::Part(opened.range)),
            Wanted::Nothing => Some(Wanted::Nothing),
            // It has changed since, and is not the one of which the reader has the rest.
            Wanted::Part(_) | Wanted::All => None,
        };
        if let Some(wanted) = wanted {
            return Ok(Opened { facts, wanted, content: Content::Pieces(opened.pieces) });
        }
    }
    let opened = backend.open(path, ReadOptions::default()).await?;
    let facts = Facts::remote(opened.info);
    let wanted = match choose(&facts)? {
        Wanted::Nothing => Wanted::Nothing,
        // All of it is an answer to a request for a part, too.
        Wanted::All | Wanted::Part(_) => Wanted::All,
    };
    Ok(Opened { facts, wanted, content: Content::Pieces(opened.pieces) })
}
