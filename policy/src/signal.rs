//! The names of the signals of Linux (signal(7)), and [`Signal`]: those that a caller may send.

use serde::{Deserialize, Serialize};

/// The names of the signals 1 to 31. The numbers are those of x86 and ARM.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The name of the signal `number`, such as `SIGKILL`; `None` for a real-time signal, which has none.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

/// The number of a signal of [`NAMES`], such as `SIGKILL`.
fn number(name: &str) -> Option<i32> {
    let index = NAMES.iter().position(|each| *each == name)?;
    i32::try_from(index + 1).ok()
}

/// The signals that a caller may send to a command. Its JSON is a name such as `"SIGINT"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGHUP`
    #[serde(rename = "SIGHUP")]
    Hup,
    /// `SIGINT`, as Ctrl-C sends it
    #[serde(rename = "SIGINT")]
    Int,
    /// `SIGQUIT`
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// `SIGTERM`
    #[serde(rename = "SIGTERM")]
    Term,
    /// `SIGUSR1`
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// `SIGUSR2`
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// `SIGSTOP`: the run halts, its deadline goes on
    #[serde(rename = "SIGSTOP")]
    Stop,
    /// `SIGCONT`
    #[serde(rename = "SIGCONT")]
    Cont,
}

impl Signal {
    /// Every signal that a caller may send.
    const ALL: [Self; 8] =
        [Self::Hup, Self::Int, Self::Quit, Self::Term, Self::Usr1, Self::Usr2, Self::Stop, Self::Cont];

    /// The signal of a name such as `SIGINT`, if a caller may send it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// Its name, such as `SIGINT`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Term => "SIGTERM",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Stop => "SIGSTOP",
            Self::Cont => "SIGCONT",
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> i32 {
        number(self.name()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Signal, name};

    #[test]
    fn a_signal_that_may_be_sent_has_one_name_and_number_everywhere() {
        for signal in Signal::ALL {
            assert_eq!(name(signal.number()), Some(signal.name()));
            assert_eq!(Signal::named(signal.name()), Some(signal));
            assert_eq!(serde_json::to_value(signal).unwrap(), signal.name());
        }
        assert_eq!([Signal::named("SIGKILL"), Signal::named("INT")], [None; 2]);
        assert_eq!((Signal::Int.number(), Signal::Stop.number()), (2, 19));
    }

    #[test]
    fn only_the_signals_1_to_31_have_names() {
        assert_eq!([1, 9, 15, 31].map(name), ["SIGHUP", "SIGKILL", "SIGTERM", "SIGSYS"].map(Some));
        assert_eq!([i32::MIN, -1, 0, 32, 64, i32::MAX].map(name), [None; 6]);
    }
}
