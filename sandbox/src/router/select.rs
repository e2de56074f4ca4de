//! Which backend a user gets: the decision alone.

use super::Choice;

/// The backends that the user has at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The machine that was asked for, or any of the user's, is connected.
    pub(super) has_runner: bool,
    pub(super) has_docker: bool,
    pub(super) has_none: bool,
    /// The user may run on this host itself.
    pub(super) may_use_none: bool,
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Runner,
    Docker,
    None,
    /// The machine that was asked for is not connected. Another place would have other files.
    RunnerAway,
    /// Only this host itself is left, which is not for this user.
    Denied,
    /// The user has no backend.
    Nowhere,
}

pub(super) fn select(choice: &Choice, offer: Offer) -> Route {
    match choice {
        Choice::Runner(_) if offer.has_runner => Route::Runner,
        Choice::Runner(_) => Route::RunnerAway,
        Choice::Docker if offer.has_docker => Route::Docker,
        Choice::Docker => Route::Nowhere,
        Choice::Usual if offer.has_runner => Route::Runner,
        Choice::Usual if offer.has_docker => Route::Docker,
        Choice::Usual if !offer.has_none => Route::Nowhere,
        Choice::Usual if offer.may_use_none => Route::None,
        Choice::Usual => Route::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(runner: bool, docker: bool, none: bool, may: bool) -> Offer {
        Offer { has_runner: runner, has_docker: docker, has_none: none, may_use_none: may }
    }

    #[test]
    fn the_strongest_that_there_is_is_taken() {
        let usual = |offer| select(&Choice::Usual, offer);
        assert_eq!(usual(offer(true, true, true, true)), Route::Runner);
        assert_eq!(usual(offer(false, true, true, true)), Route::Docker);
        assert_eq!(usual(offer(false, false, true, true)), Route::None);
        assert_eq!(usual(offer(false, false, true, false)), Route::Denied);
        assert_eq!(usual(offer(false, true, true, false)), Route::Docker);
        assert_eq!(usual(offer(false, false, false, true)), Route::Nowhere);
    }

    #[test]
    fn what_was_asked_for_is_never_replaced_by_something_else() {
        let named = Choice::Runner("laptop".into());
        assert_eq!(select(&named, offer(true, true, true, true)), Route::Runner);
        assert_eq!(select(&named, offer(false, true, true, true)), Route::RunnerAway);
        assert_eq!(select(&Choice::Docker, offer(true, true, true, true)), Route::Docker);
        assert_eq!(select(&Choice::Docker, offer(true, false, true, true)), Route::Nowhere);
    }
}
