//! [`Residents`]: first processes that have stayed after their run, for the next one that sees exactly the same.
//!
//! Most users run one short command after the other in the same place. A resident spares such a run the launcher, the
//! making of namespaces and mounts, and most of the steps behind the walls. It ends as soon as its socket is closed, so it
//! is enough to forget it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use policy::attachment::Role;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::net::{Shutdown, shutdown};
use tokio::time::Instant;

use crate::error::Error;
use crate::service::mounts::Attachment;
use crate::service::networks::NetworkNamespace;
use crate::service::own_mounts::OwnMounts;
use crate::wire::{Ceilings, Sockets, Whole};

/// How long a resident waits for a run: longer than an agent's model mostly takes from one command to the next.
const IDLE: Duration = Duration::from_secs(30);
/// How long after a run another one follows at once. While as many wait as may, no other gets a resident.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How many residents wait at once, for all users together. Each has a copy of the launcher's memory that no process
/// writes to, a few mounts, and the process that is to become the next command.
const WAITING_MAX: usize = 16;
/// How many of them may be of one user: as many as it may have runs at once, unless configured; other users have some, too.
const OWN_MAX: usize = 8;
/// Residents count as processes of their user (`RLIMIT_NPROC`), whose runs may start so many less. One resident may
/// wait for every so many processes that the user may have.
const PROCESSES_EACH: u64 = 8;

/// How long residents may take to end, all together, while a request waits for their end.
const GOING: Duration = Duration::from_secs(1);
/// How many surroundings are remembered, for [`IDLE`], to see that they recur.
const SEEN_MAX: usize = 256;

/// Everything that a run sees and may, but for its command, working directory and streams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Surroundings {
    pub(crate) identity: u32,
    pub(crate) limits: Ceilings,
    pub(crate) whole: Whole,
    /// Which sockets, and the generation of the network namespace where it is the user's own.
    pub(crate) network: (Sockets, Option<u64>),
    /// Which walls the Landlock ruleset is of, if one is attached; the ruleset follows from the rest.
    pub(crate) walls: Option<u64>,
    /// Whether it leaves one processor to others.
    pub(crate) is_aside: bool,
    attached: Vec<Attached>,
}

/// A directory, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attached {
    at: String,
    role: Role,
    device: u64,
    inode: u64,
    generation: u64,
    points: u64,
}

impl Surroundings {
    /// The surroundings of a run in namespaces that sees `attachments`.
    ///
    /// # Errors
    /// [`Error::Resource`] as `fstat(2)`.
    pub(crate) fn new(
        identity: u32,
        (limits, whole): (Ceilings, Whole),
        network: (Sockets, Option<u64>),
        walls: Option<u64>,
        attachments: &[Attachment],
    ) -> Result<Self, Error> {
        let attached = attachments.iter().map(|attachment| {
            let (device, inode) = match attachment.generation {
                0 => {
                    let stat = fstat(attachment.directory.as_fd()).map_err(Error::resource("fstat"))?;
                    (stat.st_dev, stat.st_ino)
                }
                // It tells more than they would.
                _ => (0, 0),
            };
            let Attachment { ref at, role, generation, points, .. } = *attachment;
            Ok(Attached { at: at.clone(), role, device, inode, generation, points })
        });
        let attached = attached.collect::<Result<_, Error>>()?;
        Ok(Self { identity, limits, whole, network, walls, is_aside: false, attached })
    }

    /// How many of their user may wait.
    fn most(&self) -> usize {
        let share = usize::try_from(self.limits.processes / PROCESSES_EACH);
        share.map_or(OWN_MAX, |share| share.min(OWN_MAX))
    }

    /// Tells whether what is attached below the tree stands where it stood whenever these surroundings come again.
    fn stay(&self) -> bool {
        self.attached.iter().any(|attached| attached.role == Role::Tree && attached.points != 0)
    }

    /// Tells whether a directory of this generation, which is not 0, is among what is seen.
    fn has(&self, generation: u64) -> bool {
        self.attached.iter().any(|attached| attached.generation == generation)
    }
}

