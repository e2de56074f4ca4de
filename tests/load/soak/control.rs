//! [`Control`]: tells the workers which service to use, when to pause, when to look at their trees, and when to end.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long workers may take to get to the end of a step.
const STEP: Duration = Duration::from_secs(180);

/// The next task of a worker.
pub(super) enum Order {
    /// One more step, on the service at this URL.
    Work(String),
    /// Compare all trees with their models, on the service at this URL.
    Verify(String),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    Paused,
    Verifying,
    Ended,
}

struct State {
    phase: Phase,
    url: String,
    /// Workers that wait for the end of a pause.
    waiting: usize,
    /// How many have compared their trees with their models, at the end. Of those that wait, some may not have noticed yet that
    /// a pause is over.
    verified: usize,
    /// How many replacements there were.
    generation: usize,
    is_replacing: bool,
}

/// The state that the workers wait for.
pub(super) struct Control {
    state: Mutex<State>,
    changed: Condvar,
    workers: usize,
}

/// Ends the work when it is dropped.
pub(super) struct End<'a>(&'a Control);

impl Control {
    pub(super) fn new(url: &str, workers: usize) -> Self {
        let state = State {
            phase: Phase::Working,
            url: url.to_owned(),
            waiting: 0,
            verified: 0,
            generation: 0,
            is_replacing: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), workers }
    }

    pub(super) fn end_when_dropped(&self) -> End<'_> {
        End(self)
    }

    /// Waits while there is a pause.
    pub(super) fn order(&self) -> Order {
        let mut state = self.state.lock().unwrap();
        if state.phase == Phase::Paused {
            state.waiting += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| state.phase == Phase::Paused).unwrap();
            state.waiting -= 1;
        }
        match state.phase {
            Phase::Ended => Order::End,
            Phase::Verifying => Order::Verify(state.url.clone()),
            Phase::Working | Phase::Paused => Order::Work(state.url.clone()),
        }
    }

    /// Waits until another service than that at `url` answers.
    ///
    /// # Panics
    /// When the service at `url` is not being replaced: then it broke a connection.
    pub(super) fn await_replacement(&self, url: &str) {
        let state = self.state.lock().unwrap();
        if !state.is_replacing && state.url == url && state.phase != Phase::Ended {
            drop(state);
            panic!("a connection broke or timed out although the service was not killed");
        }
        drop(
            self.changed
                .wait_timeout_while(state, STEP, |state| state.url == url && state.phase != Phase::Ended)
                .unwrap(),
        );
    }

    /// Replaces the service: a request that breaks meanwhile is no failure. `start` returns the URL of the new one.
    pub(super) fn replace(&self, start: impl FnOnce() -> String) {
        self.state.lock().unwrap().is_replacing = true;
        let url = start();
        let mut state = self.state.lock().unwrap();
        (state.url, state.is_replacing) = (url, false);
        state.generation += 1;
        self.changed.notify_all();
    }

    /// Returns when every worker waits.
    pub(super) fn pause(&self) {
        let mut state = self.state.lock().unwrap();
        state.phase = Phase::Paused;
        let began = Instant::now();
        while state.waiting < self.workers {
            assert!(began.elapsed() < STEP, "{} of {} workers pause", state.waiting, self.workers);
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
    }

    pub(super) fn resume(&self) {
        self.state.lock().unwrap().phase = Phase::Working;
        self.changed.notify_all();
    }

    /// Has every worker compare its trees with their models, and returns when all have.
    pub(super) fn verify(&self) {
        let mut state = self.state.lock().unwrap();
        state.phase = Phase::Verifying;
        let began = Instant::now();
        while state.verified < self.workers {
            assert!(began.elapsed() < STEP, "{} of {} workers have verified", state.verified, self.workers);
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
        state.phase = Phase::Ended;
        self.changed.notify_all();
    }

    /// Tells that this worker has verified; returns when all have.
    pub(super) fn verified(&self) {
        let mut state = self.state.lock().unwrap();
        state.verified += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.phase == Phase::Verifying).unwrap());
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.phase = Phase::Ended;
        drop(state);
        self.0.changed.notify_all();
    }
}
