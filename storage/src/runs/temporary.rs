//! [`Temporary`]: a run's own temporary directory, kept for the next run when this one left it empty.
//!
//! Making a directory and removing it takes a third of a millisecond on ext4, more than everything else that a run
//! needs of the disk, and most runs put nothing into it. So the home has `tmp/0`, `tmp/1`, …: as many as it ever had runs
//! at once.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use policy::RelPath;

use super::materialise::give;
use crate::core::temporaries::Slots;
use crate::dir::Dir;
use crate::error::{Error, Result};

const MODE: u32 = 0o700;

/// A run's own temporary directory. Dropping it lets the next run have its name; see [`Temporary::end`].
pub(super) struct Temporary {
    name: OsString,
    slot: Option<Slot>,
}

/// A number that no other run of the home has.
struct Slot {
    slots: Arc<Slots>,
    home: RelPath,
    number: u32,
}

impl Temporary {
    /// An empty directory in `temporaries`, which is in `home`; it belongs to `owner`.
    ///
    /// A command may have left anything at the name. What cannot be removed stays, and the directory has the name
    /// `otherwise`, which nothing has.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn reuse(
        slots: &Arc<Slots>,
        home: RelPath,
        temporaries: &Dir,
        otherwise: &OsStr,
        owner: Option<u32>,
    ) -> Result<Self> {
        let slot = Slot::take(slots, home);
        let name = OsString::from(slot.number.to_string());
        let usable = match temporaries.open_dir_entry(&name) {
            Ok(dir) if is_as_new(&dir, owner)? => return Ok(Self { name, slot: Some(slot) }),
            Err(Error::NotFound(_)) => true,
            _ => temporaries.remove_tree(&name).is_ok(),
        };
        if !usable {
            return Self::make(otherwise.to_owned(), temporaries, owner);
        }
        let made = Self::make(name, temporaries, owner)?;
        Ok(Self { slot: Some(slot), ..made })
    }

    /// A new directory `name` in `temporaries`.
    ///
    /// # Errors
    /// As [`Temporary::reuse`].
    pub(super) fn make(name: OsString, temporaries: &Dir, owner: Option<u32>) -> Result<Self> {
        give(&temporaries.create_dir(&name, MODE)?, owner)?;
        Ok(Self { name, slot: None })
    }

    /// Its name in the directory of temporary directories.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Removes it from `temporaries`, unless the run left it as it was.
    ///
    /// # Errors
    /// As [`Dir::remove_tree`].
    pub(super) fn end(&self, temporaries: &Dir, owner: Option<u32>) -> Result<()> {
        if self.slot.is_some()
            && let Ok(dir) = temporaries.open_dir_entry(&self.name)
            && is_as_new(&dir, owner)?
        {
            return Ok(());
        }
        temporaries.remove_tree(&self.name)
    }
}

fn is_as_new(dir: &Dir, owner: Option<u32>) -> Result<bool> {
    let stat = dir.stat()?;
    let is_owned = owner.is_none_or(|owner| stat.owner == owner);
    Ok(is_owned && stat.mode == MODE && dir.first_entries(1)?.is_empty())
}

impl Slot {
    fn take(slots: &Arc<Slots>, home: RelPath) -> Self {
        let mut taken = slots.taken.lock();
        let numbers = taken.entry(home.clone()).or_default();
        let number = (0..).find(|number| !numbers.contains(number)).unwrap_or_default();
        numbers.insert(number);
        Self { slots: Arc::clone(slots), home, number }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        if let Some(numbers) = taken.get_mut(&self.home) {
            numbers.remove(&self.number);
            if numbers.is_empty() {
                taken.remove(&self.home);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Home {
        slots: Arc<Slots>,
        dir: Dir,
        _temp: tempfile::TempDir,
    }

    impl Home {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            Self { slots: Arc::default(), dir: Dir::ambient_open(temp.path()).unwrap(), _temp: temp }
        }

        fn take(&self) -> Temporary {
            let home = RelPath::parse("home").unwrap();
            Temporary::reuse(&self.slots, home, &self.dir, OsStr::new("fresh"), None).unwrap()
        }

        fn inode(&self, temporary: &Temporary) -> u64 {
            self.dir.open_dir_entry(temporary.name()).unwrap().stat().unwrap().inode
        }
    }

    #[test]
    fn an_empty_directory_is_the_next_runs() {
        let home = Home::new();
        let first = home.take();
        let inode = home.inode(&first);
        first.end(&home.dir, None).unwrap();
        drop(first);
        assert_eq!(home.inode(&home.take()), inode);
    }

    #[test]
    fn what_a_run_leaves_is_not_seen_by_the_next() {
        let home = Home::new();
        let first = home.take();
        home.dir.open_dir_entry(first.name()).unwrap().create_file(OsStr::new("secret"), 0o600).unwrap();
        // As after a crash: it was not ended.
        drop(first);
        let second = home.take();
        let dir = home.dir.open_dir_entry(second.name()).unwrap();
        assert!(dir.entries().unwrap().is_empty());
        dir.create_file(OsStr::new("secret"), 0o600).unwrap();
        second.end(&home.dir, None).unwrap();
        assert!(home.dir.entries().unwrap().is_empty());
    }

    #[test]
    fn runs_at_once_have_directories_of_their_own_and_nobody_is_remembered() {
        let home = Home::new();
        let (first, second) = (home.take(), home.take());
        assert_ne!(home.inode(&first), home.inode(&second));
        drop((first, second));
        assert!(home.slots.taken.lock().is_empty());
    }

    #[test]
    fn a_file_or_another_mode_at_the_name_keeps_nobody_from_running() {
        let home = Home::new();
        home.dir.create_file(OsStr::new("0"), 0o600).unwrap();
        let first = home.take();
        let dir = home.dir.open_dir_entry(first.name()).unwrap();
        dir.set_mode(0o777).unwrap();
        drop((dir, first));
        let second = home.take();
        assert_eq!(home.dir.open_dir_entry(second.name()).unwrap().stat().unwrap().mode, MODE);
    }
}