/// A first process that waits.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) surroundings: Surroundings,
    /// Its own mounts; its runs begin below that of the tree.
    pub(crate) mounts: OwnMounts,
    /// The socket of its runs.
    pub(crate) socket: OwnedFd,
    /// The socket of its launcher.
    pub(crate) through: Arc<OwnedFd>,
    /// The network namespace it lives in, which counts as in use for as long.
    #[expect(
        dead_code,
        reason = "held, so that the table does not let go of a namespace with a process in it"
    )]
    pub(crate) namespace: Option<Arc<NetworkNamespace>>,
}

/// The residents that wait, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    residents: Vec<(Resident, Instant)>,
    /// Whether a task ends the residents that have waited long enough.
    is_tended: bool,
    /// In what surroundings there were runs lately, by their hash, the longest ago first.
    seen: VecDeque<(u64, Instant)>,
}

impl Residents {
    /// Takes a resident with these `surroundings` that the launcher behind `through` has started, and that has lost none of
    /// its mounts.
    pub(crate) fn take(&self, surroundings: &Surroundings, through: &Arc<OwnedFd>) -> Option<Resident> {
        loop {
            let resident = {
                let mut waiting = self.waiting();
                let fitting = |(resident, _): &(Resident, Instant)| resident.surroundings == *surroundings;
                let index = waiting.residents.iter().rposition(fitting)?;
                waiting.residents.remove(index).0
            };
            if Arc::ptr_eq(&resident.through, through)
                && is_silent(&resident.socket)
                && (surroundings.stay() || resident.mounts.are_there())
            {
                return Some(resident);
            }
        }
    }

