//! *Grep*: lines by a regular expression.

mod candidates;
mod ere;
mod lines;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::{PATIENCE, apart, meant};
use super::braces;
use super::glob::{Pattern, base_directory};
use super::listing::ENTRIES_MAX;
use super::tool::parse;
use super::{Context, Refusal, Report, Tool};
use crate::text::shown;
use candidates::{FILE_BYTES_MAX, candidates};
use lines::{Line, search};
use sandbox::{ErrorKind, FileKind, ReadOptions, SandboxPath};

pub use ere::{ignores_case, re2_to_ere};

/// Matching lines in one answer.
pub const MATCHES_MAX: usize = 200;
/// The most lines shown around a match.
pub const CONTEXT_LINES_MAX: usize = 20;
/// Longest regular expression, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// The memory that a compiled expression may take, in bytes.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most bytes of files that are read for one call: 256 MiB.
const READ_BYTES_MAX: u64 = 256 << 20;
/// Files read at once.
const READS_MAX: usize = 8;

/// The tool *Grep*.
#[derive(Clone, Copy, Debug)]
pub struct Grep;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    include: String,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context_lines: usize,
}

#[async_trait]
impl Tool for Grep {
    fn name(&self) -> &'static str {
        "Grep"
    }

    fn description(&self) -> &'static str {
        "Find lines by a regular expression (RE2 syntax) in a file, or in all files below a directory. Hidden \
         directories, node_modules, binary files and files over 1 MB are left out. Shows `line: text` under each file, \
         at most 200 matches."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "Regular expression; `(?i)` at its beginning ignores case" },
                "path": { "type": "string", "description": "File or directory to search; the current directory by default" },
                "include": { "type": "string", "description": "Only files whose name matches, such as `*.{ts,tsx}`; with a `/` it is about the path" },
                "ignore_case": { "type": "boolean", "description": "Whether case does not matter; false by default" },
                "context_lines": { "type": "integer", "minimum": 0, "maximum": CONTEXT_LINES_MAX, "description": "Lines to show before and after each match; 0 by default" }
            },
            "required": ["pattern"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        Ok(self.report(context, arguments).await?.text)
    }

    fn data_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "matches": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "path": { "type": "string" },
                            "line": { "type": "integer", "minimum": 1 },
                            "text": { "type": "string" }
                        },
                        "required": ["path", "line", "text"]
                    }
                },
                "truncated": { "type": "boolean", "description": "Whether there may be more" }
            },
            "required": ["matches", "truncated"]
        }))
    }

    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        let Parameters { pattern, path, include, ignore_case, context_lines } = parse(arguments)?;
        let (regex, hir) = compile(&pattern, ignore_case)?;
        let include = Include::new(&include)?;
        if context_lines > CONTEXT_LINES_MAX {
            return Err(Refusal(format!(
                "context_lines is {context_lines}: at most {CONTEXT_LINES_MAX} are possible"
            )));
        }
        let place = context.session.resolve(&path)?;
        let info = context.sandbox.stat(context.session.user(), &place).await;
        let (base, files, is_cut) = match info {
            Ok(info) if info.kind == FileKind::File => {
                let parent = place.parent().unwrap_or_else(|| place.clone());
                (parent, vec![(info.name, Some(info.size))], false)
            }
            _ => {
                base_directory(context, &place).await?;
                let mut listing = candidates(context, &place, &hir).await?;
                listing.files = meant(listing.files, move |path| include.matches(path)).await?;
                listing.files.sort_unstable();
                (place, listing.files, listing.is_cut)
            }
        };
        let mut found = Found { has_context: context_lines > 0, ..Found::default() };
        found.search(context, &base, files, &regex, context_lines).await?;
        Ok(Report {
            text: found.render(context, &base, is_cut),
            data: Some(found.data(context, &base, is_cut)),
        })
    }
}

/// Reads the regular expression, for matching and for looking at.
fn compile(pattern: &str, ignore_case: bool) -> Result<(Regex, regex_syntax::hir::Hir), Refusal> {
    if pattern.is_empty() {
        return Err(Refusal::new("pattern is required"));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(Refusal(format!(
            "the pattern has {} bytes: at most {PATTERN_BYTES_MAX} are possible",
            pattern.len()
        )));
    }
    let regex =
        RegexBuilder::new(pattern).case_insensitive(ignore_case).size_limit(COMPILED_BYTES_MAX).build();
    let regex = regex.map_err(|error| Refusal(format!("invalid regex: {error}")))?;
    let mut parser = regex_syntax::ParserBuilder::new().case_insensitive(ignore_case).build();
    let hir = parser.parse(pattern).map_err(|error| Refusal(format!("invalid regex: {error}")))?;
    Ok((regex, hir))
}

/// Which files are searched.
struct Include(Vec<(Pattern, bool)>);

impl Include {
    fn new(include: &str) -> Result<Self, Refusal> {
        if include.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let one = |pattern: String| Ok((Pattern::new(&pattern)?, pattern.trim_matches('/').contains('/')));
        let all: Result<Vec<_>, String> =
            braces::expand(include).and_then(|all| all.into_iter().map(one).collect());
        all.map(Self).map_err(|reason| Refusal(format!("invalid include: {reason}")))
    }

    fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.0.is_empty()
            || self.0.iter().any(|(pattern, is_path)| pattern.matches(if *is_path { path } else { name }))
    }
}

