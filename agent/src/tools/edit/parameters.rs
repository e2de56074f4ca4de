//! The parameters of *Edit* and their meaning.

use serde::Deserialize;

use super::{Action, Position, Replacement};

/// The arguments as they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the schema describes each to the model")]
pub struct Parameters {
    pub path: String,
    pub mode: String,
    pub content: Option<String>,
    pub rewrite: bool,
    pub old_string: Option<String>,
    pub new_string: Option<String>,
    pub regex: bool,
    pub replace_all: bool,
    pub start_line: Option<i64>,
    pub end_line: Option<i64>,
    pub action: Option<String>,
    pub line_number: Option<i64>,
    pub count: Option<i64>,
    pub position: Option<String>,
    /// Of the earlier mode `regex`: `old_string`.
    pub pattern: Option<String>,
    /// Of the earlier mode `regex`: `new_string`.
    pub replacement: Option<String>,
}

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is made.
    Create {
        /// All of it.
        content: String,
        /// Whether one that exists is overwritten.
        rewrite: bool,
    },
    /// Text is replaced.
    Replace(Replacement),
    /// Lines are changed.
    Lines {
        /// From 1.
        line: usize,
        /// How.
        action: Action,
        /// The new text.
        text: String,
    },
    /// Text is put before or after everything.
    Insert {
        /// Where.
        position: Position,
        /// What.
        text: String,
    },
}

impl Parameters {
    /// The same in the words of today: mode `regex` is `replace` with `regex`, mode `insert` is `line` with action
    /// `insert`.
    #[must_use]
    pub fn modernised(mut self) -> Self {
        match self.mode.as_str() {
            "regex" => {
                self.mode = "replace".into();
                self.regex = true;
                self.old_string = self.old_string.or(self.pattern.take());
                self.new_string = self.new_string.or(self.replacement.take());
            }
            "insert" => {
                self.mode = "line".into();
                self.action = Some("insert".into());
            }
            _ => {}
        }
        self
    }

    /// The change.
    ///
    /// # Errors
    /// Something is missing, or makes no sense in this mode.
    pub fn change(&self) -> Result<Change, String> {
        let parameters = self.clone().modernised();
        match parameters.mode.as_str() {
            "create" => Ok(Change::Create {
                content: parameters.content.unwrap_or_default(),
                rewrite: parameters.rewrite,
            }),
            "replace" => parameters.replace(),
            "line" => parameters.line(),
            "" => Err("mode is required: create, replace or line".to_owned()),
            other => Err(format!("unknown mode `{}`: use create, replace or line", other.escape_debug())),
        }
    }

    fn replace(self) -> Result<Change, String> {
        let unused = [
            ("line_number", self.line_number.unwrap_or(0) != 0),
            ("action", is_set(self.action.as_deref())),
            ("count", self.count.unwrap_or(0) != 0),
            ("position", is_set(self.position.as_deref())),
        ];
        if let Some((name, _)) = unused.iter().find(|(_, is_sent)| *is_sent) {
            return Err(format!("{name} is not used in replace mode"));
        }
        Ok(Change::Replace(Replacement {
            old: self.old_string.unwrap_or_default(),
            new: self.new_string.unwrap_or_default(),
            is_regex: self.regex,
            all: self.replace_all,
            first_line: line_of("start_line", self.start_line)?,
            last_line: line_of("end_line", self.end_line)?,
        }))
    }

    fn line(self) -> Result<Change, String> {
        if self.start_line.unwrap_or(0) != 0 || self.end_line.unwrap_or(0) != 0 {
            return Err("start_line/end_line are not used in line mode".to_owned());
        }
        let unused = [
            ("old_string", is_set(self.old_string.as_deref())),
            ("new_string", is_set(self.new_string.as_deref())),
            ("regex", self.regex),
            ("replace_all", self.replace_all),
        ];
        if let Some((name, _)) = unused.iter().find(|(_, is_sent)| *is_sent) {
            return Err(format!("{name} is not used in line mode"));
        }
        let action = self.action.as_deref().unwrap_or_default();
        let text = self.content.clone().unwrap_or_default();
        let is_position = is_set(self.position.as_deref());
        if is_position && self.line_number.unwrap_or(0) != 0 {
            return Err("send either line_number or position, not both".to_owned());
        }
        if action == "insert" {
            let position = match self.position.as_deref().unwrap_or_default() {
                "" => return Err("position is required when action=insert: start or end".to_owned()),
                "start" => Position::Start,
                "end" => Position::End,
                other => {
                    return Err(format!("invalid position `{}`: use start or end", other.escape_debug()));
                }
            };
            return Ok(Change::Insert { position, text });
        }
        if is_position {
            return Err("position is used with action=insert only".to_owned());
        }
        let count = usize::try_from(self.count.unwrap_or(1)).unwrap_or(1).max(1);
        let action = match action {
            "insert_before" => Action::InsertBefore,
            "insert_after" => Action::InsertAfter,
            "replace" => Action::Replace(count),
            "delete" => Action::Delete(count),
            "" => {
                return Err(
                    "action is required: insert_before, insert_after, replace, delete or insert".to_owned()
                );
            }
            other => return Err(format!("unknown action `{}`", other.escape_debug())),
        };
        let line = usize::try_from(self.line_number.unwrap_or(0)).unwrap_or(0);
        if line == 0 {
            return Err("line_number must be positive".to_owned());
        }
        Ok(Change::Lines { line, action, text })
    }
}

fn is_set(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// A line number; 0 is none.
fn line_of(name: &str, number: Option<i64>) -> Result<Option<usize>, String> {
    match number {
        None | Some(0) => Ok(None),
        Some(number) => usize::try_from(number).map(Some).map_err(|_| format!("{name} must be positive")),
    }
}
