//! The names of the signals of Linux (signal(7)).

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

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn only_the_signals_1_to_31_have_names() {
        assert_eq!([1, 9, 15, 31].map(name), ["SIGHUP", "SIGKILL", "SIGTERM", "SIGSYS"].map(Some));
        assert_eq!([i32::MIN, -1, 0, 32, 64, i32::MAX].map(name), [None; 6]);
    }
}
