//! Regular expressions of RE2 in the words of POSIX.

/// A regular expression of RE2 (or of this crate's *Grep*) as an extended one of POSIX, for `grep -E`.
///
/// | RE2 | POSIX |
/// | --- | --- |
/// | `\d` `\w` `\s` | `[0-9]` `[a-zA-Z0-9_]` `[[:space:]]` |
/// | `\D` `\W` `\S` | `[^0-9]` `[^a-zA-Z0-9_]` `[^[:space:]]` |
/// | `\t` `\n` | the character itself |
/// | `(?:x)`, `(?i:x)`, `(?P<name>x)`, `(?<name>x)` | `(x)` |
/// | `(?i)`, `(?im)` | nothing: see [`ignores_case`] |
///
/// Everything else stays. POSIX knows no lazy repetition and no classes of Unicode: such expressions mean something else
/// there, which is why *Grep* itself never relies on this.
#[must_use]
pub fn re2_to_ere(pattern: &str) -> String {
    let mut to = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(character) = rest.chars().next() {
        let after = rest.get(character.len_utf8()..).unwrap_or_default();
        rest = match character {
            '\\' => {
                let Some(escaped) = after.chars().next() else {
                    to.push('\\');
                    break;
                };
                match (class(escaped), in_class) {
                    (Some((members, false)), true) => to.push_str(members),
                    (Some((members, is_negated)), false) => {
                        to.push_str(if is_negated { "[^" } else { "[" });
                        to.push_str(members);
                        to.push(']');
                    }
                    _ => match escaped {
                        't' => to.push('\t'),
                        'n' => to.push('\n'),
                        // Inside brackets a backslash is itself to POSIX.
                        other if in_class => to.push(other),
                        other => to.extend(['\\', other]),
                    },
                }
                after.get(escaped.len_utf8()..).unwrap_or_default()
            }
            '[' if !in_class => {
                in_class = true;
                let first = after.strip_prefix('^').map_or("[", |_| "[^");
                let mut inside = after.strip_prefix('^').unwrap_or(after);
                to.push_str(first);
                if let Some(next) = inside.strip_prefix(']') {
                    to.push(']');
                    inside = next;
                }
                inside
            }
            ']' if in_class => {
                in_class = false;
                to.push(']');
                after
            }
            '(' if !in_class && after.starts_with('?') => match group(after) {
                Some((true, length)) => {
                    to.push('(');
                    after.get(length..).unwrap_or_default()
                }
                Some((false, length)) => after.get(length..).unwrap_or_default(),
                None => {
                    to.push('(');
                    after
                }
            },
            other => {
                to.push(other);
                after
            }
        };
    }
    to
}

/// Whether a regular expression says at its beginning that case does not matter, as `(?i)` or `(?im)`.
#[must_use]
pub fn ignores_case(pattern: &str) -> bool {
    let flags = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')')).map(|(flags, _)| flags);
    flags.is_some_and(|flags| flags.bytes().all(|flag| flag.is_ascii_alphabetic()) && flags.contains('i'))
}

/// The characters of a class of RE2, and whether it is negated.
fn class(escaped: char) -> Option<(&'static str, bool)> {
    Some(match escaped {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("a-zA-Z0-9_", false),
        'W' => ("a-zA-Z0-9_", true),
        's' => ("[:space:]", false),
        'S' => ("[:space:]", true),
        _ => return None,
    })
}

/// The text after `(`: whether it opens a group (else it sets flags), and how many bytes say so.
fn group(after: &str) -> Option<(bool, usize)> {
    let named = after.strip_prefix("?P<").or_else(|| after.strip_prefix("?<"));
    if let Some(named) = named {
        let end = named.find('>')?;
        return Some((true, after.len() - named.len() + end + 1));
    }
    let flags = after.strip_prefix('?')?;
    let end = flags.find([':', ')'])?;
    let is_flags = flags.bytes().take(end).all(|flag| flag.is_ascii_alphabetic() || flag == b'-');
    is_flags.then(|| (flags.as_bytes().get(end) == Some(&b':'), end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_inside_brackets_and_brackets_themselves_stay_whole() {
        for (from, to) in [
            ("[\\d\\-x]", "[0-9-x]"),
            ("[]\\s]", "[][:space:]]"),
            ("[^\\w(]", "[^a-zA-Z0-9_(]"),
            ("(?<name>a)", "(a)"),
            ("(?i-s:a)", "(a)"),
            ("(?P<name", "(?P<name"),
            ("a\\", "a\\"),
            ("中\\d文", "中[0-9]文"),
        ] {
            assert_eq!(re2_to_ere(from), to, "{from}");
        }
    }

    #[test]
    fn the_flag_that_the_translation_drops_is_told() {
        assert!(ignores_case("(?i)a") && ignores_case("(?mi)a"));
        assert!(!ignores_case("(?m)a") && !ignores_case("a(?i)") && !ignores_case("(?i:a)"));
    }
}
