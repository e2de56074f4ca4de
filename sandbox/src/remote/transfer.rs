//! [`Transfers`]: large files on their way over HTTP connections that runners open.
//!
//! A transfer is begun for one open file of one connection, and forgotten when its request is over: its token then opens nothing.
//! Bytes move in order and one connection at a time. A newer connection ends the one before, so that a runner whose connection was cut
//! goes on at once: at the byte that did not come, or out of the last [`WINDOW_BYTES`] that it may not have got.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use thiserror::Error as ThisError;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};

use crate::UserId;
use crate::wire::transfer::TRANSFER_ID_DIGITS;

/// Transfers of one user that are under way at once; further large files go in pieces.
const OF_USER_MAX: usize = 4;
/// Transfers of all users.
const OF_ALL_MAX: usize = 64;
/// Parts of a body that wait for the other side.
const PARTS_WAITING: usize = 4;
/// What those may take, in bytes: a connection of the service buffers 256 KiB.
const WAITING_BYTES: usize = PARTS_WAITING * (256 << 10);
/// The bytes that are kept of what a runner fetches, in case that its connection is cut: more than the kernels of both ends buffer.
const WINDOW_BYTES: usize = 16 << 20;
/// The times that a runner may connect for one transfer.
const ATTEMPTS_MAX: u64 = 256;
/// Stands for the attempts of a transfer that is over.
const OVER: u64 = u64::MAX;

/// Which way the bytes go, as the runner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the runner to the service.
    Send,
    /// From the service to the runner.
    Fetch,
}

/// Why a connection of a transfer ends before the transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum TransferError {
    /// The transfer goes on at another byte.
    #[error("the transfer goes on at byte {0}: go on there")]
    Offset(u64),
    /// The bytes that a runner fetches are not kept any more.
    #[error("the bytes from there on are not kept any more: the file must be transferred anew")]
    Lost,
    /// The runner sent more bytes than it has told.
    #[error("more bytes came than the file has")]
    TooMany,
    /// The body ended early.
    #[error("fewer bytes came than the file has")]
    TooFew,
    /// A newer connection of the transfer is there.
    #[error("a newer connection carries the transfer")]
    Overtaken,
    /// The runner connected too often.
    #[error("the transfer has had too many connections: the file must be transferred anew")]
    TooOften,
    /// The request that the transfer is for has ended.
    #[error("the transfer is over")]
    Over,
    /// The body broke off.
    #[error("the body broke off")]
    Broken,
}

/// The transfers of all connections.
#[derive(Debug, Default)]
pub struct Transfers {
    under_way: Mutex<HashMap<String, Arc<TransferUnderWay>>>,
}

/// A transfer, as a connection of its runner sees it.
pub struct TransferUnderWay {
    user: UserId,
    /// Equal digests are compared in constant time.
    token: blake3::Hash,
    lane: Lane,
    /// The number of the newest connection; [`OVER`] at the end.
    attempts: watch::Sender<u64>,
    charge: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What the connection that carries the transfer has for itself.
enum Lane {
    Sent(Arc<tokio::sync::Mutex<Sent>>),
    Fetched(Arc<tokio::sync::Mutex<Fetched>>),
}

struct Sent {
    bytes: u64,
    received: u64,
    /// `None` when no more bytes are taken.
    out: Option<mpsc::Sender<Bytes>>,
    begun: Option<oneshot::Sender<()>>,
}

struct Fetched {
    source: mpsc::Receiver<Fed>,
    /// How many bytes have left the source.
    moved: u64,
    /// The last of them.
    window: VecDeque<Bytes>,
    window_bytes: usize,
    is_whole: bool,
    begun: Option<oneshot::Sender<()>>,
}

/// What a runner is to fetch. A source that ends without [`Fed::End`] was given up.
pub(super) enum Fed {
    Part(Bytes),
    End,
}

/// The place of a transfer in the table, given back when this is dropped.
pub(super) struct Ticket {
    pub(super) id: String,
    pub(super) token: String,
    transfers: Arc<Transfers>,
    /// Comes when the runner has connected and bytes begin to move.
    pub(super) begun: oneshot::Receiver<()>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let over = self.transfers.under_way.lock().remove(&self.id);
        if let Some(over) = over {
            over.attempts.send_replace(OVER);
        }
    }
}

