//! [`Word`]: an argument or a word of a script, and where each of its bytes was written.

use std::ops::Range;

/// A replacement of some bytes of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The bytes replaced.
    pub(crate) range: Range<usize>,
    /// The text that stands there instead.
    pub(crate) text: String,
}

/// The edits of a command's words, each with the [`Word::index`] it belongs to.
pub(crate) type Edits = Vec<(usize, Edit)>;

/// How a byte of a script's word was quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    /// Not quoted, or by a backslash.
    Bare,
    /// `'…'`
    Single,
    /// `"…"`
    Double,
    /// `$'…'`
    Ansi,
}

/// Where one byte of a word was written in the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) quote: Quote,
}

/// One word of a command after the shell's quoting is undone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Word {
    /// The text; [`super::refusal::UNKNOWN`] stands for what only the running shell knows.
    pub(crate) text: String,
    /// Its place among the words of its command.
    pub(crate) index: usize,
    /// It holds a pattern that the shell expands to the names of files.
    pub(crate) is_pattern: bool,
    /// It holds a quote, a backslash or an expansion, so it is no reserved word.
    pub(crate) is_quoted: bool,
    /// One entry per byte of `text`; empty for an argument that no shell reads.
    pub(crate) origins: Vec<Origin>,
}

impl Word {
    /// An argument that reaches its command as it is.
    pub(crate) fn argument(index: usize, text: &str) -> Self {
        Self { text: text.to_owned(), index, ..Self::default() }
    }

    /// Adds `character`, written as the bytes `start..end` of the script.
    pub(crate) fn push(&mut self, character: char, start: usize, end: usize, quote: Quote) {
        self.text.push(character);
        self.origins.push(Origin { start, end, quote });
        // A character of several bytes is replaced whole, by the entry of its first byte.
        for _ in 1..character.len_utf8() {
            self.origins.push(Origin { start: end, end, quote });
        }
    }

    /// Turns an edit of this word into edits of the script it was read from, quoted as the word is.
    pub(crate) fn trace(&self, edit: &Edit, edits: &mut Vec<Edit>) {
        let mut text = Some(edit.text.as_str());
        for origin in self.origins.get(edit.range.clone()).unwrap_or_default() {
            let text = text.take().map(|text| quoted(text, origin.quote)).unwrap_or_default();
            match edits.last_mut() {
                Some(last) if last.range.end == origin.start && text.is_empty() => {
                    last.range.end = origin.end
                }
                _ => edits.push(Edit { range: origin.start..origin.end, text }),
            }
        }
    }
}

/// Spells `text` so that a shell reads exactly it inside `quote`.
fn quoted(text: &str, quote: Quote) -> String {
    let mut spelled = String::with_capacity(text.len());
    for character in text.chars() {
        match quote {
            Quote::Bare if character.is_ascii() && !is_plain(character) => spelled.push('\\'),
            Quote::Double if matches!(character, '$' | '`' | '"' | '\\') => spelled.push('\\'),
            Quote::Ansi if matches!(character, '\'' | '\\') => spelled.push('\\'),
            Quote::Single if character == '\'' => spelled.push_str("'\\'"),
            _ => {}
        }
        spelled.push(character);
    }
    spelled
}

/// Characters that mean nothing to a shell.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '/' | '.' | '_' | '-' | ':' | '@' | '%' | '+' | ',')
}

/// `text` with `edits` made; they may come in any order and do not overlap.
pub(crate) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.range.start);
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        if edit.range.start < done {
            continue;
        }
        result.push_str(text.get(done..edit.range.start).unwrap_or_default());
        result.push_str(&edit.text);
        done = edit.range.end;
    }
    result.push_str(text.get(done..).unwrap_or_default());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_made_in_the_order_of_the_text() {
        let edit = |range, text: &str| Edit { range, text: text.to_owned() };
        assert_eq!(edited("abcdef", vec![edit(4..5, "E"), edit(0..2, "")]), "cdEf");
        assert_eq!(edited("abc", Vec::new()), "abc");
    }

    #[test]
    fn a_replacement_keeps_its_meaning_in_every_kind_of_quote() {
        assert_eq!(quoted("/a b'中$x", Quote::Bare), "/a\\ b\\'中\\$x");
        assert_eq!(quoted("/a b'c", Quote::Single), "/a b'\\''c");
        assert_eq!(quoted("/a \"$x\"", Quote::Double), "/a \\\"\\$x\\\"");
        assert_eq!(quoted("/a'\\", Quote::Ansi), "/a\\'\\\\");
    }
}
