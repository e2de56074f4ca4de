//! The lines of standard input, read by a thread of their own: no wait for input holds up answers.

use std::io::{self, BufRead, Read};

use tokio::sync::mpsc;

use crate::mcp::MESSAGE_BYTES_MAX;

/// Lines that wait to be looked at.
const WAITING: usize = 1;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line of at most [`MESSAGE_BYTES_MAX`] bytes.
    Whole(Vec<u8>),
    /// A longer line, which is thrown away up to its end.
    TooLong,
}

/// Reads `input` to its end. Blank lines are left out; an input that cannot be read has ended.
pub(super) fn read(mut input: impl BufRead + Send + 'static) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        while let Ok(Some(line)) = next(&mut input, MESSAGE_BYTES_MAX) {
            let is_blank = matches!(&line, Line::Whole(bytes) if bytes.trim_ascii().is_empty());
            if !is_blank && sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The next line of at most `limit` bytes; nothing at the end of the input.
fn next(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Line::Whole(line)));
    }
    if line.len() <= limit {
        return Ok(Some(Line::Whole(line)));
    }
    skip_line(input)?;
    Ok(Some(Line::TooLong))
}

/// Throws the rest of a line away.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let read = end.map_or(buffer.len(), |end| end + 1);
        input.consume(read);
        if read == 0 || end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_read() {
        let mut input = io::Cursor::new(b"12345\n123456\n1234567890\n\nab".to_vec());
        let mut lines = Vec::new();
        while let Some(line) = next(&mut input, 5).unwrap() {
            lines.push(line);
        }
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(lines, [whole("12345"), Line::TooLong, Line::TooLong, whole(""), whole("ab")]);
    }

    #[test]
    fn blank_lines_are_left_out() {
        let mut lines = read(io::Cursor::new(b"\n \t\r\na\r\n\n".to_vec()));
        assert_eq!(lines.blocking_recv(), Some(Line::Whole(b"a\r".to_vec())));
        assert_eq!(lines.blocking_recv(), None);
    }
}
