//! [`Crowd`]: whether more threads want a processor than this host has, many times over.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// How many threads want a processor in a crowd, for each one that the host has: more than there are while many callers run short commands.
const WANTING: usize = 16;

/// What tells of a crowd: the host's own count of threads that run or wait for a processor, in `/proc/loadavg` (proc(5)). Who they
/// belong to it does not tell, and in a container they may be of somebody else: it is a reason to look, and no more.
pub(super) struct Crowd {
    /// `None` where there is no such file: then there is never a crowd.
    file: Option<OwnedFd>,
    processors: usize,
}

impl Crowd {
    /// Opens the file, which needs the host's root.
    pub(super) fn find() -> Self {
        let file = rustix::fs::open("/proc/loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        // All of the host, not those that this process is granted.
        let processors = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
        let processors = processors.ok().flatten().and_then(|number| usize::try_from(number).ok());
        Self { file, processors: processors.unwrap_or(1) }
    }

    /// Tells whether there is one now.
    pub(super) fn is_here(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let mut text = [0; 128];
        let Ok(length) = rustix::io::pread(file, &mut text, 0) else { return false };
        let wanting = std::str::from_utf8(text.get(..length).unwrap_or_default()).ok().and_then(wanting);
        wanting.is_some_and(|wanting| wanting > self.processors.saturating_mul(WANTING))
    }
}

/// The threads that want a processor, in a text such as `0.16 4.27 5.21 2/310 4711`.
fn wanting(text: &str) -> Option<usize> {
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_want_a_processor_are_read() {
        assert_eq!(wanting("0.16 4.27 5.21 2/310 4711\n"), Some(2));
        assert_eq!(wanting("0.16 4.27\n"), None);
        // This one does.
        let none = Crowd { processors: 0, ..Crowd::find() };
        assert!(none.is_here());
        assert!(!Crowd { file: None, ..none }.is_here());
    }
}
