//! [`StdioPipes`]: the standard streams of a run, pipes or a terminal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::Error;
use crate::service::run::input::Input;
use crate::service::run::live::{Live, open_terminal};

/// Our ends of a run's pipes.
pub(crate) struct ServicePipes {
    pub(crate) out: OwnedFd,
    /// `None` when a terminal carries both.
    pub(crate) err: Option<OwnedFd>,
    pub(crate) input: Option<Input>,
    /// The terminal once more, for the caller who may change its size.
    pub(crate) terminal: Option<OwnedFd>,
}

/// The ends of a run's standard streams: ours, and those that the command gets.
pub(crate) struct StdioPipes {
    pub(crate) ours: ServicePipes,
    /// `None`: it gets `/dev/null`.
    input: Option<OwnedFd>,
    out: OwnedFd,
    err: OwnedFd,
}

impl StdioPipes {
    /// Makes them: pipes, or a terminal.
    ///
    /// # Errors
    /// [`Error::Resource`]: the host has no more descriptors or terminals.
    pub(crate) fn open(stdin: Option<Vec<u8>>, live: Option<&mut Live>) -> Result<Self, Error> {
        let (more, terminal) = live.map_or((None, None), |live| (live.input.take(), live.terminal));
        if let Some(size) = terminal {
            let (ours, theirs) = open_terminal(size).map_err(Error::resource("open(/dev/ptmx)"))?;
            ioctl_fionbio(&ours, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
            let again = |fd: &OwnedFd| fd.try_clone().map_err(Error::resource("dup"));
            let input = Input {
                pipe: again(&ours)?,
                bytes: stdin.unwrap_or_default(),
                written: 0,
                more,
                is_terminal: true,
            };
            let terminal = Some(again(&ours)?);
            let (input_of, out) = (again(&theirs)?, again(&theirs)?);
            let ours = ServicePipes { out: ours, err: None, input: Some(input), terminal };
            return Ok(Self { ours, input: Some(input_of), out, err: theirs });
        }
        let (our_out, out) = pipe()?;
        let (our_err, err) = pipe()?;
        let (our_input, input) = if stdin.is_none() && more.is_none() {
            (None, None)
        } else {
            let (read, pipe) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::resource("pipe2"))?;
            ioctl_fionbio(&pipe, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
            let bytes = stdin.unwrap_or_default();
            (Some(Input { pipe, bytes, written: 0, more, is_terminal: false }), Some(read))
        };
        let ours = ServicePipes { out: our_out, err: Some(our_err), input: our_input, terminal: None };
        Ok(Self { ours, input, out, err })
    }

    /// The command's ends of the streams; `null` where it has no input.
    pub(crate) fn theirs<'a>(&'a self, null: BorrowedFd<'a>) -> [BorrowedFd<'a>; 3] {
        [self.input.as_ref().map_or(null, AsFd::as_fd), self.out.as_fd(), self.err.as_fd()]
    }
}

/// A pipe whose reading end does not block.
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::resource("pipe2"))?;
    ioctl_fionbio(&read, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
    Ok((read, write))
}
