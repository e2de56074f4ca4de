//! Files that versions of a skill share: one inode, which has a name in each version that has the same file.
//!
//! Published files never change, so a version that is built takes those of another version in which it has the same content and
//! mode, and costs what differs. What is known of a published file does not depend on its names ([`Dir::frozen`]).

use std::ffi::OsStr;
use std::fs::File;

use dirfd::{Links, READING};
use policy::RelPath;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::stat::{Kind, Stat};
use crate::version;

/// The version before, while the next one is built.
pub struct Predecessor(Dir);

impl Predecessor {
    /// The published version `dir`; `None` if none may share its files: somebody put it there by hand, and may go on changing it; or the
    /// file system tells no file from another that is born later.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new(dir: Dir) -> Result<Option<Self>> {
        Ok(may_share(&dir)?.then_some(Self(dir)))
    }

    /// Opens the file at `path` if it has these permission bits and this length in bytes, so that its content may be the same.
    pub(crate) fn alike(&self, path: &RelPath, mode: u32, size: u64) -> Option<(File, Stat)> {
        let fd = dirfd::open_beneath(&self.0, path.as_str(), READING, Links::Refuse).ok()?;
        let (file, stat) = dirfd::regular(fd).ok()?;
        (stat.mode == mode && stat.size == size).then_some((file, stat))
    }
}

/// Tells whether other versions may share the files of `dir`, a version or the top of a copied view.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn may_share(dir: &Dir) -> Result<bool> {
    Ok(dir.keeps_births() && version::is_labelled(dir)?)
}

/// Gives the open file of a published version the name `name` in `into`, a directory of a version that is built. Tells whether it has it
/// now: if not, the file must be copied.
///
/// # Errors
/// [`Error::AlreadyExists`], [`Error::NoSpace`], [`Error::Io`].
pub(crate) fn share(file: &File, stat: &Stat, into: &Dir, name: &OsStr) -> Result<bool> {
    let is_ours = stat.kind == Kind::File && stat.owner == rustix::process::geteuid().as_raw();
    // A copy would lose the bits beyond these.
    if !is_ours || stat.mode & !0o777 != 0 {
        return Ok(false);
    }
    match dirfd::name_unnamed(file, into, name) {
        Ok(()) => Ok(true),
        // It has as many names as a file may have; it was removed with its version; or this file system, or what keeps this program
        // from some calls, allows no second name.
        Err(
            Errno::MLINK
            | Errno::NOENT
            | Errno::PERM
            | Errno::ACCESS
            | Errno::XDEV
            | Errno::OPNOTSUPP
            | Errno::NOSYS,
        ) => Ok(false),
        Err(errno) => Err(Error::from_errno("link", name.to_string_lossy(), errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_can_have_no_name_here_is_left_to_be_copied() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        let mut file: File =
            rustix::fs::memfd_create("elsewhere", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        file.write_all(b"of another file system").unwrap();
        let stat = || Stat::from(rustix::fs::fstat(&file).unwrap());
        assert!(!share(&file, &stat(), &dir, OsStr::new("a")).unwrap());

        let (name, again) = (OsStr::new("b"), OsStr::new("c"));
        let file = dir.create_file(name, 0o644).unwrap();
        let stat = Stat::from(rustix::fs::fstat(&file).unwrap());
        assert!(share(&file, &stat, &dir, again).unwrap());
        let of_another = Stat { owner: stat.owner ^ 1, ..stat.clone() };
        let with_more = Stat { mode: 0o4755, ..stat.clone() };
        for other in [of_another, with_more] {
            assert!(!share(&file, &other, &dir, OsStr::new("d")).unwrap());
        }
        assert!(matches!(share(&file, &stat, &dir, again), Err(Error::AlreadyExists(_))));
        dir.remove_file(name).unwrap();
        dir.remove_file(again).unwrap();
        assert!(!share(&file, &stat, &dir, name).unwrap(), "it was removed meanwhile");
    }
}
