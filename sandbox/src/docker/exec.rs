//! Commands in a container, killed with all that descends from them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::call::{self, Call, Piece, Streams};
use super::containers::{Containers, Held, Owner};
use super::inside;
use crate::exec::signal_name;
use crate::live::{Signal, WindowSize};
use crate::process::HeadTail;
use crate::{Error, ErrorKind, ExecResult, ExecSpec, OUTPUT_BYTES_MAX, Program, Result, SandboxPath};

const RUN: &str = concat!(
    include_str!("scripts/prelude.sh"),
    include_str!("scripts/kill.sh"),
    include_str!("scripts/run.sh")
);
const KILL: &str = concat!(include_str!("scripts/kill.sh"), "kill_run \"$1\"\n");
const SIGNAL: &str = include_str!("scripts/signal.sh");
/// How long the streams of a killed command may take to end.
const KILLED: Duration = Duration::from_secs(10);

/// A command that was started in a container. It is killed when this is dropped, unless it is [over](Guard::over).
pub(super) struct Started {
    pub(super) call: Call,
    pub(super) input: call::Input,
    pub(super) guard: Guard,
    pub(super) directory: SandboxPath,
    /// The container stays as long as this does.
    pub(super) held: Held,
}

/// Starts a command, whose standard input and deadline are the caller's concern.
pub(super) async fn start(
    containers: &Arc<Containers>,
    owner: &Owner,
    spec: &ExecSpec,
    streams: Streams,
    terminal: Option<WindowSize>,
) -> Result<Started> {
    let workspace = SandboxPath::workspace();
    let directory = spec.directory.clone().unwrap_or_else(|| workspace.clone());
    inside("exec", &directory)?;
    let options = &containers.options;
    let group = next_group().to_string();
    let (rows, cols) = terminal.map_or((0, 0), |size| (size.rows.max(1), size.cols.max(1)));
    let (rows, cols) = (rows.to_string(), cols.to_string());
    let mut argv = ["/bin/sh", "-c", RUN, "sh", workspace.as_str(), directory.as_str(), &group, &rows, &cols]
        .map(str::to_owned)
        .to_vec();
    match &spec.program {
        Program::Argv { program, arguments } => {
            argv.push(program.clone());
            argv.extend(arguments.iter().cloned());
        }
        Program::Shell(script) => argv.extend([options.shell.clone(), "-c".to_owned(), script.clone()]),
    }
    let mut environment = Vec::new();
    if terminal.is_some() {
        environment.push("TERM=xterm-256color".to_owned());
    }
    for (name, value) in &spec.environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = format!("`{}` is no variable that could be passed", name.escape_debug());
            return Err(Error::new(ErrorKind::Invalid, "exec", message));
        }
        environment.push(format!("{name}={value}"));
    }
    environment.push(format!("WORKSPACE={workspace}"));
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(Error::new(ErrorKind::Invalid, "exec", "a NUL byte is in an argument: remove it"));
    }
    let user = Some(format!("{}:{group}", options.uid));
    let mut held = containers.hold("exec", owner).await?;
    let start = |container: String| {
        let (argv, environment, user) = (argv.clone(), environment.clone(), user.clone());
        async move { Call::start(&containers.docker, "exec", &container, argv, environment, user, streams).await }
    };
    let (call, input) = match start(held.name.clone()).await {
        // It was stopped meanwhile, by an idle moment or because a run could be ended in no other way.
        Err(error) if error.kind() == ErrorKind::Disconnected => {
            drop(held);
            containers.lost("exec", owner).await?;
            held = containers.hold("exec", owner).await?;
            start(held.name.clone()).await?
        }
        started => started?,
    };
    let guard = Guard {
        containers: containers.clone(),
        owner: owner.clone(),
        container: held.name.clone(),
        group,
        armed: true,
    };
    Ok(Started { call, input, guard, directory, held })
}

