//! Matching lines of one text, with those around them.

use std::time::Instant;

use regex::Regex;

use crate::text::head;

/// Longest line as it is shown, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 500;

/// A line of a text that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    /// Whether it matches; else it is near one that does.
    pub(super) is_match: bool,
    /// At most [`LINE_BYTES_MAX`] bytes and `...`.
    pub(super) text: String,
}

/// The lines of `text` that match, at most `matches_max`, with up to `context` lines around each; and whether there are
/// more. Those that are not reached `until` then are left out.
///
/// Lines end with `\n` or `\r\n`, which are no part of them.
pub(super) fn search(
    text: &str,
    regex: &Regex,
    context: usize,
    matches_max: usize,
    until: Instant,
) -> (Vec<Line>, bool) {
    let lines: Vec<&str> = text.lines().collect();
    let is_match = |(index, line): (usize, &&str)| regex.is_match(line).then_some(index);
    let in_time = lines.iter().enumerate().take_while(|_| Instant::now() < until);
    let mut matches: Vec<usize> = in_time.filter_map(is_match).take(matches_max + 1).collect();
    let is_cut = matches.len() > matches_max;
    matches.truncate(matches_max);
    let (mut shown, mut shown_until) = (Vec::new(), 0);
    for index in &matches {
        let begin = index.saturating_sub(context).max(shown_until);
        let end = (index + context + 1).min(lines.len());
        for (position, text) in lines.iter().enumerate().take(end).skip(begin) {
            let (text, is_long) = head(text, LINE_BYTES_MAX);
            let text = if is_long { format!("{text}...") } else { text.to_owned() };
            shown.push(Line {
                number: position + 1,
                is_match: matches.binary_search(&position).is_ok(),
                text,
            });
        }
        shown_until = shown_until.max(end);
    }
    (shown, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late() -> Instant {
        Instant::now() + std::time::Duration::from_secs(600)
    }

    fn shown(text: &str, pattern: &str, context: usize, max: usize) -> (Vec<(usize, bool)>, bool) {
        let (lines, is_cut) = search(text, &Regex::new(pattern).unwrap(), context, max, late());
        (lines.into_iter().map(|line| (line.number, line.is_match)).collect(), is_cut)
    }

    #[test]
    fn lines_around_matches_are_shown_once_and_in_order() {
        let text = "a\nx\nb\nx\nx\nc\nd\ne\nx";
        assert_eq!(
            shown(text, "^x$", 1, 9),
            (
                vec![
                    (1, false),
                    (2, true),
                    (3, false),
                    (4, true),
                    (5, true),
                    (6, false),
                    (8, false),
                    (9, true)
                ],
                false
            )
        );
        assert_eq!(shown(text, "^x$", 0, 2), (vec![(2, true), (4, true)], true));
        assert_eq!(shown(text, "^x$", 0, 4), (vec![(2, true), (4, true), (5, true), (9, true)], false));
        assert_eq!(shown(text, "^x$", 99, 1).0.len(), 9);
        assert_eq!(shown("", "x*", 0, 9), (vec![], false));
    }

    #[test]
    fn line_ends_are_no_part_of_lines_and_long_lines_are_cut_between_characters() {
        assert_eq!(shown("a\r\nb\r\n", "a$", 0, 9), (vec![(1, true)], false));
        let (lines, _) = search(&"字".repeat(300), &Regex::new("字").unwrap(), 0, 9, late());
        assert_eq!(lines.first().map(|line| line.text.clone()), Some(format!("{}...", "字".repeat(166))));
    }
}
