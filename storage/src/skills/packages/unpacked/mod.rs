//! [`UnpackedFiles`]: the files of packages as they are unpacked, equal ones once, so that deploying a package again copies files
//! and inflates nothing.
//!
//! It is a cache beside the archives. `lists/{package}` below `.filesecbox/unpacked` tells what the package with this SHA-256 holds,
//! `files/{xx}/{digest}` is a content, named by its BLAKE3, which all lists share that name it. Nothing here is made durable:
//! every content is compared with its digest while it is copied, and what is missing, cut or damaged is unpacked from the archive
//! again. The modification time of a list is its last use. A package that was fetched comes here when it is deployed for the second
//! time, one that was sent when it was checked.

mod list;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::time::SystemTime;

use policy::{ArchiveLimits, RelPath};

pub(super) use self::list::List;
use self::list::{place_of, taken};
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layout;
use crate::skills::archive::Written;
use crate::stat::Use;

/// Contents at once.
const FILES_MAX: u64 = 200_000;
/// Lists at once.
const LISTS_MAX: usize = 2_000;
/// Packages of which it is known that they were deployed; beyond that all are forgotten.
const DEPLOYED_MAX: usize = 10_000;

/// The unpacked files of the packages of a store.
pub(super) struct UnpackedFiles<'a> {
    store: &'a Store,
    lists: Dir,
    files: Dir,
}

impl<'a> UnpackedFiles<'a> {
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn of(store: &'a Store) -> Result<Self> {
        let own = store.root().open_dir(&RelPath::parse(layout::UNPACKED)?)?;
        let below = |name| own.ensure_dir(OsStr::new(name));
        Ok(Self { store, lists: below("lists")?, files: below("files")? })
    }

    /// The list of a package, when its files are kept and were unpacked under `limits`. That is a use of them.
    ///
    /// # Errors
    /// [`Error::Io`]; those of [`interrupt::check`].
    pub(super) fn list(&self, package: &str, limits: &ArchiveLimits) -> Result<Option<List>> {
        let file = match self.lists.open_file_entry(OsStr::new(package)) {
            Err(Error::NotFound(_)) => return Ok(None),
            opened => opened?.0,
        };
        let now = SystemTime::now();
        file.set_modified(now).map_err(|error| Error::from_io("utimens", "list", error))?;
        List::read(file, Some(limits))
    }

