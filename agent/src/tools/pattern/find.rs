//! Patterns as arguments of find(1), which lists at least what they mean.

use policy::glob::{Part, expand};

use super::{Pattern, Segment};
use crate::tools::shell::shell_escape;

/// The arguments of find(1): where to begin, how deep to go, and which names to let through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FindArgs {
    /// The directory to begin in, relative; empty for where the search begins.
    pub(crate) base: String,
    /// Fewest levels below it.
    pub(crate) depth_min: Option<usize>,
    /// Most levels below it.
    pub(crate) depth_max: Option<usize>,
    test: Option<Test>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Name(String),
    Path(String),
}

/// A pattern as the directory that find(1) begins in and its arguments, quoted for a shell.
///
/// | Pattern | Directory | Arguments |
/// | --- | --- | --- |
/// | `*.rs` | | `-maxdepth 1 -name '*.rs'` |
/// | `src/*.rs` | `src` | `-maxdepth 1 -name '*.rs'` |
/// | `*/a.rs` | | `-mindepth 2 -maxdepth 2 -path '*/*/a.rs'` |
/// | `src/**/*.rs` | `src` | `-name '*.rs'` |
/// | `**/test/*.rs` | | `-path '*/test/*.rs'` |
/// | `**/a/**/*.rs` | | `-path '*/a/*.rs'` |
/// | `src/**` | `src` | |
///
/// find(1) knows neither braces nor segments: of a pattern with braces this is the first alternative, and `*` in a
/// `-path` crosses `/`. So what it lists is a superset, which [`Pattern::matches`] goes through.
#[must_use]
pub fn glob_to_find_args(pattern: &str) -> (String, String) {
    let first = expand(pattern).ok().and_then(|all| all.into_iter().next());
    let args = FindArgs::of_words(
        first.as_deref().unwrap_or(pattern).split('/').filter(|segment| !segment.is_empty()),
    );
    let mut words = args.words();
    if let (Some(_), Some(value)) = (&args.test, words.last_mut()) {
        *value = format!("'{}'", shell_escape(value));
    }
    (args.base, words.join(" "))
}

impl FindArgs {
    /// The arguments that list at least the files that `pattern` means, and a `find` in any locale understands alike.
    pub(crate) fn of(pattern: &Pattern) -> Self {
        let mut all = pattern.alternatives().iter().map(|segments| {
            let literal = segments.iter().take_while(|segment| is_literal(segment)).count();
            let base = literal.min(segments.len().saturating_sub(1));
            let spelled = segments.iter().take(base).map(spelled);
            let words: Vec<String> = spelled.chain(segments.iter().skip(base).map(relaxed)).collect();
            Self::of_segments(words.iter().map(String::as_str).collect(), literal)
        });
        let Some(first) = all.next() else { return Self::default() };
        all.fold(first, Self::either)
    }

