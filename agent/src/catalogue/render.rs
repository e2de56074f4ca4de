//! Text for a prompt that cannot end its element.

use crate::text::truncate;

/// Longest text of one element, in characters.
pub(super) const CHARACTERS_MAX: usize = 1024;

/// One line `<name>text</name>` at a depth of two steps.
pub(super) fn element(name: &str, text: &str) -> String {
    format!("    <{name}>{}</{name}>\n", escaped(text))
}

/// `text` as it can stand in an element: in one line, without markup.
fn escaped(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let mut to = String::new();
    for character in truncate(&words.join(" "), CHARACTERS_MAX).chars() {
        match character {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&#39;"),
            other => to.push(other),
        }
    }
    to
}
