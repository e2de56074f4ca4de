//! [`Pending`]: connections that have not yet said which run they belong to.
//!
//! A user can be charged for them, because each network namespace has a listener of its own; a run cannot. A new one
//! pushes out the oldest of its user when that has too many, or of the user with the most when all have: an honest head
//! comes at once, and only a slow client's connection grows old.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use policy::UserId;
use tokio_util::sync::CancellationToken;

/// Connections of one user without a head at once.
pub(super) const PENDING_PER_USER: usize = 64;
/// Connections of all users without a head at once.
pub(super) const PENDING_MAX: usize = 1024;

/// Connections by user, and by the order in which they came.
#[derive(Default)]
pub(super) struct Pending(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    count: usize,
    /// No user is here without a connection. `None` where a listener serves all users.
    users: HashMap<Option<UserId>, BTreeMap<u64, CancellationToken>>,
}

/// A connection among those that wait, until dropped.
pub(super) struct Arrival {
    pending: Arc<Pending>,
    user: Option<UserId>,
    number: u64,
    pushed_out: CancellationToken,
    is_crowded: bool,
}

impl Pending {
    /// A connection of `user` has come.
    pub(super) fn arrive(self: &Arc<Self>, user: Option<&UserId>) -> Arrival {
        let pushed_out = CancellationToken::new();
        let user = user.cloned();
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.count += 1;
        let own = waiting.users.entry(user.clone()).or_default();
        own.insert(number, pushed_out.clone());
        let is_crowded = own.len() > PENDING_PER_USER;
        if is_crowded {
            waiting.push_out_oldest(&user);
        } else if waiting.count > PENDING_MAX
            && let Some((most, _)) = waiting.users.iter().max_by_key(|(_, own)| own.len())
        {
            let most = most.clone();
            waiting.push_out_oldest(&most);
        }
        Arrival { pending: Arc::clone(self), user, number, pushed_out, is_crowded }
    }
}

impl Waiting {
    fn push_out_oldest(&mut self, user: &Option<UserId>) {
        let oldest = self.users.get_mut(user).and_then(BTreeMap::pop_first);
        if let Some((_, oldest)) = oldest {
            self.count -= 1;
            oldest.cancel();
        }
    }
}

impl Arrival {
    pub(super) async fn pushed_out(&self) {
        self.pushed_out.cancelled().await;
    }

    /// Tells whether its user had as many as one may have, so that another had to go.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut waiting = self.pending.0.lock();
        let Some(own) = waiting.users.get_mut(&self.user) else { return };
        let was_waiting = own.remove(&self.number).is_some();
        if own.is_empty() {
            waiting.users.remove(&self.user);
        }
        waiting.count -= usize::from(was_waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[test]
    fn the_oldest_makes_room_and_those_that_left_do_not_count() {
        let pending = Arc::new(Pending::default());
        let mut arrivals: Vec<Arrival> = (0..PENDING_PER_USER).map(|_| pending.arrive(None)).collect();
        assert!(!arrivals[0].pushed_out.is_cancelled());
        drop(arrivals.remove(5));
        let last = pending.arrive(None);
        assert!(!arrivals[0].pushed_out.is_cancelled() && !last.is_crowded());
        let one_more = pending.arrive(None);
        assert!(arrivals[0].pushed_out.is_cancelled() && !arrivals[1].pushed_out.is_cancelled());
        assert!(one_more.is_crowded());
    }

    #[test]
    fn a_crowd_of_one_user_pushes_out_only_its_own() {
        let pending = Arc::new(Pending::default());
        let other = pending.arrive(Some(&user("other")));
        let crowd: Vec<Arrival> =
            (0..5 * PENDING_PER_USER).map(|_| pending.arrive(Some(&user("crowd")))).collect();
        assert!(!other.pushed_out.is_cancelled());
        let left = crowd.iter().filter(|arrival| !arrival.pushed_out.is_cancelled()).count();
        assert_eq!(left, PENDING_PER_USER);
        drop((other, crowd));
        assert!(pending.0.lock().users.is_empty());
        assert_eq!(pending.0.lock().count, 0);
    }

    #[test]
    fn when_there_are_too_many_in_all_the_user_with_the_most_gives_way() {
        let pending = Arc::new(Pending::default());
        let crowds = PENDING_MAX / PENDING_PER_USER;
        let mut all: Vec<Arrival> = Vec::new();
        for number in 0..crowds {
            let user = user(&format!("crowd{number}"));
            all.extend((0..PENDING_PER_USER).map(|_| pending.arrive(Some(&user))));
        }
        assert!(all.iter().all(|arrival| !arrival.pushed_out.is_cancelled()));
        let late: Vec<Arrival> =
            (0..50).map(|number| pending.arrive(Some(&user(&format!("late{number}"))))).collect();
        assert!(late.iter().all(|arrival| !arrival.pushed_out.is_cancelled()));
        assert_eq!(pending.0.lock().count, PENDING_MAX);
    }
}
