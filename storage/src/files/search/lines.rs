//! One file: its encoding, and what of it is searched at once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Encoding, Searcher, SearcherBuilder};

use super::Patience;
use super::sink::{LinesOf, Match, Wanted};
use crate::encoding::{self, TextEncoding};

/// Bytes of a file that are read at once, which is most files whole; by them its encoding is told.
const HEAD_BYTES: usize = 1024 * 1024;
/// Bytes that one call of the regular expression's engine may see: between two calls the deadline is looked at.
const STRIDE_BYTES: usize = 64 * 1024;
/// Longest line of a file, in bytes. One with a longer line is passed over and counted.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The outcome of searching one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was searched.
    Searched,
    /// It is no text.
    Binary,
    /// It has a line that is longer than a search takes.
    TooLong,
    /// The deadline passed on the way.
    Interrupted,
}

/// Searches one file after another.
pub(super) struct LineSearch<'a> {
    matcher: RegexMatcher,
    context: usize,
    patience: &'a Patience,
    plain: Searcher,
    buffer: Vec<u8>,
}

impl<'a> LineSearch<'a> {
    pub(super) fn new(matcher: RegexMatcher, context: usize, patience: &'a Patience) -> Self {
        let plain = searcher(context).bom_sniffing(false).build();
        Self { matcher, context, patience, plain, buffer: Vec::new() }
    }

    /// Adds the matches in `file` to `found`.
    ///
    /// # Errors
    /// An error of reading the file.
    pub(super) fn file(
        &mut self,
        file: &mut File,
        size: u64,
        wanted: Wanted<'_>,
        found: &mut Vec<Match>,
    ) -> io::Result<Outcome> {
        let is_whole = fill(file, &mut self.buffer, usize::try_from(size).unwrap_or(usize::MAX))?;
        let head = self.buffer.as_slice();
        let first = found.len();
        let mut lines = LinesOf::new(&self.matcher, self.context, wanted, found);
        let searched = if let Some((encoding, _)) = encoding::utf_16(head) {
            match encoding::decode(head.to_vec()).filter(|_| is_whole) {
                Some((text, _)) => self.plain.search_slice(&self.matcher, text.as_bytes(), &mut lines),
                None if is_whole => return Ok(Outcome::Binary),
                None => self.stream(file, Some(encoding), &mut lines),
            }
        } else if memchr::memchr(0, head).is_some() {
            return Ok(Outcome::Binary);
        } else {
            match (chinese(head, is_whole), is_whole) {
                (None, true) if head.len() <= STRIDE_BYTES => {
                    self.plain.search_slice(&self.matcher, without_mark(head), &mut lines)
                }
                (Some(text), true) => {
                    let reader = Until { from: text.as_bytes(), patience: self.patience };
                    self.plain.search_reader(&self.matcher, reader, &mut lines)
                }
                (None, false) if begins_too_long(head, file)? => return Ok(Outcome::TooLong),
                (None, _) => {
                    let from = without_mark(head).chain(file);
                    self.plain.search_reader(
                        &self.matcher,
                        Until { from, patience: self.patience },
                        &mut lines,
                    )
                }
                (Some(_), false) => self.stream(file, Some(TextEncoding::Gb18030), &mut lines),
            }
        };
        let is_binary = lines.is_binary();
        let outcome = match searched {
            Ok(()) if is_binary => Outcome::Binary,
            Ok(()) => return Ok(Outcome::Searched),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Outcome::Interrupted,
            // The searcher has no name for it; nothing else of a reader comes without a number.
            Err(error) if error.raw_os_error().is_none() => Outcome::TooLong,
            Err(error) => return Err(error),
        };
        found.truncate(first);
        Ok(outcome)
    }

    /// Searches a file that is too large to be decoded whole.
    fn stream(&self, file: &File, encoding: Option<TextEncoding>, lines: &mut LinesOf<'_>) -> io::Result<()> {
        let label = encoding.unwrap_or_default().to_string();
        let encoding = Encoding::new(&label).map_err(io::Error::other)?;
        let mut searcher = searcher(self.context).encoding(Some(encoding)).build();
        let from = self.buffer.as_slice().chain(file);
        searcher.search_reader(&self.matcher, Until { from, patience: self.patience }, lines)
    }
}

fn searcher(context: usize) -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .before_context(context)
        .after_context(context);
    builder
}

