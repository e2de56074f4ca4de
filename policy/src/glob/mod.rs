//! [`Glob`]: a pattern for paths, read. Matching is left to the crate that asks.
//!
//! Signs, classes and escapes are read here once, for two [`Dialect`]s. `storage` makes regular expressions of a glob, and
//! `sandbox` matches it segment by segment and makes arguments of find(1) of it.

mod braces;
mod reader;

pub use braces::{ALTERNATIVES_MAX, expand};
use reader::Reader;

/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Most levels of braces within braces in [`Dialect::Gitignore`].
pub const NESTING_MAX: usize = 8;

/// What a pattern means.
///
/// In both, `*` and `?` match within a segment of a path, `**` as a whole segment any number of segments, `[a-z]` and
/// `[!a-z]` one character other than `/`, `{a,b}` either, and `\` takes the next character as it is. There is no `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// In the manner of gitignore(5), as the routes take it.
    ///
    /// * Without a `/`, a pattern matches at any depth: `*.py` means `src/a.py` too. With one, it matches from where the
    ///   search begins, and a leading `/` only says so.
    /// * A final `/` stands for everything in directories of the name.
    /// * What is never closed, or stands for nothing, is refused, and so is negation.
    Gitignore,
    /// In the manner of a shell, as the tools of a model take it.
    ///
    /// * A pattern matches from where the search begins: `*.py` means `a.py` alone, and `**/*.py` means `src/a.py` too.
    /// * `/` at both ends, and `.` segments, are left out. `/` separates segments also after a `\` and in brackets.
    /// * Braces are multiplied out before anything else is read, see [`expand`].
    /// * What is never closed stands for itself, and a range that ends before it begins matches nothing.
    Shell,
}

/// A pattern, read.
///
/// * There is at least one alternative.
/// * In [`Dialect::Gitignore`] there is exactly one, and its [`Piece::Open`] and [`Piece::Close`] form pairs.
/// * In [`Dialect::Shell`] no alternative has braces or is empty, and [`Piece::Separator`] stands only between segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    alternatives: Vec<Vec<Piece>>,
}

/// A piece of a pattern. The pieces of an alternative, one after the other, are all of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of a name.
    Part(Part),
    /// `/`.
    Separator,
    /// `**/`: any number of directories, also none, with the `/` after each.
    Directories,
    /// `**` at the end: at least one segment.
    Below,
    /// `{`.
    Open,
    /// `,` in braces.
    Or,
    /// `}`.
    Close,
}

/// A part of a name's pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// One character, as it is.
    Literal(char),
    /// `*`.
    Star,
    /// `?`.
    One,
    /// One character out of brackets, other than `/`.
    Class {
        /// Whether the character is in none of the ranges.
        is_negated: bool,
        /// The first and the last character of each range.
        ranges: Vec<(char, char)>,
    },
}

/// Why a pattern is refused. As text, what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// It has more than [`PATTERN_BYTES_MAX`].
    #[error("it has more than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// It has a segment `..`.
    #[error("it has a `..` segment")]
    Parent,
    /// No path has a NUL character.
    #[error("it has a NUL character")]
    Nul,
    /// It begins with `!`.
    #[error("there is no negation: leave it out, or send it in `exclude`")]
    Negation,
    /// It ends with a `\`.
    #[error("a `\\` at its end stands before nothing")]
    OpenEscape,
    /// A `[` without its `]`.
    #[error("a `[` is never closed")]
    OpenBracket,
    /// A range such as `z-a`.
    #[error("a range in brackets ends before it begins")]
    ReversedRange,
    /// A `{` without its `}`.
    #[error("a `{{` is never closed")]
    OpenBrace,
    /// A `}` without its `{`.
    #[error("a `}}` was never opened")]
    UnopenedBrace,
    /// It has more than [`NESTING_MAX`] levels of braces.
    #[error("its braces are nested too deep")]
    TooDeep,
    /// Its braces stand for more than [`ALTERNATIVES_MAX`] patterns.
    #[error("its braces stand for more than {ALTERNATIVES_MAX} patterns: use fewer")]
    TooManyAlternatives,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`GlobError`], in [`Dialect::Shell`] only `TooLong`, `TooManyAlternatives`, `Parent` and `Empty`.
    pub fn read(pattern: &str, dialect: Dialect) -> Result<Self, GlobError> {
        let alternatives = match dialect {
            Dialect::Gitignore => vec![gitignore(pattern)?],
            Dialect::Shell => shell(pattern)?,
        };
        Ok(Self { alternatives })
    }

    /// The alternatives; a path that one of them means is meant.
    #[must_use]
    pub fn alternatives(&self) -> &[Vec<Piece>] {
        &self.alternatives
    }
}

