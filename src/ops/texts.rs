//! Parts of texts: which lines are meant, how they are read, and what an edit may say.

use std::io::Read;

use policy::RelPath;
use storage::encoding::{self, TextEncoding};
use storage::text::{self, Lines, Replacement};
use storage::tree::Opened;
use storage::{Files, Layer, Stat};

use super::error::{Error, Result};

/// Edits in one request.
pub const EDITS_MAX: usize = 1000;

/// Which lines of a text are meant: 1-based, inclusive, either end open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// First line.
    pub start: Option<u64>,
    /// Last line.
    pub end: Option<u64>,
}

impl LineRange {
    /// The whole text.
    pub const ALL: Self = Self { start: None, end: None };
}

/// A text that takes the place of a file's, or of some of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewText {
    /// The lines that it takes the place of.
    pub range: LineRange,
    /// The text.
    pub text: String,
    /// How a whole one is to lie on the disk; `None` keeps the encoding of the file.
    pub encoding: Option<TextEncoding>,
}

/// The part that was read of a text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalText {
    /// The text.
    pub text: Text,
    /// How it lies on the disk.
    pub encoding: TextEncoding,
    /// The facts of the file.
    pub stat: Stat,
    /// Which layer it comes from.
    pub layer: Layer,
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

/// Reads a text from the disk, whole without a range.
pub(super) fn read_from(files: &Files, path: &RelPath, range: LineRange, limit: u64) -> Result<LocalText> {
    if range != LineRange::ALL {
        let Opened { file, stat, layer } = files.open(path)?;
        // Bytes that are added during the read belong to the next text.
        let utf8 = lines(file.take(stat.size), path, range, limit);
        let is_utf8 = utf8.as_ref().is_ok_and(|(_, is_utf8)| *is_utf8);
        if is_utf8 || stat.size > limit {
            return Ok(LocalText { text: utf8?.0, encoding: TextEncoding::Utf8, stat, layer });
        }
        // Only a whole text tells which encoding it is in.
    }
    let (bytes, stat, layer) = files.read_whole(path, limit)?;
    let (text, encoding) = part(bytes, path, range, limit)?;
    Ok(LocalText { text, encoding, stat, layer })
}

/// Lines that can be read are counted from 1.
pub(super) fn check_range(range: LineRange) -> Result<()> {
    if range.start == Some(0) || range.end == Some(0) {
        return Err(Error::Invalid("lines are counted from 1".to_owned()));
    }
    Ok(())
}

/// An encoding is that of a whole text.
pub(super) fn check_encoding(new: &NewText) -> Result<()> {
    if new.encoding.is_some() && new.range != LineRange::ALL {
        let reason = "`encoding` goes with a whole text: lines keep the encoding of their file";
        return Err(Error::Invalid(reason.to_owned()));
    }
    Ok(())
}

/// Some edits, and each of something.
pub(super) fn check_edits(edits: &[Replacement]) -> Result<()> {
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
    Ok(())
}

/// The text that `bytes` are, or the lines of it that are asked for.
pub(super) fn part(
    bytes: Vec<u8>,
    path: &RelPath,
    range: LineRange,
    limit: u64,
) -> Result<(Text, TextEncoding)> {
    if range == LineRange::ALL {
        let decoded = encoding::decode(bytes).ok_or_else(|| storage::Error::NotText(path.to_string()));
        return Ok(decoded.map(|(text, encoding)| (Text::Whole(text), encoding))?);
    }
    if std::str::from_utf8(&bytes).is_ok() {
        return Ok((lines(bytes.as_slice(), path, range, limit)?.0, TextEncoding::Utf8));
    }
    match encoding::decode(bytes.clone()) {
        Some((text, encoding)) => Ok((lines(text.as_bytes(), path, range, limit)?.0, encoding)),
        // Lines that are text can be read although others are not.
        None => Ok((lines(bytes.as_slice(), path, range, limit)?.0, TextEncoding::Utf8)),
    }
}

/// The lines asked for, and whether all lines are UTF-8.
fn lines(from: impl Read, path: &RelPath, range: LineRange, limit: u64) -> Result<(Text, bool)> {
    let (start, end) = (range.start.unwrap_or(1), range.end.unwrap_or(u64::MAX));
    let Lines { lines, total, is_utf8 } = text::read_lines(from, path.as_str(), start, end, limit)?;
    let next = end.checked_add(1).filter(|next| *next <= total && *next > start);
    Ok((Text::Lines { lines, total, next }, is_utf8))
}