    /// Copies what the list of a package names into the empty directory `into`. After an error a part of it may be there.
    ///
    /// # Errors
    /// [`Error::Damaged`] when that is not all here: then the list is gone, and the package has to be unpacked; [`Error::NoSpace`],
    /// [`Error::Io`]; those of [`interrupt::check`].
    pub(super) fn copy(&self, package: &str, mut list: List, into: &Dir) -> Result<()> {
        let copied = list.copy(&self.files, into);
        if let Err(Error::Damaged(_)) = copied {
            tracing::warn!(
                package,
                "unpacked files of a package are missing or damaged: it is unpacked again"
            );
            match self.lists.remove_file(OsStr::new(package)) {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        copied
    }

    /// Notes that a package which takes `room` is deployed from its archive; tells whether that was so before, since the service
    /// started, and its files may be kept.
    pub(super) fn was_deployed(&self, package: &str, room: Use) -> bool {
        if !self.may_keep(room) {
            return false;
        }
        let mut deployed = self.store.unpacked().deployed.lock();
        if deployed.len() >= DEPLOYED_MAX {
            deployed.clear();
        }
        !deployed.insert(package.to_owned())
    }

    /// Keeps what was unpacked from a package into `dir`, where nothing writes to it any more: files get one more name here. What
    /// would take more than half of the room, and what comes while another package is being kept, is left out.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
    pub(super) fn keep(
        &self,
        package: &str,
        limits: &ArchiveLimits,
        dir: &Dir,
        entries: &[Written],
    ) -> Result<()> {
        let room = taken(entries);
        if !self.may_keep(room) {
            return Ok(());
        }
        let Some(mut known) = self.store.unpacked().room.try_lock() else { return Ok(()) };
        // After a failure below it is measured again.
        let mut total = match known.take() {
            Some(total) => total,
            None => self.measure()?,
        };
        let with = total.plus(room);
        let is_full = with.exceeds(self.most());
        // What can be had again is not to take the room of what users write.
        let free = self.store.free_bytes()?;
        if free.saturating_sub(self.most_bytes()) < self.store.disk_limits().free_bytes {
            *known = Some(self.make_room(self.most())?);
            return Ok(());
        }
        if is_full || self.lists.first_entries(LISTS_MAX)?.len() == LISTS_MAX {
            total = self.make_room(room)?;
        }
        for Written { path, file } in entries {
            let Some(file) = file else { continue };
            interrupt::check()?;
            let (group, name) = place_of(&file.digest);
            let group = self.files.ensure_dir(OsStr::new(&group))?;
            let (content, stat) = dir.open_file(path)?;
            match group.link(&content, OsStr::new(&name)) {
                Ok(()) => total = total.plus(Use { bytes: stat.allocated, files: 1 }),
                Err(Error::AlreadyExists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let staged = self.store.stage().file(0o600, None)?;
        List::write(staged.file(), limits, entries)?;
        total = total.plus(Use { bytes: staged.stat()?.allocated, files: 1 });
        staged.place(&self.lists, OsStr::new(package))?;
        *known = Some(total);
        Ok(())
    }

    fn may_keep(&self, room: Use) -> bool {
        room.bytes <= self.most_bytes() / 2 && room.files <= FILES_MAX / 2
    }

    fn most(&self) -> Use {
        Use { bytes: self.most_bytes(), files: FILES_MAX }
    }

    fn most_bytes(&self) -> u64 {
        self.store.options().unpacked_bytes
    }

    /// The room that all contents and lists take.
    fn measure(&self) -> Result<Use> {
        let mut total = taken_by(&self.lists)?;
        self.each_content(|group, name, _| {
            total = total.plus(room_of(group, name)?);
            Ok(())
        })?;
        Ok(total)
    }

    /// Removes the lists that were used longest ago, so that those that stay have half of the room with `incoming`, and every content
    /// that none of them names. The room that is taken then.
    fn make_room(&self, incoming: Use) -> Result<Use> {
        let mut by_use = Vec::new();
        for entry in self.lists.entries()? {
            if let Some(stat) = self.lists.stat_entry(&entry.name)? {
                by_use.push((stat.modified_ns, entry.name));
            }
        }
        by_use.sort();
        let (mut room, mut named) = (incoming, HashSet::new());
        for (kept, (_, name)) in by_use.into_iter().rev().enumerate() {
            let (file, _) = match self.lists.open_file_entry(&name) {
                Err(Error::NotFound(_)) => continue,
                opened => opened?,
            };
            let entries = List::read(file, None)?.map(|list| list.entries);
            let is_whole = entries.is_some();
            let mut with = room.plus(room_of(&self.lists, &name)?);
            let mut contents = Vec::new();
            for file in entries.unwrap_or_default().iter().filter_map(|entry| entry.file) {
                if !named.contains(&file.digest) {
                    with = with.plus(Use::of_file(file.size));
                    contents.push(file.digest);
                }
            }
            if is_whole && kept < LISTS_MAX / 2 && self.may_keep(with) {
                room = with;
                named.extend(contents);
            } else {
                self.lists.remove_file(&name)?;
            }
        }
        let mut total = taken_by(&self.lists)?;
        self.each_content(|group, name, digest| {
            if digest.is_none_or(|digest| !named.contains(&digest)) {
                return group.remove_file(name);
            }
            total = total.plus(room_of(group, name)?);
            Ok(())
        })?;
        Ok(total)
    }

    /// Hands every content to `act`: its directory, its name, and the digest that this is.
    fn each_content(
        &self,
        mut act: impl FnMut(&Dir, &OsStr, Option<blake3::Hash>) -> Result<()>,
    ) -> Result<()> {
        for group in self.files.entries()? {
            let dir = self.files.open_dir_entry(&group.name)?;
            for entry in dir.entries()? {
                interrupt::check()?;
                let digest = entry.name.to_str().and_then(|name| blake3::Hash::from_hex(name).ok());
                act(&dir, &entry.name, digest)?;
            }
        }
        Ok(())
    }
}

/// The room that the entries of a directory take.
fn taken_by(dir: &Dir) -> Result<Use> {
    let mut total = Use::default();
    for entry in dir.entries()? {
        total = total.plus(room_of(dir, &entry.name)?);
    }
    Ok(total)
}

fn room_of(dir: &Dir, name: &OsStr) -> Result<Use> {
    let stat = dir.stat_entry(name)?;
    Ok(stat.map_or(Use::default(), |stat| Use { bytes: stat.allocated, files: 1 }))
}
