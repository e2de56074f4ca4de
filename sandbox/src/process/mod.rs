//! Runs one process of this host to its end: fed, read, and killed with all its descendants when its time is up.
//!
//! * [`program`]: the file to start. [`launcher`]: what stands before a command and could not start it.
//! * [`family`]: the processes to kill. [`output`]: the output to keep.
//! * [`live`]: one in which a caller takes part while it runs. [`terminal`]: its terminal.

mod family;
mod launcher;
pub(crate) mod live;
mod output;
mod program;
mod terminal;

use std::io::ErrorKind as Io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use std::os::unix::process::ExitStatusExt;

use bytes::Bytes;
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};

use self::family::{Family, MARK};
pub use self::launcher::not_launched;
pub use self::output::HeadTail;
pub(crate) use self::program::found;
use crate::exec::signal_name;
use crate::{Error, ErrorKind, ExecResult, OUTPUT_BYTES_MAX, Result};

/// How long pipes are read on when the process itself is gone: others may hold them for ever.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// The input and bounds of a process, beside its [`Command`].
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) stdin: Bytes,
    pub(crate) timeout: Duration,
    pub(crate) output_bytes_max: usize,
    /// Whether the command begins with a launcher, which tells when it could not become the program.
    pub(crate) has_launcher: bool,
}

/// Runs `command`, whose environment is complete.
///
/// # Errors
/// [`ErrorKind::NotFound`] and [`ErrorKind::PermissionDenied`] for a program that is not there or cannot be run.
pub(crate) async fn run(mut command: Command, bounds: Bounds) -> Result<ExecResult> {
    let begin = Instant::now();
    let mark = mark()?;
    command.env(MARK, &mark).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = terminal::spawn(&mut command).map_err(not_started)?;
    let Some(leader) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else {
        return Err(Error::new(ErrorKind::Internal, "exec", "the process has no number"));
    };
    let mut family = Family::new(leader, &mark);
    let most = bounds.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let (mut stdout, mut stderr) = (HeadTail::new(most), HeadTail::new(most));
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (status, timed_out) = {
        // Input never ends the reading: a process may close it and go on.
        let io = async {
            tokio::join!(feed(input, &bounds.stdin), keep(output, &mut stdout), keep(errors, &mut stderr));
        };
        let mut io = std::pin::pin!(io);
        let mut deadline = std::pin::pin!(tokio::time::sleep(bounds.timeout));
        let (mut drained, mut timed_out) = (false, false);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = &mut io, if !drained => drained = true,
                () = &mut deadline, if !timed_out => {
                    timed_out = true;
                    kill(&family).await;
                }
            }
        };
        family.kill_group();
        if !drained && tokio::time::timeout(AFTERWARDS, &mut io).await.is_err() {
            kill(&family).await;
        }
        (status, timed_out)
    };
    family.disarm();
    let status = status.map_err(not_waited_for)?;
    let result = result(status, timed_out, begin, stdout, stderr);
    match bounds.has_launcher.then(|| launcher::failure(&mark, &result)).flatten() {
        Some(error) => Err(not_started(error)),
        None => Ok(result),
    }
}

fn result(
    status: ExitStatus,
    timed_out: bool,
    begin: Instant,
    stdout: HeadTail,
    stderr: HeadTail,
) -> ExecResult {
    let ((stdout, stdout_dropped_bytes), (stderr, stderr_dropped_bytes)) = (stdout.finish(), stderr.finish());
    ExecResult {
        stdout,
        stderr,
        stdout_dropped_bytes,
        stderr_dropped_bytes,
        exit_code: if timed_out { -1 } else { status.code().unwrap_or(-1) },
        signal: status.signal().map(signal_name),
        timed_out,
        duration: begin.elapsed(),
        hint: None,
    }
}

async fn kill(family: &Family) {
    let family = family.shared();
    // A panic there is none of the caller's concern: the group got its signal.
    let _ended = tokio::task::spawn_blocking(move || family.kill_all()).await;
}

async fn feed(input: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut input) = input {
        // A command that closes standard input does not want the rest.
        let _closed = input.write_all(bytes).await;
    }
}

async fn keep(pipe: Option<impl AsyncRead + Unpin>, into: &mut HeadTail) {
    let Some(mut pipe) = pipe else { return };
    let mut piece = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = pipe.read(&mut piece).await {
        into.push(piece.get(..read).unwrap_or_default());
    }
}

fn not_waited_for(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "exec", "the end of the process could not be waited for").because(error)
}

fn not_started(error: std::io::Error) -> Error {
    let (kind, message) = match error.kind() {
        Io::NotFound => (ErrorKind::NotFound, "there is no such program"),
        Io::PermissionDenied => (ErrorKind::PermissionDenied, "the program may not be run"),
        Io::NotADirectory => (ErrorKind::NotFound, "the path of the program leads through a file"),
        Io::ArgumentListTooLong => {
            (ErrorKind::TooLarge, "arguments and variables are too long: write long values to a file")
        }
        Io::InvalidInput => (ErrorKind::Invalid, "a NUL byte is in an argument or variable: remove it"),
        Io::ResourceBusy | Io::ExecutableFileBusy | Io::WouldBlock | Io::OutOfMemory => {
            (ErrorKind::Busy, "the host can start no process just now: try again later")
        }
        _ => (ErrorKind::Internal, "the process could not be started"),
    };
    Error::new(kind, "exec", message).because(error)
}

/// A text that no other command has.
fn mark() -> Result<String> {
    let number = getrandom::u64().map_err(|error| {
        Error::new(ErrorKind::Internal, "exec", "the host gives no random numbers").because(error)
    })?;
    Ok(format!("{number:016x}"))
}
