//! Requests that begin together.

use std::sync::Barrier;

use super::Reply;

/// How many begin together.
pub(crate) const AT_ONCE: usize = 8;

/// Sends requests that begin together, and returns their answers.
pub(crate) fn at_once(send: impl Fn(usize) -> Reply + Sync) -> Vec<Reply> {
    let barrier = Barrier::new(AT_ONCE);
    std::thread::scope(|scope| {
        let (send, barrier) = (&send, &barrier);
        let started: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                scope.spawn(move || {
                    barrier.wait();
                    send(number)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
