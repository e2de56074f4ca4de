//! Receives what is left of a body that no handler wanted, and throws it away.
//!
//! A connection that is closed with unread bytes is reset (RFC 9293, 3.10.7.1), and many senders then never see the answer
//! that was given. To receive them is work for nothing, though, that costs the sender little: each caller's rests take turns, with a
//! pause after each turn, however many connections they come over.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, Limited};
use tokio::time::{sleep, timeout};

use crate::audit::Account;
use crate::ops::admission::permit_kind::PermitKind;
use crate::ops::admission::permits::Permits;

/// Bytes of one rest that are received, and the time that may take, the wait for turns included.
const BYTES_MAX: usize = 4 << 20;
const TIME: Duration = Duration::from_secs(2);
/// Bytes that are received in one turn, the time a turn lasts at most, and the pause after it.
const BYTES_IN_A_TURN: usize = 256 * 1024;
const TURN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(1);
/// Turns of all callers at once; one caller has one.
const TURNS: usize = 8;

static PERMITS: LazyLock<Permits<Account>> =
    LazyLock::new(|| Permits::with(PermitKind::RESTS, TURNS, 1, Duration::MAX));

/// Receives the rest of `body` in the background, within bounds, in turns with the other rests that `account` sends.
pub(super) fn discard(body: Body, account: Account) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        let _unwanted = timeout(TIME, receive(Limited::new(body, BYTES_MAX), &PERMITS, &account)).await;
    });
}

/// Receives `body` up to its end or its first failure.
async fn receive(mut body: Limited<Body>, permits: &Permits<Account>, account: &Account) {
    // A sender that has nothing to send waits here, without a turn.
    while let Some(first) = next(&mut body).await {
        let Ok(_turn) = permits.take_in_turn(account).await else { return };
        let more = async {
            let mut received = first;
            while received < BYTES_IN_A_TURN {
                received += next(&mut body).await?;
            }
            Some(())
        };
        if matches!(timeout(TURN, more).await, Ok(None)) {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// The length of the next piece of `body`.
async fn next(body: &mut Limited<Body>) -> Option<usize> {
    let frame = body.frame().await?.ok()?;
    Some(frame.data_ref().map_or(0, Bytes::len))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt;
    use tokio::time::Instant;

    use super::*;

    /// A rest that comes as fast as it is received, of so many turns.
    fn rest(turns: usize) -> Limited<Body> {
        let pieces = (0..turns).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; BYTES_IN_A_TURN])));
        Limited::new(Body::from_stream(futures_util::stream::iter(pieces)), BYTES_MAX)
    }

    /// How long it takes to receive rests of so many turns each, one for each of `accounts`.
    async fn took(turns: usize, accounts: &[&str]) -> Duration {
        let permits = Arc::new(Permits::with(PermitKind::RESTS, TURNS, 1, Duration::MAX));
        let begin = Instant::now();
        let all = accounts.iter().map(|account| {
            let (permits, account) = (Arc::clone(&permits), Account::User((*account).to_owned()));
            async move { receive(rest(turns), &permits, &account).await }
        });
        futures_util::future::join_all(all).await;
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_rests_that_one_caller_sends_take_turns_and_hold_up_nobody_else_s() {
        let one = took(8, &["a"]).await;
        assert!(one >= PAUSE * 8, "{one:?}");
        assert!(took(8, &["a"; 5]).await >= PAUSE * 8 * 5);
        assert_eq!(took(8, &["a", "b", "c"]).await, one);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_pauses_keeps_no_turn() {
        let permits = Permits::with(PermitKind::RESTS, TURNS, 1, Duration::MAX);
        let account = Account::Strangers;
        let stalled = stalling();
        let stalled = receive(Limited::new(stalled, BYTES_MAX), &permits, &account);
        let begin = Instant::now();
        let other = async {
            receive(rest(8), &permits, &account).await;
            begin.elapsed()
        };
        tokio::select! {
            () = stalled => panic!("it has no end"),
            took = other => assert!(took < Duration::from_millis(100), "{took:?}"),
        }
    }

    /// A body that stalls after its first piece.
    fn stalling() -> Body {
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"x"))]);
        Body::from_stream(first.chain(futures_util::stream::pending()))
    }

    #[tokio::test]
    async fn a_rest_is_received_up_to_its_bound() {
        let permits = Permits::with(PermitKind::RESTS, TURNS, 1, Duration::MAX);
        let received = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&received);
        let pieces = (0..100).map(move |_| {
            counted.fetch_add(BYTES_IN_A_TURN, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![0; BYTES_IN_A_TURN]))
        });
        let body = Limited::new(Body::from_stream(futures_util::stream::iter(pieces)), BYTES_MAX);
        receive(body, &permits, &Account::Strangers).await;
        assert_eq!(received.load(Ordering::Relaxed), BYTES_MAX + BYTES_IN_A_TURN, "the last is one too many");
    }
}
