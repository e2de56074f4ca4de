//! [`Anchors`]: the absolute paths that mean the tree.

use super::refusal::Rule;

/// The absolute spellings of one tree.
///
/// Each is a lexical prefix, compared by whole segments: `/workspace2` does not lie under `/workspace`. A prefix
/// without segments (`/`, the empty text) anchors nothing. Symbolic links are not looked at: spelling is all that
/// can be judged here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anchors {
    /// The path at which the tree really stands inside the run, absolute.
    pub inside: String,
    /// Other absolute paths that callers may use for it; they are rewritten to [`Anchors::inside`].
    pub aliases: Vec<String>,
    /// The directory inside the run, absolute, that `/tmp` and `/var/tmp` are rewritten to; `None` for a run that finds
    /// its own temporary directory there, or whose arguments must not name it.
    pub temporary: Option<String>,
}

/// The paths of temporary directories that programs and people know.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Where a path points, as far as its spelling tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Into the tree, as it is written.
    Inside,
    /// Into the tree, in the form of an alias: the first `bytes` are to be replaced.
    Alias {
        /// Length of the alias as it is written in the path.
        bytes: usize,
    },
    /// Into the temporary directory: the first `bytes` are to be replaced by [`Anchors::temporary`].
    Temporary {
        /// Length of the beginning that is replaced.
        bytes: usize,
    },
    /// Elsewhere, against this rule.
    Out(Rule),
}

impl Anchors {
    /// The path that stands for the tree in rewritten arguments.
    pub(crate) fn root(&self) -> &str {
        self.inside.trim_end_matches('/')
    }

    /// Tells where `path` points. A relative path points into the tree unless it goes up.
    pub(crate) fn aim(&self, path: &str) -> Aim {
        if path.split('/').any(|segment| segment == "..") {
            return Aim::Out(Rule::ParentSegment);
        }
        if !path.starts_with('/') {
            return Aim::Inside;
        }
        let inside = covered(path, &self.inside);
        let alias = self.aliases.iter().filter_map(|alias| covered(path, alias)).max();
        match (inside, alias) {
            (Some(inside), Some(alias)) if alias > inside => Aim::Alias { bytes: alias },
            (Some(_), _) => Aim::Inside,
            (None, Some(bytes)) => Aim::Alias { bytes },
            (None, None) => self.temporary(path).unwrap_or_else(|| elsewhere(path)),
        }
    }

    fn temporary(&self, path: &str) -> Option<Aim> {
        let temporary = self.temporary.as_deref()?;
        if covered(path, temporary).is_some() {
            return Some(Aim::Inside);
        }
        TEMPORARY.iter().find_map(|known| covered(path, known)).map(|bytes| Aim::Temporary { bytes })
    }
}

/// The length of the beginning of `path` that spells `root`, when `path` lies under it or is it.
fn covered(path: &str, root: &str) -> Option<usize> {
    let mut wanted = root.split('/').filter(|segment| !segment.is_empty() && *segment != ".").peekable();
    wanted.peek()?;
    let mut end = 0;
    for segment in path.split('/') {
        let start = end;
        end = start + segment.len() + 1;
        if segment.is_empty() || segment == "." {
            continue;
        }
        if wanted.next() != Some(segment) {
            return None;
        }
        if wanted.peek().is_none() {
            return Some(start + segment.len());
        }
    }
    None
}

/// Judges a path outside the tree: device files that hold nothing of anyone are data like any other.
fn elsewhere(path: &str) -> Aim {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    match [segments.next(), segments.next(), segments.next(), segments.next()] {
        [
            Some("dev"),
            Some("null" | "zero" | "full" | "random" | "urandom" | "stdin" | "stdout" | "stderr" | "tty"),
            None,
            None,
        ] => Aim::Inside,
        [Some("dev"), Some("fd"), Some(number), None] if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            Aim::Inside
        }
        [Some("dev"), ..] => Aim::Out(Rule::Device),
        [Some("tmp"), ..] | [Some("var"), Some("tmp"), ..] => Aim::Out(Rule::Temporary),
        _ => Aim::Out(Rule::OutsideTree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors() -> Anchors {
        Anchors {
            inside: "/data/work/u1".to_owned(),
            aliases: vec!["/workspace".to_owned(), "/workspace/skills/演示/".to_owned(), "/".to_owned()],
            temporary: None,
        }
    }

    #[test]
    fn whole_segments_are_compared_and_the_longest_alias_wins() {
        for (path, aim) in [
            ("/data/work/u1/a", Aim::Inside),
            ("/data/work/u1", Aim::Inside),
            ("/data/work/u12", Aim::Out(Rule::OutsideTree)),
            ("/workspace", Aim::Alias { bytes: 10 }),
            ("//workspace/./a", Aim::Alias { bytes: 11 }),
            ("/workspace2/a", Aim::Out(Rule::OutsideTree)),
            ("/workspace/skills/演示/a", Aim::Alias { bytes: 24 }),
            ("/workspace/skills/other", Aim::Alias { bytes: 10 }),
            ("/workspace/../a", Aim::Out(Rule::ParentSegment)),
            ("a/..", Aim::Out(Rule::ParentSegment)),
            ("a..b/...", Aim::Inside),
            ("/", Aim::Out(Rule::OutsideTree)),
            ("/dev/null", Aim::Inside),
            ("/dev//fd/63", Aim::Inside),
            ("/dev/sda", Aim::Out(Rule::Device)),
            ("/dev/tcp/10.0.0.1/80", Aim::Out(Rule::Device)),
        ] {
            assert_eq!(anchors().aim(path), aim, "{path}");
        }
    }

    #[test]
    fn the_tree_inside_an_alias_is_not_rewritten() {
        let anchors = Anchors {
            inside: "/workspace/skills/a".into(),
            aliases: vec!["/workspace".into()],
            temporary: None,
        };
        assert_eq!(anchors.aim("/workspace/skills/a/x"), Aim::Inside);
    }
}
