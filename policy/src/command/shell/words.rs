//! The pieces of a word: quotes, expansions, substitutions.

use super::{Commands, End, Shell, unterminated};
use crate::command::refusal::{Refusal, UNKNOWN};
use crate::command::word::{Quote, Word};

impl Shell<'_> {
    /// Reads one word, and the commands substituted in it. The word is empty where none stands.
    ///
    /// # Errors
    /// As [`super::scan`].
    pub(super) fn word(&mut self, scan: &impl Commands) -> Result<Word, Refusal> {
        let mut word = Word::default();
        let begin = self.lexer.position();
        while let Some(next) = self.lexer.peek() {
            let start = self.lexer.position();
            match next {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' if self.lexer.peek_second() == Some(b'(') => {
                    self.lexer.advance(2);
                    self.list(End::Parenthesis, scan)?;
                    self.push_unknown(&mut word, start, Quote::Bare);
                }
                b'<' | b'>' => break,
                b'\\' => self.escaped(&mut word),
                b'\'' => self.single(&mut word)?,
                b'"' => self.double(&mut word, scan)?,
                b'$' => self.dollar(&mut word, Quote::Bare, scan)?,
                b'`' if self.in_backticks && start > begin => break,
                b'`' => self.backticks(&mut word, Quote::Bare, scan)?,
                _ => {
                    word.is_pattern |= matches!(next, b'*' | b'?' | b'[');
                    self.push_next(&mut word, start, Quote::Bare);
                }
            }
        }
        Ok(word)
    }

    /// Adds the next character, written from byte `start` on.
    fn push_next(&mut self, word: &mut Word, start: usize, quote: Quote) {
        if let Some(character) = self.lexer.character() {
            word.push(character, start, self.lexer.position(), quote);
        }
    }

    /// Adds a mark for the expansion read since byte `start`.
    fn push_unknown(&mut self, word: &mut Word, start: usize, quote: Quote) {
        word.is_quoted = true;
        word.push(UNKNOWN, start, self.lexer.position(), quote);
    }

    /// Reads `\x` outside quotes.
    fn escaped(&mut self, word: &mut Word) {
        let start = self.lexer.position();
        word.is_quoted = true;
        self.lexer.advance(1);
        match self.lexer.peek() {
            Some(b'\n') => self.lexer.advance(1),
            Some(_) => self.push_next(word, start, Quote::Bare),
            None => word.push('\\', start, start + 1, Quote::Bare),
        }
    }

    /// Reads `'…'`.
    fn single(&mut self, word: &mut Word) -> Result<(), Refusal> {
        let opened = self.lexer.position();
        word.is_quoted = true;
        self.lexer.advance(1);
        loop {
            let start = self.lexer.position();
            match self.lexer.peek() {
                None => return Err(unterminated("single quote", opened)),
                Some(b'\'') => {
                    self.lexer.advance(1);
                    return Ok(());
                }
                Some(_) => self.push_next(word, start, Quote::Single),
            }
        }
    }

    /// Reads `"…"`.
    fn double(&mut self, word: &mut Word, scan: &impl Commands) -> Result<(), Refusal> {
        let opened = self.lexer.position();
        word.is_quoted = true;
        self.lexer.advance(1);
        loop {
            let start = self.lexer.position();
            match self.lexer.peek() {
                None => return Err(unterminated("double quote", opened)),
                Some(b'"') => {
                    self.lexer.advance(1);
                    return Ok(());
                }
                Some(b'\\') => match self.lexer.peek_second() {
                    Some(b'\n') => self.lexer.advance(2),
                    Some(b'$' | b'`' | b'"' | b'\\') => {
                        self.lexer.advance(1);
                        self.push_next(word, start, Quote::Double);
                    }
                    _ => self.push_next(word, start, Quote::Double),
                },
                Some(b'$') => self.dollar(word, Quote::Double, scan)?,
                Some(b'`') => self.backticks(word, Quote::Double, scan)?,
                Some(_) => self.push_next(word, start, Quote::Double),
            }
        }
    }

    /// Reads `$name`, `${…}`, `$(…)`, `$((…))`, `$'…'`, or a bare `$`.
    fn dollar(&mut self, word: &mut Word, quote: Quote, scan: &impl Commands) -> Result<(), Refusal> {
        let start = self.lexer.position();
        match self.lexer.peek_second() {
            Some(b'\'') if quote == Quote::Bare => return self.ansi(word),
            Some(b'"') if quote == Quote::Bare => {
                self.lexer.advance(1);
                return Ok(());
            }
            Some(b'(') => {
                self.lexer.advance(1);
                if !self.lexer.skip_arithmetic() {
                    self.lexer.advance(1);
                    self.list(End::Parenthesis, scan)?;
                }
            }
            Some(b'{') => self.parameter(quote, scan)?,
            Some(next) if next.is_ascii_alphabetic() || next == b'_' => {
                self.lexer.advance(1);
                self.lexer.skip_name();
            }
            Some(next) if next.is_ascii_digit() || b"?#@*!$-".contains(&next) => self.lexer.advance(2),
            _ => {
                self.push_next(word, start, quote);
                return Ok(());
            }
        }
        self.push_unknown(word, start, quote);
        Ok(())
    }

    /// Reads `${…}`, of which only the commands substituted inside matter.
    fn parameter(&mut self, quote: Quote, scan: &impl Commands) -> Result<(), Refusal> {
        let scan = &scan.deeper()?;
        let opened = self.lexer.position();
        let mut inner = Word::default();
        self.lexer.advance(2);
        loop {
            match self.lexer.peek() {
                None => return Err(unterminated("`${`", opened)),
                Some(b'}') => {
                    self.lexer.advance(1);
                    return Ok(());
                }
                Some(b'\\') => self.escaped(&mut inner),
                // Between double quotes a single quote is an ordinary character (bash(1), Parameter Expansion).
                Some(b'\'') if quote == Quote::Bare => self.single(&mut inner)?,
                Some(b'"') => self.double(&mut inner, scan)?,
                Some(b'$') => self.dollar(&mut inner, quote, scan)?,
                Some(b'`') => self.backticks(&mut inner, quote, scan)?,
                Some(_) => {
                    self.lexer.character();
                }
            }
        }
    }

    /// Reads `` `…` ``.
    fn backticks(&mut self, word: &mut Word, quote: Quote, scan: &impl Commands) -> Result<(), Refusal> {
        let start = self.lexer.position();
        if self.in_backticks {
            // It ends the substitution around, in the middle of a quote or list begun inside.
            return Err(unterminated("quote or list before a backtick", start));
        }
        self.lexer.advance(1);
        self.in_backticks = true;
        self.list(End::Backtick, scan)?;
        self.in_backticks = false;
        self.push_unknown(word, start, quote);
        Ok(())
    }

    /// Reads `$'…'` with its escapes (bash(1), QUOTING).
    fn ansi(&mut self, word: &mut Word) -> Result<(), Refusal> {
        let opened = self.lexer.position();
        word.is_quoted = true;
        self.lexer.advance(2);
        loop {
            let start = self.lexer.position();
            match self.lexer.character() {
                None => return Err(unterminated("single quote", opened)),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    let character = self.ansi_escape();
                    word.push(character, start, self.lexer.position(), Quote::Ansi);
                }
                Some(character) => word.push(character, start, self.lexer.position(), Quote::Ansi),
            }
        }
    }

    /// Reads what follows a backslash in `$'…'`.
    fn ansi_escape(&mut self) -> char {
        match self.lexer.character().unwrap_or('\\') {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'x' => self.number(16, 2, 0),
            'u' => self.number(16, 4, 0),
            'U' => self.number(16, 8, 0),
            octal @ '0'..='7' => self.number(8, 2, octal.to_digit(8).unwrap_or(0)),
            other => other,
        }
    }

    /// Reads up to `digits` more digits of a number that begins with `value`.
    fn number(&mut self, radix: u32, digits: usize, mut value: u32) -> char {
        for _ in 0..digits {
            let Some(digit) = self.lexer.peek().and_then(|byte| char::from(byte).to_digit(radix)) else {
                break;
            };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.lexer.advance(1);
        }
        char::from_u32(value).unwrap_or(UNKNOWN)
    }
}
