//! Applying hunks to a text. Pure.

use crate::error::{Error, Result};
use crate::interrupt;

/// Places of a hunk that are counted.
const PLACES_MAX: usize = 1000;

/// Lines of a text that is patched. Each takes 16 bytes besides its own.
const LINES_MAX: usize = 2_000_000;
/// Lines that are looked through for hunks that are not where they say, all hunks of a file together: half a second.
const SCANNED_LINES_MAX: usize = 32_000_000;

/// A change of some neighbouring lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The line of the patch that begins it, from 1.
    pub line: u64,
    /// The line of the old text that its first old line should be, from 1; without old lines, the line it follows.
    pub old_start: u64,
    /// Its lines, context included.
    pub lines: Vec<Line>,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Which of the texts has it.
    pub side: Side,
    /// The line without its `\n`; a `\r` before it belongs to the line.
    pub text: String,
    /// Whether the text ends with this line and without a `\n`.
    pub is_open: bool,
}

/// Which of the two texts has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Both.
    Context,
    /// The old one.
    Removed,
    /// The new one.
    Added,
}

impl Hunk {
    fn old(&self) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.side != Side::Added).collect()
    }

    /// Where it says that its old lines begin, from 0.
    fn named(&self) -> usize {
        usize::try_from(self.old_start).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// How many lines it adds and how many it removes.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let count = |side| self.lines.iter().filter(|line| line.side == side).count();
        (count(Side::Added), count(Side::Removed))
    }
}

/// A line without the `\r` of its end.
fn bare(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// Makes the changes of `hunks` in the text of `path`.
///
/// * Lines are compared without a `\r` at their ends; where that made a difference, added lines get the ends that the
///   lines replaced had. So do lines put in without any around them, unless the patch spells a `\r` somewhere.
/// * Whether the text ends with a line end changes only where a hunk says so.
///
/// # Errors
/// [`Error::HunkMismatch`] for the first hunk whose old lines are nowhere after the former hunk, or at several places
/// but not at the one it names; [`Error::TooLarge`] for a text of more lines than one can patch; [`Error::Patch`] when
/// looking for its hunks takes too long; those of [`interrupt::check`].
pub(super) fn apply(text: &str, path: &str, hunks: &[Hunk]) -> Result<String> {
    apply_scanning(SCANNED_LINES_MAX, text, path, hunks)
}

/// As [`apply`], looking through `lines_max` lines at most for hunks that are not where they say.
fn apply_scanning(lines_max: usize, text: &str, path: &str, hunks: &[Hunk]) -> Result<String> {
    let mut lines: Vec<&str> = text.split('\n').take(LINES_MAX + 2).collect();
    if lines.len() > LINES_MAX + 1 {
        return Err(Error::TooLarge {
            what: format!("`{path}`, which has more than {LINES_MAX} lines,"),
            limit: u64::try_from(text.len()).unwrap_or(u64::MAX),
        });
    }
    let mut scanned_left = lines_max;
    let was_open = lines.last().is_some_and(|last| !last.is_empty());
    if !was_open {
        lines.pop();
    }
    let spells_cr = hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| line.text.ends_with('\r'));
    let (mut done, mut is_open) = (0_usize, was_open);
    let mut new = String::with_capacity(text.len());
    for (index, hunk) in hunks.iter().enumerate() {
        interrupt::check()?;
        let old = hunk.old();
        let scan = lines.len().saturating_sub(done).saturating_add(old.len());
        if !old.is_empty() && !fits(&lines, was_open, done, &old, hunk.named()) {
            scanned_left = scanned_left.checked_sub(scan).ok_or_else(|| Error::Patch {
                line: hunk.line,
                reason: format!(
                    "too many hunks of `{path}` are not at the lines that they name: make the patch anew, or send it in parts"
                ),
            })?;
        }
        let at =
            place(&lines, was_open, done, hunk, &old).map_err(|(found, nearest)| Error::HunkMismatch {
                path: path.to_owned(),
                hunk: index.saturating_add(1),
                line: hunk.line,
                found,
                nearest,
            })?;
        put(&mut new, lines.get(done..at).unwrap_or_default());
        let replaced = lines.get(at..at.saturating_add(old.len())).unwrap_or_default();
        let as_spelled = replaced.iter().zip(&old).all(|(line, old)| *line == old.text);
        let around = if replaced.is_empty() { lines.as_slice() } else { replaced };
        let has_cr = around.first().is_some_and(|line| line.ends_with('\r'));
        let mut kept = replaced.iter().copied();
        for line in &hunk.lines {
            let bare = bare(&line.text);
            match line.side {
                Side::Context => put(&mut new, kept.next().as_slice()),
                Side::Removed => drop(kept.next()),
                Side::Added if as_spelled && (!replaced.is_empty() || spells_cr) => {
                    put(&mut new, &[&line.text])
                }
                Side::Added if has_cr => put(&mut new, &[&format!("{bare}\r")]),
                Side::Added => put(&mut new, &[bare]),
            }
        }
        done = at.saturating_add(old.len());
        if done == lines.len() {
            let says = |side| hunk.lines.iter().any(|line| line.side != side && line.is_open);
            let (old_open, new_open) = (says(Side::Added), says(Side::Removed));
            if old_open || new_open || lines.is_empty() {
                is_open = new_open;
            }
        }
    }
    put(&mut new, lines.get(done..).unwrap_or_default());
    if is_open {
        new.pop();
    }
    Ok(new)
}

