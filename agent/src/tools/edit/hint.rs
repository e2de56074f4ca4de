//! The line that was perhaps meant.

use std::collections::HashSet;

/// Lines that are compared.
const LINES_MAX: usize = 20_000;
/// Characters of a line that are compared.
const CHARACTERS_MAX: usize = 200;
/// How alike lines must be, of 100.
const ALIKE_MIN: usize = 60;

/// One sentence about the line of `content` that is nearest to the first line of `search`; empty when none is near.
#[must_use]
pub fn hint(content: &str, search: &str) -> String {
    let Some(wanted) = search.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return String::new();
    };
    let lines = || content.lines().take(LINES_MAX).enumerate();
    let holding = lines().find(|(_, line)| line.contains(wanted)).map(|(index, line)| (index, line, 100));
    let nearest = || {
        let pairs = pairs(wanted);
        lines()
            .map(|(index, line)| (index, line, alike(&pairs, line.trim())))
            .max_by_key(|(index, _, alike)| (*alike, usize::MAX - index))
    };
    match holding.or_else(nearest) {
        Some((index, line, alike)) if alike >= ALIKE_MIN => {
            let line = crate::text::truncate(line.trim(), 120);
            format!("the closest is line {}: `{line}`; copy the text from the file exactly", index + 1)
        }
        _ => String::new(),
    }
}

/// All pairs of characters that follow each other.
fn pairs(line: &str) -> HashSet<(char, char)> {
    line.chars().zip(line.chars().skip(1)).take(CHARACTERS_MAX).collect()
}

/// How many of all pairs both have, of 100 (the Sørensen–Dice coefficient).
fn alike(one: &HashSet<(char, char)>, line: &str) -> usize {
    let two = pairs(line);
    let both = one.intersection(&two).count();
    (200 * both).checked_div(one.len() + two.len()).unwrap_or(0)
}
