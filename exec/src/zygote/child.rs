//! From `clone` to `execve`: each step confines a little more, and a failure names its step.
//!
//! A mounted run has a first process of its own (see [`init`]), which has attached everything before and
//! whose child goes through the same steps. When that process stays for a next command, the child for it is made at
//! once, goes through all steps that do not depend on the command, and waits for it there.
//!
//! Why this order:
//!
//! 1. session, whose place behind the service goes with it, and standard streams, which need the descriptors as they came;
//! 2. limits, before the uid is gone that may set them; those on memory and descriptors as late as the steps need some;
//! 3. groups, gid, uid, in the only order in which each still may;
//! 4. capabilities, after the uid, because the change of uid clears some and the test of the tree needs the new one;
//! 5. the parent death signal, which every change of identity clears;
//! 6. the working directory, entered as the new identity;
//! 7. Landlock, which would refuse none of the above but needs `no_new_privs` (set by the launcher);
//! 8. the closing filter last, because it pretends `setsid` and refuses sockets;
//! 9. `execve`.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sched::CloneFlags;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::ceilings::{give_way, give_way_as_session, limit, limit_space, place};
use super::failure::{Failure, at};
use super::filters::{Closing, Filter};
use super::init::{self, Start};
use super::root::Root;
use super::shared_clock::SharedClock;
use super::users;
use crate::step::Step;
use crate::sys::{self, Program};
use crate::walls::seccomp::Surroundings;
use crate::wire::{self, Command, Descriptors, PACKET_BYTES_MAX, Reach, Report, Request, TreeLocation};

/// Size of the stack on which a new process sets itself up, in bytes; a fraction of it is used.
const STACK_BYTES: usize = 256 * 1024;

/// Starts the processes of runs; holds what is the same for all of them.
pub(super) struct Spawner {
    stack: Vec<u8>,
    /// For the messages to a first process. Nothing is written to it here, so each first process gets pages only for what
    /// it receives: memory that it asked for itself would be written to as a whole.
    packets: [Vec<u8>; 2],
    launcher: Pid,
    /// The launcher itself, for the first processes of mounted runs.
    myself: OwnedFd,
    /// The root of mounted runs; `None` where runs see the host's.
    root: Option<Root>,
    /// The closing filters; `None` where the kernel has no filters.
    closing: Option<Closing>,
}

impl Spawner {
    /// Prepares for runs, `filtered` when the first stage of the filter is in force, and `supervises` when the service
    /// can answer system calls of runs.
    ///
    /// # Errors
    /// As `pidfd_open(2)`: `ENOSYS` before Linux 5.3.
    pub(super) fn new(root: Option<Root>, filtered: bool, supervises: bool) -> io::Result<Self> {
        let surroundings = if root.is_some() { Surroundings::Namespaces } else { Surroundings::Host };
        let myself =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
        Ok(Self {
            stack: vec![0; STACK_BYTES],
            packets: [vec![0; PACKET_BYTES_MAX], vec![0; PACKET_BYTES_MAX]],
            launcher: nix::unistd::getpid(),
            myself,
            root,
            closing: filtered.then(|| Closing::new(surroundings, supervises)),
        })
    }

    /// Starts the command of a run that sees the host's root.
    ///
    /// In our memory, so that we wait until the new process has executed its program, on the processors that we may use.
    /// Not so a command that gives way to all others,
    /// or one that `is_slow` to begin because it has to wait for a processor among many: every other user would wait with us.
    /// It is started from a copy of this process, which takes 0.2 ms longer, and we go on at once.
    ///
    /// # Errors
    /// As `clone(2)`, and `EINVAL` for a text with a NUL or a run of the other kind than this launcher is for.
    /// Failures of later steps are reported by the new process on the run's socket.
    pub(super) fn spawn(
        &mut self,
        request: &Request,
        descriptors: &Descriptors<OwnedFd>,
        is_slow: bool,
    ) -> io::Result<Pid> {
        let (TreeLocation::Host { .. }, None) = (&request.place, &self.root) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = Parent::Launcher(self.launcher);
        if !request.gives_way && !is_slow {
            return start(&mut self.stack, self.closing.as_ref(), request, descriptors, parent);
        }
        let program = program(&request.command)?;
        let closing = self.closing.as_ref().map(|closing| closing.of(request));
        if let Some(pid) = sys::fork_single_threaded()? {
            return Ok(pid);
        }
        // The sockets of other runs, and that of the launcher, must not stay open for as long as this process waits for a processor.
        sys::close_all_but(&descriptors.raw());
        place(request);
        become_program_or_end(&program, request, descriptors, closing, parent)
    }

