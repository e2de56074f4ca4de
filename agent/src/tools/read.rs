//! *Read*: the lines of a file, numbered.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::parse;
use super::{Context, Refusal, Report, Tool};
use crate::text::{format_size, head};
use sandbox::{ErrorKind, ReadOptions, SandboxPath};

/// The largest file that is read, in bytes: 10 MiB.
pub const FILE_BYTES_MAX: u64 = 10 << 20;
/// Lines in one answer.
pub const LINES_MAX: usize = 5_000;
/// Bytes of lines in one answer: 512 KiB.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;
/// Bytes of lines that the data has besides the answer's text: 256 KiB. Some clients take no answer of more than 1 MiB.
const DATA_BYTES_MAX: usize = 256 * 1024;

/// The tool *Read*.
#[derive(Clone, Copy, Debug)]
pub struct Read;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    path: String,
    #[serde(default)]
    max_lines: i64,
    #[serde(default)]
    offset: i64,
}

#[async_trait]
impl Tool for Read {
    fn name(&self) -> &'static str {
        "Read"
    }

    fn description(&self) -> &'static str {
        "Read a text file. Each line is shown as its number, a tab and its text. Use `offset` and `max_lines` to read a \
         part of a long file."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "Path of the file, from the current directory or absolute" },
                "max_lines": { "type": "integer", "description": "The most lines to show; all by default, at most 5000" },
                "offset": { "type": "integer", "description": "The first line to show, from 1" }
            },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        Ok(self.report(context, arguments).await?.text)
    }

    fn data_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The absolute path of the file" },
                "text": { "type": "string", "description": "The lines that are shown, without numbers; left out when they have more than 256 KiB" },
                "first_line": { "type": "integer", "minimum": 1, "description": "The number of the first of them" },
                "lines": { "type": "integer", "minimum": 0, "description": "How many there are" },
                "total_lines": { "type": "integer", "minimum": 1, "description": "How many the file has" }
            },
            "required": ["path", "first_line", "lines", "total_lines"]
        }))
    }

    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        let Parameters { path, max_lines, offset } = parse(arguments)?;
        if path.is_empty() {
            return Err(Refusal::new("path is required"));
        }
        let Opened { path, shown, bytes, note } = open(context, &path).await?;
        let text = text(&shown, &bytes)?;
        let (max_lines, offset) =
            (usize::try_from(max_lines).unwrap_or(0), usize::try_from(offset).unwrap_or(0));
        let lines = Lines::of(text, max_lines, offset);
        let data = json!({
            "path": path.as_str(),
            "first_line": lines.first,
            "lines": lines.shown,
            "total_lines": lines.total,
        });
        Ok(Report { text: format!("{note}{}", lines.numbered), data: Some(with_text(data, lines.plain)) })
    }
}

/// Data with the text of the lines, as far as it is not too long.
fn with_text(mut data: Value, text: String) -> Value {
    if text.len() <= DATA_BYTES_MAX
        && let Some(fields) = data.as_object_mut()
    {
        fields.insert("text".to_owned(), text.into());
    }
    data
}

/// A file that was found.
struct Opened {
    path: SandboxPath,
    shown: String,
    bytes: bytes::Bytes,
    /// Where it was found, when that is not where it was looked for first.
    note: String,
}

/// The file that `path` means: from the current directory, or, when nothing is there, from the workspace.
async fn open(context: &Context<'_>, path: &str) -> Result<Opened, Refusal> {
    let session = context.session;
    let first = session.resolve(path)?;
    let shown = session.shown(&first);
    match file(context, &first).await {
        Err(error) if error.is_not_found() && !path.starts_with('/') => {
            let second =
                session.resolve_from(session.workspace(), path).ok().filter(|second| *second != first);
            if let Some(second) = second
                && let Ok(bytes) = file(context, &second).await
            {
                let note = format!("(not in the current directory; this is {second})\n");
                return Ok(Opened { shown: session.shown(&second), path: second, bytes, note });
            }
            Err(Refusal(format!("no such file: {shown}")))
        }
        Err(error) => Err(refused(&shown, error)),
        Ok(bytes) => Ok(Opened { path: first, shown, bytes, note: String::new() }),
    }
}

async fn file(context: &Context<'_>, path: &SandboxPath) -> sandbox::Result<bytes::Bytes> {
    let options = ReadOptions { range: None, bytes_max: Some(FILE_BYTES_MAX) };
    context.sandbox.read_file(context.session.user(), path, options).await?.bytes().await
}

