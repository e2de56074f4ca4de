//! Trying out whether the kernel keeps limits of projects: for commands, and not for the service itself.
//!
//! The service counts what its own requests add, and must be able to put a second copy in the place of the first, or a
//! whiteout into a tree that is full. On ext4 the kernel exempts processes with `CAP_SYS_RESOURCE` from limits (dquot.c,
//! `ignore_hardlimit`); xfs exempts no process. Overlayfs writes without that capability (super.c, `ovl_fill_super`), so that what
//! commands do in a live view is bound like everything else that they do.

use std::ffi::OsStr;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::{FIRST, ProjectQuotas, Projects, Shared};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::names::Names;
use crate::stat::Use;

/// What the probe's project may take, and what is written to it.
const LIMITS: Use = Use { bytes: 256 * 1024, files: 16 };
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
const PIECES: usize = 8;

impl Projects {
    /// The projects of the file system of `stage`, and whether the kernel keeps their limits, or in words why not.
    pub(crate) fn open(
        system: Option<Arc<dyn ProjectQuotas>>,
        stage: Dir,
        names: Arc<Names>,
    ) -> (Self, Result<(), String>) {
        let Some(system) = system else {
            return (Self::default(), Err("project quotas are not used".to_owned()));
        };
        let (next, allotted) = (Mutex::new(getrandom::u32().unwrap_or(0)), Mutex::default());
        let mut shared =
            Shared { system, stage, names, keeps: true, next, allotted, ending: Mutex::default() };
        let tried = shared.try_out();
        shared.keeps = tried.is_ok();
        (Self { shared: Some(Arc::new(shared)) }, tried)
    }
}

impl Shared {
    fn try_out(&self) -> Result<(), String> {
        self.taken(FIRST).map_err(|error| in_words(&error))?;
        let name = self.names.fresh();
        let made = self.stage.create_dir(&name, 0o700).map_err(|error| in_words(&error))?;
        let drawn = self.draw(&made).map_err(|error| in_words(&error));
        let tried = drawn.as_ref().map_err(String::clone).and_then(|id| self.fill(&made, *id));
        drop(made);
        if let Err(error) = self.stage.remove_tree(&name) {
            tracing::warn!(%error, "a staged entry stays until the next start");
        }
        if let Ok(id) = drawn {
            let _ended = self.allot(id, Use::default());
        }
        tried
    }

    fn fill(&self, dir: &Dir, id: u32) -> Result<(), String> {
        self.allot(id, LIMITS).map_err(|error| in_words(&error))?;
        let as_command = std::thread::scope(|scope| scope.spawn(|| without_privilege(dir)).join());
        match as_command {
            Ok(Err(Error::OverQuota(_))) => {}
            Ok(Ok(())) => return Err("the file system counts projects and keeps no limits".to_owned()),
            Ok(Err(error)) => return Err(in_words(&error)),
            Err(_) => return Err("the attempt to fill a project broke off".to_owned()),
        }
        match write(dir, "service") {
            Err(Error::OverQuota(_)) => {
                Err("the service itself would be bound by them: it takes ext4 and the capability \
                                             CAP_SYS_RESOURCE"
                    .to_owned())
            }
            written => written.map_err(|error| in_words(&error)),
        }
    }
}

/// Writes more than the limit as commands do: without the capability that exempts from it. This thread ends with that.
fn without_privilege(dir: &Dir) -> Result<()> {
    let failed = |errno| Error::from_errno("capset", "thread", errno);
    let mut sets = rustix::thread::capabilities(None).map_err(failed)?;
    sets.effective -= CapabilitySet::SYS_RESOURCE;
    rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    write(dir, "command")
}

fn write(dir: &Dir, name: &str) -> Result<()> {
    let mut file = dir.create_file(OsStr::new(name), 0o600)?;
    for _ in 0..PIECES {
        file.write_all(&PIECE).map_err(|error| Error::from_io("write", "probe", error))?;
    }
    Ok(())
}

fn in_words(error: &Error) -> String {
    let Error::Io { source, .. } = error else { return format!("project quotas cannot be used: {error}") };
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH) => "the file system is not mounted with project quotas (`prjquota`)".to_owned(),
        Some(Errno::PERM) => "the service lacks CAP_SYS_ADMIN in the host's user namespace".to_owned(),
        Some(Errno::NOSYS | Errno::NOTTY | Errno::OPNOTSUPP) => {
            "the file system or the kernel has no project quotas".to_owned()
        }
        _ => format!("project quotas cannot be used: {source}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;

    use super::super::Project;
    use super::*;

    /// A kernel that answers every question about limits with one error.
    #[derive(Debug)]
    struct Refusing(i32);

    impl ProjectQuotas for Refusing {
        fn project_of(&self, _: BorrowedFd<'_>) -> io::Result<Project> {
            Err(io::Error::from_raw_os_error(self.0))
        }
        fn set_project(&self, _: BorrowedFd<'_>, _: Project) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(self.0))
        }
        fn taken(&self, _: BorrowedFd<'_>, _: u32) -> io::Result<Use> {
            Err(io::Error::from_raw_os_error(self.0))
        }
        fn allot(&self, _: BorrowedFd<'_>, _: u32, _: Use) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(self.0))
        }
    }

    #[test]
    fn a_reason_says_what_is_missing_and_nothing_is_left_behind() {
        let temp = tempfile::tempdir().unwrap();
        for (errno, part) in
            [(Errno::SRCH, "prjquota"), (Errno::PERM, "CAP_SYS_ADMIN"), (Errno::NOSYS, "kernel")]
        {
            let system: Arc<dyn ProjectQuotas> = Arc::new(Refusing(errno.raw_os_error()));
            let stage = Dir::ambient_open(temp.path()).unwrap();
            let (projects, tried) = Projects::open(Some(system), stage, Arc::new(Names::new().unwrap()));
            assert!(tried.unwrap_err().contains(part), "{errno}");
            assert!(!projects.keep());
            assert!(Dir::ambient_open(temp.path()).unwrap().entries().unwrap().is_empty());
        }
    }
}
