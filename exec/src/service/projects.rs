//! Project quotas of a file system: which project a file is of, and what the kernel lets a project take.
//!
//! A project is a number that files have besides owner and group, and that what is made in a marked directory inherits. The
//! kernel counts bytes and inodes of each project and refuses more than its limits with `EDQUOT`. Only the service
//! changes the project of a file: the filter of system calls refuses `FS_IOC_FSSETXATTR` to runs.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::{self, FileAttributes, QuotaBlock};

/// `FS_XFLAG_PROJINHERIT` of `linux/fs.h`.
const INHERITED: u32 = 0x200;
/// In which the kernel counts limits (`QIF_DQBLKSIZE`).
const BLOCK_BYTES: u64 = 1024;

/// The project of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 is none.
    pub id: u32,
    /// Whether what is made in the directory has the same project.
    pub is_inherited: bool,
}

/// What a project takes and may take. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allotment {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Inodes.
    pub files: u64,
    /// Bytes that it may take.
    pub bytes_limit: u64,
    /// Inodes that it may take.
    pub files_limit: u64,
}

/// Tells which project an open file is of.
///
/// # Errors
/// As `ioctl(2)`: `ENOTTY` or `EOPNOTSUPP` where the file system has no projects.
pub fn project_of(file: BorrowedFd<'_>) -> io::Result<Project> {
    let FileAttributes { flags, project, .. } = sys::file_attributes(file)?;
    Ok(Project { id: project, is_inherited: flags & INHERITED != 0 })
}

/// Gives an open file or directory to a project. Its other flags stay.
///
/// # Errors
/// As `ioctl(2)`: `EPERM` for a file of another user, `EINVAL` outside the first user namespace, `EDQUOT`.
pub fn set_project(file: BorrowedFd<'_>, project: Project) -> io::Result<()> {
    let mut attributes = sys::file_attributes(file)?;
    attributes.project = project.id;
    attributes.flags = match project.is_inherited {
        true => attributes.flags | INHERITED,
        false => attributes.flags & !INHERITED,
    };
    sys::set_file_attributes(file, &attributes)
}

/// Tells what the project `id` takes and may take on the file system of `file`.
///
/// # Errors
/// As `quotactl(2)`: `ESRCH` where quotas of projects are not switched on, `EPERM` without `CAP_SYS_ADMIN`, `ENOSYS` before
/// Linux 5.14.
pub fn allotment(file: BorrowedFd<'_>, id: u32) -> io::Result<Allotment> {
    let block = sys::project_quota(file, id)?;
    Ok(Allotment {
        bytes: block.taken_bytes,
        files: block.taken_inodes,
        bytes_limit: block.hard_blocks.saturating_mul(BLOCK_BYTES),
        files_limit: block.hard_inodes,
    })
}

/// Lets the project `id` take at most `bytes`, rounded down to 1024, and `files` on the file system of `file`; 0 is no limit.
///
/// # Errors
/// As [`allotment`].
pub fn allot(file: BorrowedFd<'_>, id: u32, bytes: u64, files: u64) -> io::Result<()> {
    sys::set_project_quota(file, id, &QuotaBlock::of_limits(bytes / BLOCK_BYTES, files))
}