impl Transfers {
    /// The transfer `id` in this direction, for who has its `token`.
    #[must_use]
    pub fn find(&self, id: &str, token: &str, direction: Direction) -> Option<Arc<TransferUnderWay>> {
        let found = self.under_way.lock().get(id).cloned()?;
        let is_that_way = found.direction() == direction;
        (found.token == blake3::hash(token.as_bytes()) && is_that_way).then_some(found)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Begins a transfer of `bytes` from the runner of `user`, which come out of the receiver; `None` when there are too many.
    pub(super) fn send(
        self: &Arc<Self>,
        user: &UserId,
        bytes: u64,
    ) -> Option<(Ticket, mpsc::Receiver<Bytes>)> {
        let (out, came) = mpsc::channel(PARTS_WAITING);
        let (begun, begins) = oneshot::channel();
        let sent = Sent { bytes, received: 0, out: Some(out), begun: Some(begun) };
        let ticket = self.enter(user, Lane::Sent(Arc::new(tokio::sync::Mutex::new(sent))), begins)?;
        Some((ticket, came))
    }

    /// Begins a transfer to the runner of `user` of what is put into the sender; `None` when there are too many.
    pub(super) fn fetch(self: &Arc<Self>, user: &UserId) -> Option<(Ticket, mpsc::Sender<Fed>)> {
        let (feed, source) = mpsc::channel(PARTS_WAITING);
        let (begun, begins) = oneshot::channel();
        let fetched = Fetched {
            source,
            moved: 0,
            window: VecDeque::new(),
            window_bytes: 0,
            is_whole: false,
            begun: Some(begun),
        };
        let ticket = self.enter(user, Lane::Fetched(Arc::new(tokio::sync::Mutex::new(fetched))), begins)?;
        Some((ticket, feed))
    }

    fn enter(self: &Arc<Self>, user: &UserId, lane: Lane, begun: oneshot::Receiver<()>) -> Option<Ticket> {
        let (id, token) = (secret()?, secret()? + &secret()?);
        let mut under_way = self.under_way.lock();
        let of_user = under_way.values().filter(|transfer| transfer.user == *user).count();
        if of_user >= OF_USER_MAX || under_way.len() >= OF_ALL_MAX {
            return None;
        }
        let transfer = TransferUnderWay {
            user: user.clone(),
            token: blake3::hash(token.as_bytes()),
            lane,
            attempts: watch::Sender::new(0),
            charge: Mutex::new(None),
        };
        under_way.insert(id.clone(), Arc::new(transfer));
        drop(under_way);
        Some(Ticket { id, token, transfers: Arc::clone(self), begun })
    }
}

/// Random hexadecimal digits.
fn secret() -> Option<String> {
    let (high, low) = (getrandom::u64().ok()?, getrandom::u64().ok()?);
    let digits = format!("{high:016x}{low:016x}");
    debug_assert_eq!(digits.len(), TRANSFER_ID_DIGITS);
    Some(digits)
}

impl TransferUnderWay {
    /// The user whose file it is.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// The memory that it may take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self.direction() {
            Direction::Send => WAITING_BYTES,
            Direction::Fetch => WINDOW_BYTES + WAITING_BYTES,
        }
    }

    /// Keeps what was paid for that memory until the transfer is over.
    pub fn charge(&self, charge: Box<dyn Any + Send>) {
        self.charge.lock().get_or_insert(charge);
    }

    /// Whether the memory is paid for.
    #[must_use]
    pub fn is_charged(&self) -> bool {
        self.charge.lock().is_some()
    }

    fn direction(&self) -> Direction {
        match self.lane {
            Lane::Sent(_) => Direction::Send,
            Lane::Fetched(_) => Direction::Fetch,
        }
    }

    /// Has the lane for a new connection; the one before ends.
    async fn turn<L>(
        &self,
        lane: &Arc<tokio::sync::Mutex<L>>,
    ) -> Result<(OwnedMutexGuard<L>, Overtaking), TransferError> {
        let mut number = OVER;
        self.attempts.send_if_modified(|newest| {
            if *newest != OVER {
                *newest += 1;
            }
            number = *newest;
            true
        });
        match number {
            OVER => return Err(TransferError::Over),
            1..=ATTEMPTS_MAX => {}
            _ => return Err(TransferError::TooOften),
        }
        let mut overtaking = Overtaking { number, attempts: self.attempts.subscribe() };
        tokio::select! {
            why = overtaking.happens() => Err(why),
            lane = Arc::clone(lane).lock_owned() => Ok((lane, overtaking)),
        }
    }

    /// How many bytes have come from the runner. The connection that carries the transfer ends.
    ///
    /// # Errors
    /// [`TransferError::Over`], [`TransferError::TooOften`], [`TransferError::Overtaken`].
    pub async fn received(&self) -> Result<u64, TransferError> {
        let Lane::Sent(lane) = &self.lane else { return Err(TransferError::Over) };
        Ok(self.turn(lane).await?.0.received)
    }

    /// Takes the bytes of the runner's file from the byte `from` on, as fast as the caller of the service takes them.
    ///
    /// # Errors
    /// [`TransferError`]; bytes that came before it count.
    pub async fn take<E>(
        &self,
        from: u64,
        body: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(), TransferError> {
        let Lane::Sent(lane) = &self.lane else { return Err(TransferError::Over) };
        let (mut lane, mut overtaking) = self.turn(lane).await?;
        if lane.received != from {
            return Err(TransferError::Offset(lane.received));
        }
        let out = lane.out.clone().ok_or(TransferError::Over)?;
        let _begins = lane.begun.take().map(|begun| begun.send(()));
        let mut body = pin!(body);
        loop {
            // Room first: a part that has come and finds none would be lost when the connection is overtaken.
            let room = tokio::select! {
                why = overtaking.happens() => return Err(why),
                room = out.reserve() => room.map_err(|_| TransferError::Over)?,
            };
            let part = tokio::select! {
                why = overtaking.happens() => return Err(why),
                () = out.closed() => return Err(TransferError::Over),
                part = body.next() => part,
            };
            match part {
                Some(Ok(part)) if part.len() as u64 > lane.bytes - lane.received => {
                    // The reader of the file sees that it breaks off.
                    lane.out = None;
                    return Err(TransferError::TooMany);
                }
                Some(Ok(part)) if part.is_empty() => {}
                Some(Ok(part)) => {
                    lane.received += part.len() as u64;
                    room.send(part);
                }
                Some(Err(_)) => return Err(TransferError::Broken),
                None => break,
            }
        }
        lane.out = None;
        if lane.received == lane.bytes { Ok(()) } else { Err(TransferError::TooFew) }
    }

    /// Gives the bytes of the file that the runner fetches, from the byte `from` on, as they come from the caller of the service.
    ///
    /// # Errors
    /// [`TransferError`]; the stream fails when the transfer is over before it is whole.
    pub async fn give(&self, from: u64) -> Result<BoxStream<'static, io::Result<Bytes>>, TransferError> {
        let Lane::Fetched(shared) = &self.lane else { return Err(TransferError::Over) };
        let (mut lane, overtaking) = self.turn(shared).await?;
        if from > lane.moved {
            return Err(TransferError::Offset(lane.moved));
        }
        let again = lane.since(from).ok_or(TransferError::Lost)?;
        let _begins = lane.begun.take().map(|begun| begun.send(()));
        drop(lane);
        let rest =
            stream::try_unfold((Arc::clone(shared), overtaking), |(shared, mut overtaking)| async move {
                // Held for one part only: a connection that is stuck does not ask for the next, and must not keep newer ones out.
                let mut lane = tokio::select! {
                    biased;
                    why = overtaking.happens() => return Err(io::Error::other(why)),
                    lane = Arc::clone(&shared).lock_owned() => lane,
                };
                if lane.is_whole {
                    return Ok(None);
                }
                let fed = tokio::select! {
                    biased;
                    why = overtaking.happens() => return Err(io::Error::other(why)),
                    fed = lane.source.recv() => fed,
                };
                match fed {
                    Some(Fed::Part(part)) => {
                        lane.keep(part.clone());
                        Ok(Some((part, (shared, overtaking))))
                    }
                    Some(Fed::End) => {
                        lane.is_whole = true;
                        Ok(None)
                    }
                    None => Err(io::Error::other(TransferError::Over)),
                }
            });
        Ok(stream::iter(again.into_iter().map(Ok)).chain(rest).boxed())
    }
}

