//! Braces in patterns: `*.{rs,toml}` is `*.rs` and `*.toml`.

use super::GlobError;

/// The most patterns that one may stand for.
pub const ALTERNATIVES_MAX: usize = 256;

/// All patterns that `pattern` stands for, in order, each once; braces may be nested and there may be several.
///
/// Blanks around an alternative are left out, because models write them. A brace without its partner, and one after a
/// backslash, stands for itself.
///
/// # Errors
/// [`GlobError::TooManyAlternatives`]: there would be more than [`ALTERNATIVES_MAX`].
pub fn expand(pattern: &str) -> Result<Vec<String>, GlobError> {
    let (mut done, mut waiting): (Vec<String>, Vec<String>) = (Vec::new(), vec![pattern.to_owned()]);
    while let Some(next) = waiting.pop() {
        if done.len() + waiting.len() >= ALTERNATIVES_MAX {
            return Err(GlobError::TooManyAlternatives);
        }
        let Some((open, commas, close)) = first_group(&next) else {
            if !done.contains(&next) {
                done.push(next);
            }
            continue;
        };
        let (before, after) = (&next[..open], &next[close + 1..]);
        let mut begin = open + 1;
        let mut alternatives = Vec::with_capacity(commas.len() + 1);
        for end in commas.into_iter().chain([close]) {
            alternatives.push(format!("{before}{}{after}", next[begin..end].trim()));
            begin = end + 1;
        }
        waiting.extend(alternatives.into_iter().rev());
    }
    Ok(done)
}

/// The first pair of braces that is whole: where it opens, its own commas, where it closes.
fn first_group(pattern: &str) -> Option<(usize, Vec<usize>, usize)> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(usize, Vec<usize>, usize)> = None;
    let mut is_escaped = false;
    for (position, character) in pattern.char_indices() {
        match character {
            _ if is_escaped => {}
            '{' => open.push((position, Vec::new())),
            ',' => open.last_mut().into_iter().for_each(|(_, commas)| commas.push(position)),
            '}' => {
                if let Some((begin, commas)) = open.pop()
                    && first.as_ref().is_none_or(|(earlier, ..)| begin < *earlier)
                {
                    first = Some((begin, commas, position));
                }
            }
            _ => {}
        }
        is_escaped = !is_escaped && character == '\\';
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_nest_and_multiply() {
        for (pattern, expected) in [
            ("a{b,c{d,e}}f", vec!["abf", "acdf", "acef"]),
            ("{a,b}/{c,d}", vec!["a/c", "a/d", "b/c", "b/d"]),
            ("*.{go, ts}", vec!["*.go", "*.ts"]),
            ("{a,a}", vec!["a"]),
            ("x{,.bak}", vec!["x", "x.bak"]),
            ("{字,文}.md", vec!["字.md", "文.md"]),
            ("a{b", vec!["a{b"]),
            ("a}b,c", vec!["a}b,c"]),
            ("{{a,b}", vec!["{a", "{b"]),
            ("\\{a,b}", vec!["\\{a,b}"]),
        ] {
            assert_eq!(expand(pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn braces_that_explode_are_refused_early() {
        assert!(expand(&"{a,b}".repeat(9)).is_err());
        assert!(expand(&"{a,b}".repeat(60)).is_err());
        assert!(expand(&"{".repeat(1000)).is_ok());
    }
}
