//! Variables that a script exports, as far as its text says so.

use std::collections::BTreeMap;

/// The assignments `NAME=value` of the `export` commands that begin a line of `script`, in order.
///
/// Values are without their quotes. A command is read up to `;`, `&` or `|`; an assignment whose quote is never closed
/// ends it and is left out. What a shell would put in for `$NAME` is not put in.
#[must_use]
pub fn exports(script: &str) -> Vec<String> {
    let commands = script.lines().filter_map(|line| line.trim_start().strip_prefix("export"));
    commands.filter(|rest| rest.starts_with([' ', '\t'])).flat_map(assignments).collect()
}

/// The variables of a text with one `NAME=value`, or `export NAME=value`, a line; later ones win.
#[must_use]
pub fn parse_environment(text: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for line in text.lines() {
        let mut line = line.trim();
        while let Some(rest) = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])) {
            line = rest.trim_start();
        }
        for assignment in assignments(line) {
            if let Some((name, value)) = assignment.split_once('=') {
                variables.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    variables
}

/// The words of a command that are assignments.
fn assignments(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = command.chars().peekable();
    loop {
        while rest.next_if(|next| next.is_whitespace()).is_some() {}
        let (mut word, mut quote, mut is_end) = (String::new(), None, true);
        while let Some(next) = rest.peek().copied() {
            match quote {
                None if next.is_whitespace() => break,
                None if matches!(next, ';' | '&' | '|' | '#') && (next != '#' || word.is_empty()) => break,
                _ => {}
            }
            is_end = false;
            rest.next();
            match (quote, next) {
                (None, '\'' | '"') => quote = Some(next),
                (Some(open), close) if open == close => quote = None,
                (None | Some('"'), '\\') => match rest.next() {
                    // Between double quotes a backslash is itself but before these.
                    Some(escaped) if quote.is_none() || matches!(escaped, '"' | '\\' | '$' | '`') => {
                        word.push(escaped)
                    }
                    Some(other) => word.extend(['\\', other]),
                    None => {}
                },
                (_, other) => word.push(other),
            }
        }
        if is_end || quote.is_some() {
            return found;
        }
        if word.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            found.push(word);
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_word = |character: char| character == '_' || character.is_ascii_alphanumeric();
    name.chars().all(is_word) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}
