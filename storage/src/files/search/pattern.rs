//! [`Patterns`]: what a pattern for paths means. One meaning everywhere a pattern is taken.

use std::iter::Peekable;
use std::str::Chars;

use policy::PathError;
use regex::{RegexSet, RegexSetBuilder};

use crate::error::{Error, Result};

/// Longest pattern, in bytes.
pub(super) const PATTERN_BYTES_MAX: usize = 1024;
/// Braces within braces.
const NESTING_MAX: usize = 8;
/// The memory of the compiled patterns of a list, in bytes.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Patterns in one list.
pub const PATTERNS_MAX: usize = 64;

/// Patterns in the manner of `.gitignore` (gitignore(5)), for paths relative to where a search begins.
///
/// * `*` and `?` match anything within a segment, `**` any number of segments, `[a-z]` and `[!a-z]` one character,
///   `{a,b}` either; `\` takes a character as it is.
/// * Without a `/`, a pattern matches at any depth; with one, from where the search begins, and a leading `/` only says
///   so. A final `/` stands for everything in directories of the name.
/// * There is no negation, and no `..`.
#[derive(Clone, Debug)]
pub struct Patterns {
    set: RegexSet,
    names_hidden: bool,
}

impl Patterns {
    /// Reads a list of patterns.
    ///
    /// # Errors
    /// [`Error::Pattern`]; [`Error::Path`] for a pattern with a `..` segment.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self> {
        if patterns.len() > PATTERNS_MAX {
            let reason = format!("there are {} patterns: send at most {PATTERNS_MAX}", patterns.len());
            return Err(Error::Pattern { pattern: "…".to_owned(), reason });
        }
        let mut expressions = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            expressions.push(expression(pattern.as_ref())?);
        }
        let set = RegexSetBuilder::new(&expressions).size_limit(COMPILED_BYTES_MAX).build();
        let first = patterns.first().map_or("", AsRef::as_ref);
        let set = set.map_err(|_| {
            refused(first, "together with the others it takes too much: send fewer, simpler ones")
        })?;
        let names_hidden = patterns.iter().any(|pattern| begins_with_dot(pattern.as_ref()));
        Ok(Self { set, names_hidden })
    }

    /// Tells whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Tells whether `path` matches one of them.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.set.is_match(path)
    }

    /// Tells whether one of them spells out a name that begins with a dot.
    #[must_use]
    pub fn names_hidden(&self) -> bool {
        self.names_hidden
    }
}

fn refused(pattern: &str, reason: impl ToString) -> Error {
    Error::Pattern { pattern: pattern.chars().take(80).collect(), reason: reason.to_string() }
}

/// The regular expression for whole paths that a pattern stands for.
fn expression(pattern: &str) -> Result<String> {
    if pattern.is_empty() {
        return Err(refused(pattern, "it is empty"));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(refused(pattern, format!("it has more than {PATTERN_BYTES_MAX} bytes")));
    }
    if pattern.contains('\0') {
        return Err(refused(pattern, "it has a NUL character"));
    }
    if pattern.starts_with('!') {
        return Err(refused(pattern, "there is no negation: leave it out, or send it in `exclude`"));
    }
    if pattern.split('/').any(|segment| segment == "..") {
        return Err(PathError::Parent(pattern.to_owned()).into());
    }
    let (body, within) = match pattern.strip_suffix('/') {
        Some(body) => (body, "/.+"),
        None => (pattern, ""),
    };
    let (body, is_rooted) = match body.strip_prefix('/') {
        Some(body) => (body, true),
        None => (body, body.contains('/')),
    };
    let at_any_depth = if is_rooted { "" } else { "(?:[^/]+/)*" };
    let translated = Translation::of(body).map_err(|reason| refused(pattern, reason))?;
    Ok(format!("(?s)^{at_any_depth}(?:{translated}){within}$"))
}

/// A pattern on its way to a regular expression.
struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    /// The character before the next one; `/` at the beginning.
    before: char,
    nesting: usize,
    to: String,
}

impl<'a> Translation<'a> {
    /// Translates a whole pattern, or says what is wrong with it.
    fn of(pattern: &'a str) -> Result<String, &'static str> {
        let mut translation =
            Self { rest: pattern.chars().peekable(), before: '/', nesting: 0, to: String::new() };
        while let Some(character) = translation.rest.next() {
            translation.character(character)?;
        }
        if translation.nesting > 0 {
            return Err("a `{` is never closed");
        }
        Ok(translation.to)
    }

    fn character(&mut self, character: char) -> Result<(), &'static str> {
        let before = std::mem::replace(&mut self.before, character);
        match character {
            '\\' => {
                let literal = self.rest.next().ok_or("a `\\` at its end stands before nothing")?;
                self.literal(literal);
            }
            '*' => self.stars(before),
            '?' => self.to.push_str("[^/]"),
            '[' => self.class()?,
            '{' => {
                self.nesting += 1;
                if self.nesting > NESTING_MAX {
                    return Err("its braces are nested too deep");
                }
                self.to.push_str("(?:");
            }
            ',' if self.nesting > 0 => self.to.push('|'),
            '}' if self.nesting > 0 => {
                self.nesting -= 1;
                self.to.push(')');
            }
            '}' => return Err("a `}` was never opened"),
            literal => self.literal(literal),
        }
        Ok(())
    }

    fn literal(&mut self, character: char) {
        self.to.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
    }

