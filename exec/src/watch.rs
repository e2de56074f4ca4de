//! A run under way, seen from the service: output, reports, deadline.
//!
//! The end of a pipe is never waited for: a forgotten grandchild may hold it open for ever. A run has ended when the
//! launcher says so, and its pipes are read for a moment longer.

mod next;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::io::ioctl_fionbio;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep};

use self::next::{Event, Tap, halted, killed, next_input, passed, readable, ready, reserve};
use crate::error::Error;
use crate::input::{Input, Progress};
use crate::launcher::Buffers;
use crate::live::{Chunk, Control, Feed, Live};
use crate::output::{Capture, Stream};
use crate::result::{Ending, Limit};
use crate::run::Halt;
use crate::supervisor::{self, Supervised};
use crate::sys;
use crate::tube::{LATE, Tube};
use crate::wire::{self, Reach, Report};

/// How long pipes are read after the main process is gone.
const DRAIN: Duration = Duration::from_millis(100);
/// How long the launcher may take to end a run before it is answered without.
const KILL_WAIT: Duration = Duration::from_millis(500);
/// How long after the end of a run output is still handed on to somebody who takes it slowly.
const HAND_OVER: Duration = Duration::from_secs(30);
/// What tells the reader of a terminal that there is no more (`VEOF`, termios(3)).
const END_OF_INPUT: u8 = 4;
/// How often a pipe is read at the end of its run before it is watched: more than it holds at once.
const READS_MAX: usize = 4;
/// Size of a pipe whose writer fills it, in bytes; the system's default is 64 KiB (pipe(7)).
const WIDE_PIPE_BYTES: i32 = 512 * 1024;

/// Our ends of a run's pipes.
pub(crate) struct Pipes {
    pub(crate) out: OwnedFd,
    /// `None` when a terminal carries both.
    pub(crate) err: Option<OwnedFd>,
    pub(crate) input: Option<Input>,
    /// The terminal once more, for whoever may change its size.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A run under way, seen from the service.
pub(crate) struct Watch {
    reports: AsyncFd<OwnedFd>,
    out: Option<Tube>,
    err: Option<Tube>,
    /// When standard output is watched from; `None` once it is.
    late: Option<Pin<Box<Sleep>>>,
    input: Option<Input<AsyncFd<OwnedFd>>>,
    timer: Pin<Box<Sleep>>,
    phase: Phase,
    /// Lent by the launcher's handle, which gets it back.
    pub(crate) buffer: Box<[u8]>,
    pid: Option<i32>,
    /// How the run got to its tree.
    pub(crate) reach: Reach,
    code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    limit: Option<Limit>,
    /// Whether the first process stays for another command.
    stays: bool,
    /// Whether the run was told to end.
    was_killed: bool,
    /// Where somebody else may say that the run is to end.
    pub(crate) halt: Option<Halt>,
    /// What the supervisor of the run has to know, until it is there.
    pub(crate) supervised: Option<Supervised>,
    tap: Option<Tap>,
    begun: Option<oneshot::Sender<Control>>,
    kill: Option<watch::Receiver<bool>>,
    terminal: Option<OwnedFd>,
    /// When output is no longer handed on after the end.
    hand_over_until: Option<Instant>,
}

/// What the timer is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The deadline.
    Running,
    /// The launcher's answer to the deadline.
    Killing,
    /// The rest of the output after the main process is gone.
    Draining,
}

