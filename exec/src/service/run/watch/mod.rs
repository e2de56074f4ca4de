//! A run under way, seen from the service: output, reports, deadline.
//!
//! The end of a pipe is never waited for: a forgotten grandchild may hold it open for ever. A run has ended when the
//! launcher says so, and its pipes are read for a moment longer.

mod next;
mod streams;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep};

use self::next::{Event, halted, killed, ready};
use self::streams::Streams;
use crate::error::Error;
use crate::service::run::live::{Control, Live};
use crate::service::run::output::Capture;
use crate::service::run::result::Ending;
use crate::service::run::spec::{Halt, HaltReason};
use crate::service::run::stdio::ServicePipes;
use crate::step::Step;
use crate::supervisor::{self, Supervised};
use crate::sys::{self, Work};
use crate::wire::{self, Reach, Report};

/// How long pipes are read after the main process is gone.
const DRAIN: Duration = Duration::from_millis(100);
/// How long the launcher may take to end a run before it is answered without.
const KILL_WAIT: Duration = Duration::from_millis(500);
/// How long it may take to end a run that is withdrawn: longer than a request waits for that, which is told `busy` first.
const WITHDRAWAL_WAIT: Duration = Duration::from_secs(30);
/// How long after the end of a run output is still handed on to a sink that takes it slowly.
const HAND_OVER: Duration = Duration::from_secs(30);

/// A run under way, seen from the service.
pub(crate) struct Watch {
    /// The socket on which the launcher tells of the run.
    reports: AsyncFd<OwnedFd>,
    streams: Streams,
    phase: Phase,
    /// When the phase ends, if nothing else ends it.
    timer: Pin<Box<Sleep>>,
    /// The main process, as far as it is known.
    pid: Option<i32>,
    /// How the run got to its tree.
    pub(crate) reach: Reach,
    /// How the main process ended, as far as it has.
    ending: Ending,
    /// What its processes have done; known when it ended by itself.
    pub(crate) worked: Option<Work>,
    participant: Option<Participant>,
    /// Says that the run goes beyond a limit and is to end.
    pub(crate) halt: Option<Halt>,
    /// The facts for the supervisor of the run, until it is started.
    pub(crate) supervised: Option<Supervised>,
}

/// A caller who takes part in the run.
struct Participant {
    /// Where it is told that the command is there, with the terminal whose size it may change.
    started: Option<(oneshot::Sender<Control>, Option<OwnedFd>)>,
    /// Where it says that the run is to end.
    kill: watch::Receiver<bool>,
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Until its deadline.
    Running,
    /// It was told to end; until the launcher has answered.
    Killing,
    /// Its main process is gone, and the rest of its output is read.
    Draining {
        /// Whether its first process stays for another command.
        stays: bool,
        /// Until when output is handed on to a sink that takes it slowly.
        hand_over_until: Option<Instant>,
    },
}

impl Watch {
    /// Watches a run that was handed to the launcher, until `deadline` at most, with the caller that takes part in it.
    ///
    /// # Errors
    /// [`Error::Resource`]: the event loop takes no more descriptors.
    pub(crate) fn new(
        mut pipes: ServicePipes,
        reports: OwnedFd,
        deadline: Instant,
        buffer: Box<[u8]>,
        live: Option<Live>,
    ) -> Result<Self, Error> {
        let terminal = pipes.terminal.take();
        let (output, participant) = match live {
            None => (None, None),
            Some(Live { output, begun, kill, .. }) => {
                (Some(output), Some(Participant { started: Some((begun, terminal)), kill }))
            }
        };
        ioctl_fionbio(&reports, true).map_err(Error::resource("ioctl(FIONBIO)"))?;
        Ok(Self {
            reports: watched(reports, Interest::READABLE)?,
            streams: Streams::new(pipes, buffer, output)?,
            phase: Phase::Running,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            pid: None,
            reach: Reach::Open,
            ending: Ending { code: None, signal: None, timed_out: false, limit: None },
            worked: None,
            participant,
            halt: None,
            supervised: None,
        })
    }