    /// Starts the first process of a mounted run to come, in `group` if one is given; it, and the socket on which it
    /// takes the run. Its command is to live in the user namespace `users`, if one is given.
    ///
    /// # Errors
    /// As `clone(2)`, and `EINVAL` for a launcher of the other kind. Failures of later steps are reported by the new
    /// process on its run's socket.
    pub(super) fn park(
        &mut self,
        group: Option<BorrowedFd<'_>>,
        users: Option<&OwnedFd>,
    ) -> io::Result<(Pid, OwnedFd, SharedClock)> {
        let Self { stack, packets: [order, packet], closing, root: Some(root), myself, .. } = self else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (ours, theirs) = wire::packet_sockets()?;
        let busy = SharedClock::new()?;
        if let Some(first) = sys::fork_into(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID, group)? {
            return Ok((first, ours, busy));
        }
        let surroundings = init::Surroundings {
            network: &root.network,
            launcher: myself.as_fd(),
            users: users.map(AsFd::as_fd),
            has_proc: root.offers.processes.is_ok(),
        };
        let first = Parent::First { users: surroundings.users };
        let closing = closing.as_ref();
        init::live(&surroundings, (&theirs, order), &busy, |turn| match turn {
            Start::First(request, descriptors) => start(stack, closing, request, descriptors, first),
            Start::Next(request, descriptors) => {
                let closing = closing.map(|closing| closing.of(request));
                let (busy, packet) = (&busy, &mut *packet);
                sys::spawn_beside(stack, move || {
                    let Err(failure) = become_next(request, descriptors, closing, busy, packet);
                    failure.report(descriptors.run.as_fd());
                    127
                })
            }
        })
    }
}

/// Starts the command of a run as a child of this process, the first of its namespace.
fn start(
    stack: &mut [u8],
    closing: Option<&Closing>,
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    parent: Parent<'_>,
) -> io::Result<Pid> {
    // All that needs memory comes before: the new process shares ours.
    let program = program(&request.command)?;
    let closing = closing.map(|closing| closing.of(request));
    sys::spawn_in_our_memory(stack, || become_program_or_end(&program, request, descriptors, closing, parent))
}

/// Confines this process and turns it into the program; ends it, and tells why, where that fails.
fn become_program_or_end(
    program: &Program,
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    closing: Option<Filter<'_>>,
    parent: Parent<'_>,
) -> ! {
    let Err(failure) = become_program(program, request, descriptors, closing, parent);
    failure.report(descriptors.run.as_fd());
    sys::exit_now(127)
}

fn program(Command { program, arguments, environment }: &Command) -> io::Result<Program> {
    Ok(Program::new(program.as_os_str().as_bytes(), arguments, environment)?)
}

/// Confines this process as `request` says, waits for its command, and turns into it; returns only on failure.
fn become_next(
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    closing: Option<Filter<'_>>,
    busy: &SharedClock,
    packet: &mut [u8],
) -> Result<Infallible, Failure> {
    let run = descriptors.run.as_fd();
    // A caller who takes part in the run can signal this process as soon as it has told of itself. It must not end
    // half-way through a change to the memory that its parent goes on using.
    SigSet::all().thread_set_mask().map_err(at(Step::Session))?;
    nix::unistd::setsid().map_err(at(Step::Session))?;
    give_way_as_session(false);
    // Behind its filter it can go last, but no longer aside.
    give_way(request, false);
    place(request);
    sys::close_on_exec_from(3).map_err(at(Step::CloseFiles))?;
    limit(&request.limits).map_err(at(Step::Limits))?;
    identify(request, run)?;
    confine(descriptors, closing)?;
    let Some((next, streams, directory)) = wire::receive_next(run, packet).map_err(at(Step::Request))? else {
        // The launcher, which hears of it too, ends all of it.
        sys::exit_now(0)
    };
    if next.gives_way {
        sys::go_last_behind_filter();
    }
    busy.has_grown_by(next.command.bytes());
    busy.begin(next.deadline_ms);
    if next.is_live {
        wire::send_handle(run, rustix::process::getpid()).map_err(at(Step::Handle))?;
    }
    stdio(&streams).map_err(at(Step::Stdio))?;
    rustix::process::fchdir(&directory).map_err(at(Step::Directory))?;
    let program = program(&next.command).map_err(at(Step::Request))?;
    // Not before: the steps above take descriptors, and memory, of which the parent has its share.
    limit_space(&request.limits).map_err(at(Step::Limits))?;
    SigSet::empty().thread_set_mask().map_err(at(Step::Session))?;
    program.execute().map_err(at(Step::Execute))
}

/// Goes behind the walls and the closing filter.
fn confine(descriptors: &Descriptors<OwnedFd>, closing: Option<Filter<'_>>) -> Result<(), Failure> {
    if let Some(walls) = &descriptors.walls {
        sys::landlock_restrict(walls.as_fd()).map_err(at(Step::Landlock))?;
    }
    match closing {
        Some(Filter { program, listens: true }) => {
            let listener = sys::load_seccomp_listening(program).map_err(at(Step::Seccomp))?;
            wire::send_with(descriptors.run.as_fd(), &Report::Listener, listener.as_fd())
                .map_err(at(Step::Seccomp))
        }
        Some(Filter { program, listens: false }) => sys::load_seccomp(program).map_err(at(Step::Seccomp)),
        None => Ok(()),
    }
}

