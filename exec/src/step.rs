//! [`Step`]: where setting up a run can fail.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A step of setting up a run, named after its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The request could not be read.
    Request,
    /// `mkdir` of the control group
    Group,
    /// `clone`
    Clone,
    /// `move_mount` of the tree, the home, the temporary directory or a skill
    Attach,
    /// The mount of `/proc`
    Proc,
    /// The mount of `/dev/shm` or of the directory that holds the skills
    MemoryFiles,
    /// `setns` into the network of the run
    Network,
    /// `setsid`
    Session,
    /// `dup2` of standard input, output and error
    Stdio,
    /// `ioctl(TIOCSCTTY)`
    Terminal,
    /// `pidfd_open` of the command
    Handle,
    /// `close_range`
    CloseFiles,
    /// `setrlimit`
    Limits,
    /// `setns` into a user namespace
    Users,
    /// `setgroups`
    Groups,
    /// `setresgid`
    Gid,
    /// `setresuid`
    Uid,
    /// `capset` and the ambient set
    Capabilities,
    /// `PR_SET_PDEATHSIG`
    ParentDeath,
    /// `fchdir`
    Directory,
    /// `landlock_restrict_self`
    Landlock,
    /// `seccomp`
    Seccomp,
    /// `execve`
    Execute,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Request => "recvmsg",
            Self::Group => "mkdir(cgroup)",
            Self::Clone => "clone",
            Self::Attach => "move_mount",
            Self::Proc => "fsmount(proc)",
            Self::MemoryFiles => "fsmount(tmpfs)",
            Self::Network => "setns",
            Self::Session => "setsid",
            Self::Stdio => "dup2",
            Self::Terminal => "ioctl(TIOCSCTTY)",
            Self::Handle => "pidfd_open",
            Self::CloseFiles => "close_range",
            Self::Limits => "setrlimit",
            Self::Users => "setns(user)",
            Self::Groups => "setgroups",
            Self::Gid => "setresgid",
            Self::Uid => "setresuid",
            Self::Capabilities => "capset",
            Self::ParentDeath => "prctl(PR_SET_PDEATHSIG)",
            Self::Directory => "fchdir",
            Self::Landlock => "landlock_restrict_self",
            Self::Seccomp => "seccomp",
            Self::Execute => "execve",
        })
    }
}
