//! [`VersionLog`]: the publications of a baseline skill, each with a number that nothing else ever has.
//!
//! The log is one file for each skill: lines of JSON, the oldest first. What is published carries its own facts in attributes
//! and is placed without the log; the log follows. A publication that it lacks (the service died between the two, the store is
//! of an earlier version, an operator put a tree there) gets the next number: in memory whenever the log is read, and on the
//! disk before the versions of the skill change again. So a number that was told stays, whatever goes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{Read, Write};

use policy::{AgentId, SkillId};
use serde::{Deserialize, Serialize};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layout;
use crate::skills::Skills;
use crate::skills::provenance::Provenance;
use crate::skills::version_note::VersionNote;
use crate::version::{self, Version};

/// The name of the file.
const NAME: &str = "log";
/// Entries from which the older ones go, besides one for each version that is there.
const ENTRIES_MAX: usize = 1000;
/// Entries that stay then, besides those of versions that are there.
const ENTRIES_KEPT: usize = 500;
/// The longest file that is read, in bytes. An entry has at most 4 KiB.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One publication of a baseline skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogEntry {
    /// From 1, in the order of publications.
    pub(crate) number: u64,
    /// What was published.
    pub(crate) version: Version,
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// Who published it; `None` for a tree that was put there by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Regular files, and bytes in them.
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// Whether it was only staged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) staged: bool,
}

/// The publications of one baseline skill, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionLog {
    entries: Vec<LogEntry>,
    /// How many of them are on the disk.
    written: usize,
}

/// The versions of a skill that are on the disk.
pub(crate) struct There {
    /// The current one.
    pub(crate) current: Option<(Version, Dir)>,
    /// The directory of the former ones.
    pub(crate) dir: Option<Dir>,
    /// Former and staged ones. One of them may have the content of the current one.
    pub(crate) former: Vec<Former>,
}

/// A version that is not the current one.
pub(crate) struct Former {
    pub(crate) version: Version,
    /// When its directory got its place, in nanoseconds since 1970: a rename moves the change time.
    pub(crate) changed_ns: i128,
    pub(crate) inode: u64,
}

impl There {
    /// Tells whether `version` is the current one.
    pub(crate) fn is_current(&self, version: &Version) -> bool {
        self.current.as_ref().is_some_and(|(current, _)| current == version)
    }

    fn versions(&self) -> HashSet<&Version> {
        let former = self.former.iter().map(|former| &former.version);
        former.chain(self.current.iter().map(|(version, _)| version)).collect()
    }
}

impl VersionLog {
    /// Reads the lines of a file; what is no entry is passed over.
    fn parse(text: &str) -> Self {
        let mut entries: Vec<LogEntry> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        entries.sort_by_key(|entry: &LogEntry| entry.number);
        entries.dedup_by_key(|entry| entry.number);
        Self { written: entries.len(), entries }
    }

    /// The newest publication of each version.
    pub(crate) fn newest(&self) -> HashMap<&Version, &LogEntry> {
        self.entries.iter().map(|entry| (&entry.version, entry)).collect()
    }

    /// The version that was published under `number`.
    pub(crate) fn numbered(&self, number: u64) -> Option<&Version> {
        let index = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.entries.get(index).map(|entry| &entry.version)
    }

    /// Every entry, the oldest first.
    pub(crate) fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// Adds a publication under the next number.
    fn add(&mut self, entry: LogEntry) {
        let number = self.entries.last().map_or(1, |last| last.number.saturating_add(1));
        self.entries.push(LogEntry { number, ..entry });
    }

    /// Drops the older half when there are too many, but for the first one and the newest of each version that is there.
    fn shorten(&mut self, there: &HashSet<&Version>) {
        if self.entries.len() <= ENTRIES_MAX + there.len() {
            return;
        }
        let newest: HashSet<u64> = {
            let newest = self.newest();
            there.iter().filter_map(|version| newest.get(version)).map(|entry| entry.number).collect()
        };
        let from = self.entries.len() - ENTRIES_KEPT;
        let mut index = 0;
        self.entries.retain(|entry| {
            let stays = index == 0 || index >= from || newest.contains(&entry.number);
            index += 1;
            stays
        });
    }

