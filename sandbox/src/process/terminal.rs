//! A terminal for a command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::RwLock;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use tokio::process::{Child, Command};

use crate::live::WindowSize;

/// Held for writing while a terminal is opened: its descriptor has no close-on-exec at first, and no command may be started then.
static OPENING: RwLock<()> = RwLock::new(());

/// Starts a command, not while a terminal is being opened.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let _started = OPENING.read();
    command.spawn()
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
