//! [`Editor`]: changes single files and directories, in a merged view or in a workspace.

use super::Actor;
use super::model::{Change, Model, is_below};
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

/// Names that files and directories are given; few, so that they meet what was removed before.
const NAMES: [&str; 5] = ["a", "b", "notes.txt", "数据.md", "x y"];
/// Entries of a tree beyond which nothing is added.
const ENTRIES_MAX: usize = 24;

/// Changes one tree, one change at a time.
pub(crate) struct Editor {
    user: String,
    /// The URL path of the tree.
    tree: String,
    is_skill: bool,
    acknowledged: Model,
    /// The tree, if the request without an answer was done.
    asked: Option<Model>,
    number: u64,
    /// Whether being told to wait (429) is no failure.
    bears_busy: bool,
    /// How often it was told to wait.
    refused: usize,
}

impl Editor {
    /// In the overlay over a baseline skill with directories in directories.
    pub(crate) fn of_skill(user: &str) -> Self {
        let tree = format!("/v1/skills/{}/edited/base-{}", percent(user), percent(user));
        Self { is_skill: true, ..Self::of(user, tree) }
    }

    pub(crate) fn of_workspace(user: &str) -> Self {
        Self::of(user, format!("/v1/sandbox/{}/edited", percent(user)))
    }

    fn of(user: &str, tree: String) -> Self {
        Self {
            user: user.to_owned(),
            tree,
            is_skill: false,
            acknowledged: Model::default(),
            asked: None,
            number: 0,
            bears_busy: false,
            refused: 0,
        }
    }

    /// Takes being told to wait for an answer, as in a crowd.
    pub(crate) fn bearing_busy(self) -> Self {
        Self { bears_busy: true, ..self }
    }

    /// How often it was told to wait.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    /// The baseline of the skill.
    fn baseline() -> Model {
        let paths = ["SKILL.md", "a/one.txt", "a/b/two.txt", "a/b/three.txt", "lib/four.txt", "lib/数据.md"];
        let files = paths.map(|path| (path.to_owned(), skill::proof(path))).into_iter().collect();
        Model { files, ..Model::default() }.with_parents()
    }

    fn change(&mut self, random: &mut Random) -> Change {
        self.number += 1;
        let mark = format!("{}-{}", self.user, self.number);
        let model = &self.acknowledged;
        let files: Vec<&String> = model.files.keys().collect();
        let dirs: Vec<&String> = model.dirs.iter().collect();
        for _ in 0..20 {
            let fresh = Self::fresh_path(&dirs, random);
            let is_free = !model.files.contains_key(&fresh) && !model.dirs.contains(&fresh);
            let has_room = files.len() + dirs.len() < ENTRIES_MAX;
            let file = random.pick(&files).map(|path| (*path).clone());
            let dir = random.pick(&dirs).map(|path| (*path).clone());
            match (random.below(9), file, dir) {
                (0, ..) if has_room && !model.dirs.contains(&fresh) => {
                    return Change::Write { path: fresh, bytes: skill::proof(&mark) };
                }
                (1, Some(path), _) => return Change::Write { path, bytes: skill::proof(&mark) },
                (2, Some(path), _) => return Change::EditLine { path, line: format!("edited {mark}\n") },
                (3, Some(path), _) => {
                    let text = String::from_utf8(model.files[&path].clone()).unwrap();
                    let old = text.lines().nth(1).unwrap().to_owned();
                    return Change::Replace { path, old, new: format!("replaced {mark}") };
                }
                (4, Some(path), _) if path != "SKILL.md" => return Change::RemoveFile { path },
                (5, _, Some(path)) if random.chance(50) => return Change::RemoveDir { path },
                (6, ..) if has_room && is_free => return Change::MakeDir { path: fresh },
                (7, Some(from), _) if fresh != from && !model.dirs.contains(&fresh) => {
                    return Change::Move { from, to: fresh };
                }
                (8, _, Some(from)) if is_free && fresh != from && !is_below(&fresh, &from) => {
                    return Change::Move { from, to: fresh };
                }
                _ => {}
            }
        }
        Change::Write { path: "SKILL.md".to_owned(), bytes: skill::proof(&mark) }
    }

    /// A path in a directory that is there, at most four levels deep.
    fn fresh_path(dirs: &[&String], random: &mut Random) -> String {
        let name = random.pick(&NAMES).unwrap();
        match random.pick(dirs).filter(|dir| dir.matches('/').count() < 3) {
            Some(dir) if random.chance(70) => format!("{dir}/{name}"),
            _ => (*name).to_owned(),
        }
    }

    /// Drops all changes of the skill.
    fn reset(&mut self, client: &Client) -> Result<(), Broken> {
        self.asked = Some(Self::baseline());
        let answer = client.send("POST", &format!("{}/reset", self.tree), None, b"")?;
        if answer.status == 429 && self.bears_busy {
            self.asked = None;
            self.refused += 1;
            return Ok(());
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.acknowledged = asked;
        }
    }
}

impl Actor for Editor {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        if self.is_skill {
            let baseline = Self::baseline();
            let archive = skill::archive_of(&format!("base-{}", self.user), baseline.files.iter());
            let answer = client.upload(&format!("{}/edited", percent(&self.user)), "baseline", &archive)?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            self.acknowledged = baseline;
        }
        Ok(())
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let found = Model::read(client, &self.tree)?;
        let asked = self.asked.take();
        assert!(
            found == self.acknowledged || Some(&found) == asked.as_ref(),
            "{}: after the restart there is neither what was acknowledged nor what was asked for last\n\
             found: {}\nacknowledged: {}\nasked for: {}",
            self.tree,
            outline(&found),
            outline(&self.acknowledged),
            asked.as_ref().map_or_else(|| "nothing".to_owned(), outline)
        );
        self.acknowledged = found;
        Ok(())
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        if self.is_skill && random.chance(1) {
            return self.reset(client);
        }
        let change = self.change(random);
        // Paths go into URLs as they are but for the few characters that may not.
        self.asked = Some(self.acknowledged.after(&change));
        let answer = encoded(&change).send(client, &self.tree)?;
        if answer.status == 429 && self.bears_busy {
            self.asked = None;
            self.refused += 1;
            return Ok(());
        }
        assert!(
            answer.is_success(),
            "{}: {change:?} was answered {}: {}",
            self.tree,
            answer.status,
            answer.text()
        );
        self.acknowledge();
        Ok(())
    }
}

/// The change with the paths that go into a URL percent-encoded.
fn encoded(change: &Change) -> Change {
    let mut change = change.clone();
    match &mut change {
        Change::Write { path, .. }
        | Change::EditLine { path, .. }
        | Change::RemoveFile { path }
        | Change::RemoveDir { path } => *path = percent(path),
        Change::Replace { .. } | Change::MakeDir { .. } | Change::Move { .. } => {}
    }
    change
}

/// Percent-encodes everything but letters, digits and what paths are made of.
pub(super) fn percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A tree for a message: its directories, and its files with their first two lines.
fn outline(model: &Model) -> String {
    let files = model.files.iter().map(|(path, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.lines().take(2).collect();
        format!("{path} ({})", lines.join(" | "))
    });
    format!("{:?} {:?}", model.dirs, files.collect::<Vec<_>>())
}
