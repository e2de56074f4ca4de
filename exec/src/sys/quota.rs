//! Projects of files and what the kernel keeps for each: ioctl(2) and quotactl_fd(2), which no crate wraps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)` of `linux/fs.h`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// `QCMD(Q_GETQUOTA, PRJQUOTA)` and `QCMD(Q_SETQUOTA, PRJQUOTA)` of `linux/quota.h`.
const GET_PROJECT_QUOTA: u32 = 0x8000_0702;
const SET_PROJECT_QUOTA: u32 = 0x8000_0802;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileAttributes {
    pub(crate) flags: u32,
    extent_size: u32,
    extents: u32,
    pub(crate) project: u32,
    copied_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk` of `linux/quota.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuotaBlock {
    /// In units of 1024 bytes, as the next one.
    pub(crate) hard_blocks: u64,
    soft_blocks: u64,
    /// In bytes.
    pub(crate) taken_bytes: u64,
    pub(crate) hard_inodes: u64,
    soft_inodes: u64,
    pub(crate) taken_inodes: u64,
    block_time: u64,
    inode_time: u64,
    /// Which fields are to be set.
    valid: u32,
}

/// `QIF_BLIMITS` and `QIF_ILIMITS` of `linux/quota.h`.
const LIMITS: u32 = 1 | 4;

impl QuotaBlock {
    /// Hard limits, and no soft ones.
    pub(crate) fn of_limits(hard_blocks: u64, hard_inodes: u64) -> Self {
        Self { hard_blocks, hard_inodes, valid: LIMITS, ..Self::default() }
    }
}

/// Reads flags and project of an open file.
///
/// # Errors
/// As `ioctl(2)`: `ENOTTY` or `EOPNOTSUPP` where the file system has none.
pub(crate) fn file_attributes(file: BorrowedFd<'_>) -> io::Result<FileAttributes> {
    let mut attributes = FileAttributes::default();
    // SAFETY: the kernel writes one `struct fsxattr`, which `FileAttributes` is, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR as _, &raw mut attributes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
}

/// Sets flags and project of an open file.
///
/// # Errors
/// As `ioctl(2)`: `EPERM` for a file of another user, `EINVAL` outside the first user namespace.
pub(crate) fn set_file_attributes(file: BorrowedFd<'_>, attributes: &FileAttributes) -> io::Result<()> {
    // SAFETY: the kernel reads one `struct fsxattr`, which `FileAttributes` is, and keeps no pointer to it.
    let done =
        unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSSETXATTR as _, std::ptr::from_ref(attributes)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads what a project takes and may take on the file system of `file`.
///
/// # Errors
/// As `quotactl(2)`: `ESRCH` where no quotas of projects are on, `EPERM` without `CAP_SYS_ADMIN`, `ENOSYS` before Linux 5.14.
pub(crate) fn project_quota(file: BorrowedFd<'_>, project: u32) -> io::Result<QuotaBlock> {
    let mut block = QuotaBlock::default();
    // SAFETY: the kernel writes one `struct if_dqblk`, which `QuotaBlock` is, and keeps no pointer to it.
    let done = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), GET_PROJECT_QUOTA, project, &raw mut block)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(block) }
}

/// Sets what a project may take on the file system of `file`.
///
/// # Errors
/// As [`project_quota`].
pub(crate) fn set_project_quota(file: BorrowedFd<'_>, project: u32, block: &QuotaBlock) -> io::Result<()> {
    // SAFETY: the kernel reads one `struct if_dqblk`, which `QuotaBlock` is, and keeps no pointer to it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            file.as_raw_fd(),
            SET_PROJECT_QUOTA,
            project,
            std::ptr::from_ref(block),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_is_given_has_the_sizes_of_its_headers() {
        assert_eq!(size_of::<FileAttributes>(), 28);
        assert_eq!(size_of::<QuotaBlock>(), 72);
        // The size is in the number of the call, too.
        assert_eq!((FS_IOC_FSGETXATTR >> 16) & 0x3fff, 28);
        assert_eq!((FS_IOC_FSSETXATTR >> 16) & 0x3fff, 28);
    }
}
