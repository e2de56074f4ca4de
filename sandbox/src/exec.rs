//! Commands: what is asked, and how they end.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::SandboxPath;

/// The program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program and its arguments, each as it is: no shell sees them.
    Argv {
        /// A name to be looked up, or an absolute path.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A script for the user's shell (`sh -c`).
    Shell(String),
}

/// A command and all that it may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program to run.
    pub program: Program,
    /// The directory to run in; the workspace by default.
    pub directory: Option<SandboxPath>,
    /// Variables beside those that the backend sets.
    pub environment: BTreeMap<String, String>,
    /// The bytes of its standard input, which then ends.
    pub stdin: Bytes,
    /// After this the whole tree of processes is killed. `None`: the backend's own limit, which also bounds this.
    pub timeout: Option<Duration>,
    /// The most bytes of each output stream to keep, at most [`OUTPUT_BYTES_MAX`]; the first and last halves of what
    /// is more.
    pub output_bytes_max: usize,
}

/// How many bytes of each output stream are kept unless said otherwise: 1 MiB.
pub const OUTPUT_BYTES_DEFAULT: usize = 1 << 20;

/// The most bytes of each output stream that can be kept, however many a caller asks for: 64 MiB.
pub const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// The name of a signal, or its number where it has none.
pub(crate) fn signal_name(number: i32) -> String {
    policy::signal::name(number).map_or_else(|| format!("SIG{number}"), str::to_owned)
}

impl ExecSpec {
    /// Runs `program` with `arguments`, without a shell.
    pub fn argv(program: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self::new(Program::Argv { program: program.into(), arguments })
    }

    /// Runs `script` by the user's shell.
    pub fn shell(script: impl Into<String>) -> Self {
        Self::new(Program::Shell(script.into()))
    }

    fn new(program: Program) -> Self {
        Self {
            program,
            directory: None,
            environment: BTreeMap::new(),
            stdin: Bytes::new(),
            timeout: None,
            output_bytes_max: OUTPUT_BYTES_DEFAULT,
        }
    }
}

/// How a command ended. An exit code, a signal and a deadline that passed are results, not errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// Standard output, bytes as they came, without those that were dropped in its middle.
    pub stdout: Bytes,
    /// Standard error, in the same way.
    pub stderr: Bytes,
    /// Bytes written to standard output that are not in `stdout`.
    pub stdout_dropped_bytes: u64,
    /// Bytes written to standard error that are not in `stderr`.
    pub stderr_dropped_bytes: u64,
    /// 0 to 255; −1 when a signal or the deadline ended it.
    pub exit_code: i32,
    /// The signal that ended it, such as `SIGKILL`.
    pub signal: Option<String>,
    /// Whether the deadline ended it.
    pub timed_out: bool,
    /// From the call to the end.
    pub duration: Duration,
    /// What to do about a wall that refused something, where the backend tells; one line.
    pub hint: Option<String>,
}

impl ExecResult {
    /// Whether it exited with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit_code == 0
    }

    /// Standard output as text; bytes that are no UTF-8 are U+FFFD.
    #[must_use]
    pub fn stdout_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Standard error, in the same way.
    #[must_use]
    pub fn stderr_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }
}
