//! Reads that the kernel can answer from memory, without waiting for a disk or another request.
//!
//! Leaving the runtime for a blocking call costs tens of microseconds; a small read of a cached file costs two.
//! So a reader tries here first, on the spot: `openat2(2)` with `RESOLVE_CACHED` and `preadv2(2)` with `RWF_NOWAIT`
//! refuse instead of waiting, and locks are only tried. A read that is refused, or is not the plain case (links,
//! whiteouts of directories, errors of any kind), is `None`, and the caller goes the ordinary way, which decides
//! what the answer or the error is.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

use policy::{RelPath, TreeId};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::dir::Dir;
use crate::files::Files;
use crate::layers::tree::Opened;
use crate::layers::whiteouts::is_opaque;
use crate::layout;
use crate::stat::{Kind, Layer, Stat};

/// Largest file read on the spot, in bytes: copying it takes tens of microseconds.
pub const CACHED_READ_BYTES_MAX: u64 = 256 * 1024;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::CACHED);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Files {
    /// Opens the file `path` if that takes no waiting.
    #[must_use]
    pub fn open_cached(&self, path: &RelPath) -> Option<Opened> {
        if path.is_root() || self.is_of_version() {
            return None;
        }
        let (store, id) = self.parts();
        let _held = store.locks().try_read(id)?;
        let root = store.root().as_ref();
        match id {
            TreeId::Workspace(user, agent) => {
                let workspace = layout::workspace(user, agent).ok()?;
                let opened = regular(open(root, &below(&workspace, path), READ).ok()?, Layer::Workspace)?;
                // A file linked in from elsewhere is told apart on the ordinary way.
                (opened.stat.links == 1).then_some(opened)
            }
            TreeId::Skill(user, agent, skill) => {
                if store.views().is_some_and(|views| views.has_older(id)) {
                    return None;
                }
                let overlay = format!("{}/{skill}", layout::overlay(user, agent).ok()?);
                let upper = match open(root, &overlay, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC) {
                    Ok(fd) => Some(Dir::from(fd)),
                    Err(Errno::NOENT) => None,
                    Err(_) => return None,
                };
                if let Some(upper) = &upper {
                    match open(upper, path.as_str(), READ) {
                        Ok(fd) => return regular(fd, Layer::Overlay),
                        Err(Errno::NOENT) if shows_lower(upper, path)? => {}
                        Err(_) => return None,
                    }
                }
                let baseline = format!("{}/{skill}/{path}", layout::baseline(agent).ok()?);
                let opened = regular(open(root, &baseline, READ).ok()?, Layer::Baseline)?;
                let stat = dirfd::frozen(&opened.file, opened.stat);
                Some(Opened { stat, ..opened })
            }
        }
    }

    /// Reads the file `path` whole if that takes no waiting and it is small.
    #[must_use]
    pub fn read_cached(&self, path: &RelPath) -> Option<(Vec<u8>, Stat, Layer)> {
        let Opened { file, stat, layer } = self.open_cached(path)?;
        if stat.size > CACHED_READ_BYTES_MAX {
            return None;
        }
        Some((read_now(&file, 0, stat.size)?, stat, layer))
    }
}

/// Reads exactly `bytes` bytes at `offset` if they are in memory.
#[must_use]
pub fn read_now(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).ok()?];
    if buffer.is_empty() {
        return Some(buffer);
    }
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut buffer)], offset, ReadWriteFlags::NOWAIT)
        .ok()?;
    (read == buffer.len()).then_some(buffer)
}

fn below(dir: &RelPath, path: &RelPath) -> String {
    format!("{dir}/{path}")
}

fn open(dir: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(dir, path, flags, Mode::empty(), RESOLVE)
}

/// Tells whether what the upper layer lacks shows from the lower one: no directory on the way is opaque.
///
/// `None` when that cannot be told here; a whiteout on the way is such a case.
fn shows_lower(upper: &Dir, path: &RelPath) -> Option<bool> {
    if is_opaque(upper).ok()? {
        return Some(false);
    }
    let mut parent = path.parent()?;
    let mut parents = Vec::new();
    while !parent.is_root() {
        parents.push(parent.clone());
        parent = parent.parent()?;
    }
    for parent in parents.iter().rev() {
        match open(upper, parent.as_str(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC) {
            Ok(fd) => {
                if is_opaque(&Dir::from(fd)).ok()? {
                    return Some(false);
                }
            }
            // Nothing deeper can be in the upper layer either.
            Err(Errno::NOENT) => return Some(true),
            Err(_) => return None,
        }
    }
    Some(true)
}

fn regular(fd: OwnedFd, layer: Layer) -> Option<Opened> {
    let stat: Stat = rustix::fs::fstat(&fd).ok()?.into();
    (stat.kind == Kind::File).then(|| Opened { file: fd.into(), stat, layer })
}
