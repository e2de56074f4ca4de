//! Where a script for sed names files: the commands `r`, `R`, `w` and `W`, and the flag `w` of `s`.
//!
//! Reads as much of the language as tells commands from their arguments (sed(1), POSIX.1-2024 `sed`). A script that
//! sed itself would refuse may be read in any way.

use std::ops::Range;

/// The bytes of `script` that are names of files, in order.
pub(crate) fn files(script: &str) -> Vec<Range<usize>> {
    let mut reader = Reader { bytes: script.as_bytes(), at: 0, found: Vec::new() };
    while reader.at < reader.bytes.len() {
        reader.command();
    }
    reader.found
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    found: Vec<Range<usize>>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    /// Reads addresses and one command. Always goes on by a byte at least.
    fn command(&mut self) {
        match self.next() {
            Some(b'/') => self.skip_past(b'/'),
            Some(b'\\') => {
                if let Some(delimiter) = self.next() {
                    self.skip_past(delimiter);
                }
            }
            Some(b'r' | b'R' | b'w' | b'W') => self.file(),
            Some(b's') => {
                if let Some(delimiter) = self.next() {
                    self.skip_past(delimiter);
                    self.skip_past(delimiter);
                    self.flags();
                }
            }
            Some(b'y') => {
                if let Some(delimiter) = self.next() {
                    self.skip_past(delimiter);
                    self.skip_past(delimiter);
                }
            }
            Some(b'a' | b'i' | b'c') => self.text(),
            Some(b'#' | b'e') => self.skip_line(),
            Some(b':' | b'b' | b't' | b'T') => {
                while self.peek().is_some_and(|next| !matches!(next, b';' | b'\n' | b'}')) {
                    self.at += 1;
                }
            }
            // Addresses, blanks, braces, and commands without an argument or with a number.
            _ => {}
        }
    }

    /// Reads the flags of `s`, of which `w` is followed by the name of a file.
    fn flags(&mut self) {
        while let Some(next) = self.peek() {
            match next {
                b'w' => {
                    self.at += 1;
                    return self.file();
                }
                b'g' | b'p' | b'i' | b'I' | b'e' | b'm' | b'M' | b'0'..=b'9' => self.at += 1,
                _ => return,
            }
        }
    }

    /// Reads the name of a file, which ends with the line.
    fn file(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let start = self.at;
        self.skip_line();
        let end =
            if self.bytes.get(self.at.saturating_sub(1)) == Some(&b'\n') { self.at - 1 } else { self.at };
        if start < end {
            self.found.push(start..end);
        }
    }

    /// Goes past the next `delimiter` that no backslash stands before.
    fn skip_past(&mut self, delimiter: u8) {
        while let Some(next) = self.next() {
            if next == delimiter {
                return;
            }
            if next == b'\\' {
                self.at += 1;
            }
        }
    }

    fn skip_line(&mut self) {
        self.skip_past_line(false);
    }

    /// Goes past the text of `a`, `i` or `c`, which goes on behind a line that ends with a backslash.
    fn text(&mut self) {
        self.skip_past_line(true);
    }

    fn skip_past_line(&mut self, continues: bool) {
        while let Some(next) = self.next() {
            if next == b'\n' {
                return;
            }
            if continues && next == b'\\' {
                self.at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(script: &str) -> Vec<&str> {
        files(script).into_iter().map(|range| script.get(range).unwrap()).collect()
    }

    #[test]
    fn names_of_files_are_told_from_everything_else() {
        for (script, expected) in [
            ("w /etc/x", vec!["/etc/x"]),
            ("1,$w out.txt\nr /etc/passwd", vec!["out.txt", "/etc/passwd"]),
            ("/a b/W\t/x", vec!["/x"]),
            ("s/a/b/w /etc/x", vec!["/etc/x"]),
            ("s|a|b|gIw /etc/x\np", vec!["/etc/x"]),
            ("\\,w /x,R /etc/hosts", vec!["/etc/hosts"]),
            ("$!{s/a/b/;w f\n}", vec!["f"]),
            ("s/w \\/etc\\/x/r \\/y/", vec![]),
            ("s/a/b/;s,w /x,r /y,g", vec![]),
            ("a\\\nw /x\\\nr /y\nw z", vec!["z"]),
            ("i w /x", vec![]),
            ("y/wr/rw/;p;5q", vec![]),
            (":w\nbw;tw", vec![]),
            ("# w /x\np", vec![]),
            ("", vec![]),
            ("s", vec![]),
            ("s/a", vec![]),
            ("w", vec![]),
            ("/a\\", vec![]),
            ("/数/w 数", vec!["数"]),
        ] {
            assert_eq!(named(script), expected, "{script:?}");
        }
    }
}
