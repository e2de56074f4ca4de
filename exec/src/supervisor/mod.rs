//! The supervisor of one run that sees the host's root: it answers the system calls that neither Landlock nor the uid of
//! the run confines.
//!
//! **A run that shares the uid of the service.**
//! Landlock mediates neither the calls that change the mode, the owner or the times of a file, nor those that make
//! processes, nor, before Linux 6.12, those that send signals. A run with the service's uid could close any directory of
//! the service with the first, keep every other run from forking with the second, and end the service with the third. So
//! its closing filter sends these calls here (seccomp_unotify(2)):
//!
//! * a change of attributes is *made by this thread*, and only to a file that it has opened beneath one of the run's own
//!   directories; nothing is left to the kernel after a look at what a pointer leads to, which the caller can change;
//! * a call that makes a process is counted against the run's share, and then left to the kernel. Nothing behind a
//!   pointer is judged;
//! * a handler for the end of children restarts what it interrupts, before the kernel sees it: a call that waits for this
//!   thread would fail (`EINTR`) where the kernel's own `fork` never does, and shells give up then;
//! * a signal is left to the kernel when it goes to a process of the run's group, which none of them can leave. A process
//!   that ended between the look and the kernel's act would have to have its number taken by another at once, after all
//!   other numbers were given out.
//!
//! **A run that sees the sockets of the host.** Landlock does not mediate connecting to a path. So
//! * naming and connecting UNIX sockets is *done by this thread*, within the run's own directories.
//!
//! **A run that sees the directories of the host.** Landlock opens all of `/proc` and of `/dev/shm` to a run, or nothing. So
//! * lists of the open files and threads of the run's own processes, and the files that tell of their state, are *opened for it*
//!   by this thread, and handed over;
//! * what programs keep in `/dev/shm` is *opened by this thread* in the run's directory for temporary files.
//!
//! Every other path of such a call is left to the kernel, which judges as if it had not been asked about.
//!
//! **A run that shares the network of the host.** Landlock would let it connect to a port, of any machine. So
//! * listening and connecting over TCP is *done by this thread*, at loopback addresses that the runs of one user and agent
//!   share, and which no other run has;
//! * connecting to the egress proxy is *done by this thread*, with two ends of a connection of its own over the loopback
//!   interface: one gets into the place of the caller's socket, the other goes to the proxy as that user's and agent's. There
//!   is no address at which another program of the host finds the proxy.
//!
//! Each run has a supervisor of its own, one thread of the service with a low priority, so that a run which floods it
//! waits for itself. Its work counts for the run's user, and it gives way to all others when that user has used more than a fair
//! part of the processors. The thread ends with the last process of the run. If it dies with the service, the kernel answers
//! `ENOSYS`.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`call`] | what a call asks for, read from its number and arguments |
//! | [`elsewhere`] | a first look at the path of a file that it opens |
//! | [`target`] | the thread that makes it: its memory, its directories |
//! | [`beneath`] | opening what it names, beneath the run's own directories |
//! | [`forks`] | how many processes the run has |
//! | [`effort`] | how much it works for the run |
//! | [`proxy`] | connecting it to the egress proxy |
//! | [`local`] | UNIX sockets of the run |
//! | [`loopback`] | its sockets of TCP |
//! | [`sockets`] | what it asks for with its sockets, and who does it |
//! | [`slot`] | a socket of the caller, in whose place another comes |
//! | [`pace`] | how fast it connects |
//! | [`pair`] | both ends of a TCP connection |
//! | [`own_proc`] | what it reads of `/proc` |
//! | [`shared`] | what stands for `/dev/shm` |
//! | [`temporary`] | its directory for temporary files, in which these are |
//! | [`walled`] | acting behind the walls of the run |
//! | [`accounts`] | its user by name |
//!
//! # References
//! seccomp_unotify(2), openat2(2), proc_pid_mem(5).