/// Appends lines, each with its end.
fn put(text: &mut String, lines: &[&str]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}

/// Tells whether the old lines of a hunk can end where they would, begun at `at`.
fn ends(lines: &[&str], is_open: bool, old: &[&Line], at: usize) -> bool {
    let is_last = at.saturating_add(old.len()) == lines.len();
    // A line that the patch has without an end must be the last one and have none.
    !old.iter().any(|line| line.is_open) || (is_last && is_open)
}

/// Tells whether the old lines of a hunk are at `at`, which is not before `from`.
fn fits(lines: &[&str], is_open: bool, from: usize, old: &[&Line], at: usize) -> bool {
    let there = lines.get(at..at.saturating_add(old.len()));
    at >= from
        && ends(lines, is_open, old, at)
        && there.is_some_and(|there| there.iter().zip(old).all(|(line, old)| bare(line) == bare(&old.text)))
}

/// Where the lines of a hunk are, from 0; or how many places there are, and the nearest to what it names, from 1.
fn place(
    lines: &[&str],
    is_open: bool,
    from: usize,
    hunk: &Hunk,
    old: &[&Line],
) -> Result<usize, (usize, Option<u64>)> {
    let start = usize::try_from(hunk.old_start).unwrap_or(usize::MAX);
    if old.is_empty() {
        return if (from..=lines.len()).contains(&start) { Ok(start) } else { Err((0, None)) };
    }
    let named = hunk.named();
    if fits(lines, is_open, from, old, named) {
        return Ok(named);
    }
    let rest = lines.get(from..).unwrap_or_default();
    let places = occurrences(rest, old).map(|at| at + from).filter(|at| ends(lines, is_open, old, *at));
    let places: Vec<usize> = places.take(PLACES_MAX).collect();
    match places.as_slice() {
        [one] => Ok(*one),
        places => {
            let nearest = places.iter().min_by_key(|at| at.abs_diff(named));
            let nearest = nearest.copied().or_else(|| {
                let first = old.iter().map(|line| line.text.trim()).find(|text| !text.is_empty())?;
                lines.iter().position(|line| line.trim() == first)
            });
            Err((places.len(), nearest.and_then(|at| u64::try_from(at.saturating_add(1)).ok())))
        }
    }
}

