//! Operations on the files of one tree.

use std::io::Read;

use policy::{RelPath, TreeId};
use storage::text::{self, Lines, Replacement};
use storage::tree::{Child, Opened, Walked};
use storage::{Condition, Layer, Stat, WriteOptions, Written};

use super::error::{Error, Result};
use super::{Service, blocking};

/// Edits in one request.
const EDITS_MAX: usize = 1000;

/// Which lines of a text are meant: 1-based, inclusive, either end open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// First line.
    pub start: Option<u64>,
    /// Last line.
    pub end: Option<u64>,
}

/// A text, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// All of it.
    Whole(String),
    /// Some lines, without their ends.
    Lines {
        /// The lines.
        lines: Vec<String>,
        /// Lines in the whole text.
        total: u64,
        /// The line after the last one given, when there is one.
        next: Option<u64>,
    },
}

impl Service {
    /// Tells what `path` is.
    ///
    /// # Errors
    /// As [`storage::Files::stat`].
    pub async fn stat(&self, id: TreeId, path: RelPath) -> Result<(Stat, Layer)> {
        let files = self.store.files(id);
        blocking(move || Ok(files.stat(&path)?)).await
    }

    /// Opens the file `path`, for its bytes.
    ///
    /// # Errors
    /// As [`storage::Files::open`].
    pub async fn open(&self, id: TreeId, path: RelPath) -> Result<Opened> {
        let files = self.store.files(id);
        if let Some(opened) = files.open_cached(&path) {
            return Ok(opened);
        }
        blocking(move || Ok(files.open(&path)?)).await
    }

    /// Reads a text, whole without a range.
    ///
    /// # Errors
    /// [`storage::Error::NotText`], [`storage::Error::TooLarge`], [`Error::Invalid`] for a line 0.
    pub async fn read_text(
        &self,
        id: TreeId,
        path: RelPath,
        range: LineRange,
    ) -> Result<(Text, Stat, Layer)> {
        let files = self.store.files(id);
        let limit = self.file_limits.text_bytes;
        if range.start == Some(0) || range.end == Some(0) {
            return Err(Error::Invalid("lines are counted from 1".to_owned()));
        }
        if let Some((bytes, stat, layer)) = files.read_cached(&path).filter(|(_, stat, _)| stat.size <= limit)
        {
            let is_whole = range == (LineRange { start: None, end: None });
            let text =
                if is_whole { whole(bytes, &path)? } else { lines(bytes.as_slice(), &path, range, limit)? };
            return Ok((text, stat, layer));
        }
        blocking(move || {
            if range == (LineRange { start: None, end: None }) {
                let (bytes, stat, layer) = files.read_whole(&path, limit)?;
                return Ok((whole(bytes, &path)?, stat, layer));
            }
            let Opened { file, stat, layer } = files.open(&path)?;
            Ok((lines(file, &path, range, limit)?, stat, layer))
        })
        .await
    }

    /// Lists the directory `path`.
    ///
    /// # Errors
    /// As [`storage::Files::list`].
    pub async fn list_dir(&self, id: TreeId, path: RelPath) -> Result<Vec<(Child, Option<Stat>)>> {
        let files = self.store.files(id);
        blocking(move || Ok(files.list(&path)?)).await
    }

    /// Walks the directory `path`, sorted by path.
    ///
    /// # Errors
    /// As [`storage::Files::walk`].
    pub async fn walk(&self, id: TreeId, path: RelPath, depth: usize, look: bool) -> Result<Vec<Walked>> {
        let files = self.store.files(id);
        blocking(move || Ok(files.walk(&path, depth, look)?)).await
    }

    /// Replaces a text, or some of its lines.
    ///
    /// # Errors
    /// As [`storage::Files::update`] and [`text::edit_lines`].
    pub async fn edit(
        &self,
        id: TreeId,
        path: RelPath,
        range: LineRange,
        body: String,
        condition: Condition,
    ) -> Result<Written> {
        let files = self.store.files(id);
        let limit = self.file_limits.text_bytes;
        let options = WriteOptions { condition, parents: true, mode: None };
        blocking(move || {
            if range == (LineRange { start: None, end: None }) {
                let mut staged = files.stage()?;
                staged.write(body.as_bytes())?;
                return Ok(files.write(&path, staged, &options)?);
            }
            Ok(files.update(&path, &options, limit, &mut |text| {
                text::edit_lines(text.unwrap_or_default(), path.as_str(), range.start, range.end, &body)
            })?)
        })
        .await
    }

    /// Makes replacements in a text: all, or none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no edits, too many, or an empty old text; as [`storage::Files::update`] and
    /// [`text::replace`].
    pub async fn replace(
        &self,
        id: TreeId,
        path: RelPath,
        edits: Vec<Replacement>,
        condition: Condition,
    ) -> Result<Written> {
        if edits.is_empty() || edits.len() > EDITS_MAX {
            return Err(Error::Invalid(format!("send 1 to {EDITS_MAX} edits")));
        }
        for (index, edit) in edits.iter().enumerate() {
            if edit.old.is_empty() {
                return Err(Error::Invalid(format!(
                    "edit {index}: `old_string` is empty: send the text to replace"
                )));
            }
            if edit.expected == 0 {
                return Err(Error::Invalid(format!(
                    "edit {index}: `expected_replacements` is 0: send 1 or more"
                )));
            }
        }
        let files = self.store.files(id);
        let limit = self.file_limits.text_bytes;
        let options = WriteOptions { condition, parents: false, mode: None };
        blocking(move || {
            Ok(files.update(&path, &options, limit, &mut |text| match text {
                Some(text) => text::replace(text, path.as_str(), &edits, limit),
                None => Err(storage::Error::NotFound(path.to_string())),
            })?)
        })
        .await
    }

    /// Makes the directory `path`. Tells whether it was not there.
    ///
    /// # Errors
    /// As [`storage::Files::make_dir`].
    pub async fn make_dir(&self, id: TreeId, path: RelPath, mode: u32, parents: bool) -> Result<bool> {
        let files = self.store.files(id);
        blocking(move || Ok(files.make_dir(&path, mode, parents)?)).await
    }

    /// Renames `from` to `to`.
    ///
    /// # Errors
    /// As [`storage::Files::rename`].
    pub async fn rename(
        &self,
        id: TreeId,
        from: RelPath,
        to: RelPath,
        overwrite: bool,
        condition: Condition,
    ) -> Result<()> {
        let files = self.store.files(id);
        blocking(move || Ok(files.rename(&from, &to, overwrite, &condition)?)).await
    }

    /// Removes `path`.
    ///
    /// # Errors
    /// As [`storage::Files::remove`].
    pub async fn remove(
        &self,
        id: TreeId,
        path: RelPath,
        recursive: bool,
        condition: Condition,
    ) -> Result<()> {
        let files = self.store.files(id);
        blocking(move || Ok(files.remove(&path, recursive, &condition)?)).await
    }
}

fn whole(bytes: Vec<u8>, path: &RelPath) -> Result<Text> {
    let text = String::from_utf8(bytes).map_err(|_| storage::Error::NotText(path.to_string()))?;
    Ok(Text::Whole(text))
}

fn lines(from: impl Read, path: &RelPath, range: LineRange, limit: u64) -> Result<Text> {
    let (start, end) = (range.start.unwrap_or(1), range.end.unwrap_or(u64::MAX));
    let Lines { lines, total } = text::read_lines(from, path.as_str(), start, end, limit)?;
    let next = end.checked_add(1).filter(|next| *next <= total && *next > start);
    Ok(Text::Lines { lines, total, next })
}
