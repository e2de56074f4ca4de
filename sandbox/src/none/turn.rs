//! Turns: of two changes of one entry through this process, one comes after the other.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

/// Entries whose changes never wait for each other. A turn lasts for a look and a rename.
const TURNS: usize = 256;

/// Of all workspaces of this process: two backends may have the same directory.
static HELD: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Waits for the turn to change the entry `name` of `directory`, whichever path led there.
pub(super) fn turn(directory: &OwnedFd, name: &str) -> Result<Option<MutexGuard<'static, ()>>, Errno> {
    let place = rustix::fs::fstat(directory)?;
    let number = HASHER.hash_one((place.st_dev, place.st_ino, name)) % TURNS as u64;
    Ok(HELD.get(usize::try_from(number).unwrap_or(0)).map(Mutex::lock))
}