    fn of_words<'a>(segments: impl Iterator<Item = &'a str>) -> Self {
        let segments: Vec<&str> = segments.collect();
        let literal = segments.iter().take_while(|segment| !segment.contains(['*', '?', '['])).count();
        Self::of_segments(segments, literal)
    }

    /// Of segments whose first `literal` ones are plain names.
    fn of_segments(segments: Vec<&str>, literal: usize) -> Self {
        let Some(last) = segments.len().checked_sub(1) else { return Self::default() };
        let (base, rest) = segments.split_at(literal.min(last));
        let base = base.join("/");
        let first_any = rest.iter().position(|segment| *segment == "**");
        match (first_any, rest) {
            (None, [name]) => {
                Self { base, depth_min: None, depth_max: Some(1), test: Some(Test::Name((*name).to_owned())) }
            }
            (None, _) => Self {
                base,
                depth_min: Some(rest.len()),
                depth_max: Some(rest.len()),
                test: Some(Test::Path(format!("*/{}", rest.join("/")))),
            },
            (Some(_), ["**"]) => Self { base, ..Self::default() },
            (Some(0), ["**", name]) => {
                Self { base, test: Some(Test::Name((*name).to_owned())), ..Self::default() }
            }
            (Some(first_any), _) => {
                let rest = if first_any == 0 { rest.get(1..).unwrap_or_default() } else { rest };
                let mut path = "*/".to_owned();
                for (index, segment) in rest.iter().enumerate() {
                    let is_last = index + 1 == rest.len();
                    // Two stars may stand for nothing, and then the `/` after them is not there.
                    match *segment {
                        "**" if path.ends_with('*') => {}
                        "**" => path.push('*'),
                        name if path.ends_with('*') => path.push_str(name.trim_start_matches('*')),
                        name => path.push_str(name),
                    }
                    if !is_last && *segment != "**" {
                        path.push('/');
                    }
                }
                Self { base, test: Some(Test::Path(path)), ..Self::default() }
            }
        }
    }

    /// The arguments that list at least the files of both.
    fn either(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        if self.base != other.base {
            let common: Vec<&str> = self
                .base
                .split('/')
                .zip(other.base.split('/'))
                .take_while(|(one, two)| one == two)
                .map(|(one, _)| one)
                .collect();
            return Self { base: common.join("/"), ..Self::default() };
        }
        let depth_min = self.depth_min.zip(other.depth_min).map(|(one, two)| one.min(two));
        let depth_max = self.depth_max.zip(other.depth_max).map(|(one, two)| one.max(two));
        Self { base: self.base, depth_min, depth_max, test: None }
    }

    /// The arguments, each as it is.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (option, depth) in [("-mindepth", self.depth_min), ("-maxdepth", self.depth_max)] {
            words.extend(depth.into_iter().flat_map(|depth| [option.to_owned(), depth.to_string()]));
        }
        words.extend(match &self.test {
            Some(Test::Name(name)) => vec!["-name".to_owned(), name.clone()],
            Some(Test::Path(path)) => vec!["-path".to_owned(), path.clone()],
            None => Vec::new(),
        });
        words
    }

    /// The test alone.
    pub(crate) fn test_words(&self) -> Vec<String> {
        Self { test: self.test.clone(), ..Self::default() }.words()
    }
}

fn is_literal(segment: &Segment) -> bool {
    matches!(segment, Segment::Name(parts) if parts.iter().all(|part| matches!(part, Part::Literal(_))))
}

/// A segment without special characters, as the name that it is.
fn spelled(segment: &Segment) -> String {
    let Segment::Name(parts) = segment else { return String::new() };
    parts
        .iter()
        .filter_map(|part| if let Part::Literal(literal) = part { Some(*literal) } else { None })
        .collect()
}

/// A segment in letters and stars alone: `?` and classes are counted in bytes by some programs and locales.
fn relaxed(segment: &Segment) -> String {
    let Segment::Name(parts) = segment else { return "**".to_owned() };
    let mut word = String::new();
    for part in parts {
        match part {
            Part::Literal(literal) if !matches!(literal, '*' | '?' | '[' | ']' | '\\') => word.push(*literal),
            _ if word.ends_with('*') => {}
            _ => word.push('*'),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_find_lists_is_never_less_than_the_pattern_means() {
        for (pattern, base, words) in [
            ("*/a.go", "", "-mindepth 2 -maxdepth 2 -path */*/a.go"),
            ("src/*/x", "src", "-mindepth 2 -maxdepth 2 -path */*/x"),
            ("**/a/**/*.go", "", "-path */a/*.go"),
            ("**/a/**", "", "-path */a/*"),
            ("x/*/y/**/z", "x", "-path */*/y/*z"),
            ("a/{b,c}.md", "a", "-maxdepth 1"),
            ("{a/b,a/c}/*.md", "a", ""),
            ("{a,b}/**", "", ""),
            ("文?[ab]\\*.md", "", "-maxdepth 1 -name 文*.md"),
            ("a\\[b]/x", "a[b]", "-maxdepth 1 -name x"),
            ("a\\[b]", "", "-maxdepth 1 -name a*b*"),
        ] {
            let args = FindArgs::of(&Pattern::new(pattern).unwrap());
            assert_eq!((args.base.as_str(), args.words().join(" ").as_str()), (base, words), "{pattern}");
        }
    }

    #[test]
    fn the_shown_arguments_are_quoted() {
        assert_eq!(glob_to_find_args("*/a b.go").1, "-mindepth 2 -maxdepth 2 -path '*/*/a b.go'");
        assert_eq!(glob_to_find_args("*.{go,ts}").1, "-maxdepth 1 -name '*.go'");
        assert_eq!(glob_to_find_args("1").1, "-maxdepth 1 -name '1'");
    }
}
