//! [`Streams`]: the standard streams of a run under way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;

use nix::fcntl::{FcntlArg, fcntl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::next::{Event, LiveSink, next_input, passed, readable, reserve};
use super::watched;
use crate::error::Error;
use crate::service::launcher::buffers::Buffers;
use crate::service::run::input::{Input, Progress};
use crate::service::run::live::{Chunk, Feed};
use crate::service::run::output::{Capture, Stream};
use crate::service::run::output_pipe::{LATE, OutputPipe};
use crate::service::run::stdio::ServicePipes;

/// The character that tells the reader of a terminal the end of input (`VEOF`, termios(3)).
const END_OF_INPUT: u8 = 4;
/// Size of a pipe whose writer fills it, in bytes; the system's default is 64 KiB (pipe(7)).
const WIDE_PIPE_BYTES: i32 = 512 * 1024;
/// How often a pipe is read at the end of its run: for more than it holds at once, and not for ever, because a process that was
/// forgotten may go on writing.
const READS_MAX: usize = 2 * WIDE_PIPE_BYTES as usize / Buffers::BYTES;

/// The service's ends of the pipes of a run, and where its output goes.
pub(super) struct Streams {
    out: Option<OutputPipe>,
    err: Option<OutputPipe>,
    /// When standard output is watched from; `None` once it is.
    late: Option<Pin<Box<Sleep>>>,
    input: Option<Input<AsyncFd<OwnedFd>>>,
    /// The buffer that output is read into.
    pub(super) buffer: Box<[u8]>,
    /// Where it goes as it comes, besides into the result.
    sink: Option<LiveSink>,
}

impl Streams {
    /// Writes as much of the input as the pipe takes, and watches the rest.
    ///
    /// # Errors
    /// [`Error::Resource`]: the event loop takes no more descriptors.
    pub(super) fn new(
        pipes: ServicePipes,
        buffer: Box<[u8]>,
        output: Option<mpsc::Sender<Chunk>>,
    ) -> Result<Self, Error> {
        let input = match pipes.input {
            Some(mut input) => match input.write_all_at_once() {
                Progress::Over => None,
                Progress::Done if input.more.is_none() => None,
                Progress::Done | Progress::Blocked => Some(Input {
                    pipe: watched(input.pipe, Interest::WRITABLE)?,
                    bytes: input.bytes,
                    written: input.written,
                    more: input.more,
                    is_terminal: input.is_terminal,
                }),
            },
            None => None,
        };
        let mut streams = Self {
            out: Some(OutputPipe::Unwatched(pipes.out)),
            err: pipes.err.map(|err| OutputPipe::Unwatched(err).watched()).transpose()?,
            late: Some(Box::pin(tokio::time::sleep(LATE))),
            input,
            buffer,
            sink: output.map(|sender| LiveSink { sender, room: None }),
        };
        if streams.sink.is_some() {
            streams.watch_output()?;
        }
        Ok(streams)
    }

    /// Waits for the next event on a stream. While the sink has no room, no output is read.
    pub(super) async fn next(&mut self) -> Event {
        let may_read = match &mut self.sink {
            None => true,
            Some(sink) => {
                if sink.room.is_none() {
                    sink.room = sink.sender.clone().try_reserve_owned().ok();
                }
                sink.room.is_some()
            }
        };
        let waits_for_room = !may_read && !self.have_ended();
        tokio::select! {
            biased;
            room = reserve(self.sink.as_ref()), if waits_for_room => Event::Room(room),
            () = passed(self.late.as_mut()) => Event::Late,
            () = readable(self.out.as_ref()), if may_read => Event::Output(Stream::Out),
            () = readable(self.err.as_ref()), if may_read => Event::Output(Stream::Err),
            event = next_input(self.input.as_mut()) => event,
        }
    }

    /// Tells whether both pipes of output were read to their end.
    pub(super) fn have_ended(&self) -> bool {
        self.out.is_none() && self.err.is_none()
    }

    /// Tells whether output also goes to a sink.
    pub(super) fn have_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Tells whether there is output that was not handed on yet, because the sink takes it slowly or nobody had the time.
    pub(super) fn have_more_for_sink(&self) -> bool {
        let Some(sink) = &self.sink else { return false };
        sink.sender.capacity() == 0 || [&self.out, &self.err].into_iter().flatten().any(OutputPipe::has_more)
    }

    /// Reads what the pipes hold, when nothing is awaited any more. What a sink has not taken by then is left out, also of the
    /// result.
    pub(super) fn read_rest(&mut self, capture: &mut Capture) {
        if self.sink.is_none() {
            self.read_what_is_there(capture);
        }
    }

    /// The sink has room for a piece, or takes none any more.
    pub(super) fn take_room(&mut self, room: Option<mpsc::OwnedPermit<Chunk>>) {
        match (&mut self.sink, room) {
            (Some(sink), Some(room)) => sink.room = Some(room),
            _ => self.sink = None,
        }
    }

    /// The command has lived for a moment: from now on its output is read as it comes.
    ///
    /// # Errors
    /// As [`Streams::new`].
    pub(super) fn become_late(&mut self, capture: &mut Capture) -> Result<(), Error> {
        self.read(Stream::Out, capture);
        self.watch_output()
    }

    /// Reads some output of the stream that has some.
    ///
    /// # Errors
    /// As [`Streams::new`].
    pub(super) fn take_output(&mut self, stream: Stream, capture: &mut Capture) -> Result<(), Error> {
        // Output that was written before stands before it, noticed or not. A sink has room for one piece, so that standard
        // error is read at its next event.
        let brought = stream == Stream::Err && self.read(Stream::Out, capture);
        if brought && self.sink.is_some() {
            return Ok(());
        }
        if self.read(stream, capture) { self.watch_output() } else { Ok(()) }
    }

    /// The main process is gone: ends the input, and reads the output that is there at once.
    ///
    /// # Errors
    /// As [`Streams::new`].
    pub(super) fn finish(&mut self, capture: &mut Capture) -> Result<(), Error> {
        self.input = None;
        if self.late.is_none() {
            return Ok(());
        }
        // There is no sink, which might have no room.
        self.read_what_is_there(capture);
        self.watch_output()
    }

    /// Reads as much as the pipes can hold.
    fn read_what_is_there(&mut self, capture: &mut Capture) {
        for stream in [Stream::Out, Stream::Err] {
            for _ in 0..READS_MAX {
                if !self.read(stream, capture) {
                    break;
                }
            }
        }
    }

    /// Writes what standard input takes now.
    pub(super) fn write_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        match input.write_some() {
            Progress::Over => self.input = None,
            Progress::Done if input.more.is_none() => self.input = None,
            Progress::Done | Progress::Blocked => {}
        }
    }

    /// Takes more input, or its end (`None`).
    pub(super) fn take_feed(&mut self, feed: Option<Feed>) {
        let Some(input) = &mut self.input else { return };
        match feed {
            Some(Feed::Bytes(bytes)) => (input.bytes, input.written) = (bytes, 0),
            // The terminal stays open: the command writes to it, and may go on reading.
            Some(Feed::End) if input.is_terminal => (input.bytes, input.written) = (vec![END_OF_INPUT], 0),
            Some(Feed::End) | None => self.input = None,
        }
    }

    fn watch_output(&mut self) -> Result<(), Error> {
        if self.late.take().is_none() {
            return Ok(());
        }
        self.out = self.out.take().map(OutputPipe::watched).transpose()?;
        Ok(())
    }

    /// Reads some output; tells whether there was any.
    fn read(&mut self, stream: Stream, capture: &mut Capture) -> bool {
        let pipe = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let Some(open) = pipe else { return false };
        match open.read(&mut self.buffer) {
            Ok(length) if length > 0 => {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                capture.push(stream, bytes);
                if let Some(room) = self.sink.as_mut().and_then(|sink| sink.room.take()) {
                    room.send(Chunk { stream, bytes: bytes.to_vec() });
                }
                if length == Buffers::BYTES {
                    widen(open.as_fd());
                }
                return true;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            _ => *pipe = None,
        }
        false
    }
}

/// Gives a busy pipe more room; the default stays when the user's share of pipe memory is used up.
fn widen(pipe: BorrowedFd<'_>) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(WIDE_PIPE_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::run::stdio::StdioPipes;

    /// What is shown of output that was written to standard output first, when only standard error was noticed.
    fn shown(sink: Option<mpsc::Sender<Chunk>>) -> (String, Streams) {
        let pipes = StdioPipes::open(None, None).unwrap();
        let [_, out, err] = pipes.theirs(io::stdin().as_fd()).map(|end| end.try_clone_to_owned().unwrap());
        let mut streams = Streams::new(pipes.ours, vec![0; Buffers::BYTES].into(), sink).unwrap();
        let mut capture = Capture::new(100);
        for _ in 0..2 {
            if let Some(sink) = &mut streams.sink {
                sink.room = sink.sender.clone().try_reserve_owned().ok();
            }
            if capture.total(Stream::Out) == 0 {
                rustix::io::write(&out, b"out ").unwrap();
                rustix::io::write(&err, b"err ").unwrap();
            }
            streams.take_output(Stream::Err, &mut capture).unwrap();
        }
        (capture.both(), streams)
    }

    #[tokio::test]
    async fn what_was_written_to_standard_output_first_is_shown_first() {
        assert_eq!(shown(None).0, "out err ");
        let (sender, mut pieces) = mpsc::channel(2);
        let (both, _streams) = shown(Some(sender));
        assert_eq!(both, "out err ");
        let order = [pieces.recv().await, pieces.recv().await].map(|piece| piece.map(|piece| piece.stream));
        assert_eq!(order, [Some(Stream::Out), Some(Stream::Err)]);
    }
}
