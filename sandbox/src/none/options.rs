//! [`NoneOptions`]: where workspaces are, and what commands get of the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Which directory belongs to which user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// Each user has the directory of that name below this one.
    PerUser(PathBuf),
    /// All users share this very directory: for a machine that is one person's.
    Shared(PathBuf),
}

/// How far files reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The workspace, by the kernel.
    #[default]
    Workspace,
    /// Whatever this process may use. Relative paths begin at the workspace, which itself is not removed, nor what holds it.
    Machine,
}

/// How a [`NoneSandbox`](crate::NoneSandbox) works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneOptions {
    /// Where workspaces are. The directory is made when it is missing.
    pub root: Root,
    /// How far files reach; the workspace unless changed.
    pub reach: Reach,
    /// The shell for scripts, `/bin/sh` unless changed.
    pub shell: String,
    /// The longest that a command may take, 10 minutes unless changed.
    pub timeout_max: Duration,
    /// Variables of this process that commands get, beside those that a command is given: those of a person's session,
    /// and nothing that could hold a secret.
    pub inherited: Vec<String>,
    /// Variables that commands get with these values, in place of inherited ones. A command's own come before them.
    pub variables: BTreeMap<String, String>,
    /// A program that stands before every command, and its first arguments; none unless changed. It confines itself and then
    /// becomes the command, which is the rest of its arguments. When it cannot, it tells so with [`not_launched`](crate::not_launched).
    pub launcher: Vec<String>,
    /// Whether a written file is on the disk when the write has ended. Else a power failure may take it back, or leave
    /// it empty on file systems that do not order writes.
    pub sync: bool,
}

impl NoneOptions {
    /// Workspaces in `root`, everything else as usual.
    #[must_use]
    pub fn new(root: Root) -> Self {
        const INHERITED: [&str; 13] = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "LC_ALL",
            "LC_CTYPE",
            "TZ",
            "TMPDIR",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
        ];
        Self {
            root,
            reach: Reach::Workspace,
            shell: "/bin/sh".to_owned(),
            timeout_max: Duration::from_secs(600),
            inherited: INHERITED.map(str::to_owned).to_vec(),
            variables: BTreeMap::new(),
            launcher: Vec::new(),
            sync: false,
        }
    }
}
