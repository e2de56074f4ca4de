//! Names in patches: with prefixes, time stamps, and the quotes of C (git-config(1), `core.quotePath`).

/// Reads a name that begins `text`; returns it and what follows.
///
/// A name in quotes has C escapes, octal ones being bytes of UTF-8. Without quotes it ends with a tab or the line.
pub(super) fn name(text: &str) -> Option<(String, &str)> {
    match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted),
        None => {
            let (name, rest) = text.split_once('\t').unwrap_or((text, ""));
            (!name.is_empty()).then(|| (name.to_owned(), rest))
        }
    }
}

/// Reads up to the closing quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => break,
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                bytes.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => *escaped,
                    b'0'..=b'3' => {
                        let (digits, after) = rest.split_at_checked(2)?;
                        rest = after;
                        let octal = |value: u8, digit: &u8| {
                            matches!(digit, b'0'..=b'7').then(|| value * 8 + (digit - b'0'))
                        };
                        digits.iter().try_fold(escaped - b'0', octal)?
                    }
                    _ => return None,
                });
            }
            byte => bytes.push(*byte),
        }
    }
    let length = text.len() - rest.len();
    Some((String::from_utf8(bytes).ok()?, text.get(length..)?))
}

/// The name that both halves of `diff --git a/NAME b/NAME` have, without its prefixes.
pub(super) fn both_halves(text: &str) -> Option<String> {
    let (old, new) = if text.starts_with('"') {
        let (old, rest) = name(text)?;
        (old, name(rest.strip_prefix(' ')?)?.0)
    } else {
        // Names may hold spaces: they are the same, so the middle is known.
        let (old, new) = text.split_at_checked(text.len() / 2)?;
        (old.to_owned(), new.strip_prefix(' ')?.to_owned())
    };
    let (old, new) = without_prefixes(&old, &new);
    (old == new).then(|| old.to_owned())
}

/// Takes `a/` and `b/` away when both names have theirs; one that stands for no file has none.
pub(super) fn without_prefixes<'a>(old: &'a str, new: &'a str) -> (&'a str, &'a str) {
    let stripped = |name: &'a str, prefix: &str| {
        if name == NO_FILE { Some(name) } else { name.strip_prefix(prefix) }
    };
    match (stripped(old, "a/"), stripped(new, "b/")) {
        (Some(old), Some(new)) => (old, new),
        _ => (old, new),
    }
}

/// The name that stands for no file.
pub(super) const NO_FILE: &str = "/dev/null";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_quotes() {
        let read = |text| name(text).map(|(name, rest)| (name, rest.to_owned()));
        assert_eq!(read("a/x y.md"), Some(("a/x y.md".into(), String::new())));
        assert_eq!(read("a/x\t2024-01-01 00:00:00"), Some(("a/x".into(), "2024-01-01 00:00:00".into())));
        assert_eq!(read(r#""a/\346\225\260\"\\\t" b"#), Some(("a/数\"\\\t".into(), " b".into())));
        for wrong in ["", "\tx", "\"a", r#""\9""#, r#""\34""#, r#""\377""#, r#""\x41""#] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(both_halves("a/x y b/x y").as_deref(), Some("x y"));
        assert_eq!(both_halves(r#""a/\346\225\260" "b/\346\225\260""#).as_deref(), Some("数"));
        assert_eq!(both_halves("x x").as_deref(), Some("x"));
        assert_eq!(both_halves("a/x b/y"), None);
        assert_eq!(without_prefixes("/dev/null", "b/x"), ("/dev/null", "x"));
        assert_eq!(without_prefixes("a/x", "a/x"), ("a/x", "a/x"));
    }
}
