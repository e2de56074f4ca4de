//! Edits by line number.

/// Where and how lines are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The text goes before the line.
    InsertBefore,
    /// The text goes after the line.
    InsertAfter,
    /// The text takes the place of this many lines.
    Replace(usize),
    /// This many lines go away.
    Delete(usize),
}

/// Where in a file text is put that belongs to no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before everything.
    Start,
    /// After everything, in a line of its own.
    End,
}

/// Changes lines of `content` at `line`, counted from 1; gives the new content and a summary.
///
/// A final newline is kept, or kept away, and is no line of its own; an empty content is one empty line.
///
/// # Errors
/// The lines are not all there.
pub fn edit_lines(
    content: &str,
    line: usize,
    action: &Action,
    text: &str,
) -> Result<(String, String), String> {
    let (body, end) = content.strip_suffix('\n').map_or((content, ""), |body| (body, "\n"));
    let mut lines: Vec<&str> = body.split('\n').collect();
    let count = match action {
        Action::Replace(count) | Action::Delete(count) => (*count).max(1),
        Action::InsertBefore | Action::InsertAfter => 1,
    };
    if line == 0 {
        return Err("line_number must be positive".to_owned());
    }
    let last = line.saturating_add(count - 1);
    if last > lines.len() {
        let what = if count == 1 { format!("line {line}") } else { format!("line range {line}-{last}") };
        return Err(format!("{what} exceeds total lines {}", lines.len()));
    }
    // A model ends its text with a newline as often as not; that is no further, empty line.
    let text = text.strip_suffix('\n').unwrap_or(text);
    let range = if count == 1 { format!("line {line}") } else { format!("lines {line}-{last}") };
    let summary = match action {
        Action::InsertBefore => {
            lines.insert(line - 1, text);
            format!("Inserted text before line {line}")
        }
        Action::InsertAfter => {
            lines.insert(line, text);
            format!("Inserted text after line {line}")
        }
        Action::Replace(_) => {
            lines.splice(line - 1..last, [text]);
            format!("Replaced {range}")
        }
        Action::Delete(_) => {
            lines.drain(line - 1..last);
            format!("Deleted {range}")
        }
    };
    let joined = lines.join("\n");
    let end = if lines.is_empty() { "" } else { end };
    // An empty file has no newline to keep, and text before its one line makes it two.
    Ok((format!("{joined}{end}"), summary))
}

/// Puts `text` before or after all of `content`, as it is.
#[must_use]
pub fn insert_at(content: &str, position: Position, text: &str) -> (String, String) {
    match position {
        Position::Start => (format!("{text}{content}"), "Inserted text at the start".to_owned()),
        Position::End => {
            let between = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
            (format!("{content}{between}{text}"), "Inserted text at the end".to_owned())
        }
    }
}
