//! [`DockerSandbox`]: a container for each user of each agent in a Docker engine of this host.
//!
//! * [`containers`]: making, starting, stopping and exporting them. [`call`]: processes in them.
//! * `scripts/`: what each operation does there. They are constant; all that comes from outside is an argument.
//! * [`files`]: what they tell. [`exec`]: commands. [`live`]: commands in which a caller takes part.

mod call;
mod containers;
mod directories;
mod exec;
mod failure;
mod files;
mod live;
mod options;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::{API_DEFAULT_VERSION, Docker};
use bytes::BytesMut;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::io::AsyncWriteExt;

use self::call::{Call, Piece, Streams};
use self::containers::{Containers, Held, Owner};
use self::failure::failed;
pub use self::options::DockerOptions;
use crate::file::check_permissions;
use crate::{
    AgentId, ByteStream, DIR_ENTRIES_MAX, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FILE_BYTES_MAX,
    FileBody, FileInfo, LiveRun, LiveSpec, ReadOptions, Result, Sandbox, SandboxPath, UserId, Version,
    WriteMode, WriteOptions,
};

/// How long any answer of the engine, and any file operation without bytes, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most bytes that a script without a file may tell: 100 000 entries of the longest names.
const TOLD_BYTES_MAX: usize = 64 << 20;
/// The most bytes of what a script tells in a line.
const LINE_BYTES_MAX: usize = 4 << 10;

/// A script as it is sent: what all begin with, and its own part.
macro_rules! script {
    ($name:literal) => {
        concat!(include_str!("scripts/prelude.sh"), include_str!(concat!("scripts/", $name, ".sh")))
    };
}

/// Containers as sandboxes: for each user of an agent one, made when it is first needed and stopped when it is idle.
///
/// * Containers have no capabilities, no new privileges, bounds on memory and processes, and no network unless said. All in
///   them is an ordinary user ([`DockerOptions::uid`]) whose home is `/home/sandbox`.
/// * Each run has a group id of its own, which its processes cannot change, and by which they are found at its end.
/// * Files are used through small scripts in the container, below `/workspace` only. What a signal ended is told by the
///   shell's exit codes: 129 to 159 are taken for signals.
/// * [`export_and_import`](Sandbox::export_and_import) makes an image of the container as it is, and goes on in it.
#[derive(Debug)]
pub struct DockerSandbox {
    containers: Arc<Containers>,
    agent: AgentId,
}

impl DockerSandbox {
    /// Gets ready to speak to the engine, which must answer, for the users of `agent`.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`]: no engine answers.
    pub async fn connect(options: DockerOptions, agent: AgentId) -> Result<Self> {
        let docker = Docker::connect_with_unix(&options.socket, PATIENCE.as_secs(), API_DEFAULT_VERSION);
        let docker =
            docker.map_err(failed("connect"))?.negotiate_version().await.map_err(failed("connect"))?;
        let idle = options.idle;
        let containers = Arc::new(Containers::new(docker, options));
        let watched = Arc::downgrade(&containers);
        tokio::spawn(async move {
            let pause = (idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(60));
            loop {
                tokio::time::sleep(pause).await;
                let Some(containers) = watched.upgrade() else { return };
                containers.stop_idle().await;
            }
        });
        Ok(Self { containers, agent })
    }

    /// The containers of the users of another agent, in the same engine. [`close`](Sandbox::close) closes both.
    #[must_use]
    pub fn for_agent(&self, agent: AgentId) -> Self {
        Self { containers: Arc::clone(&self.containers), agent }
    }

    fn owner(&self, user: &UserId) -> Owner {
        Owner { user: user.clone(), agent: self.agent.clone() }
    }

    /// Removes all that the user has in the engine: container, volume, exported image. The files are gone with it.
    ///
    /// # Errors
    /// As every call of the engine.
    pub async fn remove_user(&self, user: &UserId) -> Result<()> {
        self.containers.remove(&self.owner(user)).await
    }

    /// Starts a script in the user's container, once more when that was stopped meanwhile.
    async fn start(
        &self,
        operation: &'static str,
        user: &UserId,
        script: &str,
        arguments: &[&str],
        has_input: bool,
    ) -> Result<(Held, Call, call::Input)> {
        let workspace = SandboxPath::workspace();
        let mut argv: Vec<String> =
            ["/bin/sh", "-c", script, "sh", workspace.as_str()].map(str::to_owned).to_vec();
        argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let streams = if has_input { Streams::Pipes } else { Streams::Output };
        let owner = self.owner(user);
        for is_again in [false, true] {
            let held = self.containers.hold(operation, &owner).await?;
            let docker = &self.containers.docker;
            match Call::start(docker, operation, &held.name, argv.clone(), Vec::new(), None, streams).await {
                Ok((call, input)) => return Ok((held, call, input)),
                Err(error) if is_again || error.kind() != ErrorKind::Disconnected => return Err(error),
                Err(_) => {
                    drop(held);
                    self.containers.lost(operation, &owner).await?;
                }
            }
        }
        Err(Error::new(ErrorKind::Disconnected, operation, "the container does not run"))
    }