    fn text(&self) -> String {
        // Texts and numbers always become JSON.
        let line = |entry: &LogEntry| serde_json::to_string(entry).unwrap_or_default() + "\n";
        self.entries.iter().map(line).collect()
    }
}

impl Skills {
    /// Looks which versions of a skill are on the disk. The caller holds the skill.
    pub(crate) fn there(&self, agent: &AgentId, skill: &SkillId) -> Result<There> {
        let current = match self.store.baseline_dir(agent, skill)? {
            Some(dir) => Some((version::of(&dir)?, dir)),
            None => None,
        };
        let dir = match self.store.root().open_dir(&layout::versions(agent, skill)?) {
            Err(Error::NotFound(_)) => None,
            dir => Some(dir?),
        };
        let mut former = Vec::new();
        if let Some(dir) = &dir {
            for entry in dir.entries()? {
                let version = entry.name.to_str().and_then(Version::parse);
                if let (Some(version), Some(stat)) = (version, dir.stat_entry(&entry.name)?) {
                    former.push(Former { version, changed_ns: stat.changed_ns, inode: stat.inode });
                }
            }
        }
        Ok(There { current, dir, former })
    }

    /// The log of a skill, with what it lacks of the versions that are there. The caller holds the skill.
    pub(crate) fn version_log(&self, agent: &AgentId, skill: &SkillId, there: &There) -> Result<VersionLog> {
        let mut log = self.read_log(agent, skill)?;
        let missing = missing(&log, there)?;
        missing.into_iter().for_each(|entry| log.add(entry));
        Ok(log)
    }

    /// As [`Skills::version_log`], which is on the disk afterwards. The caller holds the skill alone.
    pub(crate) fn complete_log(&self, agent: &AgentId, skill: &SkillId, there: &There) -> Result<VersionLog> {
        let mut log = self.version_log(agent, skill, there)?;
        if log.written == log.entries.len() {
            return Ok(log);
        }
        log.shorten(&there.versions());
        let dir = self.store.stage().ensure_path(self.store.root(), &layout::history(agent, skill)?)?;
        let file = self.store.stage().file(0o600, None)?;
        file.file()
            .write_all(log.text().as_bytes())
            .map_err(|error| Error::from_io("write", "version log", error))?;
        if self.store.options().durability != Durability::Never {
            // With relaxed durability too: a file that is empty after a loss of power would give numbers out again.
            file.file().sync_all().map_err(|error| Error::from_io("fsync", "version log", error))?;
        }
        file.place(&dir, OsStr::new(NAME))?;
        if self.store.is_strict() {
            dir.sync()?;
        }
        log.written = log.entries.len();
        Ok(log)
    }

