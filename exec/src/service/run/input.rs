//! [`Input`]: standard input of a run on its way.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::service::run::live::Feed;

/// Standard input on its way.
pub(crate) struct Input<Fd = OwnedFd> {
    pub(crate) pipe: Fd,
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: usize,
    /// Where more comes from; `None` when `bytes` are all.
    pub(crate) more: Option<mpsc::Receiver<Feed>>,
    pub(crate) is_terminal: bool,
}

/// How far writing to standard input has come.
pub(crate) enum Progress {
    /// All that there is was written.
    Done,
    /// Some is left until the command reads.
    Blocked,
    /// No process reads any more.
    Over,
}

impl Input {
    /// Writes as much as fits.
    pub(crate) fn write_all_at_once(&mut self) -> Progress {
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.pipe, rest) {
                Ok(length) => self.written += length,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Progress::Blocked,
                Err(_) => return Progress::Over,
            }
        }
        Progress::Done
    }
}

impl Input<AsyncFd<OwnedFd>> {
    pub(crate) fn is_written(&self) -> bool {
        self.written >= self.bytes.len()
    }

    /// Writes what the pipe takes.
    pub(crate) fn write_some(&mut self) -> Progress {
        let rest = self.bytes.get(self.written..).unwrap_or_default();
        match self.pipe.try_io(Interest::WRITABLE, |pipe| Ok(rustix::io::write(pipe, rest)?)) {
            Ok(length) => self.written += length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Progress::Over,
        }
        if self.is_written() { Progress::Done } else { Progress::Blocked }
    }
}