    /// Runs a script that tells little, to its end.
    async fn tell(
        &self,
        operation: &'static str,
        user: &UserId,
        path: &SandboxPath,
        script: &str,
        arguments: &[&str],
    ) -> Result<Vec<u8>> {
        inside(operation, path)?;
        let mut all = vec![path.as_str()];
        all.extend(arguments);
        let told = async {
            let (_held, mut call, _input) = self.start(operation, user, script, &all, false).await?;
            let mut told = Vec::new();
            while let Some(piece) = call.next().await? {
                if let Piece::Stdout(bytes) = piece {
                    told.extend_from_slice(&bytes);
                }
                if told.len() > TOLD_BYTES_MAX {
                    return Err(Error::about(ErrorKind::TooLarge, operation, path));
                }
            }
            match call.end().await? {
                0 => Ok(told),
                code => Err(call::ended(code, operation, path)),
            }
        };
        // Removing a large tree takes its time, as does making a container.
        match tokio::time::timeout(self.containers.options.wait + PATIENCE, told).await {
            Ok(told) => told.map_err(|error| error.at(path)),
            Err(_) => Err(Error::about(ErrorKind::Timeout, operation, path)),
        }
    }
}

fn inside(operation: &'static str, path: &SandboxPath) -> Result<()> {
    let below = path.below(&SandboxPath::workspace());
    below.map(drop).ok_or_else(|| Error::about(ErrorKind::PermissionDenied, operation, path))
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn name(&self) -> &str {
        "docker"
    }

    async fn workspace(&self, user: &UserId) -> Result<SandboxPath> {
        self.containers.hold("workspace", &self.owner(user)).await?;
        Ok(SandboxPath::workspace())
    }

    async fn shell(&self, user: &UserId) -> Result<String> {
        self.containers.hold("shell", &self.owner(user)).await?;
        Ok(self.containers.options.shell.clone())
    }

    async fn exec(&self, user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        exec::run(&self.containers, &self.owner(user), spec).await
    }

    fn has_live(&self, _user: &UserId) -> bool {
        true
    }

    async fn begin(&self, user: &UserId, spec: LiveSpec) -> Result<LiveRun> {
        live::begin(&self.containers, &self.owner(user), spec).await
    }

    async fn read_file(&self, user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        inside("read_file", path)?;
        let most = options.bytes_max.unwrap_or(FILE_BYTES_MAX).min(FILE_BYTES_MAX);
        // Beyond what shells can count there are no files.
        let number = |number: u64| number.min(1 << 60).to_string();
        let (from, until) = match &options.range {
            Some(range) => (number(range.start), number(range.end.max(range.start))),
            None => ("0".to_owned(), "-1".to_owned()),
        };
        let arguments = [path.as_str(), &from, &until, &number(most)];
        let (held, mut call, _input) =
            self.start("read_file", user, script!("read"), &arguments, false).await?;
        let mut begun = BytesMut::new();
        let end = loop {
            if let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            match tokio::time::timeout(PATIENCE, call.next()).await {
                Err(_) => return Err(Error::about(ErrorKind::Timeout, "read_file", path)),
                Ok(piece) => match piece? {
                    Some(Piece::Stdout(bytes)) => begun.extend_from_slice(&bytes),
                    Some(Piece::Stderr(_)) => {}
                    None => return Err(call::ended(call.end().await?, "read_file", path)),
                },
            }
        };
        let line = begun.split_to(end + 1);
        let broken = || Error::about(ErrorKind::Internal, "read_file", path);
        let (info, window) =
            files::info(std::str::from_utf8(&line).unwrap_or_default(), path).ok_or_else(broken)?;
        let numbers: Vec<u64> = window.iter().filter_map(|word| word.parse().ok()).collect();
        let &[start, until] = numbers.as_slice() else { return Err(broken()) };
        let left = (until - start).saturating_sub(begun.len() as u64);
        let path = path.clone();
        let rest = stream::try_unfold((call, held, left), move |(mut call, held, left)| {
            let path = path.clone();
            async move {
                loop {
                    if left == 0 {
                        return Ok(None);
                    }
                    match tokio::time::timeout(PATIENCE, call.next()).await {
                        Err(_) => return Err(Error::about(ErrorKind::Timeout, "read_file", &path)),
                        Ok(piece) => match piece? {
                            Some(Piece::Stdout(bytes)) => {
                                let left = left.saturating_sub(bytes.len() as u64);
                                return Ok(Some((bytes, (call, held, left))));
                            }
                            Some(Piece::Stderr(_)) => {}
                            None => return Err(Error::about(ErrorKind::Busy, "read_file", &path)),
                        },
                    }
                }
            }
        });
        let first = stream::iter((!begun.is_empty()).then(|| Ok(begun.freeze())));
        Ok(FileBody { info, range: start..until, stream: first.chain(rest).boxed() })
    }

    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        mut body: ByteStream,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        options.check(path)?;
        inside("write_file", path)?;
        let mark = exec::mark("write_file")?;
        let (how, expected) = match &options.mode {
            WriteMode::Replace => ("replace", "-"),
            WriteMode::Create => ("create", "-"),
            WriteMode::Swap(version) => ("swap", version.as_str()),
        };
        let bits = options.permissions.map_or_else(|| "-".to_owned(), |bits| format!("{bits:03o}"));
        // Before a process waits for it.
        let first = body.try_next().await?.unwrap_or_default();
        let arguments = [path.as_str(), how, &bits, &mark, expected];
        let (_held, mut call, mut input) =
            self.start("write_file", user, script!("write"), &arguments, true).await?;
        let send = async {
            let (mut piece, mut total) = (first, 0);
            loop {
                total += piece.len() as u64;
                if total > FILE_BYTES_MAX {
                    return Err(Error::about(ErrorKind::TooLarge, "write_file", path));
                }
                // A script that has ended does not take the rest, and tells why by its end.
                let sent = tokio::time::timeout(PATIENCE, input.write_all(&piece)).await;
                match sent {
                    Err(_) => return Err(Error::about(ErrorKind::Timeout, "write_file", path)),
                    Ok(Err(_)) => return Ok(()),
                    Ok(Ok(())) => {}
                }
                match body.try_next().await? {
                    Some(next) => piece = next,
                    None => break,
                }
            }
            // A file that does not end with this mark is not whole, and is thrown away.
            let _ended = input.write_all(mark.as_bytes()).await;
            Ok(())
        };
        let ended = async {
            let mut told = Vec::new();
            while let Some(piece) = call.next().await? {
                if let Piece::Stdout(bytes) = piece
                    && told.len() + bytes.len() <= LINE_BYTES_MAX
                {
                    told.extend_from_slice(&bytes);
                }
            }
            Ok::<_, Error>((call.end().await?, told))
        };
        let mut ended = std::pin::pin!(ended);
        let sent = tokio::select! {
            sent = send => sent,
            ended = &mut ended => return finished(ended?, &options.mode, path),
        };
        let _half_closed = input.shutdown().await;
        // In either case until the script has put the file in its place or thrown it away.
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        sent?;
        finished(
            ended.map_err(|_| Error::about(ErrorKind::Timeout, "write_file", path))??,
            &options.mode,
            path,
        )
    }

    async fn stat(&self, user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        let told = self.tell("stat", user, path, script!("stat"), &[]).await?;
        let line = std::str::from_utf8(&told).unwrap_or_default();
        let info = files::info(line, path).map(|(info, _)| info);
        info.ok_or_else(|| Error::about(ErrorKind::Internal, "stat", path))
    }

    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        let most = DIR_ENTRIES_MAX.to_string();
        let told = self.tell("read_dir", user, path, script!("list"), &[&most]).await?;
        let entries =
            files::entries(&told).ok_or_else(|| Error::about(ErrorKind::Internal, "read_dir", path))?;
        if entries.len() > DIR_ENTRIES_MAX {
            return Err(Error::about(ErrorKind::TooLarge, "read_dir", path));
        }
        Ok(entries)
    }

    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> Result<()> {
        check_permissions(permissions, "mkdir_all", path)?;
        self.tell("mkdir_all", user, path, script!("mkdir"), &[&format!("{permissions:03o}")]).await.map(drop)
    }

    async fn remove(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.tell("remove", user, path, script!("remove"), &["one"]).await.map(drop)
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        match self.tell("remove_all", user, path, script!("remove"), &["all"]).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            removed => removed.map(drop),
        }
    }

    async fn close_for_user(&self, user: &UserId) -> Result<()> {
        self.containers.close_for_user(&self.owner(user)).await
    }

    async fn close(&self) -> Result<()> {
        self.containers.close().await
    }

    fn is_exporting(&self, user: &UserId) -> bool {
        self.containers.is_exporting(&self.owner(user))
    }

    async fn export_and_import(&self, user: &UserId) -> Result<()> {
        self.containers.export_and_import(&self.owner(user)).await
    }
}

/// How a file was written, by the end of the script and what it told.
fn finished((code, told): (i64, Vec<u8>), mode: &WriteMode, path: &SandboxPath) -> Result<Option<Version>> {
    if code == 0 {
        return Ok(std::str::from_utf8(&told).ok().and_then(files::version));
    }
    match (call::kind(code), mode) {
        (ErrorKind::NotFound, WriteMode::Swap(_)) => Err(Error::about(ErrorKind::Stale, "write_file", path)),
        _ => Err(call::ended(code, "write_file", path)),
    }
}