/// Runs a command to its end.
pub(super) async fn run(containers: &Arc<Containers>, owner: &Owner, spec: ExecSpec) -> Result<ExecResult> {
    let begin = Instant::now();
    let has_input = !spec.stdin.is_empty();
    let streams = if has_input { Streams::Pipes } else { Streams::Output };
    let started = start(containers, owner, &spec, streams, None).await?;
    let Started { mut call, mut input, mut guard, directory, held: _held } = started;
    let options = &containers.options;
    let most = spec.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let (mut has_begun, mut stdout, mut stderr) = (false, HeadTail::new(most), HeadTail::new(most));
    let timed_out = {
        let feed = async {
            if has_input {
                // A command that does not read does not want the rest.
                let _closed = input.write_all(&spec.stdin).await;
                let _closed = input.shutdown().await;
            }
            std::future::pending::<()>().await;
        };
        let keep = async {
            while let Some(piece) = call.next().await? {
                match piece {
                    // The script's own word that the command begins.
                    Piece::Stdout(bytes) if !has_begun => {
                        has_begun = true;
                        stdout.push(bytes.get(1..).unwrap_or_default());
                    }
                    Piece::Stdout(bytes) => stdout.push(&bytes),
                    Piece::Stderr(bytes) => stderr.push(&bytes),
                }
            }
            Ok::<_, Error>(())
        };
        let (mut feed, mut keep) = (std::pin::pin!(feed), std::pin::pin!(keep));
        let timeout = spec.timeout.map_or(options.timeout_max, |timeout| timeout.min(options.timeout_max));
        tokio::select! {
            kept = &mut keep => { kept?; false }
            () = &mut feed => false,
            () = tokio::time::sleep(timeout) => {
                guard.kill().await?;
                // The streams end with the last process that held them.
                let _late = tokio::time::timeout(KILLED, keep).await;
                true
            }
        }
    };
    let code = if timed_out { Ok(-1) } else { call.end().await };
    let code = code?;
    if code > 128 {
        // Perhaps the shell itself, which would have ended what the command left.
        guard.kill().await?;
    }
    guard.over();
    if !has_begun && !timed_out {
        return Err(not_begun(code, &directory));
    }
    let ((stdout, stdout_dropped_bytes), (stderr, stderr_dropped_bytes)) = (stdout.finish(), stderr.finish());
    let ended = result(code, timed_out, begin.elapsed());
    Ok(ExecResult { stdout, stderr, stdout_dropped_bytes, stderr_dropped_bytes, ..ended })
}

/// The result of a command, without its output.
pub(super) fn result(code: i64, timed_out: bool, duration: Duration) -> ExecResult {
    // How shells tell a signal (sh(1), "Exit status").
    let signal = i32::try_from(code - 128).ok().filter(|number| (1..=31).contains(number)).map(signal_name);
    ExecResult {
        stdout: Bytes::new(),
        stderr: Bytes::new(),
        stdout_dropped_bytes: 0,
        stderr_dropped_bytes: 0,
        exit_code: if signal.is_some() { -1 } else { i32::try_from(code).unwrap_or(-1) },
        signal,
        timed_out,
        duration,
        hint: None,
    }
}

/// Why the script ended with `code` before the command.
pub(super) fn not_begun(code: i64, directory: &SandboxPath) -> Error {
    let message = "the program or its directory is not there, or may not be used";
    Error::new(call::kind(code), "exec", message).at(directory)
}

/// A text that no other call has.
pub(super) fn mark(operation: &'static str) -> Result<String> {
    let number = || getrandom::u64();
    let numbers = number().and_then(|one| Ok((one, number()?)));
    let (one, other) = numbers.map_err(|error| {
        Error::new(ErrorKind::Internal, operation, "the host gives no random numbers").because(error)
    })?;
    Ok(format!("{one:016x}{other:016x}"))
}

/// Group ids of runs: beyond those that images have, and within what engines with user namespaces of their own map.
const GROUPS: std::ops::Range<u32> = 20_000..60_000;

/// A group id that no other run of this process has had for long. It begins anywhere, because other processes may use the
/// same container.
fn next_group() -> u32 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(getrandom::u32().unwrap_or_default()));
    GROUPS.start + next.fetch_add(1, Ordering::Relaxed) % (GROUPS.end - GROUPS.start)
}

