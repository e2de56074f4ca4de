//! Blocks of lines that differ from what was asked for in white space alone.

/// The only block of whole lines in `content` that is `old` but for white space.
///
/// None when there are none or several, or `old` is nothing but white space.
#[must_use]
pub fn fuzzy_match<'c>(content: &'c str, old: &str) -> Option<&'c str> {
    let wanted: Vec<Vec<&str>> = old.trim_matches('\n').split('\n').map(words).collect();
    if wanted.iter().all(Vec::is_empty) {
        return None;
    }
    let lines: Vec<&str> = content.split('\n').collect();
    let first = wanted.first()?;
    let is_block = |at: &usize| {
        let block = lines.iter().skip(*at).take(wanted.len());
        block.len() == wanted.len() && block.zip(&wanted).all(|(line, wanted)| words(line) == *wanted)
    };
    let begins = lines.iter().enumerate().filter(|(_, line)| words(line) == *first).map(|(at, _)| at);
    let mut blocks = begins.filter(is_block);
    let at = blocks.next()?;
    if blocks.next().is_some() {
        return None;
    }
    let begin: usize = lines.iter().take(at).map(|line| line.len() + 1).sum();
    let length: usize = lines.iter().skip(at).take(wanted.len()).map(|line| line.len() + 1).sum();
    content.get(begin..begin + length - 1)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `new`, which was written beside `old`, indented as the file has it in `actual`, the same lines.
///
/// A line's indentation is looked up among those of `old`; one that is not there keeps its distance to the first line, in
/// the file's own unit.
#[must_use]
pub fn reindent(old: &[&str], actual: &[&str], new: &str) -> String {
    let pairs: Vec<(&str, &str)> = old
        .iter()
        .zip(actual)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(old, actual)| (indentation(old), indentation(actual)))
        .collect();
    let Some((old_first, actual_first)) = pairs.first() else { return new.to_owned() };
    let old_unit = unit(pairs.iter().map(|(old, _)| *old).chain(new.split('\n').map(indentation)));
    let actual_unit = unit(pairs.iter().map(|(_, actual)| *actual));
    let lines = new.split('\n').map(|line| {
        let (indent, text) = line.split_at(indentation(line).len());
        if text.trim().is_empty() {
            return String::new();
        }
        if let Some((_, actual)) = pairs.iter().find(|(old, _)| *old == indent) {
            return format!("{actual}{text}");
        }
        let (level, rest) = levels(indent, &old_unit);
        let (old_level, actual_level) =
            (levels(old_first, &old_unit).0, levels(actual_first, &actual_unit).0);
        let level = (level + actual_level).saturating_sub(old_level);
        format!("{}{}{text}", actual_unit.repeat(level), " ".repeat(rest))
    });
    lines.collect::<Vec<_>>().join("\n")
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