impl Fetched {
    fn keep(&mut self, part: Bytes) {
        self.moved += part.len() as u64;
        self.window_bytes += part.len();
        self.window.push_back(part);
        while self.window_bytes > WINDOW_BYTES
            && let Some(oldest) = self.window.pop_front()
        {
            self.window_bytes -= oldest.len();
        }
    }

    /// What has left the source since the byte `from`; `None` when some of it is not kept.
    fn since(&self, from: u64) -> Option<Vec<Bytes>> {
        let mut missing = self.moved - from;
        let mut parts = Vec::new();
        for part in self.window.iter().rev() {
            if missing == 0 {
                break;
            }
            let wanted = usize::try_from(missing).unwrap_or(usize::MAX).min(part.len());
            parts.push(part.slice(part.len() - wanted..));
            missing -= wanted as u64;
        }
        parts.reverse();
        (missing == 0).then_some(parts)
    }
}

/// Notices that a newer connection has come, or that the transfer is over.
struct Overtaking {
    number: u64,
    attempts: watch::Receiver<u64>,
}

impl Overtaking {
    async fn happens(&mut self) -> TransferError {
        let number = self.number;
        match self.attempts.wait_for(|newest| *newest != number).await {
            Ok(newest) if *newest != OVER => TransferError::Overtaken,
            _ => TransferError::Over,
        }
    }
}

