//! Shortening text, and sizes for people.

/// `text` in at most `characters_max` characters; what is cut ends in `...`.
#[must_use]
pub fn truncate(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max.saturating_sub(3)).chain("...".chars().take(characters_max)).collect()
}

/// The beginning of `text`, at most `bytes_max` bytes and whole characters; the flag tells whether something was cut.
pub(crate) fn head(text: &str, bytes_max: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(bytes_max);
    (text.get(..end).unwrap_or(text), end < text.len())
}

/// A size with one decimal place: `512 B`, `1.5 KB`, `1.0 GB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, "KB");
    for larger in UNITS.into_iter().skip(1) {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1024, larger);
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// A name as it can be shown in one line: control characters are written as escapes.
pub(crate) fn shown(name: &str) -> String {
    if !name.contains(char::is_control) {
        return name.to_owned();
    }
    name.chars().fold(String::new(), |mut text, character| {
        if character.is_control() {
            text.extend(character.escape_default())
        } else {
            text.push(character)
        }
        text
    })
}
