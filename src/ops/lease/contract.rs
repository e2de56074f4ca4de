//! The promises of every [`LeaseStore`], as one suite that each implementation runs.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Epoch, LeaseStore};

const TTL: Duration = Duration::from_millis(600);

/// Checks each promise. `sleep` lets the store's own time pass.
pub(super) async fn check<F: Future<Output = ()>>(store: &dyn LeaseStore, sleep: impl Fn(Duration) -> F) {
    // Of many at once one gets it, and another key is another lease.
    let tokens: Vec<String> = (0..20).map(|number| format!("token-{number}")).collect();
    let asked = join_all(tokens.iter().map(|token| store.acquire("a", token, TTL))).await;
    let winners: Vec<(usize, Epoch)> =
        asked.into_iter().enumerate().filter_map(|(number, got)| Some((number, got.unwrap()?))).collect();
    assert_eq!(winners.len(), 1, "of many callers at once one gets the lease");
    let (number, first) = winners[0];
    let (winner, loser) = (&tokens[number], &tokens[(number + 1) % 20]);
    assert!(store.acquire("b", loser, TTL).await.unwrap().is_some(), "another key is another lease");

    // Only the token that holds it renews and releases it.
    assert!(!store.renew("a", loser, TTL).await.unwrap());
    assert!(!store.release("a", loser).await.unwrap());
    assert_eq!(store.acquire("a", loser, TTL).await.unwrap(), None, "nothing above has freed it");

    // Renewing prolongs it beyond its first time; a lease that is not renewed is free, and its token holds nothing.
    sleep(TTL * 2 / 3).await;
    assert!(store.renew("a", winner, TTL).await.unwrap());
    sleep(TTL * 2 / 3).await;
    assert_eq!(store.acquire("a", loser, TTL).await.unwrap(), None, "it was renewed");
    sleep(TTL).await;
    assert!(!store.renew("a", winner, TTL).await.unwrap(), "its time is over");
    let second = store.acquire("a", loser, TTL).await.unwrap().unwrap();
    assert!(second > first, "an expired lease is had again under a higher epoch");
    assert!(!store.release("a", winner).await.unwrap(), "the former holder frees nothing");

    // A lease that was given back is free at once, once.
    assert!(store.release("a", loser).await.unwrap());
    assert!(!store.release("a", loser).await.unwrap());
    let mut last = second;
    for _ in 0..20 {
        let next = store.acquire("a", winner, TTL).await.unwrap().unwrap();
        assert!(next > last, "one that was given back too, however soon");
        last = next;
        assert!(store.release("a", winner).await.unwrap());
    }
}