    /// Tells whether there was another run in these surroundings lately, so that a third is to be expected: a
    /// caller who runs one command and goes shall not cost more than that. `false` also where none may wait. Where there is no place for a
    /// further resident, the other run was a moment ago: among many users who come again after a while, each one's resident would go
    /// before its next run, for nothing.
    pub(crate) fn recur(&self, surroundings: &Surroundings) -> bool {
        if surroundings.most() == 0 {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        surroundings.hash(&mut hasher);
        let hash = hasher.finish();
        let mut waiting = self.waiting();
        let now = Instant::now();
        let before = waiting.seen.iter().rposition(|(seen, _)| *seen == hash);
        let before = before.and_then(|index| waiting.seen.remove(index));
        if waiting.seen.len() >= SEEN_MAX {
            waiting.seen.pop_front();
        }
        waiting.seen.push_back((hash, now));
        let has_place = waiting.residents.len() < WAITING_MAX
            || waiting.residents.iter().any(|(resident, _)| resident.surroundings == *surroundings);
        let lately = if has_place { IDLE } else { AT_ONCE };
        before.is_some_and(|(_, when)| now.duration_since(when) < lately)
    }

    /// Lets one wait. Gives back what must be run so that it does not wait for ever, unless that is running.
    #[must_use]
    pub(crate) fn put(self: &Arc<Self>, resident: Resident) -> Option<Tending> {
        let mut waiting = self.waiting();
        let is_own =
            |(other, _): &(Resident, Instant)| other.surroundings.identity == resident.surroundings.identity;
        if waiting.residents.iter().filter(|other| is_own(other)).count() >= resident.surroundings.most()
            && let Some(longest) = waiting.residents.iter().position(is_own)
        {
            waiting.residents.remove(longest);
        }
        if waiting.residents.len() >= WAITING_MAX {
            waiting.residents.remove(0);
        }
        waiting.residents.push((resident, Instant::now()));
        let is_tended = std::mem::replace(&mut waiting.is_tended, true);
        (!is_tended).then(|| Tending { residents: Arc::downgrade(self) })
    }

    /// Lets go of those that see a directory of this generation, which is not 0, and waits until their mounts are gone, for
    /// [`GOING`] at most.
    pub(crate) fn let_go(&self, generation: u64) {
        let fitting = |(resident, _): &mut (Resident, Instant)| resident.surroundings.has(generation);
        let going: Vec<_> = self.waiting().residents.extract_if(.., fitting).collect();
        let sockets: Vec<OwnedFd> = going.into_iter().map(|(resident, _)| resident.socket).collect();
        for socket in &sockets {
            let _ = shutdown(socket, Shutdown::Write);
        }
        let deadline = Instant::now() + GOING;
        for socket in &sockets {
            // The launcher, the last to have the other end, closes it when it has collected the process, which had given
            // its mounts back by then.
            let mut set = [PollFd::new(socket, PollFlags::empty())];
            let patience = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            if !matches!(poll(&mut set, patience.as_ref()), Ok(1..)) {
                tracing::warn!("a resident did not end in time: its mounts stay until it ends");
            }
        }
    }

    /// Lets go of the one that has waited longest in a network namespace of these generations. `None` where none does.
    pub(crate) fn leave_network(&self, generations: &[u64]) -> Option<()> {
        let mut waiting = self.waiting();
        let is_there = |resident: &Resident| {
            resident.surroundings.network.1.is_some_and(|generation| generations.contains(&generation))
        };
        let index = waiting.residents.iter().position(|(resident, _)| is_there(resident))?;
        waiting.residents.remove(index);
        Some(())
    }

    /// Lets go of those that have waited long enough; after how long there will be another, `None` when there is none.
    fn tend(&self) -> Option<Duration> {
        let mut waiting = self.waiting();
        let now = Instant::now();
        waiting.residents.retain(|(_, since)| now.duration_since(*since) < IDLE);
        let next =
            waiting.residents.first().map(|(_, since)| IDLE.saturating_sub(now.duration_since(*since)));
        waiting.is_tended = next.is_some();
        next
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in the list is half-changed at a point that can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of residents that have waited long enough.
pub(crate) struct Tending {
    residents: Weak<Residents>,
}

impl Tending {
    /// Does so until none is left.
    pub(crate) async fn until_none_waits(mut self) {
        while let Some(wait) = self.residents.upgrade().and_then(|residents| residents.tend()) {
            tokio::time::sleep(wait).await;
        }
        // From here on, another task tends the residents that wait.
        self.residents = Weak::new();
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        // Its runtime may have ended before it, as that of a probe does. Then no task tends the residents that wait.
        if let Some(residents) = self.residents.upgrade() {
            let mut waiting = residents.waiting();
            waiting.is_tended = false;
            waiting.residents.clear();
        }
    }
}

/// Tells whether nothing has come on the socket of a process that has nothing to say: not even its end.
fn is_silent(socket: &OwnedFd) -> bool {
    let mut set = [PollFd::new(socket, PollFlags::IN)];
    matches!(poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the end of a socket may take to be seen. A child that another test is just starting holds copies of all
    /// descriptors until it executes its program.
    const COPIES: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

    /// Tells whether the other end of a socket is closed, or is within [`COPIES`].
    fn is_let_go(socket: &OwnedFd) -> bool {
        matches!(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&COPIES)), Ok(1))
    }

    /// Tells whether of these, in the order in which they were put, the last `most` wait and the others are let go.
    fn only_the_last_wait(theirs: &[OwnedFd], most: usize) -> bool {
        let (gone, waiting) = theirs.split_at(theirs.len() - most);
        gone.iter().all(is_let_go) && waiting.iter().all(is_silent)
    }

    /// A resident, and the end of its socket that its process has.
    fn resident() -> (Resident, OwnedFd) {
        resident_of(1)
    }

    fn resident_of(identity: u32) -> (Resident, OwnedFd) {
        resident_among(identity, 256)
    }

    /// A resident of a user who may have so many `processes`.
    fn resident_among(identity: u32, processes: u64) -> (Resident, OwnedFd) {
        let limits = Ceilings { memory_bytes: 1, processes, cpu_seconds: 1, file_bytes: 1, open_files: 1 };
        let whole = Whole { memory_bytes: 1, processes: 1, write_bytes_per_second: 0 };
        let surroundings =
            Surroundings::new(identity, (limits, whole), (Sockets::Refused, None), None, &[]).unwrap();
        let (socket, theirs) = crate::wire::packet_sockets().unwrap();
        let (through, _) = crate::wire::packet_sockets().unwrap();
        let mounts = OwnMounts::new(crate::wire::packet_sockets().unwrap().0, &[]).unwrap();
        (Resident { surroundings, mounts, socket, through: Arc::new(through), namespace: None }, theirs)
    }

    #[test]
    fn who_has_many_leaves_others_theirs() {
        let residents = Arc::<Residents>::default();
        let (others, theirs) = resident_of(2);
        let _tending = residents.put(others);
        let own: Vec<_> = (0..2 * WAITING_MAX)
            .map(|_| {
                let (own, theirs) = resident_of(1);
                assert!(residents.put(own).is_none());
                theirs
            })
            .collect();
        assert!(only_the_last_wait(&own, OWN_MAX));
        assert!(is_silent(&theirs));
    }

    #[test]
    fn who_may_have_few_processes_has_few_of_them_waiting_or_none() {
        for (processes, most) in [(40, 5), (16, 2), (8, 1)] {
            let residents = Arc::<Residents>::default();
            let own: Vec<_> = (0..10).map(|_| resident_among(1, processes)).collect();
            let (own, theirs): (Vec<_>, Vec<_>) = own.into_iter().unzip();
            let _tending: Vec<_> = own.into_iter().map(|own| residents.put(own)).collect();
            assert!(only_the_last_wait(&theirs, most), "{processes}");
        }
        let residents = Arc::<Residents>::default();
        let (few, _) = resident_among(1, 7);
        assert!(!residents.recur(&few.surroundings) && !residents.recur(&few.surroundings));
        let (enough, _) = resident_among(1, 8);
        assert!(!residents.recur(&enough.surroundings) && residents.recur(&enough.surroundings));
    }

    #[test]
    fn nobody_waits_for_ever_when_the_runtime_that_let_them_go_has_ended() {
        let residents = Arc::<Residents>::default();
        let (one, theirs) = resident();
        let tending = residents.put(one).unwrap();
        assert!(is_silent(&theirs));
        drop(tending);
        assert!(is_let_go(&theirs));
        // And the next resident gets a task again.
        assert!(residents.put(resident().0).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_one_of_the_same_launcher_is_taken_and_somebody_comes_again_for_the_next() {
        let residents = Arc::<Residents>::default();
        let (one, theirs) = resident();
        let (surroundings, through) = (one.surroundings.clone(), Arc::clone(&one.through));
        let tending = residents.put(one).unwrap();
        assert!(residents.put(resident().0).is_none());
        let taken = residents.take(&surroundings, &through).unwrap();
        assert!(residents.take(&surroundings, &through).is_none());
        drop(taken);
        assert!(is_let_go(&theirs));
        tending.until_none_waits().await;
        assert!(residents.put(resident().0).is_some());
    }
    #[tokio::test(start_paused = true)]
    async fn who_comes_again_after_a_while_has_one_where_there_is_a_place() {
        let residents = Arc::<Residents>::default();
        let recurs_after = async |seconds: u64, one: &Resident| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            residents.recur(&one.surroundings)
        };
        let (one, _theirs) = resident_of(1);
        let (other, _others) = resident_of(2);
        assert!(!recurs_after(0, &one).await && !recurs_after(0, &other).await);
        assert!(
            recurs_after(20, &one).await && !recurs_after(20, &other).await && recurs_after(20, &other).await
        );
        // With all places taken, only one who comes at once has one more, and one whose own waits.
        let all: Vec<_> =
            (0..u32::try_from(WAITING_MAX).unwrap()).map(|number| resident_of(2 + number)).collect();
        let (all, _all_of_theirs): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let _tending: Vec<_> = all.into_iter().map(|each| residents.put(each)).collect();
        assert!(!recurs_after(0, &one).await && recurs_after(1, &one).await && !recurs_after(3, &one).await);
        assert!(recurs_after(0, &other).await && recurs_after(20, &other).await);
    }
}
