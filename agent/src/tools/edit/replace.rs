//! Edits by text and by regular expression.

use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use super::fuzzy::{fuzzy_match, reindent};
use super::hint::hint;

/// A pattern and its replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacement {
    /// The text, or the regular expression, to look for.
    pub old: String,
    /// The replacement; for a regular expression, `$1` and `${name}` are the texts that its groups matched.
    pub new: String,
    /// Whether `old` is a regular expression (RE2 syntax).
    pub is_regex: bool,
    /// Whether every occurrence is replaced, not only the first.
    pub all: bool,
    /// Only lines from this one, from 1.
    pub first_line: Option<usize>,
    /// Only lines to this one.
    pub last_line: Option<usize>,
}

/// Longest regular expression, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// The memory that a compiled expression may take, in bytes.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The largest result, in bytes: 32 MiB.
const RESULT_BYTES_MAX: usize = 32 << 20;
const TOO_LARGE: &str = "the file would be larger than 32 MB: replace less";
/// How long the matches of a regular expression are looked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Replaces text in `content`; gives the new content and a summary.
///
/// Where plain text occurs nowhere, the one block of lines that differs in white space alone is taken, the new text is
/// indented as that block is, and the summary says so.
///
/// # Errors
/// Nothing to look for, an invalid expression, lines that are not there, or no occurrence; with the nearest line.
pub fn replace(content: &str, replacement: &Replacement) -> Result<(String, String), String> {
    if replacement.old.is_empty() {
        return Err("old_string is required".to_owned());
    }
    let (before, part, after) = lines_of(content, replacement.first_line, replacement.last_line)?;
    let (changed, summary) =
        if replacement.is_regex { by_regex(part, replacement) } else { by_text(part, replacement) }.map_err(
            |reason| match (replacement.first_line, replacement.last_line) {
                (None, None) => reason,
                (first, last) => {
                    let first = first.unwrap_or(1);
                    let last = last.map_or_else(|| "end".to_owned(), |last| last.to_string());
                    format!("{reason} (looked in lines {first}-{last})")
                }
            },
        )?;
    if before.len() + changed.len() + after.len() > RESULT_BYTES_MAX {
        return Err(TOO_LARGE.to_owned());
    }
    Ok((format!("{before}{changed}{after}"), summary))
}

/// The text before, within and after the lines from `first` to `last`.
fn lines_of(content: &str, first: Option<usize>, last: Option<usize>) -> Result<(&str, &str, &str), String> {
    if first.is_none() && last.is_none() {
        return Ok(("", content, ""));
    }
    let total = content.lines().count().max(1);
    let (first, last) = (first.unwrap_or(1), last.unwrap_or(total));
    if first == 0 || last < first {
        return Err(format!("start_line {first} and end_line {last} are no range: lines count from 1"));
    }
    if first > total {
        return Err(format!("start_line {first} exceeds total lines {total}"));
    }
    let position = |line: usize| content.split_inclusive('\n').take(line).map(str::len).sum::<usize>();
    let (begin, end) = (position(first - 1), position(last));
    let part = content.get(begin..end).unwrap_or_default();
    // The newline after the last line separates it from the next: it is not the caller's.
    let part = part.strip_suffix('\n').unwrap_or(part);
    let end = begin + part.len();
    Ok((content.get(..begin).unwrap_or_default(), part, content.get(end..).unwrap_or_default()))
}

fn by_regex(content: &str, replacement: &Replacement) -> Result<(String, String), String> {
    if replacement.old.len() > PATTERN_BYTES_MAX {
        return Err(format!("the regular expression has more than {PATTERN_BYTES_MAX} bytes"));
    }
    let regex = RegexBuilder::new(&replacement.old).size_limit(COMPILED_BYTES_MAX).build();
    let regex = regex.map_err(|error| format!("invalid regex: {error}"))?;
    let (changed, found) = substituted(content, &regex, &replacement.new, replacement.all)?;
    if found == 0 {
        return Err(format!("no match found for regex `{}`", shortened(&replacement.old)));
    }
    let summary = match (replacement.all, found) {
        (true, _) => format!("Replaced {found} match(es) of the regex"),
        (false, 1) => "Replaced 1 match of the regex".to_owned(),
        (false, _) => format!("Replaced 1 of {found} matches of the regex (set replace_all to replace all)"),
    };
    Ok((changed, summary))
}

