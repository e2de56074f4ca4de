//! [`Model`]: a tree as it should be, and the changes that can be asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::client::{Answer, Broken, Client};

/// A tree as it should be. The root is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) dirs: BTreeSet<String>,
}

/// One change, possible in the model it was made for.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A whole file, in a directory that is there.
    Write {
        path: String,
        bytes: Vec<u8>,
    },
    /// The second line of a file.
    EditLine {
        path: String,
        line: String,
    },
    /// A text that occurs once.
    Replace {
        path: String,
        old: String,
        new: String,
    },
    RemoveFile {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    MakeDir {
        path: String,
    },
    /// A file or directory; `to` is free, or both are files.
    Move {
        from: String,
        to: String,
    },
}

impl Model {
    /// The tree after a change.
    pub(super) fn after(&self, change: &Change) -> Self {
        let mut after = self.clone();
        match change {
            Change::Write { path, bytes } => {
                after.files.insert(path.clone(), bytes.clone());
            }
            Change::EditLine { path, line } => {
                let text = String::from_utf8(after.files[path].clone()).unwrap();
                let lines = text.split_inclusive('\n').enumerate();
                let edited: String = lines.map(|(index, old)| if index == 1 { line } else { old }).collect();
                after.files.insert(path.clone(), edited.into_bytes());
            }
            Change::Replace { path, old, new } => {
                let text = String::from_utf8(after.files[path].clone()).unwrap();
                after.files.insert(path.clone(), text.replacen(old, new, 1).into_bytes());
            }
            Change::RemoveFile { path } => {
                after.files.remove(path);
            }
            Change::RemoveDir { path } => {
                after.files.retain(|file, _| !is_below(file, path));
                after.dirs.retain(|dir| dir != path && !is_below(dir, path));
            }
            Change::MakeDir { path } => {
                after.dirs.insert(path.clone());
            }
            Change::Move { from, to } => {
                let moved = |name: &String| match name.strip_prefix(from.as_str()) {
                    Some("") => to.clone(),
                    Some(rest) if rest.starts_with('/') => format!("{to}{rest}"),
                    _ => name.clone(),
                };
                if after.files.contains_key(from) {
                    after.files.remove(to);
                }
                after.files = after.files.iter().map(|(name, bytes)| (moved(name), bytes.clone())).collect();
                after.dirs = after.dirs.iter().map(moved).collect();
            }
        }
        after
    }

    /// Adds the directories above every file.
    pub(super) fn with_parents(mut self) -> Self {
        for file in self.files.keys() {
            for (index, _) in file.match_indices('/') {
                self.dirs.insert(file[..index].to_owned());
            }
        }
        self
    }

    /// Its names, with the size and a digest of each file, for people.
    pub(super) fn outline(&self) -> Vec<String> {
        let digest =
            |bytes: &[u8]| bytes.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
        let files = self
            .files
            .iter()
            .map(|(path, bytes)| format!("{path}: {} bytes, {:08x}", bytes.len(), digest(bytes)));
        self.dirs.iter().map(|dir| format!("{dir}/")).chain(files).collect()
    }

    /// The tree as the service shows it.
    pub(super) fn read(client: &Client, tree: &str) -> Result<Self, Broken> {
        let mut model = Self::default();
        let mut left = vec![String::new()];
        while let Some(dir) = left.pop() {
            let answer = client.get(&format!("{tree}/dir?path={}", super::editor::percent(&dir)))?;
            assert_eq!(answer.status, 200, "{tree}/{dir}: {}", answer.text());
            for child in answer.json()["data"].as_array().unwrap() {
                let name = child["name"].as_str().unwrap();
                let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
                if child["kind"] == "directory" {
                    model.dirs.insert(path.clone());
                    left.push(path);
                    continue;
                }
                let answer = client.get(&format!("{tree}/raw/{}", super::editor::percent(&path)))?;
                assert_eq!(answer.status, 200, "{tree}/{path} is listed: {}", answer.text());
                model.files.insert(path, answer.body);
            }
        }
        Ok(model)
    }
}

pub(super) fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

impl Change {
    /// Asks the service for the change.
    pub(super) fn send(&self, client: &Client, tree: &str) -> Result<Answer, Broken> {
        match self {
            Self::Write { path, bytes } => client.put(&format!("{tree}/raw/{path}"), bytes),
            Self::EditLine { path, line } => {
                client.put(&format!("{tree}/edit?path={path}&start=2&end=2"), line.as_bytes())
            }
            Self::Replace { path, old, new } => client.post(
                &format!("{tree}/replace"),
                &json!({ "path": path, "edits": [{ "old_string": old, "new_string": new }] }),
            ),
            Self::RemoveFile { path } => client.delete(&format!("{tree}/raw/{path}")),
            Self::RemoveDir { path } => client.delete(&format!("{tree}/file?path={path}&recursive=true")),
            Self::MakeDir { path } => client.post(&format!("{tree}/mkdir"), &json!({ "path": path })),
            Self::Move { from, to } => {
                client.post(&format!("{tree}/move"), &json!({ "from": from, "to": to, "overwrite": true }))
            }
        }
    }
}