    /// Collects output until the run has ended.
    ///
    /// # Errors
    /// * [`Error::Step`]: the program did not start.
    /// * [`Error::LauncherDied`]: how it ended is not known; its group was killed.
    pub(crate) async fn until_ended(&mut self, capture: &mut Capture) -> Result<Ending, Error> {
        loop {
            if matches!(self.phase, Phase::Draining { .. }) && self.streams.have_ended() {
                return Ok(self.ending);
            }
            match self.next().await {
                Event::Report => self.take_report(capture)?,
                Event::Late => self.streams.become_late(capture)?,
                Event::Output(stream) => {
                    self.streams.take_output(stream, capture)?;
                    if self.may_hand_over() {
                        self.end_after(DRAIN);
                    }
                }
                Event::Input => self.streams.write_input(),
                Event::Fed(feed) => self.streams.take_feed(feed),
                Event::Room(room) => self.streams.take_room(room),
                Event::Kill => self.kill(KILL_WAIT),
                Event::Halt(HaltReason::Limit(limit)) => {
                    self.ending.limit = Some(limit);
                    self.kill(KILL_WAIT);
                }
                Event::Halt(HaltReason::Withdrawn) => self.kill(WITHDRAWAL_WAIT),
                Event::Timer => match self.phase {
                    Phase::Running => {
                        self.ending.timed_out = true;
                        self.kill(KILL_WAIT);
                    }
                    Phase::Draining { .. } if self.may_hand_over() && self.streams.have_more_for_sink() => {
                        self.end_after(DRAIN);
                    }
                    // This task may have had no processor until now, however long ago the bytes came.
                    Phase::Killing | Phase::Draining { .. } => {
                        self.streams.read_rest(capture);
                        return Ok(self.ending);
                    }
                },
            }
        }
    }

    async fn next(&mut self) -> Event {
        let is_running = self.phase == Phase::Running;
        let is_draining = matches!(self.phase, Phase::Draining { .. });
        let kill = self.participant.as_mut().map(|participant| &mut participant.kill);
        // The timer first: a run that never stops writing must not hold off its deadline.
        tokio::select! {
            biased;
            () = &mut self.timer => Event::Timer,
            reason = halted(self.halt.as_mut()), if is_running => Event::Halt(reason),
            () = ready(&self.reports, Interest::READABLE), if !is_draining => Event::Report,
            () = killed(kill), if is_running => Event::Kill,
            event = self.streams.next() => event,
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
                let started = self.participant.as_mut().and_then(|participant| participant.started.take());
                if let (Some((started, terminal)), Some(process)) = (started, attached.pop()) {
                    // The participant has left when it comes back.
                    drop(started.send(Control { process, terminal }));
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
                return Err(match (step, errno) {
                    // Told by execve(2) to a process whose user had too many when it took the user's id.
                    (Step::Execute, libc::EAGAIN) => Error::Processes,
                    _ => Error::Step { step, source: io::Error::from_raw_os_error(errno) },
                });
            }
            // Nothing of the run is left that could run or write; its namespaces go without us.
            Report::Ended { code, signal, stays, worked } => {
                (self.ending.code, self.ending.signal) = (code, signal);
                self.worked = Some(worked).filter(|_| self.phase == Phase::Running);
                self.drain(stays, capture)?;
            }
            Report::Exited { code, signal, limit, worked } => {
                self.worked = worked.filter(|_| self.phase == Phase::Running);
                self.ending.limit = self.ending.limit.or(limit);
                (self.ending.code, self.ending.signal) = (code, signal);
                self.drain(false, capture)?;
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

    /// The main process is gone: reads the output that is there, and what still comes for a moment.
    fn drain(&mut self, stays: bool, capture: &mut Capture) -> Result<(), Error> {
        // A process that was told to end does not stay, even when it had decided to stay before the order came.
        let stays = stays && self.phase == Phase::Running;
        self.streams.finish(capture)?;
        let hand_over_until = self.streams.have_sink().then(|| Instant::now() + HAND_OVER);
        self.phase = Phase::Draining { stays, hand_over_until };
        self.end_after(DRAIN);
        Ok(())
    }

    /// Tells whether output may still be handed on although the run has ended.
    fn may_hand_over(&self) -> bool {
        let Phase::Draining { hand_over_until: Some(until), .. } = self.phase else { return false };
        Instant::now() < until
    }

    /// Has the launcher end the run, and waits at most so long for its report.
    fn kill(&mut self, wait: Duration) {
        // The launcher hears of it, and goes on reporting.
        let _ = rustix::net::shutdown(self.reports.as_fd(), rustix::net::Shutdown::Write);
        self.phase = Phase::Killing;
        self.end_after(wait);
    }

    fn end_after(&mut self, duration: Duration) {
        self.timer.as_mut().reset(Instant::now() + duration);
    }

    /// The buffer that [`Watch::new`] got.
    pub(crate) fn take_buffer(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.streams.buffer)
    }

    /// The socket of a first process that stays; `None` when it does not, or was told to end.
    pub(crate) fn into_resident(self) -> Option<OwnedFd> {
        matches!(self.phase, Phase::Draining { stays: true, .. }).then(|| self.reports.into_inner())
    }
}

/// Gives `fd` to the runtime's event loop.
fn watched(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Error> {
    sys::watch(fd, interest).map_err(Error::resource("epoll_ctl"))
}
