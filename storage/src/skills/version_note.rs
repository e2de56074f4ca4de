//! [`VersionNote`]: what a publisher says about a version: its title, and a message.

use thiserror::Error;

use crate::dir::Dir;
use crate::error::Result;

/// Longest title of a version, in bytes.
pub const TITLE_BYTES_MAX: usize = 128;
/// Longest message about a version, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// The extended attribute of a published tree that has its note: the title, a newline, the message.
const ATTRIBUTE: &str = "user.filesecbox.note";

/// A publisher's title and message for a version. Neither has a control character, nor is it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionNote {
    title: Option<String>,
    message: Option<String>,
}

/// A text that is no title or message of a version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoteError {
    /// It is too long.
    #[error("`{what}` has more than {limit} bytes")]
    TooLong {
        /// `title` or `message`.
        what: &'static str,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// It has a character that moves the cursor, or changes the direction of text.
    #[error("`{0}` has a control or text-reordering character: send one line of text")]
    Control(&'static str),
}

impl VersionNote {
    /// Reads both texts; an empty one is none.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn new(title: Option<String>, message: Option<String>) -> Result<Self, NoteError> {
        Ok(Self {
            title: checked("title", title, TITLE_BYTES_MAX)?,
            message: checked("message", message, MESSAGE_BYTES_MAX)?,
        })
    }

    /// The title.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Tells whether neither text is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.title.is_none() && self.message.is_none()
    }

    /// Writes it on the tree itself, which is not changed any more.
    pub(crate) fn mark(&self, tree: &Dir) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let text = format!("{}\n{}", self.title().unwrap_or_default(), self.message().unwrap_or_default());
        tree.set_attribute(ATTRIBUTE, text.as_bytes())
    }

    /// The note on a tree; an empty one where none was written.
    pub(crate) fn of(tree: &Dir) -> Result<Self> {
        let text = tree.attribute(ATTRIBUTE)?.and_then(|value| String::from_utf8(value).ok());
        let texts = text.as_deref().and_then(|text| text.split_once('\n'));
        let note = texts.map(|(title, message)| Self::new(Some(title.into()), Some(message.into())));
        Ok(note.and_then(Result::ok).unwrap_or_default())
    }
}

fn checked(what: &'static str, text: Option<String>, limit: usize) -> Result<Option<String>, NoteError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > limit {
        return Err(NoteError::TooLong { what, limit });
    }
    if text.chars().any(|character| character.is_control() || reorders(character)) {
        return Err(NoteError::Control(what));
    }
    Ok(Some(text))
}

/// Characters that change the direction of text, or end a line.
fn reorders(character: char) -> bool {
    matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::ATTRIBUTE_BYTES_MAX;

    #[test]
    fn a_note_on_a_tree_is_read_as_it_was_written() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        assert!(VersionNote::of(&dir).unwrap().is_empty());
        for (title, message) in [(Some("标题"), None), (None, Some("why")), (Some("a"), Some("b\"\\"))] {
            let note = VersionNote::new(title.map(str::to_owned), message.map(str::to_owned)).unwrap();
            note.mark(&dir).unwrap();
            assert_eq!(VersionNote::of(&dir).unwrap(), note);
        }
        let longest = VersionNote::new(Some("t".repeat(128)), Some("m".repeat(1024))).unwrap();
        longest.mark(&dir).unwrap();
        assert_eq!(VersionNote::of(&dir).unwrap(), longest);
        const { assert!(TITLE_BYTES_MAX + 1 + MESSAGE_BYTES_MAX <= ATTRIBUTE_BYTES_MAX) };
    }

    #[test]
    fn a_note_is_short_and_one_line() {
        let new = |title: &str, message: &str| VersionNote::new(Some(title.into()), Some(message.into()));
        assert!(new("", "").unwrap().is_empty());
        let too_long = |what, limit| Err(NoteError::TooLong { what, limit });
        assert_eq!(new(&"t".repeat(129), ""), too_long("title", 128));
        assert_eq!(new("", &"m".repeat(1025)), too_long("message", 1024));
        for wrong in ["a\nb", "\u{1b}[2J", "\u{202e}x", "\0", "\u{85}", "\u{2028}"] {
            assert_eq!(new("", wrong), Err(NoteError::Control("message")), "{wrong:?}");
        }
    }
}