/// The parent of a command, whose death decides the end of the command.
#[derive(Clone, Copy)]
enum Parent<'a> {
    /// The launcher: the command must ask the kernel to die with it.
    Launcher(Pid),
    /// The first process of the command's own namespace: the kernel ends them together.
    First {
        /// The user namespace that the command is to live in.
        users: Option<BorrowedFd<'a>>,
    },
}

/// Confines this process and turns it into the program; returns only on failure.
fn become_program(
    program: &Program,
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    closing: Option<Filter<'_>>,
    parent: Parent<'_>,
) -> Result<Infallible, Failure> {
    let group = lead(request, parent).map_err(at(Step::Session))?;
    give_way(request, request.gives_way);
    // Else the launcher does, when the program is executed.
    if matches!(parent, Parent::First { .. }) || request.identity.is_some() {
        place(request);
    }
    if let Parent::Launcher(_) = parent {
        // From here and not from the launcher, so that nothing of the run exists that the service cannot name, even
        // if the launcher is killed at this moment.
        let started = Report::Started { pid: group.as_raw() };
        wire::send_message(descriptors.run.as_fd(), &started).map_err(at(Step::Session))?;
        if request.is_live {
            wire::send_handle(descriptors.run.as_fd(), rustix::process::getpid())
                .map_err(at(Step::Handle))?;
        }
    }
    stdio(&descriptors.stdio).map_err(at(Step::Stdio))?;
    if request.has_terminal {
        // After the new session, which alone can take one (ioctl_tty(2)).
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(at(Step::Terminal))?;
    }
    sys::close_on_exec_from(3).map_err(at(Step::CloseFiles))?;
    limit(&request.limits).map_err(at(Step::Limits))?;
    limit_space(&request.limits).map_err(at(Step::Limits))?;
    if let Parent::First { users: Some(namespace) } = parent {
        users::enter(namespace).map_err(at(Step::Users))?;
    }
    identify(request, descriptors.run.as_fd())?;
    if let Parent::Launcher(launcher) = parent {
        die_with(launcher).map_err(at(Step::ParentDeath))?;
    }
    rustix::process::fchdir(&descriptors.directory).map_err(at(Step::Directory))?;
    confine(descriptors, closing)?;
    SigSet::empty().thread_set_mask().map_err(at(Step::Session))?;
    program.execute().map_err(at(Step::Execute))
}

/// Makes this process the leader of a group of its own, and of a session where it needs one.
///
/// Beside the launcher it stays in the launcher's session, unless it gets a terminal. Where the kernel shares out the processors by
/// session (sched(7), "The autogroup feature"), commands that give way to others would do so among themselves only, and a user with many
/// of them would have as many shares.
fn lead(request: &Request, parent: Parent<'_>) -> nix::Result<Pid> {
    match parent {
        Parent::Launcher(_) if !request.has_terminal => {
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            Ok(nix::unistd::getpid())
        }
        Parent::Launcher(_) | Parent::First { .. } => {
            let session = nix::unistd::setsid()?;
            give_way_as_session(request.gives_way);
            Ok(session)
        }
    }
}

/// Asks to die with the launcher, and makes sure that it has not died before the question.
fn die_with(launcher: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if nix::unistd::getppid() == launcher { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

fn stdio([input, output, error]: &[OwnedFd; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)
}

/// Takes the identity of the tree's owner, where one was given, and gives up all capabilities but perhaps one.
fn identify(request: &Request, run: BorrowedFd<'_>) -> Result<(), Failure> {
    let none = CapabilitySet::empty();
    let mut reach = Reach::Open;
    if let Some(id) = request.identity {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[]).map_err(at(Step::Groups))?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at(Step::Gid))?;
        // Permitted capabilities survive the change of uid, effective ones do not (capabilities(7)), so the test
        // below is made with the rights of the uid alone.
        rustix::thread::set_keep_capabilities(true).map_err(at(Step::Capabilities))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at(Step::Uid))?;
        if let TreeLocation::Host { tree } = &request.place
            && !can_reach(tree)
        {
            reach = closed_or_kept();
            let _ = wire::send_message(run, &Report::Unreachable { reach });
        }
    }
    let kept = if reach == Reach::ReadSearch { CapabilitySet::DAC_READ_SEARCH } else { none };
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_capabilities(None, sets).map_err(at(Step::Capabilities))?;
    if !kept.is_empty() {
        // Ambient capabilities are the only ones that an ordinary program file keeps.
        rustix::thread::configure_capability_in_ambient_set(kept, true).map_err(at(Step::Capabilities))?;
    }
    Ok(())
}

/// Tells whether `CAP_DAC_READ_SEARCH` can be kept; containers are often started without it.
fn closed_or_kept() -> Reach {
    match rustix::thread::capabilities(None) {
        Ok(sets) if (sets.permitted & sets.inheritable).contains(CapabilitySet::DAC_READ_SEARCH) => {
            Reach::ReadSearch
        }
        _ => Reach::Closed,
    }
}

/// Tells whether this process can walk to `tree` by its absolute path with the rights it has now.
fn can_reach(tree: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, tree, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}
