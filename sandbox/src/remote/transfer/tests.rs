//! Laws of transfers: order, cuts, bounds, and who may use them.

use futures_util::TryStreamExt;

use super::table::{OF_ALL_MAX, OF_USER_MAX};
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
    let hangs = tokio::spawn(async move { hanging.take(from, stream::pending::<Result<Bytes, ()>>()).await });
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
