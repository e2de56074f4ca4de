//! [`Patterns`]: lists of patterns for paths, as regular expressions. One meaning everywhere a route takes a pattern.

use policy::PathError;
use policy::glob::{Dialect, Glob, GlobError, Part, Piece};
use regex::{RegexSet, RegexSetBuilder};

use crate::error::{Error, Result};

/// The memory of the compiled patterns of a list, in bytes.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Patterns in one list.
pub const PATTERNS_MAX: usize = 64;

/// Patterns of [`Dialect::Gitignore`], for paths relative to where a search begins.
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
    let glob = Glob::read(pattern, Dialect::Gitignore).map_err(|error| match error {
        GlobError::Parent => PathError::Parent(pattern.to_owned()).into(),
        error => refused(pattern, error),
    })?;
    let alternatives: Vec<String> =
        glob.alternatives().iter().map(|pieces| pieces.iter().map(translated).collect()).collect();
    Ok(format!("(?s)^(?:{})$", alternatives.join("|")))
}

/// The regular expression for one piece of a pattern.
fn translated(piece: &Piece) -> String {
    match piece {
        Piece::Part(part) => one_part(part),
        Piece::Separator => "/".to_owned(),
        Piece::Directories => "(?:[^/]+/)*".to_owned(),
        Piece::Below => ".+".to_owned(),
        Piece::Open => "(?:".to_owned(),
        Piece::Or => "|".to_owned(),
        Piece::Close => ")".to_owned(),
    }
}

fn one_part(part: &Part) -> String {
    match part {
        Part::Literal(character) => regex::escape(character.encode_utf8(&mut [0; 4])),
        Part::Star => "[^/]*".to_owned(),
        Part::One => "[^/]".to_owned(),
        Part::Class { is_negated, ranges } => {
            let negation = if *is_negated { "^" } else { "" };
            let members: String = ranges.iter().map(|(first, last)| class_range(*first, *last)).collect();
            format!("[[{negation}{members}]&&[^/]]")
        }
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
    use policy::glob::PATTERN_BYTES_MAX;

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
