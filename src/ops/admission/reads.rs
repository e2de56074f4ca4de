//! [`Reads`]: reads of opened files for answers that are on their way, and for readers of the events of runs.
//!
//! Such an answer reads its next piece when its receiver has taken the last one. A piece that the kernel has in memory is
//! read at once ([`storage::cached::read_now`]). Every other read occupies a thread and the disk, so it takes a permit:
//! [`PER_USER`] for each user, [`IN_ALL`] together. A read without a permit waits in the order of arrival, without a thread,
//! as long as it takes, because the head of its answer is sent already. The connections bound how many wait.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use policy::UserId;

use super::{Admission, Owner};
use crate::ops::admission::permit_kind::PermitKind;
use crate::ops::admission::permits::Permits;

/// Reads of one user at once.
const PER_USER: usize = 8;
/// Reads of all users at once.
const IN_ALL: usize = 64;

/// The reads of one user.
#[derive(Clone)]
pub struct Reads {
    permits: Arc<Permits<Owner>>,
    owner: Owner,
}

/// The permits of all reads.
pub(super) fn permits() -> Arc<Permits<Owner>> {
    let purpose = PermitKind {
        many: "reads of opened files",
        state: "are under way",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
    Arc::new(Permits::with(purpose, IN_ALL, PER_USER, Duration::MAX))
}

impl Admission {
    /// The reads of `user`.
    #[must_use]
    pub fn reads_of(&self, user: &UserId) -> Reads {
        self.reads_of_owner(Owner::User(user.clone()))
    }

    /// The reads of a user, or of those who ask about all users.
    #[must_use]
    pub fn reads_of_owner(&self, owner: Owner) -> Reads {
        Reads { permits: Arc::clone(&self.reads), owner }
    }
}

impl Reads {
    /// Reads in a thread that may block, when the user has a permit.
    ///
    /// The read keeps its permit until it has ended, also when its receiver has left.
    ///
    /// # Errors
    /// The error of `read`.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.permits.take_in_turn(&self.owner).await.map_err(io::Error::other)?;
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read()
        });
        reading.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use policy::WorkLimits;

    use super::*;

    #[tokio::test]
    async fn a_user_who_reads_much_leaves_threads_for_the_reads_of_others() {
        let admission = Admission::new(&WorkLimits::default());
        let reads = |user: &str| admission.reads_of(&UserId::parse(user).unwrap());
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        let many: Vec<_> = (0..4 * IN_ALL)
            .map(|number| {
                let (reads, begun) = (reads("a"), begun.clone());
                let (end, ended) = mpsc::channel::<()>();
                ends.push(end);
                tokio::spawn(async move {
                    let read = reads.read(move || {
                        begun.send(number).unwrap();
                        let _ = ended.recv();
                        Ok(number)
                    });
                    read.await.unwrap()
                })
            })
            .collect();
        while reads("a").permits.waiting() < 4 * IN_ALL - PER_USER {
            tokio::task::yield_now().await;
        }
        // Every permit of the user is taken, and the reads of another do not wait for it. Each read has a thread of its
        // own, so they begin in any order.
        let mut first: Vec<usize> = begins.iter().take(PER_USER).collect();
        first.sort_unstable();
        assert!(first.iter().copied().eq(0..PER_USER), "in the order of arrival: {first:?}");
        assert_eq!(reads("b").read(|| Ok("here")).await.unwrap(), "here");
        assert_eq!(reads("a").permits.taken(), PER_USER);
        // One whose receiver has left keeps its permit until it ends.
        many.first().unwrap().abort();
        tokio::task::yield_now().await;
        assert_eq!(reads("a").permits.taken(), PER_USER);
        drop(ends);
        for (number, read) in many.into_iter().enumerate().skip(1) {
            assert_eq!(read.await.unwrap(), number);
        }
        assert_eq!((reads("a").permits.users(), reads("a").permits.waiting()), (0, 0));
    }
}
