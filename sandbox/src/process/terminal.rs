//! A terminal for a command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;

use parking_lot::RwLock;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::live::WindowSize;

/// Held for writing while a terminal is opened: its descriptor has no close-on-exec at first, and no command may be started then.
static OPENING: RwLock<()> = RwLock::new(());

/// Starts a command, not while a terminal is being opened.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let _started = OPENING.read();
    command.spawn()
}

/// Sees to it that the keys of a terminal are signals for the commands in it, when this process was started with them ignored, as in the
/// background of a script: programs keep what is ignored across execve(2), and a shell could then not even trap them. What this process
/// catches instead, and does nothing about, is default for them.
fn let_keys_through() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "what the kernel tells about this process is not stored"
        )]
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
        let ignored = ignored.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
        for kind in [SignalKind::interrupt(), SignalKind::quit()] {
            if ignored & 1 << (kind.as_raw_value() - 1) != 0 {
                // It stays caught when this is dropped.
                let _caught = signal(kind);
            }
        }
    });
}

/// A command in a terminal, and this side of it.
pub(super) struct InTerminal {
    pub(super) child: Child,
    pub(super) output: OwnedReadPty,
    pub(super) input: OwnedWritePty,
    /// To give it another size, also while input waits.
    pub(super) terminal: OwnedFd,
}

/// Starts a command as the leader of a session with a terminal of its own.
pub(super) fn spawn_in_terminal(command: Command, size: WindowSize) -> io::Result<InTerminal> {
    let_keys_through();
    let (opened, other) = {
        let _opened = OPENING.write();
        pty_process::open().map_err(io_error)?
    };
    opened.resize(size.into()).map_err(io_error)?;
    let child = {
        let _started = OPENING.read();
        pty_process::Command::from(command).spawn(other).map_err(io_error)?
    };
    let terminal = opened.as_fd().try_clone_to_owned()?;
    let (output, input) = opened.into_split();
    Ok(InTerminal { child, output, input, terminal })
}

impl From<WindowSize> for Size {
    fn from(size: WindowSize) -> Self {
        Self::new(size.rows, size.cols)
    }
}

fn io_error(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(errno) => errno.into(),
        other => io::Error::other(other),
    }
}