mod accounts;
mod beneath;
mod call;
mod effort;
mod elsewhere;
mod forks;
mod local;
mod loopback;
mod own_proc;
mod pace;
mod pair;
mod proxy;
mod shared;
mod slot;
mod sockets;
mod target;
mod temporary;
mod walled;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use self::accounts::Accounts;
use self::beneath::Grounds;
use self::call::{Attribute, Call, Change, Object, Opening, Receiver};
use self::effort::Effort;
use self::forks::Forks;
use self::local::LocalSockets;
use self::loopback::LoopbackSockets;
pub(crate) use self::pair::tcp_pair;
use self::proxy::Connector;
pub use self::proxy::ProxyConnection;
pub(crate) use self::proxy::ProxyLink;
use self::slot::Outcome;
use self::target::Target;
use self::temporary::Temporary;
use crate::loopback::Loopback;
use crate::sys::{self, Answer, Notification};
use crate::workloads::ServiceWork;

/// Size of the stack of a supervisor, in bytes.
const STACK_BYTES: usize = 128 * 1024;
/// How much a supervisor gives way to other threads (setpriority(2)).
const NICENESS: i32 = 5;
/// How often a connection is tried that waits for its listener to have room.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The facts of a run that its supervisor needs.
#[derive(Debug)]
pub(crate) struct Supervised {
    /// The directories that are the run's own.
    pub(crate) own: Vec<OwnedFd>,
    /// Processes and threads that it may have.
    pub(crate) processes: u64,
    /// The uid and gid of the run, where they are not the service's.
    pub(crate) identity: Option<u32>,
    /// Its way to the egress proxy, if it may reach that.
    pub(crate) proxy: Option<ProxyLink>,
    /// The loopback addresses of its user and agent, if it may make sockets of TCP.
    pub(crate) loopback: Option<Arc<Loopback>>,
    /// Its walls, if it may make UNIX sockets.
    pub(crate) walls: Option<Arc<OwnedFd>>,
    /// Its directory for temporary files.
    pub(crate) temporary: Option<OwnedFd>,
    /// Its home directory.
    pub(crate) home: String,
    /// The account of its user for what is worked for it.
    pub(crate) work: Option<ServiceWork>,
    /// The launcher, where the run does not give way: while others leave a processor, the launcher keeps to that one, and so does the
    /// supervisor. The kernel lets a process that was answered go on where that was done, which may be among hundreds.
    pub(crate) beside: Option<i32>,
}

/// Starts the supervisor of the run whose group of processes is `group`, and whose calls arrive on `listener`.
///
/// # Errors
/// As `pthread_create(3)`: `EAGAIN`. The kernel then answers the run's calls `ENOSYS`.
pub(crate) fn start(supervised: Supervised, listener: OwnedFd, group: i32) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).stack_size(STACK_BYTES);
    let proxy = supervised.proxy.as_ref().map(|proxy| proxy.port);
    let grounds = Grounds::new(supervised.own);
    let mut supervisor = Supervisor {
        temporary: supervised
            .walls
            .as_ref()
            .zip(supervised.temporary.as_ref())
            .and_then(|(walls, temporary)| Temporary::new(&grounds, Arc::clone(walls), temporary)),
        accounts: supervised.walls.is_some().then(|| {
            let id = supervised.identity.unwrap_or_else(|| rustix::process::geteuid().as_raw());
            Accounts::new(id, &supervised.home)
        }),
        grounds,
        forks: Forks::new(group, supervised.processes),
        connector: supervised.proxy.map(Connector::new),
        loopback: supervised.loopback.map(|own| LoopbackSockets::new(own, group, proxy)),
        local: supervised.walls.map(|walls| LocalSockets::new(walls, supervised.temporary)),
        identity: supervised.identity,
        effort: Effort::new(supervised.work),
        group,
        listener,
    };
    let spawn = || thread.spawn(move || supervisor.serve()).map(drop);
    match supervised.beside {
        Some(launcher) => sys::on_processors_of(launcher, spawn),
        None => spawn(),
    }
}

struct Supervisor {
    listener: OwnedFd,
    grounds: Grounds,
    forks: Forks,
    connector: Option<Connector>,
    local: Option<LocalSockets>,
    loopback: Option<LoopbackSockets>,
    temporary: Option<Temporary>,
    accounts: Option<Accounts>,
    /// The uid and gid of the run, where they are not the service's.
    identity: Option<u32>,
    effort: Effort,
    /// The group of the run's processes.
    group: i32,
}

