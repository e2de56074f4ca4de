//! [`Outcome`]: how a run ended, in few enough words to count them.

use exec::{ExecResult, Limit};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Another exit code.
    Exited,
    /// By a signal.
    Killed,
    /// By its deadline.
    TimedOut,
    /// By a limit on a resource.
    Limited(Limit),
    /// There is no result.
    Failed,
}

impl Outcome {
    /// The outcome in `result`.
    #[must_use]
    pub fn of<E>(result: &ExecResult<E>) -> Self {
        match (result.timed_out, result.limit, &result.signal, result.exit_code) {
            (true, ..) => Self::TimedOut,
            (_, Some(limit), ..) => Self::Limited(limit),
            (_, _, Some(_), _) => Self::Killed,
            (.., 0) => Self::Succeeded,
            _ => Self::Exited,
        }
    }

    /// Its label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
            Self::Limited(Limit::Memory) => "limit_memory",
            Self::Limited(Limit::Cpu) => "limit_cpu",
            Self::Limited(Limit::FileSize) => "limit_file_size",
            Self::Limited(Limit::Disk) => "limit_disk",
            Self::Failed => "failed",
        }
    }
}
