//! Which copies of skills go, of those that no run is in.
//!
//! All users together have a bound. Beyond it the user who has most gives way: the copy of that user goes which was used
//! longest ago. So a user who makes many copies, with however many agents, takes none from a user who has fewer.

use std::cmp::Reverse;
use std::collections::HashMap;

use policy::{TreeId, UserId};

/// What copies take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) copies: u64,
    /// Each takes some 300 bytes of memory.
    pub(crate) entries: u64,
    /// Bytes on the disk.
    pub(crate) bytes: u64,
}

/// One of the amounts.
type Amount = fn(&Taken) -> u64;

/// The most of each amount that all users have together.
const BOUNDS: [(Amount, u64); 3] =
    [(|taken| taken.copies, 64), (|taken| taken.entries, 50_000), (|taken| taken.bytes, 2 << 30)];

impl Taken {
    fn plus(self, other: Self) -> Self {
        Self {
            copies: self.copies.saturating_add(other.copies),
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            copies: self.copies.saturating_sub(other.copies),
            entries: self.entries.saturating_sub(other.entries),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// A copy that no run is in.
pub(crate) struct Idle {
    pub(crate) id: TreeId,
    /// Larger for a copy that was used later.
    pub(crate) used: u64,
    pub(crate) taken: Taken,
}

/// The copies that have to go so that the others are within the bounds.
pub(crate) fn beyond_bounds(mut idle: Vec<Idle>) -> Vec<TreeId> {
    idle.sort_unstable_by_key(|copy| copy.used);
    let mut all = Taken::default();
    let mut of_users: HashMap<UserId, Taken> = HashMap::new();
    for Idle { id, taken, .. } in &idle {
        all = all.plus(*taken);
        let own = of_users.entry(id.user().clone()).or_default();
        *own = own.plus(*taken);
    }
    let mut gone = Vec::new();
    while let Some((amount, _)) = BOUNDS.iter().find(|(amount, most)| amount(&all) > *most) {
        let share = |copy: &Idle| of_users.get(copy.id.user()).map_or(0, amount);
        let first = idle.iter().enumerate().max_by_key(|(index, copy)| (share(copy), Reverse(*index)));
        let Some((first, _)) = first else { break };
        let Idle { id, taken, .. } = idle.remove(first);
        all = all.minus(taken);
        if let Some(own) = of_users.get_mut(id.user()) {
            *own = own.minus(taken);
        }
        gone.push(id);
    }
    gone
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, SkillId};

    use super::*;

    fn idle(user: &str, agent: &str, number: u64, taken: Taken) -> Idle {
        let (user, agent) = (UserId::parse(user).unwrap(), AgentId::parse(agent).unwrap());
        let skill = SkillId::parse(&format!("s{number}")).unwrap();
        Idle { id: TreeId::Skill(user, agent, skill), used: number, taken }
    }

    fn small(user: &str, number: u64) -> Idle {
        idle(user, "a", number, Taken { copies: 1, entries: 1, bytes: 4096 })
    }

    /// The users and numbers of those that have to go.
    fn gone(idle: Vec<Idle>) -> Vec<String> {
        let gone = beyond_bounds(idle);
        gone.iter().map(|id| format!("{}/{}", id.user(), id.sandbox_path())).collect()
    }

    fn shown(idle: &Idle) -> String {
        format!("{}/{}", idle.id.user(), idle.id.sandbox_path())
    }

    #[test]
    fn within_the_bounds_none_has_to_go_and_beyond_them_the_oldest() {
        let all = |count| (0..count).map(|number| small("u", number)).rev().collect::<Vec<_>>();
        assert!(gone(all(64)).is_empty());
        assert_eq!(gone(all(66)), [shown(&small("u", 0)), shown(&small("u", 1))]);
        let large = |bytes| Taken { copies: 1, entries: 1, bytes };
        let halves = || vec![idle("u", "a", 1, large(1 << 30)), idle("u", "a", 2, large(1 << 30))];
        assert!(gone(halves()).is_empty());
        let mut more = halves();
        more.push(idle("u", "a", 3, large(1)));
        assert_eq!(gone(more), [shown(&small("u", 1))]);
        let full = Taken { copies: 1, entries: 50_000, bytes: 1 };
        assert!(gone(vec![idle("u", "a", 1, full)]).is_empty());
        assert_eq!(gone(vec![idle("u", "a", 1, full), small("u", 2)]), [shown(&small("u", 1))]);
    }

    #[test]
    fn one_that_is_larger_than_all_may_be_has_to_go_alone() {
        let huge = Taken { copies: 1, entries: 1, bytes: (2 << 30) + 1 };
        assert_eq!(gone(vec![small("v", 1), idle("u", "a", 2, huge)]), [shown(&small("u", 2))]);
    }

    #[test]
    fn a_user_with_much_takes_nothing_from_one_with_less() {
        // Used longest ago of all.
        let mut all: Vec<Idle> = (0..20).map(|number| small("v", number)).collect();
        all.extend((20..120).map(|number| idle("u", &format!("agent{number}"), number, small("u", 0).taken)));
        let went = beyond_bounds(all);
        assert_eq!(went.len(), 120 - 64);
        assert!(went.iter().all(|id| id.user().as_str() == "u"));
        // By bytes as well, although the other has more copies.
        let mut all: Vec<Idle> = (0..20).map(|number| small("v", number)).collect();
        let large = Taken { copies: 1, entries: 1, bytes: 1 << 30 };
        all.extend((20..24).map(|number| idle("u", &format!("agent{number}"), number, large)));
        let went = beyond_bounds(all);
        assert_eq!(went.len(), 3);
        assert!(went.iter().all(|id| id.user().as_str() == "u"));
    }
}
