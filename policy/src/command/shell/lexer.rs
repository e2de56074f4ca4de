//! A cursor over the bytes of a script: blanks, comments, operators, here-documents.

use std::collections::HashMap;

/// A here-document whose body begins after the next line end.
struct HereDocument {
    delimiter: String,
    /// Leading tabs of its lines do not count (`<<-`).
    strips_tabs: bool,
}

/// A cursor over a script. It only moves forward, except when an attempt fails.
pub(super) struct Lexer<'s> {
    source: &'s str,
    position: usize,
    here_documents: Vec<HereDocument>,
    /// For each `(` that some `)` closes, the position of that; made at the first `((`.
    closings: Option<HashMap<usize, usize>>,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, position: 0, here_documents: Vec::new(), closings: None }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn rest(&self) -> &'s str {
        self.source.get(self.position..).unwrap_or_default()
    }

    /// The next byte.
    pub(super) fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.position).copied()
    }

    /// The byte after the next one.
    pub(super) fn peek_second(&self) -> Option<u8> {
        self.source.as_bytes().get(self.position + 1).copied()
    }

    pub(super) fn starts_with(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Moves over `bytes` bytes, which must be ASCII.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.source.len());
    }

    /// Takes the next character.
    pub(super) fn character(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// Moves over every byte that is one of `bytes`.
    pub(super) fn skip_any(&mut self, bytes: &[u8]) {
        while self.peek().is_some_and(|byte| bytes.contains(&byte)) {
            self.position += 1;
        }
    }

    /// Moves over letters, digits and `_`.
    pub(super) fn skip_name(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.position += 1;
        }
    }

    /// Moves over spaces, tabs and continued line ends.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            self.skip_any(b" \t");
            if !self.starts_with("\\\n") {
                return;
            }
            self.advance(2);
        }
    }

    /// Moves to the end of the line.
    pub(super) fn skip_line(&mut self) {
        self.position += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    /// Moves over `((…))` when that is what stands here.
    pub(super) fn skip_arithmetic(&mut self) -> bool {
        if !self.starts_with("((") {
            return false;
        }
        // Found once for the whole script: a search from each `((` would take quadratic time.
        let source = self.source;
        let closings = self.closings.get_or_insert_with(|| closings(source));
        let outer = closings.get(&self.position).copied();
        let inner = closings.get(&(self.position + 1)).copied();
        match (inner, outer) {
            (Some(inner), Some(outer)) if inner + 1 == outer => {
                self.position = outer + 1;
                true
            }
            _ => false,
        }
    }

    /// Takes a redirection operator; the cursor stands on its first byte.
    pub(super) fn redirection(&mut self) -> &'static str {
        const OPERATORS: [&str; 12] =
            ["&>>", "<<<", "<<-", "&>", "<<", "<&", "<>", ">>", ">&", ">|", "<", ">"];
        let operator = OPERATORS.iter().find(|operator| self.starts_with(operator)).copied().unwrap_or(">");
        self.advance(operator.len());
        operator
    }

    /// Notes a here-document that begins after the next line end.
    pub(super) fn expect_here_document(&mut self, delimiter: String, strips_tabs: bool) {
        self.here_documents.push(HereDocument { delimiter, strips_tabs });
    }

    /// Moves over the bodies of the here-documents noted; the cursor stands after a line end.
    ///
    /// A body is data: what reads it decides what it means.
    pub(super) fn skip_here_documents(&mut self) {
        for document in std::mem::take(&mut self.here_documents) {
            while self.position < self.source.len() {
                let line = self.rest().split('\n').next().unwrap_or_default();
                self.advance(line.len() + 1);
                let text = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
                if text == document.delimiter {
                    break;
                }
            }
        }
    }
}

/// Pairs the parentheses of `source`, of every meaning.
fn closings(source: &str) -> HashMap<usize, usize> {
    let mut open = Vec::new();
    let mut closings = HashMap::new();
    for (at, byte) in source.bytes().enumerate() {
        match byte {
            b'(' => open.push(at),
            b')' => closings.extend(open.pop().map(|opened| (opened, at))),
            _ => {}
        }
    }
    closings
}