/// `content` with `template` for the first match, or for all; and how many there are.
fn substituted(content: &str, regex: &Regex, template: &str, all: bool) -> Result<(String, usize), String> {
    let begin = Instant::now();
    let references = template.matches('$').count();
    let (mut changed, mut kept, mut found) = (String::new(), 0, 0_usize);
    // One search takes time linear in the text, but all of them together by its square.
    let in_time = || match begin.elapsed() < PATIENCE {
        true => Ok(()),
        false => Err(format!(
            "the regular expression takes more than {} s in this file: use a simpler one, or start_line and end_line",
            PATIENCE.as_secs()
        )),
    };
    for captures in regex.captures_iter(content).take(if all { usize::MAX } else { 1 }) {
        in_time()?;
        found += 1;
        let Some(whole) = captures.get(0) else { continue };
        changed.push_str(content.get(kept..whole.start()).unwrap_or_default());
        kept = whole.end();
        // A reference is at most all that matched.
        let most = references.saturating_mul(whole.len()).saturating_add(template.len());
        if most <= RESULT_BYTES_MAX {
            captures.expand(template, &mut changed);
        }
        if most.max(changed.len()) > RESULT_BYTES_MAX {
            return Err(TOO_LARGE.to_owned());
        }
    }
    changed.push_str(content.get(kept..).unwrap_or_default());
    if !all {
        found = 0;
        for _ in regex.find_iter(content) {
            in_time()?;
            found += 1;
        }
    }
    Ok((changed, found))
}

fn by_text(content: &str, replacement: &Replacement) -> Result<(String, String), String> {
    let Replacement { old, new, .. } = replacement;
    let new = &without_blanks(new);
    let found = content.matches(old.as_str()).count();
    if found == 0 {
        return by_block(content, old, new);
    }
    if replacement.all && found.saturating_mul(new.len()) > RESULT_BYTES_MAX {
        return Err(TOO_LARGE.to_owned());
    }
    let changed = if replacement.all {
        content.replace(old.as_str(), new)
    } else {
        content.replacen(old.as_str(), new, 1)
    };
    let mut summary = match (replacement.all, found) {
        (true, _) => format!("Replaced {found} occurrence(s)"),
        (false, 1) => "Replaced 1 occurrence".to_owned(),
        (false, _) => format!("Replaced 1 of {found} occurrences (set replace_all to replace all)"),
    };
    if new != old && new.contains(old.as_str()) {
        summary.push_str(
            ". Note: new_string contains old_string, so old_string is still present: do not repeat this edit",
        );
    }
    Ok((changed, summary))
}

fn by_block(content: &str, old: &str, new: &str) -> Result<(String, String), String> {
    let Some(found) = fuzzy_match(content, old) else {
        let nearest = hint(content, old);
        let nearest = if nearest.is_empty() { "read the file again".to_owned() } else { nearest };
        return Err(format!("text not found: {nearest}"));
    };
    let begin = found.as_ptr() as usize - content.as_ptr() as usize;
    let old_lines: Vec<&str> = old.trim_matches('\n').split('\n').collect();
    let actual: Vec<&str> = found.split('\n').collect();
    let new = new.strip_suffix('\n').filter(|_| old.ends_with('\n')).unwrap_or(new);
    let new = reindent(&old_lines, &actual, new, RESULT_BYTES_MAX).ok_or(TOO_LARGE)?;
    let changed = format!(
        "{}{new}{}",
        content.get(..begin).unwrap_or_default(),
        content.get(begin + found.len()..).unwrap_or_default()
    );
    Ok((
        changed,
        "Replaced 1 occurrence (auto-corrected whitespace: old_string differed from the file in it)"
            .to_owned(),
    ))
}

/// The same without white space in lines that have nothing else, of a text with several.
fn without_blanks(text: &str) -> String {
    if !text.contains('\n') {
        return text.to_owned();
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let last = lines.len() - 1;
    let blank = |line: &str| line.trim_matches([' ', '\t']).is_empty();
    // The last line may go on with what follows the replaced text.
    lines
        .iter()
        .enumerate()
        .map(|(index, line)| if index > 0 && index < last && blank(line) { "" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

fn shortened(text: &str) -> String {
    crate::text::truncate(&text.escape_debug().to_string(), 80)
}