    /// One star, or two that are a whole segment; two stars elsewhere are as one.
    fn stars(&mut self, before: char) {
        let mut count = 1;
        while self.rest.next_if_eq(&'*').is_some() {
            count += 1;
        }
        let begins = matches!(before, '/' | '{' | ',');
        match self.rest.peek() {
            Some('/') if count == 2 && begins => {
                self.before = self.rest.next().unwrap_or('/');
                self.to.push_str("(?:[^/]+/)*");
            }
            None | Some('}' | ',') if count == 2 && begins => self.to.push_str(".+"),
            _ => self.to.push_str("[^/]*"),
        }
    }

    /// The text between brackets. It never holds a `/`.
    fn class(&mut self) -> Result<(), &'static str> {
        const OPEN: &str = "a `[` is never closed";
        let is_negated = self.rest.next_if(|next| matches!(next, '!' | '^')).is_some();
        let mut members = String::new();
        let mut next = self.rest.next().ok_or(OPEN)?;
        loop {
            let first = if next == '\\' { self.rest.next().ok_or(OPEN)? } else { next };
            let mut last = first;
            if self.rest.next_if_eq(&'-').is_some() {
                match self.rest.next().ok_or(OPEN)? {
                    // A hyphen before the end stands for itself.
                    ']' => {
                        members.push_str(&class_range(first, first));
                        members.push_str(&class_range('-', '-'));
                        break;
                    }
                    '\\' => last = self.rest.next().ok_or(OPEN)?,
                    end => last = end,
                }
            }
            if last < first {
                return Err("a range in brackets ends before it begins");
            }
            members.push_str(&class_range(first, last));
            next = self.rest.next().ok_or(OPEN)?;
            if next == ']' {
                break;
            }
        }
        let negation = if is_negated { "^" } else { "" };
        self.to.push_str(&format!("[[{negation}{members}]&&[^/]]"));
        Ok(())
    }
}

fn class_range(first: char, last: char) -> String {
    format!("\\x{{{:X}}}-\\x{{{:X}}}", u32::from(first), u32::from(last))
}

/// Tells whether a segment begins with a dot, also one within braces.
fn begins_with_dot(pattern: &str) -> bool {
    let before = std::iter::once('/').chain(pattern.chars());
    before
        .zip(pattern.chars())
        .any(|(before, character)| character == '.' && matches!(before, '/' | '{' | ',' | '\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Patterns::new(&[pattern]).unwrap().matches(path)
    }

    #[test]
    fn a_pattern_without_a_slash_matches_at_any_depth_and_with_one_from_the_beginning() {
        for (pattern, path, expected) in [
            ("*.py", "a.py", true),
            ("*.py", "src/deep/a.py", true),
            ("*.py", "a.pyc", false),
            ("/*.py", "a.py", true),
            ("/*.py", "src/a.py", false),
            ("src/*.py", "src/a.py", true),
            ("src/*.py", "src/deep/a.py", false),
            ("src/*.py", "other/src/a.py", false),
            ("src/**/*.py", "src/a.py", true),
            ("src/**/*.py", "src/x/y/a.py", true),
            ("**/a.py", "a.py", true),
            ("src/**", "src/x/y", true),
            ("src/**", "src", false),
            ("src/", "src/x/y", true),
            ("src/", "lib/src/x", true),
            ("src/", "src", false),
            ("*", "x/y", true),
            ("**", "x/y", true),
            ("{a,b/c}.txt", "b/c.txt", true),
            ("*.{md,txt}", "文档/说明.md", true),
            ("说?.md", "文档/说明.md", true),
            ("[!a].md", "b.md", true),
            ("[!a].md", "a.md", false),
            ("x[!a]y", "x/y", false),
            ("x[^a]y", "z/x/y", false),
            ("/x[+-9]y", "x/y", false),
            ("[数-文].md", "文.md", true),
            ("[]-]x", "]x", true),
            ("[a\\]]x", "]x", true),
            ("[a-]x", "-x", true),
            ("{**/x,y}.py", "a/b/x.py", true),
            ("/{**/x,y}.py", "z/y.py", false),
            ("a**b", "axb", true),
            ("a**b", "a/b", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "ab", false),
            ("a/**/**/b", "a/x/b", true),
            ("x{,.bak}", "x", true),
            ("x{,.bak}", "x.bak", true),
            ("a.c", "abc", false),
            ("(a|b)+", "a", false),
            ("a,b", "a,b", true),
            ("x?y", "x/y", false),
            ("\\*.md", "*.md", true),
            ("\\*.md", "a.md", false),
            ("a b", "a b", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_pattern_that_means_nothing_is_refused_with_a_reason() {
        let long = "x".repeat(PATTERN_BYTES_MAX + 1);
        for pattern in ["", "[", "[]", "[z-a]", "{a", "a}", "a\\", "!a", "a\0b", "{{{{{{{{{a", long.as_str()]
        {
            let refused = Patterns::new(&[pattern]);
            assert!(matches!(refused, Err(Error::Pattern { .. })), "{pattern}: {refused:?}");
        }
        assert!(matches!(Patterns::new(&["a/../b"]), Err(Error::Path(_))));
        assert!(matches!(Patterns::new(&vec!["a"; PATTERNS_MAX + 1]), Err(Error::Pattern { .. })));
    }

    #[test]
    fn a_pattern_that_spells_a_dot_names_hidden_entries() {
        let hidden = |pattern: &str| Patterns::new(&[pattern]).unwrap().names_hidden();
        for pattern in [".env", "a/.git/x", "{.a,b}", "{b,.a}", "/.x"] {
            assert!(hidden(pattern), "{pattern}");
        }
        for pattern in ["*", "a.b", "**/*.py", "a/b.c"] {
            assert!(!hidden(pattern), "{pattern}");
        }
    }
}
