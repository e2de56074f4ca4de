//! [`ExecResult`]: how a run ended and what it wrote. [`ForeignResult`]: the same of a command that something else ran.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::limit::Limit;
use crate::service::run::output::{Capture, Stream};
use crate::tier::Enforcement;

/// Whether a result also carries the bytes of the output as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Text only; bytes that are no UTF-8 become U+FFFD.
    #[default]
    Text,
    /// Text, and beside it the same bytes in base64.
    Base64,
}

/// How a run ended and what it wrote. `E` says what confined it: of what a launcher ran, an [`Enforcement`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult<E = Enforcement> {
    /// Standard output as UTF-8: all of it, or the first and last half of the limit with a line between that tells
    /// how many bytes were dropped.
    pub stdout: String,
    /// Standard error, in the same way.
    pub stderr: String,
    /// Both, in order of arrival.
    pub output: String,
    /// The kept bytes of standard output in base64 (RFC 4648 section 4), head and tail joined, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The kept bytes of standard error, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// The exit code, 0 to 255; −1 when a signal or the deadline ended the run.
    pub exit_code: i32,
    /// The signal that ended the program, such as `SIGKILL`.
    pub signal: Option<String>,
    /// Whether the deadline ended the run.
    pub timed_out: bool,
    /// The limit that the run went beyond, and because of which it or a part of it was killed.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// Whether output was dropped.
    pub truncated: bool,
    /// Bytes written to standard output, dropped ones included.
    pub stdout_bytes: u64,
    /// Bytes written to standard error, dropped ones included.
    pub stderr_bytes: u64,
    /// Bytes of both streams that are not in this result.
    pub dropped_bytes: u64,
    /// From the call to the answer, in milliseconds.
    pub duration_ms: u64,
    /// The walls around the run.
    pub enforcement: E,
    /// Advice about what a wall refused, or which limit ended the run; a guess from the messages of programs.
    pub hint: Option<String>,
    /// Whether it ran in a process namespace that an earlier run in the same surroundings had left. Callers are not
    /// told: it makes no difference but in time.
    #[serde(skip)]
    pub is_residents: bool,
}

/// How a command ended that no launcher of ours ran, and what was kept of its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignResult {
    /// Standard output: its first and last half, joined, when bytes were dropped in between.
    pub stdout: Vec<u8>,
    /// Bytes of standard output that are not in `stdout`.
    pub stdout_dropped_bytes: u64,
    /// Standard error, in the same way.
    pub stderr: Vec<u8>,
    /// Bytes of standard error that are not in `stderr`.
    pub stderr_dropped_bytes: u64,
    /// The exit code, 0 to 255; −1 when a signal or the deadline ended it.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Whether the deadline ended it.
    pub timed_out: bool,
    /// From the call to the answer, in milliseconds.
    pub duration_ms: u64,
}

/// How the main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Its exit code, when it exited and the deadline did not intervene.
    pub(crate) code: Option<i32>,
    /// The signal that killed it.
    pub(crate) signal: Option<i32>,
    /// Whether the deadline had passed.
    pub(crate) timed_out: bool,
    /// The limit that the launcher or the kernel found exceeded.
    pub(crate) limit: Option<Limit>,
}

impl Ending {
    /// The limit that the run went beyond. Some limits are told by their signal (setrlimit(2)).
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.limit.or(match self.signal {
            Some(libc::SIGXCPU) => Some(Limit::Cpu),
            Some(libc::SIGXFSZ) => Some(Limit::FileSize),
            _ => None,
        })
    }
}

impl<E> ExecResult<E> {
    /// The result of a command that something else ran. In which order its streams came is not known: standard output
    /// stands first.
    #[must_use]
    pub fn of_foreign(told: ForeignResult, encoding: Encoding, enforcement: E, hint: Option<String>) -> Self {
        let ForeignResult { exit_code, signal, timed_out, duration_ms, .. } = told;
        let capture = Capture::of_kept(
            (told.stdout, told.stdout_dropped_bytes),
            (told.stderr, told.stderr_dropped_bytes),
        );
        let ending = Ending { code: Some(exit_code), signal: None, timed_out, limit: None };
        let made = Self::new(&capture, ending, encoding, duration_ms, enforcement, hint);
        Self { signal, ..made }
    }

    /// The same, with something else said of what confined it.
    #[must_use]
    pub fn confined_by<F>(self, said: impl FnOnce(E) -> F) -> ExecResult<F> {
        ExecResult {
            stdout: self.stdout,
            stderr: self.stderr,
            output: self.output,
            stdout_base64: self.stdout_base64,
            stderr_base64: self.stderr_base64,
            exit_code: self.exit_code,
            signal: self.signal,
            timed_out: self.timed_out,
            limit: self.limit,
            truncated: self.truncated,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            dropped_bytes: self.dropped_bytes,
            duration_ms: self.duration_ms,
            enforcement: said(self.enforcement),
            hint: self.hint,
            is_residents: self.is_residents,
        }
    }

    /// Puts a result together.
    pub(crate) fn new(
        capture: &Capture,
        ending: Ending,
        encoding: Encoding,
        duration_ms: u64,
        enforcement: E,
        hint: Option<String>,
    ) -> Self {
        let dropped_bytes = capture.dropped(Stream::Out) + capture.dropped(Stream::Err);
        let base64 = |stream| (encoding == Encoding::Base64).then(|| STANDARD.encode(capture.bytes(stream)));
        Self {
            stdout: capture.text(Stream::Out),
            stderr: capture.text(Stream::Err),
            output: capture.both(),
            stdout_base64: base64(Stream::Out),
            stderr_base64: base64(Stream::Err),
            exit_code: ending.code.filter(|_| !ending.timed_out).unwrap_or(-1),
            signal: ending.signal.map(signal_name),
            timed_out: ending.timed_out,
            limit: ending.limit(),
            truncated: dropped_bytes > 0,
            stdout_bytes: capture.total(Stream::Out),
            stderr_bytes: capture.total(Stream::Err),
            dropped_bytes,
            duration_ms,
            enforcement,
            hint,
            is_residents: false,
        }
    }
}

fn signal_name(number: i32) -> String {
    policy::signal::name(number).map_or_else(|| format!("signal {number}"), str::to_owned)
}
