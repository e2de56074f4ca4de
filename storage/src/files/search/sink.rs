//! [`LinesOf`]: takes down the lines of one file that match, and those around them.

use std::collections::VecDeque;
use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use serde::Serialize;

/// The memory of a kept line besides its own bytes, about.
const LINE_BYTES: usize = 32;
/// Bytes of a line that are shown.
pub(super) const SHOWN_BYTES: usize = 1000;
/// Bytes shown before a match in a longer line.
const SHOWN_BEFORE: usize = 200;

/// One line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Path from the tree's root.
    pub path: String,
    /// Number of the line, from 1. Lines end with `\n` or `\r\n`.
    pub line: u64,
    /// Where in the line the first match begins, in characters, from 1.
    pub column: u64,
    /// The line without its end: of a longer one, some 1 000 bytes around the match.
    pub text: String,
    /// Whether [`Match::text`] is not all of the line.
    #[serde(skip_serializing_if = "is_false")]
    pub cut: bool,
    /// Lines before it, as many as were asked for; each is cut after some 1 000 bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Lines after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(cut: &bool) -> bool {
    !cut
}

impl Match {
    /// The memory of the kept line, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        let lines = self.before.iter().chain(&self.after).chain([&self.text, &self.path]);
        lines.map(|line| line.len().saturating_add(LINE_BYTES)).sum()
    }
}

/// The matches wanted of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    /// Lines up to this one are passed over.
    pub(super) after_line: u64,
    /// Most matches.
    pub(super) limit: usize,
    /// Bytes of lines from which on no further match is taken.
    pub(super) bytes: usize,
}

/// Takes down the lines that match, and those around them.
pub(super) struct LinesOf<'a> {
    matcher: &'a RegexMatcher,
    wanted: Wanted<'a>,
    context: usize,
    /// The last lines, at most as many as the context has.
    recent: VecDeque<(u64, String)>,
    /// The first match that still takes lines after it.
    open: usize,
    is_binary: bool,
    last_line: u64,
    /// Bytes of all lines taken down, as [`Match::bytes`] counts them.
    bytes: usize,
    /// Where the matches of this file begin.
    first: usize,
    found: &'a mut Vec<Match>,
}

impl<'a> LinesOf<'a> {
    /// Adds matches of one file to `found`.
    pub(super) fn new(
        matcher: &'a RegexMatcher,
        context: usize,
        wanted: Wanted<'a>,
        found: &'a mut Vec<Match>,
    ) -> Self {
        Self {
            matcher,
            wanted,
            context,
            recent: VecDeque::new(),
            open: 0,
            is_binary: false,
            last_line: 0,
            bytes: 0,
            first: found.len(),
            found,
        }
    }

    /// Tells whether the file turned out to be no text.
    pub(super) fn is_binary(&self) -> bool {
        self.is_binary
    }

    /// Tells whether no further match is to be taken.
    fn is_full(&self) -> bool {
        self.found.len().saturating_sub(self.first) >= self.wanted.limit || self.bytes >= self.wanted.bytes
    }

    /// Tells whether a match still takes the line `number` as one after it.
    fn is_awaited(&self, number: u64) -> bool {
        let context = u64::try_from(self.context).unwrap_or(u64::MAX);
        let last = self.found.get(self.first..).and_then(<[Match]>::last);
        last.is_some_and(|last| number <= last.line.saturating_add(context))
    }

    /// Adds a line to the matches that it follows, and remembers it for those that follow it.
    fn line(&mut self, number: u64, text: &str) {
        let context = u64::try_from(self.context).unwrap_or(u64::MAX);
        if number != self.last_line.saturating_add(1) {
            self.recent.clear();
        }
        self.last_line = number;
        self.open = self.open.max(self.first);
        while self.found.get(self.open).is_some_and(|found| found.line.saturating_add(context) < number) {
            self.open += 1;
        }
        for found in self.found.get_mut(self.open..).unwrap_or_default() {
            found.after.push(text.to_owned());
            self.bytes = self.bytes.saturating_add(text.len() + LINE_BYTES);
        }
        if self.recent.len() >= self.context {
            self.recent.pop_front();
        }
        self.recent.push_back((number, text.to_owned()));
    }
}

impl Sink for LinesOf<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, matched: &SinkMatch<'_>) -> io::Result<bool> {
        let number = matched.line_number().unwrap_or(0);
        let bytes = without_end(matched.bytes());
        let is_full = self.is_full();
        let is_wanted = number > self.wanted.after_line && !is_full;
        if is_full && !self.is_awaited(number) {
            return Ok(false);
        }
        if !is_wanted && self.context == 0 {
            return Ok(true);
        }
        let at = self.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start());
        let (text, cut) = shown(bytes, at);
        let before = self.recent.iter().map(|(_, line)| line.clone()).collect();
        if self.context > 0 {
            self.line(number, &text);
        }
        if is_wanted {
            let ahead = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default());
            let column = u64::try_from(ahead.chars().count()).unwrap_or(u64::MAX).saturating_add(1);
            let path = self.wanted.path.to_owned();
            let found = Match { path, line: number, column, text, cut, before, after: Vec::new() };
            self.bytes = self.bytes.saturating_add(found.bytes());
            self.found.push(found);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        if self.is_full() && !self.is_awaited(number) {
            return Ok(false);
        }
        let (text, _) = shown(without_end(context.bytes()), 0);
        self.line(number, &text);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line)
}

/// The part of a line around `at` that is shown, and whether it is not all of it.
fn shown(line: &[u8], at: usize) -> (String, bool) {
    if line.len() <= SHOWN_BYTES {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let mut start = if at < SHOWN_BYTES - SHOWN_BEFORE { 0 } else { at - SHOWN_BEFORE };
    while is_inside(start) {
        start += 1;
    }
    let mut end = start.saturating_add(SHOWN_BYTES).min(line.len());
    while end > start && is_inside(end) {
        end -= 1;
    }
    (String::from_utf8_lossy(line.get(start..end).unwrap_or_default()).into_owned(), true)
}