/// The matches found so far.
#[derive(Default)]
struct Found {
    files: Vec<(String, Vec<Line>)>,
    matches: usize,
    is_truncated: bool,
    too_large: usize,
    is_exhausted: bool,
    is_late: bool,
    has_context: bool,
}

impl Found {
    /// Reads files in order, several at once, until there are enough matches.
    async fn search(
        &mut self,
        context: &Context<'_>,
        base: &SandboxPath,
        files: Vec<(String, Option<u64>)>,
        regex: &Regex,
        around: usize,
    ) -> Result<(), Refusal> {
        let options = ReadOptions { range: None, bytes_max: Some(FILE_BYTES_MAX) };
        let mut reads = stream::iter(files)
            .map(|(path, size)| {
                let options = options.clone();
                async move {
                    if size.is_some_and(|size| size > FILE_BYTES_MAX) {
                        return (path, Err(ErrorKind::TooLarge));
                    }
                    let read = async {
                        let file = base.join(&path).map_err(|_| ErrorKind::NotFound)?;
                        let body = context.sandbox.read_file(context.session.user(), &file, options).await;
                        body.map_err(|error| error.kind())?.bytes().await.map_err(|error| error.kind())
                    };
                    let bytes = read.await;
                    (path, bytes)
                }
            })
            .buffered(READS_MAX);
        let (mut read_bytes, mut spent) = (0, Duration::ZERO);
        while let Some((path, bytes)) = reads.next().await {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(ErrorKind::TooLarge) => {
                    self.too_large += 1;
                    continue;
                }
                // Gone, or not to be read, since it was listed.
                Err(
                    ErrorKind::NotFound
                    | ErrorKind::PermissionDenied
                    | ErrorKind::IsDirectory
                    | ErrorKind::NotADirectory
                    | ErrorKind::Invalid
                    | ErrorKind::Unsupported,
                ) => continue,
                Err(kind) => {
                    return Err(sandbox::Error::new(kind, "read_file", "a file could not be read").into());
                }
            };
            read_bytes += bytes.len() as u64;
            if bytes.contains(&0) {
                continue;
            }
            let (regex, matches_max) = (regex.clone(), MATCHES_MAX - self.matches);
            let searched = apart(move || {
                let begin = Instant::now();
                let text = std::str::from_utf8(&bytes).unwrap_or_default();
                (
                    search(text, &regex, around, matches_max, begin + PATIENCE.saturating_sub(spent)),
                    begin.elapsed(),
                )
            });
            let ((lines, is_cut), took) = searched.await?;
            spent += took;
            self.matches += lines.iter().filter(|line| line.is_match).count();
            if !lines.is_empty() {
                self.files.push((path, lines));
            }
            if is_cut {
                self.is_truncated = true;
                break;
            }
            if spent >= PATIENCE {
                self.is_late = true;
                break;
            }
            if read_bytes > READ_BYTES_MAX {
                self.is_exhausted = true;
                break;
            }
        }
        Ok(())
    }

    /// The matches without the lines around them.
    fn data(&self, context: &Context<'_>, base: &SandboxPath, is_cut: bool) -> Value {
        let matches = self.files.iter().flat_map(|(path, lines)| {
            let path = base.join(path).map_or_else(|_| path.clone(), |path| context.session.shown(&path));
            let matching = lines.iter().filter(|line| line.is_match);
            matching.map(move |line| json!({ "path": path, "line": line.number, "text": line.text }))
        });
        let truncated =
            is_cut || self.is_truncated || self.is_exhausted || self.is_late || self.too_large > 0;
        json!({ "matches": matches.collect::<Vec<_>>(), "truncated": truncated })
    }

    fn render(&self, context: &Context<'_>, base: &SandboxPath, is_cut: bool) -> String {
        let mut text = if self.matches == 0 {
            "No matches found.".to_owned()
        } else {
            format!("Found {} match(es):\n", self.matches)
        };
        for (path, lines) in &self.files {
            let path = base.join(path).map_or_else(|_| path.clone(), |path| context.session.shown(&path));
            text.push_str(&format!("\n## {}\n", shown(&path)));
            let mut last = None;
            for line in lines {
                if last.is_some_and(|last| last + 1 != line.number) && self.has_context {
                    text.push_str("--\n");
                }
                last = Some(line.number);
                let mark = if line.is_match { ':' } else { '-' };
                text.push_str(&format!("{}{mark} {}\n", line.number, line.text));
            }
        }
        text.truncate(text.trim_end_matches('\n').len());
        if self.is_truncated {
            text.push_str(&format!("\n(Results truncated. Showing first {MATCHES_MAX} matches.)"));
        }
        if self.is_exhausted {
            text.push_str(
                "\n(Stopped after 256 MB of files: search in a directory further down, or send `include`.)",
            );
        }
        if self.is_late {
            text.push_str(&format!(
                "\n(Stopped after {} s of searching: use a simpler pattern, or send `include`.)",
                PATIENCE.as_secs()
            ));
        }
        if self.too_large > 0 {
            text.push_str(&format!("\n({} file(s) over 1 MB were not searched.)", self.too_large));
        }
        if is_cut {
            text.push_str(&format!(
                "\n(Only the first {ENTRIES_MAX} entries were looked at: search in a directory further down.)"
            ));
        }
        text
    }
}
