//! Whether a user is alone: commands that give way leave one processor to others while there are others, and not for nobody.

use std::time::{Duration, Instant};

/// For how long a user counts as being there after a request.
const LASTING: Duration = Duration::from_secs(10);
/// How long a request is as good as a later one of the same user.
const FRESH: Duration = Duration::from_secs(1);

/// Two users who were here lately, by their numbers: enough to know of any user whether another one is there.
#[derive(Debug, Default)]
pub(crate) struct Company {
    recent: [Option<(u64, Instant)>; 2],
}

impl Company {
    /// A user is here. Tells whether others must hear of it: twice a second at most, however many users there are.
    pub(crate) fn note(&mut self, user: u64, now: Instant) -> bool {
        let [first, second] = &mut self.recent;
        let is_users = |seen: &Option<(u64, Instant)>| seen.is_some_and(|(other, _)| other == user);
        let is_older = |one: &Option<(u64, Instant)>, other: &Option<(u64, Instant)>| {
            one.map(|(_, at)| at) <= other.map(|(_, at)| at)
        };
        let is_first = is_users(first) || (!is_users(second) && is_older(first, second));
        let place = if is_first { first } else { second };
        if place.is_some_and(|(_, at)| now.saturating_duration_since(at) < FRESH) {
            return false;
        }
        *place = Some((user, now));
        true
    }

    /// Tells whether another user than `user` is here.
    pub(crate) fn has_others(&self, user: Option<u64>, now: Instant) -> bool {
        let is_here = |at| now.saturating_duration_since(at) < LASTING;
        self.recent.iter().flatten().any(|(other, at)| Some(*other) != user && is_here(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_there_for_a_while_and_nobody_is_their_own_company() {
        let mut company = Company::default();
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        assert!(!company.has_others(None, begun));
        assert!(company.note(1, begun));
        assert!(!company.has_others(Some(1), begun) && company.has_others(Some(2), begun));
        assert!(company.has_others(None, begun));
        assert!(company.note(2, at(100)));
        assert!(company.has_others(Some(1), at(10_099)) && !company.has_others(Some(1), at(10_100)));
        // The first one alone goes on.
        for second in 1..100 {
            company.note(1, at(1_000 * second));
        }
        assert!(!company.has_others(Some(1), at(99_000)) && company.has_others(Some(2), at(99_000)));
    }

    #[test]
    fn the_company_of_many_is_told_twice_a_second() {
        let mut company = Company::default();
        let begun = Instant::now();
        let told = (0..10_000)
            .filter(|request| company.note(request % 100, begun + Duration::from_millis(*request)))
            .count();
        assert!((10..=20).contains(&told), "{told}");
        let now = begun + Duration::from_secs(10);
        assert!((0..100).all(|user| company.has_others(Some(user), now)));
    }

    #[test]
    fn one_who_comes_between_the_requests_of_another_is_noted() {
        let mut company = Company::default();
        let begun = Instant::now();
        for request in 0..20_000 {
            let now = begun + Duration::from_millis(request);
            company.note(1, now);
            if request % 5_000 == 4_999 {
                company.note(2, now);
            }
            assert_eq!(company.has_others(Some(1), now), request >= 4_999, "{request}");
        }
    }
}
