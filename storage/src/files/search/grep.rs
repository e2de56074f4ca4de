//! Lines that match a regular expression.
//!
//! The walk is one and hands out batches of files in order; as many threads as there are processors search them. What they
//! find is put together in the order of the batches, so an answer does not depend on which thread was faster.

use std::num::NonZero;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use parking_lot::Mutex;
use policy::TreeId;

use super::lines::LineSearch;
use super::order::{Batch, Ordered, Selection};
use super::parts::{ANSWER_BYTES_MAX, Part, Parts, Rest, assemble};
use super::query::{GrepQuery, Grepped};
use super::{Patience, Stop};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::interrupt;
use crate::stat::Kind;

/// Longest regular expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 4096;
/// The memory of a compiled regular expression, in bytes. The time that a byte of text takes at worst grows with
/// it (regex, "Untrusted input").
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// The memory that each thread keeps for the states of a regular expression, in bytes.
const STATES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Threads of one search.
const THREADS_MAX: usize = 8;
/// As many as there are processors. Asking takes longer than a small search, because control groups have a say in it.
static THREADS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX));

/// The state that the threads of one search share.
struct Search<'a> {
    files: &'a Files,
    query: &'a GrepQuery,
    patience: &'a Patience,
    matcher: RegexMatcher,
    walk: Mutex<(Ordered<'a>, Option<Error>)>,
    parts: Mutex<Parts>,
    bytes: AtomicUsize,
    is_full: AtomicBool,
}

/// Compiles a regular expression for single lines.
pub(super) fn matcher(expression: &str, literal: bool, ignore_case: bool) -> Result<RegexMatcher> {
    let refused = |reason: String| Error::Pattern { pattern: expression.chars().take(80).collect(), reason };
    if expression.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(refused(format!("it has more than {EXPRESSION_BYTES_MAX} bytes")));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .crlf(true)
        .fixed_strings(literal)
        .case_insensitive(ignore_case)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(STATES_BYTES_MAX);
    builder.build(expression).map_err(|error| {
        let reason = error.to_string();
        // The parser draws the expression again, with a mark under the place; the last line says what is wrong.
        let last =
            reason.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it cannot be read");
        refused(last.strip_prefix("error: ").unwrap_or(last).to_owned())
    })
}

impl Files {
    /// Finds the lines that match, in all files below a directory or in one file.
    ///
    /// # Errors
    /// [`Error::Pattern`]; [`Error::NotFound`]; [`Error::TooManyEntries`], [`Error::TooLarge`] as [`Files::walk`].
    pub fn grep(&self, query: &GrepQuery, patience: &Patience) -> Result<Grepped> {
        let matcher = matcher(&query.expression, query.literal, query.ignore_case)?;
        let (store, id) = self.parts();
        let selection = Selection {
            directories: false,
            base: &query.path,
            include: &query.include,
            exclude: &query.exclude,
            hidden: query.hidden,
            from: query.after.as_ref().map(|after| after.path.as_str()),
            after: query.after.as_ref().is_some_and(|after| after.line.is_none()),
        };
        let walk = {
            let _held = store.locks().read(id);
            match self.layers(&query.path) {
                Err(Error::NotADirectory(_)) => None,
                // A workspace that was never written to is an empty one.
                Err(Error::NotFound(_)) if query.path.is_root() && matches!(id, TreeId::Workspace(..)) => {
                    return Ok(Grepped::default());
                }
                Err(Error::NotFound(_)) => return Err(Error::NotFound(query.path.to_string())),
                dirs => Some(Ordered::new(dirs?, selection, patience, store.options().files.tree_entries)?),
            }
        };
        match walk {
            None => self.grep_file(query, matcher, patience),
            Some(walk) => {
                let search = Search {
                    files: self,
                    query,
                    patience,
                    matcher,
                    walk: Mutex::new((walk, None)),
                    parts: Mutex::default(),
                    bytes: AtomicUsize::new(0),
                    is_full: AtomicBool::new(false),
                };
                search.run()
            }
        }
    }

    /// Searches one file, which the caller named.
    fn grep_file(&self, query: &GrepQuery, matcher: RegexMatcher, patience: &Patience) -> Result<Grepped> {
        let mut opened = self.open(&query.path)?;
        let mut part = Part::default();
        let mut search = LineSearch::new(matcher, query.context, patience);
        part.file(&mut search, query, &query.path, &mut opened.file, &opened.stat);
        Ok(assemble([part], query.limit, Rest::Nothing))
    }
}

