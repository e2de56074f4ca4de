//! One argument in one role: whether it holds a path, where that begins, and whether it may stand.

use serde::Deserialize;

use super::anchors::{Aim, Anchors};
use super::globs;
use super::refusal::Rule;
use super::sed;
use super::word::Edit;

/// The meaning of an argument to the command that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Text that is never a path: a pattern, a program, a number.
    Data,
    /// Text that is a path only where the shell expands a pattern in it (`echo /etc/*`).
    Words,
    /// Text that may be a path or not: a path into the tree is rewritten, any other left alone.
    Soft,
    /// A path.
    Path,
    /// Any text; a text that looks like a path counts as a path.
    Text,
    /// A URL, or a path by `file:`; curl makes several of one with `{a,b}` or `[a-c]`.
    Url,
    /// A script of sed, in which some commands name files.
    SedScript,
    /// Data, or `@path`.
    AtFile,
    /// Data, or `name@path`.
    NameAtFile,
    /// `name=value`, `name=@path` or `name=<path`.
    FormField,
    /// `name=value`, or a path.
    Cookie,
    /// `name=value`, or a path, as awk reads its operands.
    AssignmentOrPath,
    /// A shell script. Read by the scan of scripts, not here.
    Script,
}

/// Reads `text` in `role` and adds the rewriting it needs to `edits`.
///
/// # Errors
/// The rule that a path in it breaks.
pub(crate) fn judge(role: Role, text: &str, anchors: &Anchors, edits: &mut Vec<Edit>) -> Result<(), Rule> {
    let mut reader = Reader { text, anchors, edits };
    match role {
        Role::Data | Role::Words | Role::Script => Ok(()),
        Role::Soft => {
            reader.soft();
            Ok(())
        }
        Role::Path => reader.path(0, text.len()),
        Role::Text => reader.anything(0),
        Role::Url if text.contains(['{', '[']) => {
            globs::expanded(text).into_iter().try_for_each(|url| {
                // An alias in it cannot be rewritten for all of them; the command then finds nothing there.
                Reader { text: &url, anchors, edits: &mut Vec::new() }.url(0)
            })
        }
        Role::Url => reader.url(0),
        Role::SedScript => {
            sed::files(text).into_iter().try_for_each(|name| reader.path(name.start, name.end))
        }
        Role::AtFile if text.starts_with('@') => reader.path(1, text.len()),
        Role::NameAtFile => match text.find(['@', '=']) {
            Some(at) if text.get(at..).is_some_and(|rest| rest.starts_with('@')) => {
                reader.path(at + 1, text.len())
            }
            _ => Ok(()),
        },
        Role::FormField => reader.form_field(),
        Role::Cookie if !text.contains('=') => reader.path(0, text.len()),
        Role::AtFile | Role::Cookie => Ok(()),
        Role::AssignmentOrPath if value_of_assignment(text).is_some() => {
            reader.soft();
            Ok(())
        }
        Role::AssignmentOrPath => reader.path(0, text.len()),
    }
}

/// Where the value begins in `name=value`, `name+=value` or `name[key]=value`, when `text` is such an assignment.
pub(crate) fn value_of_assignment(text: &str) -> Option<usize> {
    let equals = text.find('=')?;
    let name = text.get(..equals)?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let mut letters = name.chars();
    let first = letters.next()?;
    let is_name = (first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name.then_some(equals + 1)
}

struct Reader<'a> {
    text: &'a str,
    anchors: &'a Anchors,
    edits: &'a mut Vec<Edit>,
}

