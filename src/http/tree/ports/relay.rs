//! Carrying the bytes of a WebSocket both ways, in bounded memory, until one side ends or both are silent.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until, timeout};

use super::paced::Activity;

/// Bytes that are held of each direction.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long the other direction may go on when one has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Carries bytes between `one` and `other` until a side ends, nothing goes through for `idle`, or `until`.
pub(super) async fn relay<A, B>(one: A, other: B, idle: Duration, until: Option<Instant>)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (one_reads, one_writes) = split(one);
    let (other_reads, other_writes) = split(other);
    let both = async {
        let there = std::pin::pin!(carry(one_reads, other_writes, &activity));
        let back = std::pin::pin!(carry(other_reads, one_writes, &activity));
        let mut left = futures_util::future::select(there, back).await.factor_first();
        if left.0.is_ok() {
            let _ = timeout(FAREWELL, &mut left.1).await;
        }
    };
    let expired = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = both => {}
        () = activity.silent_for(idle) => {}
        () = expired => {}
    }
}

/// Carries bytes one way, up to their end.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..bytes).unwrap_or_default()).await?;
        to.flush().await?;
        activity.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_go_both_ways_until_one_side_ends_or_both_are_silent() {
        for ends in [true, false] {
            let ((mut caller, one), (other, mut server)) = (tokio::io::duplex(64), tokio::io::duplex(64));
            let relaying = tokio::spawn(relay(one, other, Duration::from_secs(60), None));
            caller.write_all(b"there").await.unwrap();
            server.write_all(b"back").await.unwrap();
            let (mut there, mut back) = ([0; 5], [0; 4]);
            server.read_exact(&mut there).await.unwrap();
            caller.read_exact(&mut back).await.unwrap();
            assert_eq!((&there, &back), (b"there", b"back"));
            let begun = Instant::now();
            if ends {
                drop(server);
            }
            relaying.await.unwrap();
            let waited = begun.elapsed().as_secs();
            assert!(if ends { waited < 10 } else { waited == 60 }, "{waited}");
            assert_eq!(caller.read(&mut back).await.unwrap(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_expires_ends_it() {
        let ((caller, one), (other, _server)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let begun = Instant::now();
        relay(one, other, Duration::from_secs(600), Some(begun + Duration::from_secs(7))).await;
        assert_eq!(begun.elapsed().as_secs(), 7);
        drop(caller);
    }
}
