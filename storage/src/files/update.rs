//! [`Files::update`]: a change of the content of a text file.

use std::borrow::Cow;

use policy::RelPath;

use super::{Condition, Files, WriteOptions, Written};
use crate::encoding::{self, TextEncoding};
use crate::error::{Error, Result};

/// How often a change of a file is worked out again when a command changes the file meanwhile.
const UPDATE_TRIES: usize = 8;

impl Files {
    /// Changes the content of a text file in one step: no change by another request comes between.
    ///
    /// `change` gets the text (`None` when there is no file) and returns the new one; it is called again when a
    /// command changed the file meanwhile. The text is written in the encoding that it was in.
    ///
    /// # Errors
    /// The error of `change`; [`Error::NotText`], [`Error::TooLarge`] beyond `limit` bytes before or after;
    /// [`Error::Unencodable`]; [`Error::Stale`]; [`Error::Conflict`] when commands keep changing the file; else as [`Tree::put`](crate::layers::tree::Tree::put).
    pub fn update(
        &self,
        path: &RelPath,
        options: &WriteOptions,
        limit: u64,
        change: &mut dyn FnMut(Option<&str>) -> Result<String>,
    ) -> Result<(Written, TextEncoding)> {
        let _alone = self.store.locks().file(&self.id, path);
        for _ in 0..UPDATE_TRIES {
            let cached = self.read_cached(path).filter(|(_, stat, _)| stat.size <= limit);
            let before = match cached.map_or_else(|| self.read_whole(path, limit), Ok) {
                Ok((bytes, stat, _)) => {
                    let decoded = encoding::decode(bytes).ok_or_else(|| Error::NotText(path.to_string()))?;
                    Some((decoded, stat))
                }
                Err(Error::NotFound(_)) => None,
                Err(other) => return Err(other),
            };
            let stat = before.as_ref().map(|(_, stat)| stat);
            options.condition.check(path, stat)?;
            let encoding = before.as_ref().map(|((_, encoding), _)| *encoding).unwrap_or_default();
            let text = change(before.as_ref().map(|((text, _), _)| text.as_str()))?;
            let bytes = encode(&text, encoding, path.as_str())?;
            if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
                return Err(Error::TooLarge { what: format!("`{path}` after the change"), limit });
            }
            let mut file = self.stage()?;
            file.write(&bytes)?;
            if let Some(mode) = options.mode.or(stat.map(|stat| stat.mode)) {
                file.set_mode(mode)?;
            }
            file.finish()?;
            let unchanged = match stat {
                Some(stat) => Condition::Matches(vec![stat.etag()]),
                None => Condition::Missing,
            };
            match self.place(path, file, &WriteOptions { condition: unchanged, ..options.clone() }) {
                Err(Error::Stale { .. }) => {}
                placed => return placed.map(|written| (written, encoding)),
            }
        }
        Err(Error::Conflict(format!(
            "`{path}` keeps changing: try again when the command that writes it is done"
        )))
    }
}

/// Writes `text` as the file `path` has it in `encoding`.
///
/// # Errors
/// [`Error::Unencodable`] for a character that the encoding lacks.
pub fn encode<'t>(text: &'t str, encoding: TextEncoding, path: &str) -> Result<Cow<'t, [u8]>> {
    encoding::encode(text, encoding).map_err(|lacking| Error::unencodable(path, lacking))
}