/// Reads up to [`HEAD_BYTES`] bytes into `buffer` of a file that should have `size`. Tells whether that is all.
fn fill(file: &mut File, buffer: &mut Vec<u8>, size: usize) -> io::Result<bool> {
    buffer.resize(size.saturating_add(1).min(HEAD_BYTES), 0);
    let mut filled = 0;
    loop {
        let read = match file.read(buffer.get_mut(filled..).unwrap_or_default()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        filled += read;
        // Less than there was room for, and as much as there should be, is all; else a further read tells.
        let is_whole = filled < buffer.len() && (read == 0 || filled == size);
        if is_whole || filled >= HEAD_BYTES {
            buffer.truncate(filled);
            return Ok(is_whole);
        }
        if filled == buffer.len() {
            // The file has grown since it was looked at.
            buffer.resize(buffer.len().saturating_mul(2).min(HEAD_BYTES), 0);
        }
    }
}

/// Whether the first line of a file that begins with `head` is longer than a search takes. Such a file is one line, most often,
/// and the searcher would make room for as much of it as it takes.
fn begins_too_long(head: &[u8], file: &File) -> io::Result<bool> {
    let has_end = |bytes: &[u8]| memchr::memchr2(b'\n', 0, bytes).is_some();
    if has_end(head) {
        return Ok(false);
    }
    let (mut piece, mut looked) = (vec![0; STRIDE_BYTES], head.len());
    while looked <= LINE_BYTES_MAX {
        match file.read_at(&mut piece, u64::try_from(looked).unwrap_or(u64::MAX)) {
            Ok(0) => return Ok(false),
            Ok(read) if has_end(piece.get(..read).unwrap_or_default()) => return Ok(false),
            Ok(read) => looked += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The text of a file in GBK or GB 18030, of which `head` is the whole or the beginning.
fn chinese(head: &[u8], is_whole: bool) -> Option<String> {
    if head.is_ascii() {
        return None;
    }
    match std::str::from_utf8(head) {
        Ok(_) => None,
        // A character that the end of the head cut in two.
        Err(error) if !is_whole && error.error_len().is_none() => None,
        Err(_) if is_whole => encoding::decode(head.to_vec()).map(|(text, _)| text),
        Err(_) => encoding::is_chinese(head).then(String::new),
    }
}

/// Text in UTF-8 without a byte order mark, which is no part of its first line.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

/// A reader that fails when the deadline has passed, and gives little at once.
struct Until<'a, R> {
    from: R,
    patience: &'a Patience,
}

impl<R: Read> Read for Until<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.patience.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let most = buffer.len().min(STRIDE_BYTES);
        self.from.read(buffer.get_mut(..most).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::super::sink::SHOWN_BYTES;
    use super::*;

    fn patience() -> Patience {
        Patience { deadline: Instant::now() + Duration::from_secs(60), abandoned: Arc::default() }
    }

    fn search(bytes: &[u8], pattern: &str, context: usize, limit: usize) -> (Vec<Match>, Outcome) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let patience = patience();
        let matcher = super::super::grep::matcher(pattern, false, false).unwrap();
        let mut search = LineSearch::new(matcher, context, &patience);
        let mut found = Vec::new();
        let wanted = Wanted { path: "f", after_line: 0, limit, bytes: usize::MAX };
        let outcome = search.file(&mut file, bytes.len() as u64, wanted, &mut found).unwrap();
        (found, outcome)
    }

    fn lines(bytes: &[u8], pattern: &str) -> Vec<(u64, u64, String)> {
        let (found, outcome) = search(bytes, pattern, 0, 100);
        assert_eq!(outcome, Outcome::Searched);
        found.into_iter().map(|found| (found.line, found.column, found.text)).collect()
    }

    #[test]
    fn lines_are_found_whatever_the_encoding_of_the_file() {
        let text = "第一行\r\n这里有数据分析\r\n最后\n数据";
        let expected = vec![(2, 4, "这里有数据分析".to_owned()), (4, 1, "数据".to_owned())];
        for encoding in [
            TextEncoding::Utf8,
            TextEncoding::Gbk,
            TextEncoding::Gb18030,
            TextEncoding::Utf16Le,
            TextEncoding::Utf16Be,
        ] {
            let bytes = encoding::encode(text, encoding).unwrap();
            assert_eq!(lines(&bytes, "数."), expected, "{encoding}");
            // Too large to be decoded whole.
            let filler = "说明文档内容\n".repeat(200_000);
            let bytes = encoding::encode(&filler, encoding).unwrap().into_owned();
            let tail = encoding::encode(text, encoding).unwrap().into_owned();
            let mark = encoding::utf_16(&tail).map_or(0, |_| 2);
            let whole = [bytes.as_slice(), &tail[mark..]].concat();
            let found: Vec<u64> = lines(&whole, "数据").iter().map(|(line, ..)| *line).collect();
            assert_eq!(found, [200_002, 200_004], "{encoding}");
        }
        assert_eq!(lines("\u{feff}数据\n".as_bytes(), "^数据$"), [(1, 1, "数据".to_owned())]);
        assert_eq!(lines(b"caf\xE9 one\ntwo\n", "one$"), [(1, 6, "caf\u{fffd} one".to_owned())]);
    }

    #[test]
    fn what_is_no_text_is_not_searched() {
        assert_eq!(search(b"one\0\none\n", "one", 0, 9).1, Outcome::Binary);
        let late = [b"one\n".repeat(400_000).as_slice(), b"\0"].concat();
        assert_eq!(search(&late, "one", 0, usize::MAX), (Vec::new(), Outcome::Binary));
        assert_eq!(search(b"\xFF\xFEa", "a", 0, 9).1, Outcome::Binary);
        let one_line = vec![b'x'; LINE_BYTES_MAX + 2 * HEAD_BYTES];
        assert_eq!(search(&one_line, "x", 0, 9), (Vec::new(), Outcome::TooLong));
    }

    #[test]
    fn a_first_line_that_is_longer_than_the_head_is_searched_while_it_is_no_longer_than_may_be() {
        let first = vec![b'x'; HEAD_BYTES + 3 * STRIDE_BYTES / 2];
        let text = [first.as_slice(), b"y\nneedle\n"].concat();
        assert_eq!(lines(&text, "needle"), [(2, 1, "needle".to_owned())]);
        assert_eq!(lines(&text, "y$").len(), 1);
        assert_eq!(search(&[&first[..], b"\0\n"].concat(), "x", 0, 9).1, Outcome::Binary);
        // Its end is the end of the file.
        assert_eq!(lines(&first, "x$").len(), 1);
        let longest = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(search(&[&longest[..], b"\nneedle\n"].concat(), "needle", 0, 9).1, Outcome::TooLong);
    }

    #[test]
    fn each_match_has_its_whole_context() {
        let (found, _) = search(b"a\nb\nx1\nc\nx2\nd\ne\nf\ng\nh\nx3", "x", 2, 9);
        let shown: Vec<_> = found.iter().map(|f| (f.line, f.before.join(""), f.after.join(""))).collect();
        assert_eq!(
            shown,
            [
                (3, "ab".into(), "cx2".into()),
                (5, "x1c".into(), "de".into()),
                (11, "gh".into(), String::new())
            ]
        );
    }

    #[test]
    fn the_last_match_has_its_whole_context_too_and_lines_take_bounded_memory() {
        let (found, _) = search(b"x1\nx2\nx3\nx4\nx5\n", "x", 2, 2);
        assert_eq!(found.iter().map(|found| found.after.join("")).collect::<Vec<_>>(), ["x2x3", "x3x4"]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(10_000)).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let (patience, mut found) = (patience(), Vec::new());
        let matcher = super::super::grep::matcher("x", false, false).unwrap();
        let wanted = Wanted { path: "f", after_line: 7, limit: usize::MAX, bytes: 100_000 };
        LineSearch::new(matcher, 20, &patience).file(&mut file, 520_000, wanted, &mut found).unwrap();
        assert_eq!(found.first().map(|found| (found.line, found.before.len())), Some((8, 7)));
        let bytes: usize = found.iter().map(Match::bytes).sum();
        assert!((100_000..250_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn no_more_than_the_limit_is_found_and_long_lines_are_cut_around_the_match() {
        assert_eq!(search(b"x\nx\nx\nx\n", "x", 0, 2).0.len(), 2);
        let line = format!("{}needle{}\n", "中".repeat(2000), "文".repeat(2000));
        let (found, _) = search(line.as_bytes(), "needle", 0, 9);
        let found = &found[0];
        assert!(found.cut && found.text.contains("needle") && found.text.len() <= SHOWN_BYTES);
        assert!(!found.text.contains('\u{fffd}') && found.column == 2001, "{found:?}");
    }
}