impl Supervisor {
    /// Answers one call after the other until no process is left that could make one.
    fn serve(&mut self) {
        // A thread's own priority (setpriority(2), "C library/kernel differences").
        let _ = rustix::process::setpriority_process(None, NICENESS);
        if let Some(identity) = self.identity
            && let Err(error) = act_as(identity)
        {
            tracing::warn!(%error, "failed to take a run's ids: its programs cannot connect their sockets");
            (self.local, self.loopback, self.connector, self.temporary) = (None, None, None, None);
        }
        sys::wake_in_turn(self.listener.as_fd());
        loop {
            let mut set = vec![PollFd::new(&self.listener, PollFlags::IN)];
            let questions = self.accounts.iter().flat_map(Accounts::sockets);
            set.extend(questions.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
            let waits = self.local.as_ref().is_some_and(LocalSockets::has_waiting)
                || self.loopback.as_ref().is_some_and(LoopbackSockets::has_waiting);
            match poll(&mut set, waits.then_some(&AGAIN)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let happened: Vec<PollFlags> = set.iter().map(PollFd::revents).collect();
            drop(set);
            let Some((happened, questions)) = happened.split_first() else { return };
            if let Some(accounts) = &mut self.accounts
                && questions.iter().any(|events| !events.is_empty())
            {
                let ready: Vec<bool> = questions.iter().map(|events| !events.is_empty()).collect();
                accounts.answer(&ready);
            }
            if happened.contains(PollFlags::IN) {
                // `ENOENT`: the caller was killed.
                if let Ok(notification) = sys::receive_notification(self.listener.as_fd())
                    && let Some(answer) = self.judge(&notification)
                {
                    let _ = sys::answer(self.listener.as_fd(), notification.id, answer);
                }
            } else if happened.intersects(PollFlags::HUP | PollFlags::ERR) {
                // Linux 5.9; Landlock is newer.
                return;
            }
            if waits {
                self.try_again();
            }
            self.effort.count();
        }
    }

    /// Tries once more what waits, and answers the calls that wait no longer.
    fn try_again(&mut self) {
        let listener = self.listener.as_fd();
        let answer = |call, made| {
            let _ = sys::answer(listener, call, answer_of(made));
        };
        if let Some(local) = &mut self.local {
            local.try_again(listener, answer);
        }
        if let Some(loopback) = &mut self.loopback {
            loopback.try_again(listener, answer);
        }
    }

    /// Judges a call; `None` when its answer comes later.
    fn judge(&mut self, notification: &Notification) -> Option<Answer> {
        let made = match Call::read(notification.number, &notification.arguments) {
            Ok(Call::Fork) if self.forks.admit() => return Some(Answer::Continue),
            Ok(Call::Fork) => Err(Errno::AGAIN),
            Ok(Call::Change(change)) => self.make(notification, &change),
            Ok(Call::Signal(receiver)) if self.is_own(receiver) => return Some(Answer::Continue),
            Ok(Call::Signal(_)) => Err(Errno::PERM),
            Ok(Call::Connect(peer)) => match self.connect(notification, peer) {
                Ok(Outcome::Later) => return None,
                made => made.map(drop),
            },
            Ok(Call::Bind(peer)) => self.bind(notification, peer),
            Ok(Call::Listen(socket, backlog)) => self.listen(notification, socket, backlog),
            Ok(Call::Open(opening)) => match self.open(notification, opening) {
                Ok(Some(file)) => {
                    let closes = opening.flags.contains(OFlags::CLOEXEC);
                    match sys::hand_over(self.listener.as_fd(), notification.id, file.as_fd(), closes) {
                        Ok(number) => return Some(Answer::Opened(number)),
                        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)),
                    }
                }
                Ok(None) => return Some(Answer::Continue),
                Err(errno) => Err(errno),
            },
            Ok(Call::Link(old, new)) => match self.shared_names(notification, [old, new]) {
                Some((temporary, [old, new])) => shared::link(temporary, &old, &new),
                None => return Some(Answer::Continue),
            },
            Ok(Call::Unlink(name)) => match self.shared_names(notification, [name]) {
                Some((temporary, [name])) => shared::unlink(temporary, &name),
                None => return Some(Answer::Continue),
            },
            Ok(Call::Handler(address)) => {
                // A caller whose memory cannot be reached has its handler as it is.
                let _ = self.restart(notification, address);
                return Some(Answer::Continue);
            }
            Err(errno) => Err(errno),
        };
        Some(answer_of(made))
    }