/// Kills the command when its call is given up.
pub(super) struct Guard {
    containers: Arc<Containers>,
    owner: Owner,
    container: String,
    group: String,
    armed: bool,
}

impl Guard {
    /// The command has ended, and nothing of it is left.
    pub(super) fn over(&mut self) {
        self.armed = false;
    }

    /// Sends a signal to what belongs to the run.
    pub(super) async fn signal(&self, signal: Signal) -> Result<()> {
        let name = signal.name();
        let words = ["/bin/sh", "-c", SIGNAL, "sh", &self.group, name.strip_prefix("SIG").unwrap_or(name)];
        script(&self.containers, &self.container, words.map(str::to_owned).to_vec()).await.map(drop)
    }

    /// Ends what is left of the run; where that is not possible, because the run keeps the container from starting
    /// anything, the container.
    pub(super) async fn kill(&self) -> Result<()> {
        match tokio::time::timeout(KILLED, kill(&self.containers, &self.container, &self.group)).await {
            Ok(Ok(0)) => Ok(()),
            _ => self.containers.break_off("exec", &self.owner).await,
        }
    }
}

/// The exit code of the script, which is 0 when it came to its end.
async fn kill(containers: &Containers, container: &str, group: &str) -> Result<i64> {
    script(containers, container, ["/bin/sh", "-c", KILL, "sh", group].map(str::to_owned).to_vec()).await
}

/// Runs a script that says nothing to its end, and tells its exit code.
async fn script(containers: &Containers, container: &str, argv: Vec<String>) -> Result<i64> {
    let started =
        Call::start(&containers.docker, "exec", container, argv, Vec::new(), None, Streams::Output).await;
    let (mut call, _input) = started?;
    while call.next().await?.is_some() {}
    call.end().await
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let guard = Self {
            containers: self.containers.clone(),
            owner: self.owner.clone(),
            container: std::mem::take(&mut self.container),
            group: std::mem::take(&mut self.group),
            armed: false,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The caller is gone: the result has no receiver.
                let _killed = guard.kill().await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    const KILL: &str = include_str!("scripts/kill.sh");
    /// A clock that is a second later at each look at it, and one that stands.
    const CLOCKS: [&str; 2] =
        ["looks=0; seconds() { looks=$((looks + 1)); eval \"$1=$looks\"; }", "seconds() { eval \"$1=1\"; }"];

    /// How the script ends for the run with this group id, where `kill` and the clock are these.
    #[allow(clippy::disallowed_methods, reason = "the script is the project's own")]
    fn ended(kill: &str, clock: &str, group: u32) -> Option<i32> {
        let script = format!("{KILL}\n{kill}\n{clock}\nkill_run \"$1\"");
        Command::new("/bin/sh").args(["-c", &script, "sh", &group.to_string()]).status().unwrap().code()
    }

    /// Whoever kills a run must know whether it is gone, or the container goes on being full of it.
    #[test]
    fn what_cannot_be_killed_is_told() {
        // This process and its parents are of that group, and nothing happens to them.
        assert_eq!(ended("kill() { :; }", CLOCKS[0], rustix::process::getgid().as_raw()), Some(1));
        assert_eq!(ended("", CLOCKS[0], 54_321), Some(0), "no process has this group");
    }

    /// A process that was signalled ends when it gets a processor.
    #[test]
    #[allow(
        clippy::disallowed_methods,
        clippy::print_stderr,
        reason = "a program of the system; a skip is told"
    )]
    fn what_is_slow_to_end_is_waited_for() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root may give a process another group");
            return;
        }
        let group = 54_322;
        let mut slow = Command::new("/bin/sleep").arg("300").gid(group).process_group(0).spawn().unwrap();
        let late = "calls=0; kill() { calls=$((calls + 1)); [ $calls -lt 100 ] || command kill \"$@\"; }";
        let told = ended(late, CLOCKS[1], group);
        slow.kill().unwrap();
        slow.wait().unwrap();
        assert_eq!(told, Some(0));
    }
}
