//! The acceptance table of the founding document, S26 to S29: faults of leases, by the clock of the test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use filesecbox::ops::error::{Error, Initialising};
use filesecbox::ops::lease::{Epoch, LeaseStore, LocalLeases, StoreError};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fixture::{Ask, Fixture};

fn why(result: Result<filesecbox::ops::prepare::Prepared, Error>) -> Initialising {
    match result {
        Err(Error::Initialising { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s26_while_the_lease_is_held_the_answer_is_initialising_and_the_sandbox_is_not_called() {
    let fixture = Fixture::new();
    let key = crate::fixture::KEY;
    assert!(fixture.leases.acquire(key, "another", Duration::from_secs(60)).await.unwrap().is_some());
    assert_eq!(why(fixture.try_prepare(Ask::script("touch ran")).await), Initialising::Elsewhere);
    assert_eq!(fixture.sandbox.calls(), []);
    assert!(fixture.leases.release(key, "another").await.unwrap());
    fixture.prepare(Ask::script("touch ran")).await;
    // It was given back: the next one gets it.
    assert!(fixture.leases.acquire(key, "another", Duration::from_secs(60)).await.unwrap().is_some());
}

/// Leases that fail as they are told.
#[derive(Debug, Default)]
struct Faulty {
    inner: LocalLeases,
    acquire_fails: bool,
    /// What the next renewals come to, the last for ever: `None` is as it should be.
    renewals: Mutex<Vec<Option<Result<bool, String>>>>,
}

#[async_trait]
impl LeaseStore for Faulty {
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError> {
        if self.acquire_fails {
            return Err(StoreError("it is down".to_owned()));
        }
        self.inner.acquire(key, token, ttl).await
    }
    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError> {
        let told = {
            let mut renewals = self.renewals.lock();
            if renewals.len() > 1 { renewals.remove(0) } else { renewals.first().cloned().flatten() }
        };
        match told {
            Some(told) => told.map_err(StoreError),
            None => self.inner.renew(key, token, ttl).await,
        }
    }
    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError> {
        self.inner.release(key, token).await
    }
}

/// A round whose scripts take `script` of the test's clock, under the usual lease of a store that fails as it is told.
fn faulty(acquire_fails: bool, renewals: Vec<Option<Result<bool, String>>>, script: Duration) -> Fixture {
    let leases = Faulty { acquire_fails, renewals: Mutex::new(renewals), ..Faulty::default() };
    let mut fixture = Fixture::new();
    fixture.leases = Arc::new(leases);
    *fixture.sandbox.pretended.lock() = Some(script);
    fixture
}

/// What a round with a script comes to, and the seconds of the test's clock that it took.
async fn timed(fixture: &Fixture) -> (Result<filesecbox::ops::prepare::Prepared, Error>, u64) {
    let began = Instant::now();
    let ask = Ask { seconds: Some(600), ..Ask::script("true") };
    let ended = fixture.try_prepare(ask).await;
    (ended, began.elapsed().as_secs())
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn s27_a_lease_that_another_token_took_overrides_the_result() {
    // Before the script, which is not begun.
    let fixture = faulty(false, vec![Some(Ok(false))], SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Lost, 0));
    assert!(!fixture.has("ran"));
    // At the first heartbeat: what is under way is ended.
    let fixture = faulty(false, vec![None, Some(Ok(false))], 31 * SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Lost, 30));
    assert!(!fixture.has("ran"));
    // At the end: the round was done, and does not count.
    let fixture = faulty(false, vec![None, Some(Ok(false))], 29 * SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Lost, 29));
    assert!(fixture.has("ran"));
}

#[tokio::test(start_paused = true)]
async fn s28_without_the_store_of_leases_nothing_is_done() {
    let fixture = faulty(true, Vec::new(), SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Unleased, 0));
    assert_eq!(fixture.sandbox.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn s29_a_store_that_recovers_in_time_loses_no_lease_and_one_that_stays_down_loses_it() {
    let down = || Some(Err("it is down".to_owned()));
    // The step before the script is had. Five heartbeats fail; the sixth would come when the lease is over.
    let fixture = faulty(false, vec![None, down(), down(), down(), down(), None], 500 * SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(seconds, 500);
    assert!(fixture.has("ran"));
    let fixture = faulty(false, vec![None, down(), down(), down(), down(), down(), None], 500 * SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Lost, 180));
    let fixture = faulty(false, vec![None, down()], 500 * SECOND);
    let (ended, seconds) = timed(&fixture).await;
    assert_eq!((why(ended), seconds), (Initialising::Lost, 180));
    assert!(!fixture.has("ran"));
}
