//! The seals that a start finds: those of before, the files that are missing, and the files that no seal names.

use std::ffi::OsStr;

use storage::{Dir, Result};

use super::files;
use super::key::Key;
use super::record::Head;
use super::seals::{self, Found, Seals};

/// The seals with which a process goes on.
pub(super) struct Standing {
    pub(super) key: Key,
    pub(super) seals: Seals,
    /// The changes by another program, in words.
    pub(super) broken: Option<String>,
}

/// Reads or makes the key and the seals, and seals what the process before left without: its last file.
///
/// # Errors
/// Those of reading and writing.
pub(super) fn standing(dir: &Dir, keys: &Dir, head: &Head) -> Result<Standing> {
    let kept = Key::read(keys)?;
    let is_new = kept.is_none();
    let key = kept.map_or_else(Key::make, Ok)?;
    let segments = files::list(dir)?;
    let fresh = || Seals { since: head.seq + 1, ..Seals::default() };
    let (mut seals, mut broken) = match Seals::read(dir, &key)? {
        Found::Genuine(seals) => (seals, None),
        Found::None if is_new || segments.is_empty() => (fresh(), None),
        Found::None => (fresh(), Some("the seals of the files are missing".to_owned())),
        Found::Forged => {
            let mut aside = OsStr::new(seals::NAME).to_owned();
            aside.push(files::DAMAGED);
            dir.rename(OsStr::new(seals::NAME), dir, &aside)?;
            let problem = if is_new { "the key of the seals is missing" } else { "the seals are forged" };
            (fresh(), Some(problem.to_owned()))
        }
    };
    for sealed in &seals.files {
        let stat = dir.stat_entry(&files::name(sealed.first))?;
        if stat.is_none_or(|stat| stat.size < sealed.bytes) {
            let (first, last) = (sealed.first, sealed.last.seq);
            broken.get_or_insert(format!("the file of the records {first} to {last} is missing or cut off"));
        }
    }
    for segment in &segments {
        if segment.first <= seals.removed.last.seq {
            // A crash came between telling that it goes and removing it.
            dir.remove_file(&segment.name)?;
        } else if !seals.has(segment.first) {
            seals.files.extend(files::seal(dir, segment)?);
        }
    }
    seals.files.sort_by_key(|sealed| sealed.first);
    if is_new {
        key.keep(keys)?;
    }
    seals.write(dir, &key, true)?;
    Ok(Standing { key, seals, broken })
}
