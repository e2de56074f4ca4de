//! [`Call`]: a process in a container, its streams and its end.

use std::pin::Pin;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, ResizeExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWrite;

use super::failed;
use crate::live::WindowSize;
use crate::{Error, ErrorKind, Result, SandboxPath};

/// The size of pieces of output.
const PIECE_BYTES: usize = 64 * 1024;
/// How often a silent process is asked whether it is still there: another process may hold its pipes.
const LOOK: Duration = Duration::from_secs(1);
/// How long pipes are read on when the process is gone.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// Output as it comes.
pub(super) enum Piece {
    Stdout(Bytes),
    Stderr(Bytes),
}

/// The standard streams of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// Standard input is at its end.
    Output,
    /// Pipes.
    Pipes,
    /// A terminal, whose output comes as [`Piece::Stdout`].
    Terminal,
}

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
pub(super) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// A process that was started in a container.
pub(super) struct Call {
    docker: Docker,
    id: String,
    output: Output,
    operation: &'static str,
}

/// Gives the terminal of a process another size.
pub(super) struct Resizer {
    docker: Docker,
    id: String,
}

impl Resizer {
    pub(super) async fn resize(&self, size: WindowSize) -> Result<()> {
        let options = ResizeExecOptions { height: size.rows, width: size.cols };
        self.docker.resize_exec(&self.id, options).await.map_err(failed("exec"))
    }
}

impl Call {
    /// Starts `argv` as `user`, or the container's.
    pub(super) async fn start(
        docker: &Docker,
        operation: &'static str,
        container: &str,
        argv: Vec<String>,
        environment: Vec<String>,
        user: Option<String>,
        streams: Streams,
    ) -> Result<(Self, Input)> {
        let options = CreateExecOptions {
            attach_stdin: Some(streams != Streams::Output),
            tty: Some(streams == Streams::Terminal),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            env: Some(environment),
            user,
            cmd: Some(argv),
            ..Default::default()
        };
        let id = docker.create_exec(container, options).await.map_err(failed(operation))?.id;
        let options = StartExecOptions {
            detach: false,
            tty: streams == Streams::Terminal,
            output_capacity: Some(PIECE_BYTES),
        };
        match docker.start_exec(&id, Some(options)).await.map_err(failed(operation))? {
            StartExecResults::Attached { output, input } => {
                Ok((Self { docker: docker.clone(), id, output, operation }, input))
            }
            StartExecResults::Detached => {
                Err(Error::new(ErrorKind::Internal, operation, "the engine gave no streams"))
            }
        }
    }

    /// The next output; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>> {
        loop {
            let item = match tokio::time::timeout(LOOK, self.output.next()).await {
                Ok(item) => item,
                Err(_) if self.code().await?.is_none() => continue,
                Err(_) => tokio::time::timeout(AFTERWARDS, self.output.next()).await.unwrap_or(None),
            };
            match item.transpose().map_err(failed(self.operation))? {
                None => return Ok(None),
                Some(LogOutput::StdOut { message } | LogOutput::Console { message }) => {
                    return Ok(Some(Piece::Stdout(message)));
                }
                Some(LogOutput::StdErr { message }) => return Ok(Some(Piece::Stderr(message))),
                Some(LogOutput::StdIn { .. }) => {}
            }
        }
    }

    /// The exit code, once the output has ended.
    pub(super) async fn end(&mut self) -> Result<i64> {
        // The engine notes the end of the process a moment after the end of its output.
        for _ in 0..500 {
            if let Some(code) = self.code().await? {
                return Ok(code);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::new(ErrorKind::Timeout, self.operation, "the engine does not tell the end of the process"))
    }

    /// What gives the terminal of the process another size.
    pub(super) fn resizer(&self) -> Resizer {
        Resizer { docker: self.docker.clone(), id: self.id.clone() }
    }

    async fn code(&mut self) -> Result<Option<i64>> {
        let state = self.docker.inspect_exec(&self.id).await.map_err(failed(self.operation))?;
        Ok(state.exit_code.filter(|_| state.running == Some(false)))
    }
}

/// What a script's end with another number than 0 means for the caller.
pub(super) fn ended(code: i64, operation: &'static str, path: &SandboxPath) -> Error {
    match kind(code) {
        ErrorKind::Internal => {
            let message = format!("a script in the container ended with {code}");
            Error::new(ErrorKind::Internal, operation, message).at(path)
        }
        kind => Error::about(kind, operation, path),
    }
}

/// The numbers with which scripts end, as kinds.
pub(super) fn kind(code: i64) -> ErrorKind {
    match code {
        71 => ErrorKind::NotFound,
        72 => ErrorKind::PermissionDenied,
        73 => ErrorKind::IsDirectory,
        74 => ErrorKind::NotADirectory,
        75 => ErrorKind::NotEmpty,
        76 => ErrorKind::AlreadyExists,
        77 => ErrorKind::TooLarge,
        78 => ErrorKind::Quota,
        79 => ErrorKind::Invalid,
        80 => ErrorKind::Stale,
        81 => ErrorKind::Unsupported,
        82 => ErrorKind::Busy,
        137 => ErrorKind::Disconnected, // killed with its container
        _ => ErrorKind::Internal,
    }
}
