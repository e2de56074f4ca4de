//! The text that replaces a long result in a conversation.

use std::collections::HashSet;

use super::json_field;
use crate::tools::{format_size, truncate};

/// Longest line, in characters.
const LINE_CHARACTERS_MAX: usize = 500;
/// Longest summary, in characters.
const CHARACTERS_MAX: usize = 3_000;
/// Lines shown of the beginning and of the end of a file.
const EDGE_LINES: usize = 10;
/// Lines shown of the end of a command's output.
const TAIL_LINES: usize = 10;
/// Names shown of functions, and of files.
const NAMES_MAX: usize = 20;

/// About how many tokens a text is for a model: two for five bytes.
#[must_use]
pub fn estimated_tokens(text: &str) -> usize {
    text.len() * 2 / 5
}

/// The subject of a result, by the tool that gave it.
#[must_use]
pub fn summary(tool: &str, arguments: &str, result: &str) -> String {
    let text = match tool {
        "Read" => read(arguments, result),
        "Grep" => grep(result),
        "Shell" => shell(result),
        "Glob" => glob(result),
        _ => String::new(),
    };
    let sizes = format!(
        "Content: {}, about {} tokens. Use offload_recall to read it.",
        format_size(result.len() as u64),
        estimated_tokens(result)
    );
    if text.is_empty() {
        return format!("{sizes}\n{}", line(result.lines().next().unwrap_or_default()));
    }
    let room = CHARACTERS_MAX.saturating_sub(sizes.chars().count());
    format!("{}\n{sizes}", shortened(&text, room))
}

fn read(arguments: &str, result: &str) -> String {
    let lines: Vec<&str> = result.lines().collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| function(line)).take(NAMES_MAX).collect();
    let mut text = format!("File: {} ({} lines)", json_field(arguments, "path"), lines.len());
    if !names.is_empty() {
        text.push_str(&format!("\nFunctions: {}", names.join(", ")));
    }
    let (head, tail) = (EDGE_LINES.min(lines.len()), lines.len().saturating_sub(EDGE_LINES).max(EDGE_LINES));
    // Each half has the same room, so that the end is there however long the lines are.
    let edge = |lines: &[&str]| {
        shortened(
            &lines.iter().map(|text| line(text)).collect::<Vec<_>>().join("\n"),
            CHARACTERS_MAX / 2 - 250,
        )
    };
    text.push_str(&format!("\n{}", edge(lines.get(..head).unwrap_or_default())));
    if tail > head {
        text.push_str(&format!("\n... [{} lines omitted] ...", tail - head));
    }
    if let Some(last) = lines.get(tail..).filter(|last| !last.is_empty()) {
        text.push_str(&format!("\n{}", edge(last)));
    }
    text
}

/// The name of the function that a line begins, in the languages that agents meet most.
fn function(line: &str) -> Option<&str> {
    let line = line.split_once('\t').map_or(line, |(_, text)| text).trim_start();
    let line = ["pub ", "export ", "default ", "async ", "static "]
        .iter()
        .fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    let rest = ["func ", "fn ", "def ", "function "].iter().find_map(|word| line.strip_prefix(word))?;
    // A method of Go has its receiver first.
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
    let end =
        rest.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| !name.is_empty())
}

/// Matches are lines `path:number: text`, or `number: text` under `## path`.
fn grep(result: &str) -> String {
    let (mut matches, mut files, mut known): (usize, Vec<&str>, HashSet<&str>) =
        (0, Vec::new(), HashSet::new());
    for line in result.lines() {
        let file = line.strip_prefix("## ").or_else(|| {
            let (path, rest) = line.split_once(':')?;
            rest.split_once(':').is_some_and(|(number, _)| is_number(number)).then_some(path)
        });
        match file {
            Some(file) if known.insert(file) => files.push(file),
            _ => {}
        }
        let is_under_heading = line.split_once(": ").is_some_and(|(number, _)| is_number(number));
        matches += usize::from(is_under_heading || (file.is_some() && !line.starts_with("## ")));
    }
    let more = files.len().saturating_sub(NAMES_MAX);
    let shown = files.iter().take(NAMES_MAX).map(|file| line(file)).collect::<Vec<_>>().join("\n");
    let more = if more > 0 { format!("\n... [{more} files omitted]") } else { String::new() };
    format!("{matches} matches in {} files:\n{shown}{more}", files.len())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn shell(result: &str) -> String {
    let lines: Vec<&str> = result.lines().collect();
    let tail = lines.len().saturating_sub(TAIL_LINES);
    let mut text = String::new();
    // How the command ended stands first.
    if let Some(first) = lines.first().filter(|first| first.starts_with('[')) {
        text.push_str(&format!("{}\n", line(first)));
    }
    if tail > 0 {
        text.push_str(&format!("... [{tail} lines omitted] ...\n"));
    }
    let last = lines.get(tail..).unwrap_or_default().iter().map(|text| line(text)).collect::<Vec<_>>();
    text.push_str(&last.join("\n"));
    text
}

fn glob(result: &str) -> String {
    let paths: Vec<&str> = result
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("Found ") && !line.starts_with('('))
        .collect();
    let shown = paths.iter().take(NAMES_MAX).map(|path| line(path)).collect::<Vec<_>>().join("\n");
    let more = paths.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!("\n... [{more} omitted]") } else { String::new() };
    format!("{} files matched:\n{shown}{more}", paths.len())
}

fn line(text: &str) -> String {
    if text.chars().count() <= LINE_CHARACTERS_MAX {
        return text.to_owned();
    }
    format!("{} [line truncated]", truncate(text, LINE_CHARACTERS_MAX))
}

fn shortened(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    format!("{}\n... [rest omitted]", text.chars().take(characters_max).collect::<String>())
}
