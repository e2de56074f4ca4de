//! Blocks of lines that differ from what was asked for in white space alone.

use std::collections::HashMap;

/// The only block of whole lines in `content` that is `old` but for white space.
///
/// None when there are none or several, or `old` is nothing but white space. Takes time linear in both, however alike
/// lines are (Knuth, Morris and Pratt).
#[must_use]
pub fn fuzzy_match<'c>(content: &'c str, old: &str) -> Option<&'c str> {
    if old.trim().is_empty() {
        return None;
    }
    // Lines that differ in white space alone have one number.
    let mut numbers: HashMap<Vec<&str>, usize> = HashMap::new();
    let number_of = |line| {
        let next = numbers.len();
        *numbers.entry(words(line)).or_insert(next)
    };
    let wanted: Vec<usize> = old.trim_matches('\n').split('\n').map(number_of).collect();
    let borders = borders(&wanted);
    let (mut matched, mut found) = (0, None);
    for (index, line) in content.split('\n').enumerate() {
        matched = longer(&wanted, &borders, matched, numbers.get(&words(line)).copied());
        if matched == wanted.len() && found.replace(index + 1 - matched).is_some() {
            return None;
        }
    }
    let at = found?;
    let begin: usize = content.split('\n').take(at).map(|line| line.len() + 1).sum();
    let length: usize = content.split('\n').skip(at).take(wanted.len()).map(|line| line.len() + 1).sum();
    content.get(begin..begin + length - 1)
}

/// Of each beginning of `wanted`, the longest shorter one that it ends with.
fn borders(wanted: &[usize]) -> Vec<usize> {
    let mut borders = Vec::with_capacity(wanted.len());
    let mut matched = 0;
    for (index, number) in wanted.iter().enumerate() {
        if index > 0 {
            matched = longer(wanted, &borders, matched, Some(*number));
        }
        borders.push(matched);
    }
    borders
}

/// How much of `wanted` the lines so far end with, when `matched` was that before one with this number.
fn longer(wanted: &[usize], borders: &[usize], mut matched: usize, number: Option<usize>) -> usize {
    loop {
        if number.is_some() && wanted.get(matched).copied() == number {
            return matched + 1;
        }
        let Some(before) = matched.checked_sub(1) else { return 0 };
        matched = borders.get(before).copied().unwrap_or(0);
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `new`, which was written beside `old`, indented as the file has it in `actual`, the same lines.
///
/// A line's indentation is looked up among those of `old`; one that is not there keeps its distance to the first line, in
/// the file's own unit. None when that would be more than `bytes_max`: a file may be indented by megabytes.
#[must_use]
pub fn reindent(old: &[&str], actual: &[&str], new: &str, bytes_max: usize) -> Option<String> {
    let pairs: Vec<(&str, &str)> = old
        .iter()
        .zip(actual)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(old, actual)| (indentation(old), indentation(actual)))
        .collect();
    let Some((old_first, actual_first)) = pairs.first() else { return Some(new.to_owned()) };
    let old_unit = unit(pairs.iter().map(|(old, _)| *old).chain(new.split('\n').map(indentation)));
    let actual_unit = unit(pairs.iter().map(|(_, actual)| *actual));
    let (old_level, actual_level) = (levels(old_first, &old_unit).0, levels(actual_first, &actual_unit).0);
    // The first of several that are alike.
    let known: HashMap<&str, &str> = pairs.iter().rev().copied().collect();
    let mut out = String::new();
    for (index, line) in new.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let (indent, text) = line.split_at(indentation(line).len());
        if text.trim().is_empty() {
            continue;
        }
        let (unit, times, rest) = match known.get(indent) {
            Some(actual) => (*actual, 1, 0),
            None => {
                let (level, rest) = levels(indent, &old_unit);
                (actual_unit.as_str(), (level + actual_level).saturating_sub(old_level), rest)
            }
        };
        let room = bytes_max.checked_sub(out.len())?.checked_sub(rest + text.len())?;
        unit.len().checked_mul(times).filter(|bytes| *bytes <= room)?;
        out.push_str(&unit.repeat(times));
        out.push_str(&" ".repeat(rest));
        out.push_str(text);
    }
    Some(out)
}

fn indentation(line: &str) -> &str {
    let length = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..length).unwrap_or_default()
}

/// One step of indentation: a tab where there is one, else the fewest blanks; four where there is none.
fn unit<'a>(indents: impl Iterator<Item = &'a str>) -> String {
    let mut blanks = usize::MAX;
    for indent in indents {
        if indent.contains('\t') {
            return "\t".to_owned();
        }
        if !indent.is_empty() {
            blanks = blanks.min(indent.len());
        }
    }
    " ".repeat(if blanks == usize::MAX { 4 } else { blanks })
}

/// How many steps an indentation has, and how many blanks are left over.
fn levels(indent: &str, unit: &str) -> (usize, usize) {
    if unit == "\t" {
        let tabs = indent.bytes().filter(|byte| *byte == b'\t').count();
        return (tabs, indent.len() - tabs);
    }
    let width: usize = indent.bytes().map(|byte| if byte == b'\t' { unit.len() } else { 1 }).sum();
    (width / unit.len().max(1), width % unit.len().max(1))
}
