//! [`Live`]: taking part in a run under way. Its output as it comes, its input piece by piece, signals, a terminal.
//!
//! A run without a [`Live`] pays nothing for this.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub use policy::signal::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Error;
pub use crate::service::run::output::Stream;
use crate::sys;

/// The run's ends of the channels to a caller who takes part.
#[derive(Debug)]
pub struct Live {
    /// Where output goes as it comes, besides into the result. While it is full nothing more is read, so that the
    /// command waits; its deadline does not. Without a receiver, output goes into the result alone.
    pub output: mpsc::Sender<Chunk>,
    /// The input that standard input gets after [`RunSpec::stdin`](crate::RunSpec::stdin). It stays open until
    /// [`Feed::End`], or until the sender is gone. `None`: as without [`Live`].
    pub input: Option<mpsc::Receiver<Feed>>,
    /// Told once, when the command's process is there. Dropped untold when the command could not be started.
    pub begun: oneshot::Sender<Control>,
    /// Kills the run as soon as it carries `true`.
    pub kill: watch::Receiver<bool>,
    /// Gives the command a terminal of this size as all three standard streams. Its output is all
    /// [`Stream::Out`].
    pub terminal: Option<WindowSize>,
}

/// A piece of output, as it was read: 1 byte to 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which stream wrote it.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A piece of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Bytes for standard input.
    Bytes(Vec<u8>),
    /// There is no more. A terminal gets the character that says so (`VEOF`, termios(3)).
    End,
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// A handle on the process of a command, good as long as it is held: it never names another process.
#[derive(Debug)]
pub struct Control {
    pub(crate) process: OwnedFd,
    pub(crate) terminal: Option<OwnedFd>,
}

impl Control {
    /// Sends `signal` to the command and the processes of its group; before Linux 6.9, to the command alone.
    ///
    /// Tells whether a process was there to get it.
    ///
    /// # Errors
    /// [`Error::Resource`]: the service may not signal the user of the run, as without `CAP_KILL`.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        match sys::signal_group(self.process.as_fd(), signal.number()) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(Error::resource("pidfd_send_signal")(error)),
        }
    }

    /// Gives the terminal another size and tells the command (`SIGWINCH`). Nothing happens without a terminal.
    ///
    /// # Errors
    /// [`Error::Resource`]: `TIOCSWINSZ` failed.
    pub fn resize(&self, size: WindowSize) -> Result<(), Error> {
        match &self.terminal {
            Some(terminal) => {
                tcsetwinsize(terminal, size.into()).map_err(Error::resource("ioctl(TIOCSWINSZ)"))
            }
            None => Ok(()),
        }
    }
}

impl From<WindowSize> for Winsize {
    fn from(size: WindowSize) -> Self {
        Self { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// A new pseudoterminal: our end, and the command's.
///
/// The command's end is opened through ours (`TIOCGPTPEER`), so that no path and no other name space is involved.
pub(crate) fn open_terminal(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    tcsetwinsize(&ours, size.into())?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::Signal;

    #[test]
    fn signals_that_a_caller_may_send_are_found_by_their_names() {
        for (name, signal) in [
            ("SIGHUP", Signal::Hup),
            ("SIGINT", Signal::Int),
            ("SIGQUIT", Signal::Quit),
            ("SIGTERM", Signal::Term),
            ("SIGUSR1", Signal::Usr1),
            ("SIGUSR2", Signal::Usr2),
            ("SIGSTOP", Signal::Stop),
            ("SIGCONT", Signal::Cont),
        ] {
            assert_eq!(Signal::named(name), Some(signal), "{name}");
        }
        for name in ["SIGKILL", "SIGSEGV", "INT", "sigint", "SIGSIGINT", "SIG", ""] {
            assert_eq!(Signal::named(name), None, "{name}");
        }
    }
}