fn refused(shown: &str, error: sandbox::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal(format!("no such file: {shown}")),
        ErrorKind::IsDirectory => Refusal(format!("{shown} is a directory: use Glob or Shell to list it")),
        ErrorKind::TooLarge => Refusal(format!(
            "{shown} is larger than {}: use Grep to find lines in it, or Shell with `sed -n` to see some",
            format_size(FILE_BYTES_MAX)
        )),
        _ => error.into(),
    }
}

/// The text of a file, or that it is none.
pub(super) fn text<'b>(shown: &str, bytes: &'b [u8]) -> Result<&'b str, Refusal> {
    let size = format_size(bytes.len() as u64);
    if bytes.contains(&0) {
        return Err(Refusal(format!("{shown} is a binary file ({size})")));
    }
    std::str::from_utf8(bytes).map_err(|_| Refusal(format!("{shown} is not text in UTF-8 ({size})")))
}

/// The lines of `text` from number `offset`, at most `max_lines`; 0 stands for the first and for [`LINES_MAX`].
///
/// Lines are what is between `\n`, so that a text which ends with one has an empty last line. Numbers are aligned at the
/// right.
#[must_use]
pub fn numbered(text: &str, max_lines: usize, offset: usize) -> String {
    Lines::of(text, max_lines, offset).numbered
}

/// Some lines of a text.
struct Lines {
    /// As [`numbered`].
    numbered: String,
    /// The lines without their numbers.
    plain: String,
    /// The number of the first.
    first: usize,
    shown: usize,
    /// How many the text has.
    total: usize,
}

impl Lines {
    fn of(text: &str, max_lines: usize, offset: usize) -> Self {
        let total = text.split('\n').count();
        let first = offset.max(1);
        if first > total {
            let numbered =
                format!("(offset {first} exceeds file length {total} — file has no content from this line)");
            return Self { numbered, plain: String::new(), first, shown: 0, total };
        }
        let wanted = if max_lines == 0 { LINES_MAX } else { max_lines.min(LINES_MAX) };
        let last = total.min(first.saturating_add(wanted - 1));
        let width = last.to_string().len();
        let (mut out, mut plain, mut lines_shown) = (String::new(), String::new(), 0);
        for (number, line) in (first..=last).zip(text.split('\n').skip(first - 1)) {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let room = TEXT_BYTES_MAX.saturating_sub(out.len());
            let (line, is_long) = head(line, room);
            if is_long && lines_shown > 0 {
                break;
            }
            if lines_shown > 0 {
                out.push('\n');
                plain.push('\n');
            }
            plain.push_str(line);
            out.push_str(&format!("{number:>width$}\t{line}"));
            lines_shown += 1;
            if is_long {
                out.push_str(&format!("... [line cut after {}]", format_size(room as u64)));
                break;
            }
        }
        if lines_shown < total + 1 - first {
            out.push_str(&format!(
            "\n\n... [truncated: showing {lines_shown} of {total} lines, use max_lines parameter to see more]"
        ));
        }
        Self { numbered: out, plain, first, shown: lines_shown, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_blank_lines_keep_their_numbers_and_numbers_are_aligned() {
        assert_eq!(numbered("\n\na", 0, 0), "1\t\n2\t\n3\ta");
        let ten = numbered(&"x\n".repeat(9), 0, 9);
        assert_eq!(ten, " 9\tx\n10\t");
        assert_eq!(numbered("", 0, 0), "1\t");
        assert_eq!(numbered("a\r\nb\r\n", 0, 0), "1\ta\n2\tb\n3\t");
    }

    #[test]
    fn every_cut_is_told() {
        let long = "字".repeat(TEXT_BYTES_MAX);
        assert!(numbered(&long, 0, 0).ends_with("... [line cut after 512.0 KB]"));
        assert!(numbered(&"x\n".repeat(LINES_MAX + 1), 0, 0).contains("showing 5000 of 5002 lines"));
        assert!(
            numbered(&"x".repeat(1000).replace('x', &format!("{}\n", "y".repeat(999))), 0, 0)
                .contains("showing 521 of 1001")
        );
        assert!(numbered("a\nb", 0, 3).contains("offset 3 exceeds file length 2"));
    }
}
