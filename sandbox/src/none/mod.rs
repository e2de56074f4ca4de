//! [`NoneSandbox`]: this host itself. Files are held to the workspace by the kernel; commands may do what the process may.
//!
//! * [`beneath`]: the open workspace, where paths lead to. [`files`]: the operations on it. [`stage`]: writing whole
//!   files. [`turn`]: who changes an entry when. [`remove`]: removing trees.
//! * [`options`]: where workspaces are, what commands get. [`mod@blocking`]: the way to threads that may block.

mod beneath;
mod blocking;
mod files;
mod options;
mod remove;
mod stage;
mod turn;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::process::Command;

use self::beneath::{Beneath, DIRECTORY};
use self::blocking::blocking;
use self::files::{failed, failed_io};
pub use self::options::{NoneOptions, Reach, Root};
use self::stage::{Stage, Unplaced};
use crate::file::check_permissions;
use crate::process::live::LiveBounds;
use crate::process::{self, Bounds};
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FILE_BYTES_MAX, FileBody, FileInfo,
    LiveRun, LiveSpec, Program, ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteOptions,
};

/// How many bytes of a written file are gathered before a thread is asked to write them.
const PIECE_BYTES: usize = 1 << 20;

/// The backend without walls, for machines and containers that are the wall themselves.
///
/// * Files: only below the user's workspace, by the kernel (`openat2(2)`, Linux 5.6), unless [`NoneOptions::reach`] says otherwise.
/// * Commands: as this process, with a clean environment. When a command is over, so is every process of its group;
///   when it passed its deadline or was given up, everything that descends from it.
#[derive(Clone, Debug)]
pub struct NoneSandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: NoneOptions,
    /// The root, without links on the way.
    place: String,
    is_closed: AtomicBool,
}

impl NoneSandbox {
    /// Opens the workspaces of `options`.
    ///
    /// # Errors
    /// The root cannot be made, or its path is no [`SandboxPath`].
    pub fn open(options: NoneOptions) -> Result<Self> {
        let refused = |message: &str| Error::new(ErrorKind::Invalid, "open", message);
        let root: &PathBuf = match &options.root {
            Root::PerUser(root) | Root::Shared(root) => root,
        };
        let place = std::fs::create_dir_all(root)
            .and_then(|()| root.canonicalize())
            .map_err(|error| refused("the root can neither be found nor made").because(error))?;
        let place = place.to_str().ok_or_else(|| refused("the path of the root is no UTF-8"))?;
        let place = SandboxPath::parse(place)
            .map_err(|error| refused("the root has no usable path").because(error))?;
        if place.as_str() == "/" {
            return Err(refused("the root directory of the host is no workspace"));
        }
        let inner = Inner { place: place.into(), options, is_closed: AtomicBool::new(false) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Does `work` in the user's workspace, with what `path` is below it.
    async fn within<T: Send + 'static>(
        &self,
        operation: &'static str,
        user: &UserId,
        path: &SandboxPath,
        work: impl FnOnce(&Beneath, &str, &SandboxPath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (inner, user, path) = (self.inner.clone(), user.clone(), path.clone());
        blocking(operation, move || {
            let (workspace, below) = inner.enter(operation, &user, &path)?;
            work(&workspace, &below, &path)
        })
        .await
    }
}

/// A command that can be started.
struct Ready {
    command: Command,
    /// Its directory, by the path of this descriptor.
    _directory: OwnedFd,
}

impl NoneSandbox {
    /// The command of `spec`, with its directory and its environment, of which `term` is the kind of terminal.
    async fn ready(&self, user: &UserId, spec: &ExecSpec, term: &str) -> Result<Ready> {
        let workspace = self.workspace(user).await?;
        let directory = spec.directory.clone().unwrap_or_else(|| workspace.clone());
        let options = &self.inner.options;
        let words: Vec<&str> = match &spec.program {
            Program::Argv { program, arguments } => {
                std::iter::once(program).chain(arguments).map(String::as_str).collect()
            }
            Program::Shell(script) => vec![&options.shell, "-c", script],
        };
        let mut words = options.launcher.iter().map(String::as_str).chain(words);
        let program = words.next().unwrap_or_default();
        let (name, searched) = (program.to_owned(), self.inner.searched(&spec.environment));
        let opened = self.within("exec", user, &directory, move |workspace, below, path| {
            let directory = workspace.open(below, DIRECTORY).map_err(failed("exec", path))?;
            Ok((directory, process::found(&name, &searched)))
        });
        let (directory, found) = opened.await?;
        let mut command = match found {
            Some(file) => {
                let mut command = Command::new(file);
                command.arg0(program);
                command
            }
            None => Command::new(program),
        };
        command.args(words);
        command.env_clear();
        command.envs(options.inherited.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&options.variables);
        command.env("TERM", term).env("WORKSPACE", workspace.as_str());
        for (name, value) in &spec.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("`{}` is no variable that could be passed", name.escape_debug());
                return Err(Error::new(ErrorKind::Invalid, "exec", message));
            }
            command.env(name, value);
        }
        // Through the descriptor: the very directory that was found beneath the workspace, even when a directory is
        // moved meanwhile.
        command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        Ok(Ready { command, _directory: directory })
    }
}

