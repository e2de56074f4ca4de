//! The names of packages in their directory: finding them, and making room for others.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use policy::VersionId;

use crate::dir::{Dir, Entry};
use crate::error::{Error, Result};
use crate::stat::Kind;

/// Packages at once.
const PACKAGES_MAX: usize = 100_000;
/// Digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// Packages that room is to be made for.
pub(super) struct Incoming {
    pub(super) packages: usize,
    pub(super) bytes: u64,
}

/// A package in its directory.
struct Kept {
    name: OsString,
    version: VersionId,
    bytes: u64,
    inode: u64,
    used: i128,
}

/// The version and the digest that a file's name has. A file of another name is no package and is left alone.
fn parsed(entry: &Entry) -> Option<(VersionId, &str)> {
    let (version, digest) = entry.name.to_str()?.split_once('-')?;
    let is_package = entry.kind == Kind::File && digest.len() == DIGEST_DIGITS;
    Some((VersionId::parse(version).ok().filter(|_| is_package)?, digest))
}

/// The name of the package of a version, and its digest.
pub(super) fn find(dir: &Dir, version: &VersionId) -> Result<Option<(OsString, String)>> {
    let packages = dir.entries_at_most(PACKAGES_MAX + 1)?;
    let of_version = packages.iter().find_map(|entry| match parsed(entry) {
        Some((found, digest)) if found == *version => Some((entry.name.clone(), digest.to_owned())),
        _ => None,
    });
    Ok(of_version)
}

/// The names of packages whose bytes have this digest.
pub(super) fn of_digest(dir: &Dir, digest: &str) -> Result<Vec<OsString>> {
    let packages = dir.entries_at_most(PACKAGES_MAX + 1)?;
    let same = packages.iter().filter(|entry| parsed(entry).is_some_and(|(_, found)| found == digest));
    Ok(same.map(|entry| entry.name.clone()).collect())
}

/// Removes packages that were used longest ago until `incoming` has room; how many. Those that share a file are as long unused
/// as each other, and the bytes of the file are free when the last of them goes.
pub(super) fn make_room(dir: &Dir, incoming: Incoming, total_bytes: u64) -> Result<usize> {
    let mut kept = listed(dir)?;
    let mut names_of: HashMap<u64, usize> = HashMap::new();
    let mut total: u64 = 0;
    for package in &kept {
        let names = names_of.entry(package.inode).or_default();
        *names += 1;
        total = total.saturating_add(if *names == 1 { package.bytes } else { 0 });
    }
    let (mut number, mut collected) = (kept.len(), 0);
    kept.sort_by_key(|kept| (kept.used, kept.inode));
    for old in kept {
        let has_room = total.saturating_add(incoming.bytes) <= total_bytes;
        if has_room && number.saturating_add(incoming.packages) <= PACKAGES_MAX {
            break;
        }
        dir.remove_file(&old.name)?;
        tracing::info!(version = %old.version, "a package gave way to a new one");
        let names = names_of.entry(old.inode).or_default();
        *names = names.saturating_sub(1);
        total = total.saturating_sub(if *names == 0 { old.bytes } else { 0 });
        number -= 1;
        collected += 1;
    }
    Ok(collected)
}

/// The packages that are kept.
fn listed(dir: &Dir) -> Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for entry in dir.entries_at_most(PACKAGES_MAX + 1)? {
        let Some((version, _)) = parsed(&entry) else { continue };
        let Some(stat) = dir.stat_entry(&entry.name)? else { continue };
        let (bytes, inode, used) = (stat.size, stat.inode, stat.modified_ns);
        kept.push(Kept { name: entry.name, version, bytes, inode, used });
    }
    Ok(kept)
}

/// Notes that a package is used now.
pub(super) fn use_now(dir: &Dir, name: &OsStr) -> Result<()> {
    let (file, _) = dir.open_file_entry(name)?;
    // The owner needs no descriptor for writing (utimensat(2)).
    file.set_modified(SystemTime::now()).map_err(|error| Error::from_io("utimens", "package", error))
}

/// The name of the package of a version.
pub(super) fn name_of(version: &VersionId, digest: &str) -> OsString {
    OsString::from(format!("{version}-{digest}"))
}