impl Watch {
    /// Watches a run that was handed to the launcher, until `deadline` at most.
    ///
    /// # Errors
    /// [`Error::Resource`]: the event loop takes no more descriptors.
    pub(crate) fn new(
        pipes: Pipes,
        reports: OwnedFd,
        deadline: Instant,
        buffer: Box<[u8]>,
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
        ioctl_fionbio(&reports, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
        Ok(Self {
            reports: watched(reports, Interest::READABLE)?,
            out: Some(Tube::Unwatched(pipes.out)),
            err: pipes.err.map(|err| Tube::Unwatched(err).watched()).transpose()?,
            late: Some(Box::pin(tokio::time::sleep(LATE))),
            input,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            phase: Phase::Running,
            buffer,
            pid: None,
            reach: Reach::Open,
            code: None,
            signal: None,
            timed_out: false,
            limit: None,
            stays: false,
            was_killed: false,
            halt: None,
            supervised: None,
            tap: None,
            begun: None,
            kill: None,
            terminal: pipes.terminal,
            hand_over_until: None,
        })
    }

    /// Lets somebody take part.
    ///
    /// # Errors
    /// As [`Watch::new`].
    pub(crate) fn join(&mut self, live: Live) -> Result<(), Error> {
        self.watch_output()?;
        self.tap = Some(Tap { sender: live.output, room: None });
        self.begun = Some(live.begun);
        self.kill = Some(live.kill);
        Ok(())
    }

    /// From now on, all output is read as it comes.
    fn watch_output(&mut self) -> Result<(), Error> {
        if self.late.take().is_none() {
            return Ok(());
        }
        self.out = self.out.take().map(Tube::watched).transpose()?;
        Ok(())
    }

    /// Collects output until the run has ended.
    ///
    /// # Errors
    /// * [`Error::Step`]: the program did not start.
    /// * [`Error::LauncherDied`]: nobody knows how it ended; its group was killed.
    pub(crate) async fn until_ended(&mut self, capture: &mut Capture) -> Result<Ending, Error> {
        loop {
            if self.phase == Phase::Draining && self.out.is_none() && self.err.is_none() {
                return Ok(self.ending());
            }
            match self.next().await {
                Event::Report => self.take_report(capture)?,
                Event::Late => {
                    self.take_output(Stream::Out, capture);
                    self.watch_output()?;
                }
                Event::Output(stream) => {
                    if stream == Stream::Err && self.tap.is_none() {
                        // What was written before stands before it, noticed or not.
                        self.take_output(Stream::Out, capture);
                    }
                    if self.take_output(stream, capture) {
                        self.watch_output()?;
                    }
                    if self.hand_over_until.is_some_and(|until| Instant::now() < until) {
                        self.wait(Phase::Draining, DRAIN);
                    }
                }
                Event::Input => self.write_input(),
                Event::Fed(feed) => self.take_feed(feed),
                Event::Room(Some(room)) => {
                    if let Some(tap) = &mut self.tap {
                        tap.room = Some(room);
                    }
                }
                Event::Room(None) => self.tap = None,
                Event::Kill => self.kill(),
                Event::Halt(limit) => {
                    self.limit = Some(limit);
                    self.kill();
                }
                Event::Timer => match self.phase {
                    Phase::Running => {
                        self.timed_out = true;
                        self.kill();
                    }
                    Phase::Draining if self.hands_over() => self.wait(Phase::Draining, DRAIN),
                    Phase::Killing | Phase::Draining => return Ok(self.ending()),
                },
            }
        }
    }

    async fn next(&mut self) -> Event {
        let may_read = match &mut self.tap {
            None => true,
            Some(tap) => {
                if tap.room.is_none() {
                    tap.room = tap.sender.clone().try_reserve_owned().ok();
                }
                tap.room.is_some()
            }
        };
        let waits_for_room = !may_read && (self.out.is_some() || self.err.is_some());
        // The timer first: a run that never stops writing must not hold off its deadline.
        tokio::select! {
            biased;
            () = &mut self.timer => Event::Timer,
            limit = halted(self.halt.as_mut()), if self.phase == Phase::Running => Event::Halt(limit),
            () = ready(&self.reports, Interest::READABLE), if self.phase != Phase::Draining => Event::Report,
            () = killed(self.kill.as_mut()), if self.phase == Phase::Running => Event::Kill,
            room = reserve(self.tap.as_ref()), if waits_for_room => Event::Room(room),
            () = passed(self.late.as_mut()) => Event::Late,
            () = readable(self.out.as_ref()), if may_read => Event::Output(Stream::Out),
            () = readable(self.err.as_ref()), if may_read => Event::Output(Stream::Err),
            event = next_input(self.input.as_mut()) => event,
        }
    }

    fn take_report(&mut self, capture: &mut Capture) -> Result<(), Error> {
        let mut packet = [0; 512];
        let mut attached = Vec::new();
        let received =
            self.reports.try_io(Interest::READABLE, |socket| wire::receive(socket.as_fd(), &mut packet));
        let length = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // The launcher closed its end with our request to kill still unread (unix(7)); the error is told once,
            // and what it sent before is behind it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(_) => 0,
            Ok((length, descriptors)) => {
                attached = descriptors;
                length
            }
        };
        let Ok(report) = wire::decode(packet.get(..length).unwrap_or_default()) else {
            return Err(self.orphaned());
        };
        match report {
            Report::Started { pid } => self.pid = Some(pid),
            Report::Handle => {
                if let (Some(begun), Some(process)) = (self.begun.take(), attached.pop()) {
                    // Nobody waits any more when it comes back.
                    drop(begun.send(Control { process, terminal: self.terminal.take() }));
                }
            }
            Report::Listener => {
                if let (Some(supervised), Some(listener), Some(group)) =
                    (self.supervised.take(), attached.pop(), self.pid)
                {
                    supervisor::start(supervised, listener, group)
                        .map_err(Error::resource("pthread_create"))?;
                }
            }
            Report::Unreachable { reach } => self.reach = reach,
            Report::Failed { step, errno } => {
                return Err(Error::Step { step, source: io::Error::from_raw_os_error(errno) });
            }
            // Nothing of the run is left that could run or write; its namespaces go without us.
            Report::Ended { code, signal, stays } => {
                (self.code, self.signal) = (code, signal);
                self.stays = stays;
                self.drain(capture)?;
            }
            Report::Exited { code, signal, limit } => {
                self.limit = self.limit.or(limit);
                // The first process of a mounted run exits with 0 once the end of the command was told.
                if (self.code, self.signal) == (None, None) {
                    (self.code, self.signal) = (code, signal);
                }
                self.drain(capture)?;
            }
        }
        Ok(())
    }