    fn read_log(&self, agent: &AgentId, skill: &SkillId) -> Result<VersionLog> {
        let dir = match self.store.root().open_dir(&layout::history(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(VersionLog::default()),
            dir => dir?,
        };
        let file = match dir.open_file_entry(OsStr::new(NAME)) {
            Err(Error::NotFound(_)) => return Ok(VersionLog::default()),
            opened => opened?.0,
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::from_io("read", "version log", error))?;
        Ok(VersionLog::parse(&String::from_utf8_lossy(&bytes)))
    }
}

/// The publications of versions that are there which the log lacks, in their order, still without numbers.
fn missing(log: &VersionLog, there: &There) -> Result<Vec<LogEntry>> {
    let known = log.newest();
    let mut missing = Vec::new();
    for former in &there.former {
        if let (None, Some(dir)) = (known.get(&former.version), &there.dir) {
            let tree = dir.open_dir_entry(OsStr::new(former.version.as_str()))?;
            missing.push(publication(&tree, &former.version)?);
        }
    }
    missing.sort_by(|a, b| (a.at_ms, &a.version).cmp(&(b.at_ms, &b.version)));
    if let Some((version, tree)) = &there.current {
        let is_logged = |at_ms: Option<i64>| {
            let of_it = || log.entries.iter().rev().filter(|entry| entry.version == *version);
            match at_ms {
                // The same content may have been published before.
                Some(at_ms) => of_it().any(|entry| entry.at_ms == at_ms),
                None => of_it().next().is_some(),
            }
        };
        let written = Provenance::of_version(tree, version)?;
        if !is_logged(written.as_ref().map(Provenance::at_ms)) {
            missing.push(publication(tree, version)?);
        }
    }
    Ok(missing)
}

/// The publication that put `tree` in its place, without a number.
fn publication(tree: &Dir, version: &Version) -> Result<LogEntry> {
    let (number, version) = (0, version.clone());
    if let Some(written) = Provenance::of_version(tree, &version)? {
        let note = VersionNote::of(tree)?;
        return Ok(LogEntry {
            number,
            version,
            at_ms: written.at_ms(),
            by: Some(written.by().to_owned()),
            title: note.title().map(str::to_owned),
            message: note.message().map(str::to_owned),
            files: written.files(),
            bytes: written.bytes(),
            staged: written.is_staged(),
        });
    }
    // Put there by hand, or by a version of the service that wrote nothing down: since it was last changed.
    let at_ms = i64::try_from(tree.stat()?.modified_ns.div_euclid(1_000_000)).unwrap_or_default();
    let contents = version::contents(tree)?;
    let (files, bytes) = (contents.files, contents.bytes);
    let (by, title, message) = (None, None, None);
    Ok(LogEntry { number, version, at_ms, by, title, message, files, bytes, staged: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64, at_ms: i64) -> LogEntry {
        LogEntry {
            number: 0,
            version: Version::parse(&format!("{version:032x}")).unwrap(),
            at_ms,
            by: Some("u".to_owned()),
            title: None,
            message: Some("\"quoted\"".to_owned()),
            files: 1,
            bytes: 2,
            staged: version == 3,
        }
    }

    #[test]
    fn a_log_is_read_as_it_was_written_whatever_else_is_in_the_file() {
        let mut log = VersionLog::default();
        (1..=3).for_each(|version| log.add(entry(version, 7)));
        let text = log.text();
        let read = VersionLog::parse(&text);
        assert_eq!((read.entries(), read.written), (log.entries(), 3));
        let damaged = format!("nonsense\n{text}{{\"number\":9}}\n{}", text.get(..40).unwrap());
        assert_eq!(VersionLog::parse(&damaged).entries(), log.entries());
        assert_eq!(VersionLog::parse("").entries(), []);
    }

    #[test]
    fn numbers_go_on_and_stand_for_what_was_published_under_them() {
        let mut log = VersionLog::default();
        for version in [1, 2, 1] {
            log.add(entry(version, 7));
        }
        let first = entry(1, 7).version;
        assert_eq!(log.entries().iter().map(|entry| entry.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((log.numbered(1), log.numbered(3), log.numbered(4)), (Some(&first), Some(&first), None));
        assert_eq!(log.newest().get(&first).unwrap().number, 3);
    }

    #[test]
    fn a_long_log_loses_the_older_half_but_never_a_number_or_a_version_that_is_there() {
        let mut log = VersionLog::default();
        (1..=1002).for_each(|version| log.add(entry(version, 7)));
        let kept = [entry(5, 0).version, entry(1002, 0).version];
        let there: HashSet<&Version> = kept.iter().collect();
        let whole = log.clone();
        log.shorten(&there);
        assert_eq!(log, whole, "it is not too long yet");
        log.add(entry(1003, 7));
        log.shorten(&there);
        let numbers: Vec<u64> = log.entries().iter().map(|entry| entry.number).collect();
        assert_eq!((numbers.len(), &numbers[..3]), (502, &[1, 5, 504][..]));
        log.add(entry(1, 7));
        assert_eq!(log.entries().last().unwrap().number, 1004);
    }
}