impl Inner {
    fn timeout(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.options.timeout_max, |timeout| timeout.min(self.options.timeout_max))
    }

    /// The directories in which a command with these variables finds programs.
    fn searched(&self, variables: &BTreeMap<String, String>) -> String {
        let set = variables.get("PATH").or_else(|| self.options.variables.get("PATH"));
        let inherited =
            || self.options.inherited.iter().any(|name| name == "PATH").then(|| std::env::var("PATH").ok());
        set.cloned().or_else(|| inherited().flatten()).unwrap_or_default()
    }

    fn workspace_of(&self, user: &UserId) -> String {
        match self.options.root {
            Root::Shared(_) => self.place.clone(),
            Root::PerUser(_) => format!("{}/{user}", self.place),
        }
    }

    /// Opens the workspace of `user`, which is made when it is missing.
    fn workspace(&self, operation: &'static str, user: &UserId) -> Result<(Beneath, SandboxPath)> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed"));
        }
        let place = self.workspace_of(user);
        let path = SandboxPath::parse(&place).map_err(|error| {
            Error::new(ErrorKind::Invalid, operation, "the user's directory would have no usable path")
                .because(error)
        })?;
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let open = || rustix::fs::open(Path::new(&place), flags, Mode::empty());
        let opened = open().or_else(|errno| match (errno, &self.options.root) {
            (Errno::NOENT, Root::PerUser(_)) => match rustix::fs::mkdir(Path::new(&place), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(errno) => Err(errno),
            },
            _ => Err(errno),
        });
        let fd = opened.map_err(|errno| {
            Error::new(files::kind(errno), operation, "the workspace cannot be opened").because(errno)
        })?;
        Ok((Beneath::new(fd, place), path))
    }

    fn enter(&self, operation: &'static str, user: &UserId, path: &SandboxPath) -> Result<(Beneath, String)> {
        let (beneath, workspace) = self.workspace(operation, user)?;
        if self.options.reach == Reach::Machine {
            return self.enter_machine(operation, path);
        }
        let below = path.below(&workspace).map(str::to_owned);
        let below = below.ok_or_else(|| Error::about(ErrorKind::PermissionDenied, operation, path))?;
        Ok((beneath, below))
    }

    /// The root directory of the host in place of the workspace: every path of the host is beneath it.
    fn enter_machine(&self, operation: &'static str, path: &SandboxPath) -> Result<(Beneath, String)> {
        let fd = rustix::fs::open("/", DIRECTORY, Mode::empty()).map_err(failed(operation, path))?;
        Ok((Beneath::new(fd, String::new()), path.as_str().trim_start_matches('/').to_owned()))
    }

    /// Refuses to remove the workspace of `user`, and what holds it, under whichever name.
    fn not_the_workspace(&self, operation: &'static str, user: &UserId, path: &SandboxPath) -> Result<()> {
        let refused = || Err(Error::about(ErrorKind::Invalid, operation, path));
        let (_, workspace) = self.workspace(operation, user)?;
        if workspace.below(path).is_some() {
            return refused();
        }
        if self.options.reach == Reach::Machine {
            // Another way to the same place: through a link above it. The last name itself is never followed.
            let (above, name) = path.as_str().rsplit_once('/').unwrap_or_default();
            let above = if above.is_empty() { "/" } else { above };
            if let Ok(above) = Path::new(above).canonicalize()
                && Path::new(workspace.as_str()).starts_with(above.join(name))
            {
                return refused();
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Sandbox for NoneSandbox {
    fn name(&self) -> &str {
        "none"
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        let (inner, user) = (self.inner.clone(), user.clone());
        blocking("workspace", move || Ok(inner.workspace("workspace", &user)?.1)).await
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.workspace(user).await?;
        Ok(self.inner.options.shell.clone())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let ready = self.ready(user, &spec, "dumb").await?;
        let bounds = Bounds {
            stdin: spec.stdin,
            timeout: self.inner.timeout(spec.timeout),
            output_bytes_max: spec.output_bytes_max,
            has_launcher: !self.inner.options.launcher.is_empty(),
        };
        process::run(ready.command, bounds).await
    }

    fn has_live(&self, _user: &UserId) -> bool {
        true
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        let LiveSpec { command: spec, stdin_open, terminal } = spec;
        let term = if terminal.is_some() { "xterm-256color" } else { "dumb" };
        let ready = self.ready(user, &spec, term).await?;
        let bounds = LiveBounds {
            stdin: spec.stdin,
            stdin_open,
            timeout: self.inner.timeout(spec.timeout),
            terminal,
            launcher: self.inner.options.launcher.first().cloned(),
        };
        process::live::begin(ready.command, bounds).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        self.within("read_file", user, path, move |workspace, below, path| {
            files::read(workspace, below, path, &options)
        })
        .await
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        mut body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        options.check(path)?;
        let sync = self.inner.options.sync;
        let mut options = Some(options);
        let (mut total, mut stage) = (0, None::<Stage>);
        loop {
            let (piece, is_last) = gather(&mut body).await?;
            total += piece.len() as u64;
            if total > FILE_BYTES_MAX {
                return Err(Error::about(ErrorKind::TooLarge, "write_file", path));
            }
            let (begun, options) = (stage.take(), options.take().unwrap_or_default());
            let written = self.within("write_file", user, path, move |workspace, below, path| {
                let failed = |unplaced| match unplaced {
                    Unplaced::Stale => Error::about(ErrorKind::Stale, "write_file", path),
                    Unplaced::Failed(errno) => failed("write_file", path)(errno),
                };
                let mut stage = match begun {
                    Some(stage) => stage,
                    None => Stage::begin(workspace, below, options).map_err(failed)?,
                };
                stage.write(&piece).map_err(failed_io("write_file", path))?;
                if is_last {
                    return Ok((None, Some(stage.finish(sync).map_err(failed)?)));
                }
                Ok((Some(stage), None))
            });
            let version;
            (stage, version) = written.await?;
            if stage.is_none() {
                return Ok(version);
            }
        }
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        self.within("stat", user, path, files::stat).await
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        self.within("read_dir", user, path, files::read_dir).await
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        self.within("mkdir_all", user, path, move |workspace, below, path| {
            files::mkdir_all(workspace, below, permissions).map_err(failed("mkdir_all", path))
        })
        .await
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let (inner, owner) = (self.inner.clone(), user.clone());
        self.within("remove", user, path, move |workspace, below, path| {
            inner.not_the_workspace("remove", &owner, path)?;
            files::remove(workspace, below).map_err(failed("remove", path))
        })
        .await
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let (inner, owner) = (self.inner.clone(), user.clone());
        self.within("remove_all", user, path, move |workspace, below, path| {
            inner.not_the_workspace("remove_all", &owner, path)?;
            files::remove_all(workspace, below).map_err(failed("remove_all", path))
        })
        .await
    }

    async fn close_for_user(&self, _user: &UserId) -> Result<()> {
        if self.inner.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Disconnected, "close_for_user", "the sandbox is closed"));
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.inner.is_closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// The next bytes of a stream, enough for a thread to be worth asking, and whether they are the last.
async fn gather(body: &mut ByteStream) -> Result<(Bytes, bool)> {
    let Some(first) = body.try_next().await? else { return Ok((Bytes::new(), true)) };
    if first.len() >= PIECE_BYTES {
        return Ok((first, false));
    }
    let mut gathered = BytesMut::new();
    let mut only = Some(first);
    while gathered.len() < PIECE_BYTES {
        let Some(piece) = body.try_next().await? else {
            return Ok((only.unwrap_or_else(|| gathered.freeze()), true));
        };
        if let Some(first) = only.take() {
            gathered.extend_from_slice(&first);
        }
        gathered.extend_from_slice(&piece);
    }
    Ok((gathered.freeze(), false))
}