impl std::fmt::Debug for TransferUnderWay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TransferUnderWay").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn body(parts: &[&'static str]) -> impl Stream<Item = Result<Bytes, ()>> + use<> {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect::<Vec<_>>())
    }

    fn cut_after(parts: &[&'static str]) -> impl Stream<Item = Result<Bytes, ()>> + use<> {
        body(parts).chain(stream::iter([Err(())]))
    }

    async fn drain(mut came: mpsc::Receiver<Bytes>) -> String {
        let mut all = Vec::new();
        while let Some(part) = came.recv().await {
            all.extend_from_slice(&part);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn a_token_opens_its_own_transfer_in_its_own_direction_until_it_is_over() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, _came) = transfers.send(&user("alice"), 3).unwrap();
        let (other, _feed) = transfers.fetch(&user("bob")).unwrap();
        let find = |id: &str, token: &str, direction| transfers.find(id, token, direction).is_some();
        assert!(find(&ticket.id, &ticket.token, Direction::Send));
        assert!(!find(&ticket.id, &ticket.token, Direction::Fetch));
        assert!(!find(&ticket.id, &other.token, Direction::Send));
        assert!(!find(&other.id, &ticket.token, Direction::Fetch));
        assert!(!find(&ticket.id, "", Direction::Send));
        let (id, token) = (ticket.id.clone(), ticket.token.clone());
        let found = transfers.find(&id, &token, Direction::Send).unwrap();
        drop(ticket);
        assert!(!find(&id, &token, Direction::Send));
        assert_eq!(found.take(0, body(&["abc"])).await, Err(TransferError::Over));
    }

    #[tokio::test]
    async fn transfers_of_one_user_and_of_all_are_bounded() {
        let transfers = Arc::new(Transfers::default());
        let mut held: Vec<_> = (0..OF_USER_MAX).map(|_| transfers.fetch(&user("alice")).unwrap()).collect();
        assert!(transfers.fetch(&user("alice")).is_none() && transfers.send(&user("alice"), 1).is_none());
        held.extend((OF_USER_MAX..OF_ALL_MAX).map(|n| transfers.fetch(&user(&format!("u{n}"))).unwrap()));
        assert!(transfers.fetch(&user("bob")).is_none());
        held.remove(0);
        assert!(transfers.fetch(&user("bob")).is_some());
    }

    #[tokio::test]
    async fn what_a_runner_sends_goes_on_after_a_cut_and_nothing_comes_twice() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, came) = transfers.send(&user("alice"), 6).unwrap();
        let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Send).unwrap();
        let drained = tokio::spawn(drain(came));
        assert_eq!(transfer.take(0, cut_after(&["ab", "c"])).await, Err(TransferError::Broken));
        assert_eq!(transfer.received().await, Ok(3));
        for from in [0, 2, 4, u64::MAX] {
            assert_eq!(transfer.take(from, body(&["def"])).await, Err(TransferError::Offset(3)), "{from}");
        }
        assert_eq!(transfer.take(3, body(&["", "def"])).await, Ok(()));
        assert_eq!(drained.await.unwrap(), "abcdef");
        // Played again.
        assert_eq!(transfer.take(0, body(&["abcdef"])).await, Err(TransferError::Offset(6)));
        assert_eq!(transfer.take(6, body(&[])).await, Err(TransferError::Over));
    }

    #[tokio::test]
    async fn more_and_fewer_bytes_than_told_break_the_file_off() {
        for (parts, told) in [(["abc", "d"], TransferError::TooMany), (["a", "b"], TransferError::TooFew)] {
            let transfers = Arc::new(Transfers::default());
            let (ticket, came) = transfers.send(&user("alice"), 3).unwrap();
            let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Send).unwrap();
            let drained = tokio::spawn(drain(came));
            assert_eq!(transfer.take(0, body(&parts)).await, Err(told));
            assert_eq!(drained.await.unwrap(), if told == TransferError::TooMany { "abc" } else { "ab" });
        }
    }

    #[tokio::test]
    async fn a_newer_connection_ends_the_one_before_and_a_caller_who_leaves_ends_all() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, mut came) = transfers.send(&user("alice"), 9).unwrap();
        let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Send).unwrap();
        let hanging = Arc::clone(&transfer);
        let hangs = tokio::spawn(async move {
            hanging.take(0, body(&["abc"]).chain(stream::pending::<Result<Bytes, ()>>())).await
        });
        assert_eq!(came.recv().await.unwrap(), "abc");
        assert_eq!(transfer.received().await, Ok(3));
        assert_eq!(hangs.await.unwrap(), Err(TransferError::Overtaken));
        let (hanging, from) = (Arc::clone(&transfer), transfer.received().await.unwrap());
        let hangs =
            tokio::spawn(async move { hanging.take(from, stream::pending::<Result<Bytes, ()>>()).await });
        tokio::task::yield_now().await;
        drop(came);
        assert_eq!(hangs.await.unwrap(), Err(TransferError::Over));
    }

    #[tokio::test]
    async fn what_a_runner_fetches_is_given_again_from_where_it_was_cut() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, feed) = transfers.fetch(&user("alice")).unwrap();
        let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Fetch).unwrap();
        feed.send(Fed::Part("abc".into())).await.unwrap();
        feed.send(Fed::Part("def".into())).await.unwrap();
        let mut first = transfer.give(0).await.unwrap();
        assert_eq!(first.try_next().await.unwrap().unwrap(), "abc");
        assert_eq!(first.try_next().await.unwrap().unwrap(), "def");
        // Cut: of the second part, one byte has come.
        let mut second = transfer.give(4).await.unwrap();
        assert!(first.try_next().await.is_err(), "it was overtaken");
        drop(first);
        let mut second_bytes = second.try_next().await.unwrap().unwrap().to_vec();
        feed.send(Fed::Part("ghi".into())).await.unwrap();
        feed.send(Fed::End).await.unwrap();
        while let Some(part) = second.try_next().await.unwrap() {
            second_bytes.extend_from_slice(&part);
        }
        assert_eq!(second_bytes, b"efghi");
        drop(second);
        // The end may be lost as well.
        assert_eq!(transfer.give(8).await.unwrap().try_collect::<Vec<_>>().await.unwrap().concat(), b"i");
        assert_eq!(transfer.give(10).await.err(), Some(TransferError::Offset(9)));
    }

    #[tokio::test]
    async fn what_is_not_kept_any_more_and_a_source_that_is_given_up_are_told() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, feed) = transfers.fetch(&user("alice")).unwrap();
        let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Fetch).unwrap();
        let mut given = transfer.give(0).await.unwrap();
        let part = Bytes::from(vec![0; WINDOW_BYTES / 2]);
        for _ in 0..3 {
            feed.send(Fed::Part(part.clone())).await.unwrap();
            given.try_next().await.unwrap().unwrap();
        }
        drop(given);
        let start = (WINDOW_BYTES / 2) as u64;
        assert_eq!(transfer.give(start - 1).await.err(), Some(TransferError::Lost));
        let mut given = transfer.give(start).await.unwrap();
        drop(feed);
        assert!(given.try_next().await.is_ok() && given.try_next().await.is_ok());
        assert!(given.try_next().await.is_err());
    }

    #[tokio::test]
    async fn a_runner_connects_a_bounded_number_of_times() {
        let transfers = Arc::new(Transfers::default());
        let (ticket, _came) = transfers.send(&user("alice"), 1).unwrap();
        let transfer = transfers.find(&ticket.id, &ticket.token, Direction::Send).unwrap();
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(transfer.received().await, Ok(0));
        }
        assert_eq!(transfer.received().await, Err(TransferError::TooOften));
    }
}
