//! [`OwnMounts`]: the mounts of a first process that may stay, as far as its next run has to find them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use policy::attachment::Role;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, openat2, statat};

use crate::error::Error;
use crate::service::mounts::Attachment;

/// The mount of the tree, and what is mounted below it.
///
/// A skill is mounted on a directory of the workspace, and a process outside that removes this directory takes the mount
/// off (mount_namespaces(7)). One that moves the directory takes the mount along. So before each run it is looked whether
/// all of them are where they were.
#[derive(Debug)]
pub(crate) struct OwnMounts {
    tree: OwnedFd,
    skills: Vec<SkillMount>,
}

/// The directory that is mounted at a path below the tree.
#[derive(Debug)]
struct SkillMount {
    above: String,
    name: String,
    device: u64,
    inode: u64,
}

impl OwnMounts {
    /// The mounts of a run that sees `attachments`, of which `tree` is that of the tree.
    ///
    /// # Errors
    /// [`Error::Resource`] as `fstat(2)`.
    pub(crate) fn new(tree: OwnedFd, attachments: &[Attachment]) -> Result<Self, Error> {
        let root = attachments.iter().find(|attachment| attachment.role == Role::Tree);
        let root = root.map(|root| root.at.as_str()).unwrap_or_default();
        let mut skills = Vec::new();
        for skill in attachments.iter().filter(|attachment| attachment.role == Role::Skill) {
            let stat = fstat(skill.directory.as_fd()).map_err(Error::resource("fstat"))?;
            let below = skill.at.strip_prefix(root).unwrap_or(&skill.at).trim_start_matches('/');
            let (above, name) = below.rsplit_once('/').unwrap_or((".", below));
            let (above, name) = (above.to_owned(), name.to_owned());
            skills.push(SkillMount { above, name, device: stat.st_dev, inode: stat.st_ino });
        }
        Ok(Self { tree, skills })
    }

    /// The mount of the tree.
    pub(crate) fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Tells whether everything is mounted where it was.
    pub(crate) fn are_there(&self) -> bool {
        let mut opened: Option<(&str, OwnedFd)> = None;
        self.skills.iter().all(|skill| {
            if opened.as_ref().is_none_or(|(above, _)| *above != skill.above) {
                opened = self.open(&skill.above).map(|directory| (skill.above.as_str(), directory));
            }
            let Some((_, directory)) = &opened else { return false };
            // Through the tree's own mount the kernel goes on into what is mounted there.
            let found = statat(directory, skill.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (skill.device, skill.inode))
        })
    }

    /// Opens a directory below the tree, through no link: the user may have put one there.
    fn open(&self, path: &str) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.tree, path, flags, Mode::empty(), resolve).ok()
    }
}