/// Every place of `wanted` in `lines`, in time linear in both (Knuth, Morris and Pratt).
fn occurrences<'a>(lines: &'a [&'a str], wanted: &'a [&'a Line]) -> impl Iterator<Item = usize> + 'a {
    let is =
        |index: usize, line: &str| wanted.get(index).is_some_and(|wanted| bare(&wanted.text) == bare(line));
    // How long a beginning of `wanted` each of its beginnings ends with.
    let mut borders = vec![0_usize; wanted.len()];
    let mut length = 0_usize;
    for (index, line) in wanted.iter().enumerate().skip(1) {
        while length > 0 && !is(length, &line.text) {
            length = borders.get(length - 1).copied().unwrap_or(0);
        }
        length += usize::from(is(length, &line.text));
        if let Some(border) = borders.get_mut(index) {
            *border = length;
        }
    }
    let mut matched = 0_usize;
    lines.iter().enumerate().filter_map(move |(at, line)| {
        while matched > 0 && !is(matched, line) {
            matched = borders.get(matched - 1).copied().unwrap_or(0);
        }
        matched += usize::from(is(matched, line));
        if matched < wanted.len() {
            return None;
        }
        matched = borders.last().copied().unwrap_or(0);
        Some((at + 1).saturating_sub(wanted.len()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hunk(old_start: u64, lines: &[&str]) -> Hunk {
        let line = |text: &&str| {
            let (side, rest) = text.split_at(1);
            let side = match side {
                "+" => Side::Added,
                "-" => Side::Removed,
                _ => Side::Context,
            };
            let (rest, is_open) = rest.strip_suffix('~').map_or((rest, false), |rest| (rest, true));
            Line { side, text: rest.to_owned(), is_open }
        };
        Hunk { line: 1, old_start, lines: lines.iter().map(line).collect() }
    }

    fn applied(text: &str, old_start: u64, lines: &[&str]) -> Option<String> {
        apply(text, "f", &[hunk(old_start, lines)]).ok()
    }

    #[test]
    fn a_hunk_is_made_where_its_lines_are_and_nowhere_else() {
        let text = "a\nb\nc\nb\nd\n";
        assert_eq!(applied(text, 2, &[" a", "-b", "+x", " c"]).as_deref(), Some("a\nx\nc\nb\nd\n"));
        assert_eq!(applied(text, 99, &["-b", "+x", " d"]).as_deref(), Some("a\nb\nc\nx\nd\n"));
        assert_eq!(applied(text, 4, &["-b", "+x"]).as_deref(), Some("a\nb\nc\nx\nd\n"));
        assert_eq!(applied(text, 5, &["+x"]).as_deref(), Some("a\nb\nc\nb\nd\nx\n"));
        assert_eq!(applied(text, 0, &["+x"]).as_deref(), Some("x\na\nb\nc\nb\nd\n"));
        assert_eq!(applied("", 0, &["+x", "+y"]).as_deref(), Some("x\ny\n"));
        assert_eq!(applied("a\n", 1, &["-a"]).as_deref(), Some(""));
        for (start, lines, found) in [(3, &["-b", "+x"][..], 2), (1, &["-z"], 0), (6, &["+x"], 0)] {
            match apply(text, "f", &[hunk(start, lines)]) {
                Err(Error::HunkMismatch { found: number, hunk: 1, .. }) => assert_eq!(number, found),
                other => panic!("{other:?}"),
            }
        }
        // The second hunk never goes before the first.
        let both = [hunk(4, &["-b", "+x"]), hunk(2, &["-b", "+y"])];
        assert!(apply(text, "f", &both).is_err());
    }

    #[test]
    fn line_ends_and_the_final_one_stay_unless_a_hunk_says_otherwise() {
        assert_eq!(applied("a\r\nb\r\n", 1, &["-a", "+x", "+y", " b"]).as_deref(), Some("x\r\ny\r\nb\r\n"));
        assert_eq!(applied("a\nb\n", 1, &["-a\r", "+x\r", " b\r"]).as_deref(), Some("x\nb\n"));
        assert_eq!(applied("a\r\nb\n", 1, &["-a\r", "+x", " b"]).as_deref(), Some("x\nb\n"));
        assert_eq!(applied("a\r\n", 1, &["+x"]).as_deref(), Some("a\r\nx\r\n"));
        assert_eq!(applied("a\nb", 2, &["-b", "+x"]).as_deref(), Some("a\nx"));
        assert_eq!(applied("a\nb", 2, &["-b~", "+x"]).as_deref(), Some("a\nx\n"));
        assert_eq!(applied("a\nb\n", 2, &["-b", "+x~"]).as_deref(), Some("a\nx"));
        assert_eq!(applied("a\nb\n", 2, &["-b~", "+x"]), None);
        assert_eq!(applied("", 0, &["+x~"]).as_deref(), Some("x"));
        assert_eq!(applied("a\nb", 1, &["-a", "+x"]).as_deref(), Some("x\nb"));
    }

    #[test]
    fn misplaced_hunks_are_refused_when_looking_for_all_of_them_takes_too_long() {
        let text: String = (0..1000).map(|line| format!("{line}\n")).collect();
        let far = |line: usize| hunk(1, &[&format!("-{line}"), "+changed"]);
        let hunks: Vec<Hunk> = (990..1000).map(far).collect();
        // Each is looked for behind the one before.
        let needed = 1000 + (1..10).sum::<usize>() + 10;
        assert!(apply_scanning(needed, &text, "f", &hunks).is_ok());
        assert!(matches!(apply_scanning(needed - 1, &text, "f", &hunks), Err(Error::Patch { .. })));
        // A hunk at the place that it names is not searched for.
        assert!(apply_scanning(0, &text, "f", &[hunk(991, &["-990", "+changed"])]).is_ok());
    }

    proptest! {
        #[test]
        fn occurrences_are_those_of_a_plain_search(lines in proptest::collection::vec("[ab]", 0..12),
                                                   wanted in proptest::collection::vec("[ab]", 1..4)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let line = |text: &String| Line { side: Side::Context, text: text.clone(), is_open: false };
            let owned: Vec<Line> = wanted.iter().map(line).collect();
            let old: Vec<&Line> = owned.iter().collect();
            let plain: Vec<usize> =
                (0..lines.len()).filter(|at| lines[*at..].starts_with(
                    &wanted.iter().map(String::as_str).collect::<Vec<_>>())).collect();
            prop_assert_eq!(occurrences(&lines, &old).collect::<Vec<_>>(), plain);
        }
    }
}
