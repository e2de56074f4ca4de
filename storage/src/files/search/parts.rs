//! [`Part`]: what was found in one batch, and how the parts become one answer.

use std::collections::BTreeMap;
use std::fs::File;

use policy::RelPath;

use super::Stop;
use super::lines::{LineSearch, Outcome};
use super::query::{GrepCursor, GrepQuery, Grepped};
use super::sink::{Match, Wanted};
use crate::stat::Stat;

/// Bytes of lines in one answer.
pub(super) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The state of one batch.
#[derive(Default)]
pub(super) struct Part {
    matches: Vec<Match>,
    searched: usize,
    binary: usize,
    pub(super) skipped: usize,
    pub(super) bytes: usize,
    /// Why not all of it was searched.
    pub(super) stop: Option<Stop>,
    /// The last file that was searched whole.
    through: Option<String>,
    /// The file in which the deadline passed.
    interrupted: Option<String>,
}

/// The state of all batches.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) by_number: BTreeMap<usize, Part>,
    /// Parts from the first on, up to the first that is still missing.
    in_a_row: usize,
    /// Matches in those.
    found: usize,
}

impl Parts {
    /// Adds a part. Returns how many matches there are before the first part that is still missing.
    pub(super) fn insert(&mut self, number: usize, part: Part) -> usize {
        self.by_number.insert(number, part);
        while let Some(next) = self.by_number.get(&self.in_a_row) {
            self.in_a_row += 1;
            self.found += next.matches.len();
        }
        self.found
    }
}

impl Part {
    /// Searches one file and takes down what there is.
    pub(super) fn file(
        &mut self,
        search: &mut LineSearch<'_>,
        query: &GrepQuery,
        path: &RelPath,
        file: &mut File,
        stat: &Stat,
    ) {
        let before = self.matches.len();
        let after_line =
            query.after.as_ref().filter(|after| after.path == path.as_str()).and_then(|after| after.line);
        // One line beyond the limit tells that there are more.
        let limit = query.limit.saturating_add(1).saturating_sub(before);
        let bytes = ANSWER_BYTES_MAX.saturating_sub(self.bytes).saturating_add(1);
        let wanted = Wanted { path: path.as_str(), after_line: after_line.unwrap_or(0), limit, bytes };
        match search.file(file, stat.size, wanted, &mut self.matches) {
            Ok(Outcome::Searched) => self.searched += 1,
            Ok(Outcome::Binary) => self.binary += 1,
            Ok(Outcome::TooLong) | Err(_) => self.skipped += 1,
            Ok(Outcome::Interrupted) => {
                self.stop = Some(Stop::Time);
                self.interrupted = Some(path.as_str().to_owned());
                return;
            }
        }
        self.bytes += self.matches.get(before..).unwrap_or_default().iter().map(Match::bytes).sum::<usize>();
        if self.matches.len() > query.limit {
            self.stop = Some(Stop::Limit);
        } else if self.bytes > ANSWER_BYTES_MAX {
            self.stop = Some(Stop::Size);
        }
        self.through = Some(path.as_str().to_owned());
    }
}

/// The files that no part has searched.
pub(super) enum Rest<'a> {
    /// Nothing.
    Nothing,
    /// The files after the parts, which had found enough.
    Unseen,
    /// The files from this directory on, where the walk was cut short.
    From(&'a str),
}

/// Puts parts together in order, up to a limit.
pub(super) fn assemble(parts: impl IntoIterator<Item = Part>, limit: usize, rest: Rest<'_>) -> Grepped {
    let mut whole = Grepped::default();
    let mut bytes = 0_usize;
    let mut through: Option<String> = None;
    for part in parts {
        whole.searched += part.searched;
        whole.binary += part.binary;
        whole.skipped += part.skipped;
        for found in part.matches {
            let stop = match (whole.matches.len() >= limit, bytes > ANSWER_BYTES_MAX) {
                (true, _) => Some(Stop::Limit),
                (false, true) => Some(Stop::Size),
                (false, false) => None,
            };
            if stop.is_some() {
                whole.stop = stop;
                let last = whole.matches.last();
                whole.next = last.map(|last| GrepCursor { path: last.path.clone(), line: Some(last.line) });
                return whole;
            }
            bytes = bytes.saturating_add(found.bytes());
            whole.matches.push(found);
        }
        through = part.through.or(through);
        if part.stop.is_some() {
            whole.stop = part.stop;
            whole.next = match (part.stop, whole.matches.last()) {
                // The rest of its file was perhaps not searched.
                (Some(Stop::Limit | Stop::Size), Some(last)) => {
                    Some(GrepCursor { path: last.path.clone(), line: Some(last.line) })
                }
                _ => {
                    if through.is_none() && part.interrupted.is_some() {
                        // It took all the time there was, and would again: a caller that goes on gets past it.
                        whole.skipped += 1;
                    }
                    through.or(part.interrupted).map(|path| GrepCursor { path, line: None })
                }
            };
            return whole;
        }
    }
    let path = match rest {
        Rest::Nothing => return whole,
        Rest::Unseen => {
            whole.stop = Some(Stop::Size);
            through
        }
        Rest::From(dir) => {
            whole.stop = Some(Stop::Time);
            through.max(Some(dir.to_owned()).filter(|dir| !dir.is_empty()))
        }
    };
    whole.next = path.map(|path| GrepCursor { path, line: None });
    whole
}
