//! Requests about files that need one answer.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandbox::wire::request::{MkdirAll, WriteFile};
use sandbox::wire::response::{DirEntries, Failed, FileContent};
use sandbox::wire::{Data, ONE_FRAME_BYTES_MAX, Response};
use sandbox::{ByteStream, ErrorKind, ReadOptions, WriteMode, WriteOptions};

use super::{Machine, told};

/// Entries of a directory in one frame, when it may be several.
const ENTRIES_A_PART: usize = 2_000;
/// The permission bits that count.
const BITS: u32 = 0o777;
/// The permission bits of a directory for which none are told.
const DIRECTORY: u32 = 0o755;

type Answer = Result<Response, Failed>;

impl Machine {
    pub(super) async fn read_file(&self, path: &str) -> Answer {
        let path = self.path(path)?;
        let options = ReadOptions { range: None, bytes_max: Some(ONE_FRAME_BYTES_MAX) };
        let body =
            self.sandbox.read_file(&self.user, &path, options).await.map_err(|error| Failed::of(&error))?;
        let data = Data(body.bytes().await.map_err(|error| Failed::of(&error))?);
        Ok(Response::FileContent(FileContent { data, last: false }))
    }

    pub(super) async fn write_file(&self, asked: WriteFile) -> Answer {
        let path = self.path(&asked.path)?;
        // A file that is there keeps its bits, as with every founding runner: services send some for new files always.
        let is_there = self.sandbox.stat(&self.user, &path).await.is_ok();
        let permissions = Some(asked.perm & BITS).filter(|bits| *bits != 0 && !is_there);
        let options = WriteOptions { mode: WriteMode::Replace, permissions };
        let written = self.sandbox.write_file(&self.user, &path, once(asked.data.0), options).await;
        done(written.map(drop))
    }

    pub(super) async fn stat(&self, path: &str) -> Answer {
        let found =
            self.sandbox.stat(&self.user, &self.path(path)?).await.map_err(|error| Failed::of(&error))?;
        Ok(Response::FileInfo(told::info(&found, self)))
    }

    pub(super) async fn read_dir(&self, path: &str, id: Option<&str>) -> Answer {
        let path = self.path(path)?;
        let found = self.sandbox.read_dir(&self.user, &path).await.map_err(|error| Failed::of(&error))?;
        let mut entries: Vec<_> = found.into_iter().map(|entry| told::entry(entry, self.is_exact)).collect();
        while self.is_exact && entries.len() > ENTRIES_A_PART {
            let rest = entries.split_off(ENTRIES_A_PART);
            self.answers.say(id, &Response::DirPart(DirEntries { entries })).await;
            entries = rest;
        }
        Ok(Response::DirEntries(DirEntries { entries }))
    }

    pub(super) async fn mkdir_all(&self, asked: &MkdirAll) -> Answer {
        let path = self.path(&asked.path)?;
        let permissions = Some(asked.perm & BITS).filter(|bits| *bits != 0).unwrap_or(DIRECTORY);
        let made = self.sandbox.mkdir_all(&self.user, &path, permissions).await;
        match made {
            // Something else is there, at the path itself: to founding services, the path is taken.
            Err(error)
                if error.kind() == ErrorKind::NotADirectory
                    && self.sandbox.stat(&self.user, &path).await.is_ok() =>
            {
                Err(Failed { code: "EEXIST".to_owned(), ..Failed::of(&error) })
            }
            made => done(made),
        }
    }

    pub(super) async fn remove(&self, path: &str) -> Answer {
        done(self.sandbox.remove(&self.user, &self.path(path)?).await)
    }

    pub(super) async fn remove_all(&self, path: &str) -> Answer {
        done(self.sandbox.remove_all(&self.user, &self.path(path)?).await)
    }
}

pub(super) fn done(result: sandbox::Result<()>) -> Answer {
    result.map(|()| Response::Ok).map_err(|error| Failed::of(&error))
}

pub(super) fn once(bytes: Bytes) -> ByteStream {
    stream::once(async { Ok(bytes) }).boxed()
}
