//! [`Reader`]: the signs of a pattern, one after the other.

use std::iter::Peekable;
use std::str::Chars;

use super::{Dialect, GlobError, NESTING_MAX, Part, Piece};

/// A pattern, or a segment of one, on its way to pieces.
pub(super) struct Reader<'pattern> {
    rest: Peekable<Chars<'pattern>>,
    dialect: Dialect,
}

impl<'pattern> Reader<'pattern> {
    /// Reads one segment in [`Dialect::Shell`].
    pub(super) fn parts(segment: &'pattern str) -> Result<Vec<Part>, GlobError> {
        let mut reader = Self { rest: segment.chars().peekable(), dialect: Dialect::Shell };
        let mut parts = Vec::new();
        while let Some(character) = reader.rest.next() {
            if character == '*' {
                reader.further_stars();
            }
            parts.push(reader.part(character)?);
        }
        Ok(parts)
    }

    /// Reads a whole pattern in [`Dialect::Gitignore`], but for the `/` at its ends.
    pub(super) fn pieces(pattern: &'pattern str) -> Result<Vec<Piece>, GlobError> {
        let mut reader = Self { rest: pattern.chars().peekable(), dialect: Dialect::Gitignore };
        let (mut pieces, mut nesting) = (Vec::new(), 0);
        // The sign before the next one.
        let mut before = '/';
        while let Some(character) = reader.rest.next() {
            pieces.push(match character {
                '/' => Piece::Separator,
                '*' => reader.stars(before),
                '{' if nesting == NESTING_MAX => return Err(GlobError::TooDeep),
                '{' => {
                    nesting += 1;
                    Piece::Open
                }
                ',' if nesting > 0 => Piece::Or,
                '}' if nesting > 0 => {
                    nesting -= 1;
                    Piece::Close
                }
                '}' => return Err(GlobError::UnopenedBrace),
                part => Piece::Part(reader.part(part)?),
            });
            before = if pieces.last() == Some(&Piece::Directories) { '/' } else { character };
        }
        if nesting > 0 {
            return Err(GlobError::OpenBrace);
        }
        Ok(pieces)
    }

    /// One star, or two that are a whole segment; two stars elsewhere are as one.
    fn stars(&mut self, before: char) -> Piece {
        let is_segment = self.further_stars() == 1 && matches!(before, '/' | '{' | ',');
        match self.rest.peek() {
            Some('/') if is_segment => {
                self.rest.next();
                Piece::Directories
            }
            None | Some('}' | ',') if is_segment => Piece::Below,
            _ => Piece::Part(Part::Star),
        }
    }

    /// Passes over the stars that follow one, and counts them.
    fn further_stars(&mut self) -> usize {
        let mut count = 0;
        while self.rest.next_if_eq(&'*').is_some() {
            count += 1;
        }
        count
    }

    fn part(&mut self, character: char) -> Result<Part, GlobError> {
        Ok(match character {
            '*' => Part::Star,
            '?' => Part::One,
            '\\' => match (self.rest.next(), self.dialect) {
                (Some(literal), _) => Part::Literal(literal),
                (None, Dialect::Shell) => Part::Literal('\\'),
                (None, Dialect::Gitignore) => return Err(GlobError::OpenEscape),
            },
            '[' => {
                let after = self.rest.clone();
                match (self.class(), self.dialect) {
                    (Err(GlobError::OpenBracket), Dialect::Shell) => {
                        self.rest = after;
                        Part::Literal('[')
                    }
                    (class, _) => class?,
                }
            }
            literal => Part::Literal(literal),
        })
    }

    /// The text between brackets. A `]` that comes first, and a hyphen before the last `]`, stand for themselves.
    fn class(&mut self) -> Result<Part, GlobError> {
        let is_negated = self.rest.next_if(|next| matches!(next, '!' | '^')).is_some();
        let mut ranges = Vec::new();
        loop {
            if !ranges.is_empty() && self.rest.next_if_eq(&']').is_some() {
                return Ok(Part::Class { is_negated, ranges });
            }
            let first = self.member()?;
            if self.rest.next_if_eq(&'-').is_none() {
                ranges.push((first, first));
                continue;
            }
            if self.rest.peek() == Some(&']') {
                ranges.extend([(first, first), ('-', '-')]);
                continue;
            }
            let last = self.member()?;
            if last < first && self.dialect == Dialect::Gitignore {
                return Err(GlobError::ReversedRange);
            }
            ranges.push((first, last));
        }
    }

    /// One character of a class, perhaps after a `\`.
    fn member(&mut self) -> Result<char, GlobError> {
        self.rest.next_if_eq(&'\\');
        self.rest.next().ok_or(GlobError::OpenBracket)
    }
}
