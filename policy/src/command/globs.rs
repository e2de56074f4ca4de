//! The URLs that curl makes of one with `{a,b}` and `[a-c]` in it (curl(1), "GLOBBING").

/// URLs that are looked at; of more, the first.
const URLS_MAX: usize = 256;

/// Every URL that `text` stands for, `text` itself when nothing is to be expanded; at most 256. Of a range of numbers
/// only the first is made: numbers spell no scheme and no directory above.
pub(crate) fn expanded(text: &str) -> Vec<String> {
    let mut made = vec![String::new()];
    let mut rest = text;
    while let Some(open) = rest.find(['{', '[']) {
        let (plain, after) = rest.split_at(open);
        let close = if after.starts_with('{') { '}' } else { ']' };
        let Some(end) = after.find(close) else { break };
        let inner = after.get(1..end).unwrap_or_default();
        let parts: Vec<String> =
            if close == '}' { inner.split(',').map(str::to_owned).collect() } else { range(inner) };
        let joined =
            made.iter().flat_map(|made| parts.iter().map(move |part| format!("{made}{plain}{part}")));
        made = joined.take(URLS_MAX).collect();
        rest = after.get(end + 1..).unwrap_or_default();
    }
    made.into_iter().map(|made| made + rest).collect()
}

/// The letters of `a-c`, the first number of `1-9`, and what is no range as it stands.
fn range(inner: &str) -> Vec<String> {
    let bounds = inner.split(':').next().unwrap_or_default().split_once('-');
    match bounds.map(|(first, last)| (first.as_bytes(), last.as_bytes())) {
        Some(([first], [last])) if first.is_ascii_alphabetic() && last.is_ascii_alphabetic() => {
            (*first..=*last).map(|letter| char::from(letter).to_string()).collect()
        }
        Some((first, _)) if first.iter().all(u8::is_ascii_digit) => {
            vec![String::from_utf8_lossy(first).into_owned()]
        }
        _ => vec![format!("[{inner}]")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_and_letters_are_expanded_and_the_rest_stays() {
        for (text, expected) in [
            ("https://host/a", vec!["https://host/a"]),
            ("{file,x}:///f", vec!["file:///f", "x:///f"]),
            ("[f-g]ile:///f", vec!["file:///f", "gile:///f"]),
            ("http://h/[1-100].txt", vec!["http://h/1.txt"]),
            ("http://[::1]/a", vec!["http://[::1]/a"]),
            ("a{b", vec!["a{b"]),
        ] {
            assert_eq!(expanded(text), expected, "{text}");
        }
        assert_eq!(expanded(&"{a,b}".repeat(50)).len(), URLS_MAX);
    }
}