    /// Kills what a dead launcher left behind, as far as it can be named: the main process died with its parent, so
    /// its number is free only when the whole group is gone.
    fn orphaned(&self) -> Error {
        if let Some(pid) = self.pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        Error::LauncherDied
    }

    /// Reads some output; tells whether there was any.
    fn take_output(&mut self, stream: Stream, capture: &mut Capture) -> bool {
        let pipe = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let Some(open) = pipe else { return false };
        match open.read(&mut self.buffer) {
            Ok(length) if length > 0 => {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                capture.push(stream, bytes);
                if let Some(room) = self.tap.as_mut().and_then(|tap| tap.room.take()) {
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

    /// Writes what standard input takes now.
    fn write_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        match input.write_some() {
            Progress::Over => self.input = None,
            Progress::Done if input.more.is_none() => self.input = None,
            Progress::Done | Progress::Blocked => {}
        }
    }

    fn take_feed(&mut self, feed: Option<Feed>) {
        let Some(input) = &mut self.input else { return };
        match feed {
            Some(Feed::Bytes(bytes)) => (input.bytes, input.written) = (bytes, 0),
            // The terminal stays open: the command writes to it, and may go on reading.
            Some(Feed::End) if input.is_terminal => (input.bytes, input.written) = (vec![END_OF_INPUT], 0),
            Some(Feed::End) | None => self.input = None,
        }
    }

    /// Reads the rest of the output: what is there at once, and what still comes for a moment.
    fn drain(&mut self, capture: &mut Capture) -> Result<(), Error> {
        self.input = None;
        if self.late.is_some() {
            // Nobody takes part, who might have no room.
            for stream in [Stream::Out, Stream::Err] {
                for _ in 0..READS_MAX {
                    if !self.take_output(stream, capture) {
                        break;
                    }
                }
            }
            self.watch_output()?;
        }
        if self.tap.is_some() {
            self.hand_over_until = Some(Instant::now() + HAND_OVER);
        }
        self.wait(Phase::Draining, DRAIN);
        Ok(())
    }

    /// Tells whether output waits only because somebody takes it slowly.
    fn hands_over(&self) -> bool {
        let waits = self.tap.as_ref().is_some_and(|tap| tap.sender.capacity() == 0);
        waits && self.hand_over_until.is_some_and(|until| Instant::now() < until)
    }

    fn kill(&mut self) {
        self.was_killed = true;
        // The launcher hears of it, and goes on reporting.
        let _ = rustix::net::shutdown(self.reports.as_fd(), rustix::net::Shutdown::Write);
        self.wait(Phase::Killing, KILL_WAIT);
    }

    fn wait(&mut self, phase: Phase, duration: Duration) {
        self.phase = phase;
        self.timer.as_mut().reset(Instant::now() + duration);
    }

    /// The socket of a first process that stays; `None` when it does not, or was to be killed.
    pub(crate) fn into_resident(self) -> Option<OwnedFd> {
        let stays = self.stays && !self.timed_out && self.limit.is_none() && !self.was_killed;
        stays.then(|| self.reports.into_inner())
    }

    fn ending(&self) -> Ending {
        Ending { code: self.code, signal: self.signal, timed_out: self.timed_out, limit: self.limit }
    }
}

/// Gives `fd` to the runtime's event loop.
fn watched(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Error> {
    sys::watch(fd, interest).map_err(Error::resource("epoll_ctl"))
}

/// Gives a busy pipe more room; the default stays when the user's share of pipe memory is used up.
fn widen(pipe: BorrowedFd<'_>) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(WIDE_PIPE_BYTES));
}