impl<'a> Reader<'a> {
    fn from(&self, start: usize) -> &'a str {
        self.text.get(start..).unwrap_or_default()
    }

    /// Judges the bytes `start..end` as a path.
    fn path(&mut self, start: usize, end: usize) -> Result<(), Rule> {
        match self.anchors.aim(self.text.get(start..end).unwrap_or_default()) {
            Aim::Inside => Ok(()),
            Aim::Alias { bytes } => {
                let text = self.anchors.root().to_owned();
                self.edits.push(Edit { range: start..start + bytes, text });
                Ok(())
            }
            Aim::Temporary { bytes } => {
                let text = self.anchors.temporary.clone().unwrap_or_default();
                self.edits.push(Edit { range: start..start + bytes, text });
                Ok(())
            }
            Aim::Out(rule) => Err(rule),
        }
    }

    /// Rewrites each part of a `:`-separated list that lies in the tree, after the `name=` of an assignment.
    fn soft(&mut self) {
        let mut start = value_of_assignment(self.text).unwrap_or(0);
        for part in self.from(start).split(':') {
            // A part that points elsewhere is no error here, by the meaning of the role.
            if part.starts_with('/') {
                self.path(start, start + part.len()).ok();
            }
            start += part.len() + 1;
        }
    }

    /// Judges a text of unknown meaning: `/x`, `name=/x`, `--name=/x`, `-I/x`, `@/x`, `file:///x`, `../x`.
    fn anything(&mut self, start: usize) -> Result<(), Rule> {
        let start = start + self.value_in(start);
        let rest = self.from(start);
        let start = if rest.starts_with('@') { start + 1 } else { start };
        let rest = self.from(start);
        if rest.starts_with('/') {
            return self.path(start, self.text.len());
        }
        if let Some(at) = find_file_url(rest) {
            return self.url(start + at);
        }
        if rest.contains("://") || is_prose(rest) {
            return Ok(());
        }
        self.path(start, self.text.len())
    }

    /// How many bytes of `name=`, `--name=` or `-I` stand before a value.
    fn value_in(&self, start: usize) -> usize {
        let rest = self.from(start);
        let named = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '[' | ']' | '+');
        match rest.find(|c: char| !named(c)) {
            Some(end) if end > 0 && rest.get(end..).is_some_and(|rest| rest.starts_with('=')) => end + 1,
            // `-I/x` and `-I../x`, but not `-//x`.
            _ if rest.starts_with('-') => {
                let name = rest.get(1..).unwrap_or_default();
                let letters = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
                if letters > 0 { 1 + letters } else { 0 }
            }
            _ => 0,
        }
    }

    /// Judges `file:///x`, `file://localhost/x` and `file:/x`; every other scheme names no file.
    fn url(&mut self, start: usize) -> Result<(), Rule> {
        let rest = self.from(start);
        if rest.starts_with('/') {
            return self.path(start, self.text.len());
        }
        if find_file_url(rest) != Some(0) {
            return Ok(());
        }
        let after_scheme = start + "file:".len();
        let path = match self.from(after_scheme).strip_prefix("//") {
            Some(authority) => after_scheme + 2 + authority.find('/').unwrap_or(authority.len()),
            None => after_scheme,
        };
        // A percent sign can spell the dots of a `..` segment.
        if self.from(path).split('/').any(|segment| segment.to_ascii_lowercase().replace("%2e", ".") == "..")
        {
            return Err(Rule::ParentSegment);
        }
        self.path(path, self.text.len())
    }

    /// Judges the files of `name=@a,b;type=t` and `name=<a`.
    fn form_field(&mut self) -> Result<(), Rule> {
        let Some(value) = self.text.find('=').map(|equals| equals + 1) else { return Ok(()) };
        if !self.from(value).starts_with(['@', '<']) {
            return Ok(());
        }
        let mut start = value + 1;
        let files = self.from(start);
        for file in files.split(';').next().unwrap_or_default().split(',') {
            self.path(start, start + file.len())?;
            start += file.len() + 1;
        }
        Ok(())
    }
}

/// Where a `file:` URL begins in `text`, at its start or after a blank (`name @ file:///x`).
fn find_file_url(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let scheme = b"file:/";
    bytes
        .windows(scheme.len())
        .position(|window| window.eq_ignore_ascii_case(scheme))
        .filter(|at| *at == 0 || at.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&b' '))
}

/// Tells whether a text is data rather than the name of a file: JSON, markup, several lines.
fn is_prose(text: &str) -> bool {
    text.contains(['"', '{', '}', '<', '>', '|', '\n'])
}