    /// Tells whether a signal stays within the run.
    fn is_own(&self, receiver: Receiver) -> bool {
        match receiver {
            Receiver::Process(number) => (number > 0)
                .then(|| rustix::process::Pid::from_raw(number))
                .flatten()
                .and_then(|process| rustix::process::getpgid(Some(process)).ok())
                .is_some_and(|group| group.as_raw_pid() == self.group),
            Receiver::Group(number) => number == self.group,
            Receiver::OwnGroup => true,
            Receiver::Everyone => false,
        }
    }

    /// Has a handler of the caller restart what it interrupts.
    fn restart(&self, notification: &Notification, address: u64) -> rustix::io::Result<()> {
        if address == 0 {
            return Ok(());
        }
        Target::open(self.listener.as_fd(), notification)?.restart(address)
    }

    /// Opens what stands for a directory of the host; `None` where the kernel is to judge.
    fn open(&self, notification: &Notification, opening: Opening) -> rustix::io::Result<Option<OwnedFd>> {
        let Opening { from, address, flags, mode } = opening;
        if from == libc::AT_FDCWD && elsewhere::is_elsewhere(notification.thread, address) {
            return Ok(None);
        }
        let Ok(target) = Target::open(self.listener.as_fd(), notification) else { return Ok(None) };
        let Ok(path) = target.path(address) else { return Ok(None) };
        let temporary = self.temporary.as_ref();
        if let (Some(name), Some(temporary)) = (shared::name(&path), temporary) {
            return shared::open(temporary, &name, flags, mode).map(Some);
        }
        // A place is nothing to read, and the kernel opens those everywhere.
        let reads = flags & (OFlags::RWMODE | OFlags::CREATE | OFlags::PATH) == OFlags::RDONLY;
        match std::str::from_utf8(&path) {
            Ok(path) if reads => own_proc::open((&target, self.group), temporary, (from, path), flags),
            _ => Ok(None),
        }
    }

    /// The names of files that stand for paths in `/dev/shm`; `None` where one of the paths is elsewhere.
    fn shared_names<const N: usize>(
        &self,
        notification: &Notification,
        addresses: [u64; N],
    ) -> Option<(&Temporary, [Vec<u8>; N])> {
        let temporary = self.temporary.as_ref()?;
        let target = Target::open(self.listener.as_fd(), notification).ok()?;
        let name = |address| target.path(address).ok().and_then(|path| shared::name(&path));
        let names: Option<Vec<_>> = addresses.into_iter().map(name).collect();
        Some((temporary, names?.try_into().ok()?))
    }

    /// Makes a change to what the caller names, if that is beneath the run's own directories.
    fn make(&self, notification: &Notification, change: &Change) -> rustix::io::Result<()> {
        let target = Target::open(self.listener.as_fd(), notification)?;
        let attribute = match change.attribute {
            Attribute::Mode(mode) => beneath::Attribute::Mode(mode),
            Attribute::Owner { uid, gid } => beneath::Attribute::Owner { uid, gid },
            Attribute::Times(times) => beneath::Attribute::Times(target.times(times)?),
        };
        let found = match change.object {
            Object::Descriptor(number) => target.descriptor(number)?,
            Object::Path { from, address, follow, may_be_empty } => {
                let path = target.path(address)?;
                target.find(from, &path, follow, may_be_empty)?
            }
        };
        self.grounds.change(&found, attribute)
    }
}

fn answer_of(made: rustix::io::Result<()>) -> Answer {
    match made {
        Ok(()) => Answer::Made,
        Err(errno) => Answer::Failed(errno.raw_os_error()),
    }
}

/// Gives this thread, and no other of the service, the ids of a run for opening files: only so may it read the memory of
/// the run's processes (ptrace(2), "Ptrace access mode checking"), unless the service has CAP_SYS_PTRACE.
fn act_as(id: u32) -> rustix::io::Result<()> {
    nix::unistd::setfsgid(nix::unistd::Gid::from_raw(id));
    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(id));
    // Neither tells of its failure, but which id there was before.
    let there = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(id)).as_raw();
    if there != id || nix::unistd::setfsgid(nix::unistd::Gid::from_raw(id)).as_raw() != id {
        return Err(Errno::PERM);
    }
    // The change took those capabilities that the run may have too, and the caller must have all of these; but not those with
    // which this thread would find what the run's ids do not.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted - (CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    rustix::thread::set_capabilities(None, sets)
}
