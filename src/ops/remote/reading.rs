//! A backend's stream on its way to a caller: each piece in time, and as many bytes as were told.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::ByteStream;

use super::PATIENCE;

/// The `expected` bytes of a file. One that breaks off, or that has other bytes than were told, ends with an error, so
/// that no reader takes it for whole.
pub(super) fn pieces(from: ByteStream, expected: u64) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces = stream::try_unfold((from, expected), |(mut from, left)| async move {
        let next = tokio::time::timeout(PATIENCE, piece(&mut from)).await;
        let next = next.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        match next.map_err(io::Error::other)? {
            Some(piece) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Ok(Some((piece, (from, left)))),
                None => Err(io::Error::from(io::ErrorKind::InvalidData)),
            },
            None if left == 0 => Ok(None),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    pieces.boxed()
}

/// All of it, when it comes `within` a time: pieces may each be in time and the whole never come.
pub(super) async fn whole(
    pieces: BoxStream<'static, io::Result<Bytes>>,
    within: Duration,
) -> io::Result<Vec<u8>> {
    let all = pieces.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    let all = tokio::time::timeout(within, all).await;
    all.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The next piece with something in it. Empty ones without end are a silence that takes a processor, so it can be broken
/// in upon.
async fn piece(from: &mut ByteStream) -> sandbox::Result<Option<Bytes>> {
    loop {
        match from.try_next().await? {
            Some(empty) if empty.is_empty() => tokio::task::consume_budget().await,
            other => return Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn empty_pieces_do_not_count_as_an_answer() {
        let hour = Duration::from_secs(3600);
        let slow = stream::unfold(0, |number| async move {
            tokio::time::sleep(PATIENCE / 4).await;
            (number < 8).then(|| (Ok(Bytes::new()), number + 1))
        });
        let read = tokio::time::timeout(hour, pieces(slow.boxed(), 1).try_collect::<Vec<_>>()).await;
        assert_eq!(read.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Between two pieces of a good file they are nothing.
        let good = ["", "a", "", "b", ""].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        let read = pieces(stream::iter(good).boxed(), 2).try_collect::<Vec<_>>().await;
        assert_eq!(read.unwrap().concat(), b"ab");
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_that_comes_byte_by_byte_is_given_up() {
        let trickle = || {
            let slow = stream::unfold((), |()| async {
                tokio::time::sleep(PATIENCE / 2).await;
                Some((Ok(Bytes::from_static(b"a")), ()))
            });
            pieces(slow.take(1_000_000).boxed(), 1_000_000)
        };
        let read = tokio::time::timeout(2 * PATIENCE, whole(trickle(), PATIENCE)).await;
        assert_eq!(read.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        let good = stream::iter(["数", "据"].map(|piece| Ok(Bytes::from_static(piece.as_bytes()))));
        assert_eq!(whole(pieces(good.boxed(), 6), PATIENCE).await.unwrap(), "数据".as_bytes());
    }

    #[tokio::test]
    async fn empty_pieces_that_come_at_once_let_others_go_on() {
        let endless = stream::repeat_with(|| Ok(Bytes::new())).boxed();
        let read = pieces(endless, 1).try_collect::<Vec<_>>();
        assert!(tokio::time::timeout(Duration::from_millis(50), read).await.is_err());
    }
}