fn gitignore(pattern: &str) -> Result<Vec<Piece>, GlobError> {
    if pattern.is_empty() {
        return Err(GlobError::Empty);
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(GlobError::TooLong);
    }
    if pattern.contains('\0') {
        return Err(GlobError::Nul);
    }
    if pattern.starts_with('!') {
        return Err(GlobError::Negation);
    }
    if pattern.split('/').any(|segment| segment == "..") {
        return Err(GlobError::Parent);
    }
    let (body, stands_for_contents) = match pattern.strip_suffix('/') {
        Some(body) => (body, true),
        None => (pattern, false),
    };
    let (body, is_rooted) = match body.strip_prefix('/') {
        Some(body) => (body, true),
        None => (body, body.contains('/')),
    };
    let mut pieces = Vec::new();
    if !is_rooted {
        pieces.push(Piece::Directories);
    }
    pieces.append(&mut Reader::pieces(body)?);
    if stands_for_contents {
        pieces.extend([Piece::Separator, Piece::Below]);
    }
    Ok(pieces)
}

fn shell(pattern: &str) -> Result<Vec<Vec<Piece>>, GlobError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(GlobError::TooLong);
    }
    let mut alternatives = Vec::new();
    for alternative in expand(pattern)? {
        if alternative.split('/').any(|segment| segment == "..") {
            return Err(GlobError::Parent);
        }
        let mut segments: Vec<&str> =
            alternative.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        segments.dedup_by(|next, before| *next == "**" && *before == "**");
        let mut pieces = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            let is_last = index + 1 == segments.len();
            match (*segment, is_last) {
                ("**", true) => pieces.push(Piece::Below),
                ("**", false) => pieces.push(Piece::Directories),
                (name, _) => pieces.extend(Reader::parts(name)?.into_iter().map(Piece::Part)),
            }
            if *segment != "**" && !is_last {
                pieces.push(Piece::Separator);
            }
        }
        if !pieces.is_empty() {
            alternatives.push(pieces);
        }
    }
    if alternatives.is_empty() {
        return Err(GlobError::Empty);
    }
    Ok(alternatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(text: &str) -> Vec<Piece> {
        text.chars().map(|character| Piece::Part(Part::Literal(character))).collect()
    }

    #[test]
    fn the_same_pattern_means_any_depth_in_one_dialect_and_the_beginning_in_the_other() {
        let name = [vec![Piece::Part(Part::Star)], literals(".py")].concat();
        let any_depth = [vec![Piece::Directories], name.clone()].concat();
        let read = |pattern, dialect| Glob::read(pattern, dialect).unwrap().alternatives.concat();
        assert_eq!(read("*.py", Dialect::Gitignore), any_depth);
        assert_eq!(read("/*.py", Dialect::Gitignore), name);
        assert_eq!(read("*.py", Dialect::Shell), name);
        assert_eq!(read("/*.py", Dialect::Shell), name);
        assert_eq!(read("**/*.py", Dialect::Shell), any_depth);
        assert_eq!(read("**/*.py", Dialect::Gitignore), any_depth);
    }

    #[test]
    fn braces_are_pieces_in_one_dialect_and_multiplied_out_in_the_other() {
        let read = |dialect| Glob::read("/{a, b/c}", dialect).unwrap().alternatives;
        let b_in_braces = [literals(" b"), vec![Piece::Separator], literals("c")].concat();
        let group = [vec![Piece::Open], literals("a"), vec![Piece::Or], b_in_braces, vec![Piece::Close]];
        assert_eq!(read(Dialect::Gitignore), [group.concat()]);
        let b = [literals("b"), vec![Piece::Separator], literals("c")].concat();
        assert_eq!(read(Dialect::Shell), [literals("a"), b]);
    }

    #[test]
    fn a_range_or_a_bracket_that_means_nothing_is_refused_in_one_dialect_alone() {
        for (pattern, error) in [
            ("[a", GlobError::OpenBracket),
            ("[z-a]", GlobError::ReversedRange),
            ("[z-a", GlobError::ReversedRange),
            ("a\\", GlobError::OpenEscape),
            ("{a", GlobError::OpenBrace),
            ("a}", GlobError::UnopenedBrace),
            ("{{{{{{{{{a", GlobError::TooDeep),
            ("a\0b", GlobError::Nul),
            ("!a", GlobError::Negation),
        ] {
            assert_eq!(Glob::read(pattern, Dialect::Gitignore), Err(error), "{pattern}");
            assert!(Glob::read(pattern, Dialect::Shell).is_ok(), "{pattern}");
        }
        for (pattern, error) in [("", GlobError::Empty), ("a/../b", GlobError::Parent)] {
            for dialect in [Dialect::Gitignore, Dialect::Shell] {
                assert_eq!(Glob::read(pattern, dialect), Err(error.clone()), "{pattern}");
            }
        }
    }
}