impl Search<'_> {
    fn run(self) -> Result<Grepped> {
        let threads = *THREADS;
        // Most trees are one batch or two, which are searched in less time than a thread takes to begin.
        let mut own = LineSearch::new(self.matcher.clone(), self.query.context, self.patience);
        self.work(&mut own, 2);
        if !self.is_done() && threads > 1 {
            let job = interrupt::current();
            let help = || {
                let matcher = self.matcher.clone();
                self.work(&mut LineSearch::new(matcher, self.query.context, self.patience), usize::MAX);
            };
            thread::scope(|scope| {
                for _ in 1..threads {
                    // Without another thread the search is done all the same.
                    let help = || job.as_ref().map_or_else(help, |job| job.enter(help));
                    if thread::Builder::new().spawn_scoped(scope, help).is_err() {
                        break;
                    }
                }
                self.work(&mut own, usize::MAX);
            });
        } else {
            self.work(&mut own, usize::MAX);
        }
        let (walk, error) = self.walk.into_inner();
        if let Some(error) = error {
            return Err(error);
        }
        let parts = self.parts.into_inner().by_number.into_values();
        let rest = match walk.cut_at() {
            Some(dir) => Rest::From(dir.as_str()),
            None if self.is_full.load(Ordering::Relaxed) => Rest::Unseen,
            None => Rest::Nothing,
        };
        let mut grepped = assemble(parts, self.query.limit, rest);
        if grepped.stop.is_some() && grepped.next.is_none() {
            grepped.next.clone_from(&self.query.after);
        }
        Ok(grepped)
    }

    fn is_done(&self) -> bool {
        self.is_full.load(Ordering::Relaxed) || self.patience.is_over()
    }

    /// Searches up to `batches` batches, until there are no more or no more are needed.
    fn work(&self, search: &mut LineSearch<'_>, batches: usize) {
        for _ in 0..batches {
            if self.is_full.load(Ordering::Relaxed) {
                return;
            }
            let Some(batch) = self.take_batch() else { return };
            let part = self.search_batch(search, &batch);
            let bytes = self.bytes.fetch_add(part.bytes, Ordering::Relaxed).saturating_add(part.bytes);
            let is_cut = part.stop.is_some();
            let found = self.parts.lock().insert(batch.number, part);
            if is_cut || bytes > ANSWER_BYTES_MAX || found > self.query.limit {
                self.is_full.store(true, Ordering::Relaxed);
            }
        }
    }

    fn take_batch(&self) -> Option<Batch> {
        let (store, id) = self.files.parts();
        let mut walk = self.walk.lock();
        if walk.1.is_some() {
            return None;
        }
        // Held for a listing, not for a search: changes of the tree do not wait for it.
        let _held = store.locks().read(id);
        match walk.0.next_batch() {
            Ok(batch) => batch,
            Err(error) => {
                walk.1 = Some(error);
                None
            }
        }
    }

    fn search_batch(&self, search: &mut LineSearch<'_>, batch: &Batch) -> Part {
        let (store, id) = self.files.parts();
        let owner = store.owner(id).filter(|_| matches!(id, TreeId::Workspace(..)));
        let mut part = Part::default();
        for (path, child) in &batch.files {
            if child.kind != Kind::File {
                continue;
            }
            if self.patience.is_over() {
                part.stop = Some(Stop::Time);
            }
            if part.stop.is_some() {
                break;
            }
            let opened = batch.dirs.at(child.layer).and_then(|dir| dir.open_file_entry(&child.name));
            match opened {
                // Another owner's file, linked in: see `Plain`.
                Ok((_, stat)) if stat.links > 1 && owner.is_some_and(|owner| stat.owner != owner) => {
                    part.skipped += 1;
                }
                Ok((mut file, stat)) => part.file(search, self.query, path, &mut file, &stat),
                // A command removed or replaced it meanwhile.
                Err(Error::NotFound(_) | Error::IsDirectory(_) | Error::Escape(_)) => {}
                Err(_) => part.skipped += 1,
            }
        }
        part
    }
}
