//! [`Pattern`]: which paths a pattern means.

mod find;

use policy::glob::{Dialect, Glob, GlobError, Part, Piece};

pub(crate) use find::FindArgs;
pub use find::glob_to_find_args;
pub use policy::glob::PATTERN_BYTES_MAX;

/// The directory of packages that a search skips unless the call names it.
pub(super) const UNSEARCHED: &str = "node_modules";

/// A pattern of [`Dialect::Shell`], for paths relative to where a search begins.
///
/// As in a shell, what begins with a dot is matched only by a segment that begins with a dot, and neither `*` nor `**`
/// goes into `node_modules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    alternatives: Vec<Vec<Segment>>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// `**`.
    Any,
    /// The parts of a name.
    Name(Vec<Part>),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is empty, too long, climbs by `..`, or its braces stand for too many.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let glob = Glob::read(pattern, Dialect::Shell).map_err(|error| match error {
            GlobError::TooLong => {
                format!("the pattern has {} bytes: at most {PATTERN_BYTES_MAX} are possible", pattern.len())
            }
            GlobError::Parent => "the pattern has a `..` segment: name the directory in `path`".to_owned(),
            GlobError::Empty => "pattern is required".to_owned(),
            error => error.to_string(),
        })?;
        Ok(Self { alternatives: glob.alternatives().iter().map(|pieces| segments(pieces)).collect() })
    }

    /// Whether it means `path`, which is relative and has no empty segment.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|segments| segments_match(segments, &path))
    }

    /// Whether, after its first `depth` segments, a segment spells a directory that is not gone into by itself.
    pub(super) fn names_hidden_below(&self, depth: usize) -> bool {
        let spells = |segment: &Segment| match segment {
            Segment::Any => false,
            Segment::Name(parts) => {
                let literal =
                    |part: &Part| if let Part::Literal(literal) = part { Some(*literal) } else { None };
                parts.first().and_then(literal) == Some('.')
                    || parts.iter().map(literal).eq(UNSEARCHED.chars().map(Some))
            }
        };
        self.alternatives.iter().any(|segments| {
            let directories = segments.len().saturating_sub(1);
            segments.iter().take(directories).skip(depth).any(spells)
        })
    }

    /// The patterns it stands for, without braces.
    pub(super) fn alternatives(&self) -> &[Vec<Segment>] {
        &self.alternatives
    }
}

/// Divides an alternative into its segments.
fn segments(pieces: &[Piece]) -> Vec<Segment> {
    let (mut segments, mut name) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Part(part) => name.push(part.clone()),
            Piece::Separator => segments.push(Segment::Name(std::mem::take(&mut name))),
            Piece::Directories | Piece::Below => segments.push(Segment::Any),
            // This dialect multiplies braces out before.
            Piece::Open | Piece::Or | Piece::Close => {}
        }
    }
    if !name.is_empty() {
        segments.push(Segment::Name(name));
    }
    segments
}

/// Whether `segments` match all of `path`, by dynamic programming: the cost is the product of both lengths.
fn segments_match(segments: &[Segment], path: &[&str]) -> bool {
    let names = segments.iter().filter(|segment| **segment != Segment::Any).count();
    if names > path.len() || (names < path.len() && names == segments.len()) {
        return false;
    }
    // `reached[j]`: the segments so far match the first `j` names.
    let mut reached = vec![false; path.len() + 1];
    reached.iter_mut().take(1).for_each(|first| *first = true);
    for (index, segment) in segments.iter().enumerate() {
        let mut next = vec![false; path.len() + 1];
        let is_last = index + 1 == segments.len();
        let mut running = false;
        for (position, slot) in next.iter_mut().enumerate() {
            let before =
                position.checked_sub(1).and_then(|before| Some((*reached.get(before)?, *path.get(before)?)));
            let here = reached.get(position).copied().unwrap_or(false);
            *slot = match segment {
                Segment::Name(parts) => before.is_some_and(|(was, name)| was && name_matches(parts, name)),
                Segment::Any => {
                    running = before.is_some_and(|(was, name)| (running || was) && is_searched(name));
                    running || (here && !is_last)
                }
            };
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

/// Whether a name is gone into, or matched, without having been spelled out.
pub(crate) fn is_searched(name: &str) -> bool {
    !name.starts_with('.') && name != UNSEARCHED
}

/// Whether `parts` are all of `name`. At most one star is gone back to, so the cost is the product of both lengths.
fn name_matches(parts: &[Part], name: &str) -> bool {
    let is_spelled = parts.iter().all(|part| matches!(part, Part::Literal(_)));
    if (name.starts_with('.') && parts.first() != Some(&Part::Literal('.')))
        || (name == UNSEARCHED && !is_spelled)
    {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    let (mut part, mut position) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(character) = name.get(position) {
        match parts.get(part) {
            Some(Part::Star) => {
                star = Some((part + 1, position));
                part += 1;
                continue;
            }
            Some(single) if one_matches(single, *character) => {
                part += 1;
                position += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = star else { return false };
        (part, position) = (after, from + 1);
        star = Some((after, from + 1));
    }
    parts.iter().skip(part).all(|part| *part == Part::Star)
}

fn one_matches(part: &Part, character: char) -> bool {
    match part {
        Part::Literal(literal) => *literal == character,
        Part::One => true,
        Part::Star => false,
        Part::Class { is_negated, ranges } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *is_negated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_a_shell_means_by_it() {
        for (pattern, path, expected) in [
            ("*/a.go", "x/a.go", true),
            ("*/a.go", "a.go", false),
            ("*/a.go", "x/y/a.go", false),
            ("src/*/x", "src/y/x", true),
            ("**/test/*.go", "test/x.go", true),
            ("**/test/*.go", "test/sub/x.go", false),
            ("**/a/**/b/*.c", "a/b/x.c", true),
            ("**/a/**/b/*.c", "1/a/2/3/b/x.c", true),
            ("**/a/**/b/*.c", "1/a/2/3/b/4/x.c", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/**/b", "a/b", true),
            ("**/**/x", "x", true),
            ("a**b", "axxb", true),
            ("a**b", "a/b", false),
            ("*", ".env", false),
            (".*", ".env", true),
            ("[.]env", ".env", false),
            ("**/*.go", ".git/x.go", false),
            ("**/.github/*.yml", "a/.github/x.yml", true),
            (".github/**", ".github/a/b", true),
            (".github/**", ".github/.b", false),
            ("**/*.js", "node_modules/a.js", false),
            ("node_modules/*.js", "node_modules/a.js", true),
            ("*/a.js", "node_modules/a.js", false),
            ("a?c", "a字c", true),
            ("[数-文].md", "文.md", true),
            ("[!a].md", "a.md", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("./src//x/", "src/x", true),
            ("(a|b)+$", "(a|b)+$", true),
            ("*.{md,txt}", "说明.txt", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_pattern_that_means_nothing_or_climbs_is_refused() {
        for pattern in ["", "/", "./.", "a/../b", "..", "{,..}/x"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
        assert!(Pattern::new(&"x".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_hostile_pattern_costs_the_product_of_lengths() {
        let stars = "*a".repeat(500);
        assert!(!Pattern::new(&stars).unwrap().matches(&"a".repeat(255)));
        let deep = "**/a/".repeat(200);
        assert!(!Pattern::new(&format!("{deep}b")).unwrap().matches("a/".repeat(1000).trim_end_matches('/')));
    }
}
