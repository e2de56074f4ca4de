//! [`Connections`]: which connections are open, whose they are, and which of them gives way when there are too many.
//!
//! A connection *waits* while no request of it is under way: for the first one, or for the next. Waiting costs its caller
//! nothing and the service a place, so that a waiting connection never keeps out a new one: when all places are taken,
//! the address that has most of them loses the one that has waited longest. Callers on this host have a few places of
//! their own, and a caller that gets none is still told whether the service is well ([`ConnectionSlot::is_spare`]).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::ConnectionLimits;
use crate::metrics::Shared;

/// Connections beyond all places, which are answered about the health of the service only. Any more are closed without a
/// word.
const SPARE_PLACES: usize = 64;
/// How long a caller takes nothing of an answer before the connection gives way to another one, in milliseconds.
const STALLED_MS: u64 = 5_000;
/// Bits of an IPv6 address that say whose it is: a customer has a /64 or more (RFC 6177).
const NETWORK_BITS_V6: u32 = 64;

/// No request is under way.
const WAITING: u8 = 0;
/// One is.
const BUSY: u8 = 1;
/// It has become something else than HTTP.
const UPGRADED: u8 = 2;
/// It has given way and is about to end.
const ENDED: u8 = 3;

/// The open connections of a service.
pub(in crate::http) struct Connections {
    limits: ConnectionLimits,
    metrics: Shared,
    began: Instant,
    open: Mutex<Open>,
    /// Bytes of heads that have begun and not ended, of all connections.
    head_bytes: AtomicUsize,
}

#[derive(Default)]
struct Open {
    places: HashMap<u64, Arc<ConnectionSlot>>,
    next: u64,
    spare: usize,
    of_peers: HashMap<IpAddr, Arc<AtomicUsize>>,
}

/// The place of one connection.
pub(in crate::http) struct ConnectionSlot {
    number: u64,
    peer: IpAddr,
    /// How many connections the same address has.
    of_peer: Arc<AtomicUsize>,
    /// Whether the connection is one too many: it is answered about the health of the service only.
    pub(in crate::http) is_spare: bool,
    state: AtomicU8,
    /// Whether no request has come yet.
    is_new: AtomicBool,
    /// When waiting began, and when its head did; in milliseconds.
    waiting_since: AtomicU64,
    head_since: AtomicU64,
    head_bytes: AtomicUsize,
    /// Since when the caller takes nothing of what is to be sent; 0 when it does.
    stalled_since: AtomicU64,
    ended: Notify,
}

impl Connections {
    pub(in crate::http) fn new(limits: &ConnectionLimits, metrics: Shared) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            metrics,
            began: Instant::now(),
            open: Mutex::default(),
            head_bytes: AtomicUsize::new(0),
        })
    }

    /// Milliseconds, from 1 on.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Finds a place for a connection of `peer`, who is on this host when `is_local`; none when even the spare ones are
    /// taken.
    pub(in crate::http) fn admit(&self, peer: IpAddr, is_local: bool) -> Option<Arc<ConnectionSlot>> {
        let peer = whose(peer);
        let (limits, now) = (&self.limits, self.now());
        let mut open = self.open.lock();
        let held = open.of_peers.get(&peer).map_or(0, |held| held.load(Relaxed));
        let is_within_share = limits.per_peer == 0 || is_local || held < limits.per_peer;
        let has_place = if !is_within_share {
            self.end_one(&mut open, now, |place| place.peer == peer)
        } else {
            let taken = open.places.len() - open.spare;
            taken < limits.connections
                || self.end_one(&mut open, now, |_| true)
                || (is_local && taken < limits.connections.saturating_add(limits.reserved))
        };
        let has_spare = has_place || open.spare < SPARE_PLACES || self.end_spare(&mut open);
        has_spare.then(|| open.add(peer, !has_place, now))
    }

    /// Ends the connection that has waited longest, of the address that has most, among those that `may` go; else one
    /// whose caller takes nothing. Tells whether there was one.
    fn end_one(&self, open: &mut Open, now: u64, may: impl Fn(&ConnectionSlot) -> bool) -> bool {
        let candidates = open.places.values().filter(|place| !place.is_spare && may(place));
        let chosen =
            candidates.filter_map(|place| Some((place.rank(now)?, place))).max_by_key(|(rank, _)| *rank);
        let chosen = chosen.map(|(_, place)| Arc::clone(place));
        chosen.is_some_and(|place| self.evict(open, &place))
    }

    fn end_spare(&self, open: &mut Open) -> bool {
        let oldest = open.places.values().filter(|place| place.is_spare).min_by_key(|place| place.number);
        let oldest = oldest.map(Arc::clone);
        oldest.is_some_and(|place| self.evict(open, &place))
    }

    /// Has a connection give way to another.
    fn evict(&self, open: &mut Open, place: &Arc<ConnectionSlot>) -> bool {
        let has_ended = self.end(open, place);
        if has_ended {
            self.metrics.evicted_connections.inc();
        }
        has_ended
    }

    /// Has a connection end. Its place is free at once.
    fn end(&self, open: &mut Open, place: &Arc<ConnectionSlot>) -> bool {
        let state = place.state.load(Relaxed);
        let may_end = match state {
            WAITING => true,
            BUSY => place.is_spare || place.stalled_since.load(Relaxed) != 0,
            _ => false,
        };
        // A request may have begun since it was chosen: then it is answered.
        if !may_end || place.state.compare_exchange(state, ENDED, Relaxed, Relaxed).is_err() {
            return false;
        }
        self.forget_head(place);
        open.remove(place);
        place.ended.notify_one();
        true
    }

    /// Has the connection end that has waited longest, when the process has no descriptor left for another one.
    pub(in crate::http) fn end_longest_waiting(&self) -> bool {
        self.end_one(&mut self.open.lock(), self.now(), |_| true)
    }

    /// Gives a place back.
    pub(in crate::http) fn leave(&self, place: &ConnectionSlot) {
        self.forget_head(place);
        self.open.lock().remove(place);
    }

    /// Notes that bytes came. While a connection waits they are those of a head, and all heads together are bounded: the
    /// largest gives way.
    pub(in crate::http) fn received(&self, place: &ConnectionSlot, bytes: usize) {
        if place.state.load(Relaxed) != WAITING {
            return;
        }
        if place.head_bytes.fetch_add(bytes, Relaxed) == 0 {
            place.head_since.store(self.now(), Relaxed);
        }
        let all = self.head_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if all > self.limits.heads_bytes {
            let mut open = self.open.lock();
            while self.head_bytes.load(Relaxed) > self.limits.heads_bytes {
                let heads = open.places.values().filter(|place| place.state.load(Relaxed) == WAITING);
                let largest = heads.max_by_key(|place| place.head_bytes.load(Relaxed)).map(Arc::clone);
                if !largest.is_some_and(|place| self.evict(&mut open, &place)) {
                    break;
                }
            }
        }
    }

    fn forget_head(&self, place: &ConnectionSlot) {
        let bytes = place.head_bytes.swap(0, Relaxed);
        if bytes > 0 {
            self.head_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// Notes that a request has begun. Tells whether it may be answered: not when the connection has given way.
    pub(in crate::http) fn begin(&self, place: &ConnectionSlot) -> bool {
        self.forget_head(place);
        place.is_new.store(false, Relaxed);
        place.state.compare_exchange(WAITING, BUSY, Relaxed, Relaxed).is_ok()
    }

    /// Notes that the answer is complete, or on its way as a whole.
    pub(in crate::http) fn finish(&self, place: &ConnectionSlot) {
        place.waiting_since.store(self.now(), Relaxed);
        let _ = place.state.compare_exchange(BUSY, WAITING, Relaxed, Relaxed);
    }

    /// Notes whether the caller takes what is sent.
    pub(in crate::http) fn sent(&self, place: &ConnectionSlot, is_stalled: bool) {
        if is_stalled {
            let _ = place.stalled_since.compare_exchange(0, self.now(), Relaxed, Relaxed);
        } else {
            place.stalled_since.store(0, Relaxed);
            if place.state.load(Relaxed) == WAITING {
                place.waiting_since.store(self.now(), Relaxed);
            }
        }
    }

    /// How often to look for connections that are overdue: often enough for the shortest time that is configured.
    pub(in crate::http) fn tick(&self) -> Duration {
        let shortest = self.limits.head_ms.min(self.limits.idle_ms);
        Duration::from_millis((shortest / 8).clamp(20, 1000))
    }

    /// Ends the connections that bring no head in time, or no next request. One look at all of them costs less than a timer
    /// for each request.
    pub(in crate::http) fn end_overdue(&self) {
        let now = self.now();
        let mut open = self.open.lock();
        let overdue = open.places.values().filter(|place| self.due(place).is_some_and(|due| due < now));
        for place in overdue.map(Arc::clone).collect::<Vec<_>>() {
            self.end(&mut open, &place);
        }
    }

    /// Until when bytes must come, in milliseconds; `None` while a request is under way or an answer is being sent.
    fn due(&self, place: &ConnectionSlot) -> Option<u64> {
        if place.state.load(Relaxed) != WAITING || place.stalled_since.load(Relaxed) != 0 {
            return None;
        }
        let (since, patience) = if place.is_new.load(Relaxed) {
            (place.waiting_since.load(Relaxed), self.limits.head_ms)
        } else if place.head_bytes.load(Relaxed) > 0 {
            (place.head_since.load(Relaxed), self.limits.head_ms)
        } else {
            (place.waiting_since.load(Relaxed), self.limits.idle_ms)
        };
        Some(since.saturating_add(patience))
    }
}

impl Open {
    fn add(&mut self, peer: IpAddr, is_spare: bool, now: u64) -> Arc<ConnectionSlot> {
        let of_peer = Arc::clone(self.of_peers.entry(peer).or_default());
        of_peer.fetch_add(1, Relaxed);
        self.spare += usize::from(is_spare);
        self.next += 1;
        let place = Arc::new(ConnectionSlot {
            number: self.next,
            peer,
            of_peer,
            is_spare,
            state: AtomicU8::new(WAITING),
            is_new: AtomicBool::new(true),
            waiting_since: AtomicU64::new(now),
            head_since: AtomicU64::new(now),
            head_bytes: AtomicUsize::new(0),
            stalled_since: AtomicU64::new(0),
            ended: Notify::new(),
        });
        self.places.insert(place.number, Arc::clone(&place));
        place
    }

    /// Takes a place out, once.
    fn remove(&mut self, place: &ConnectionSlot) {
        if self.places.remove(&place.number).is_none() {
            return;
        }
        self.spare -= usize::from(place.is_spare);
        if place.of_peer.fetch_sub(1, Relaxed) == 1 {
            self.of_peers.remove(&place.peer);
        }
    }
}

impl ConnectionSlot {
    /// Which of two connections gives way first: the greater one; `None` for one that does not.
    fn rank(&self, now: u64) -> Option<(bool, usize, u64)> {
        let stalled_since = self.stalled_since.load(Relaxed);
        let is_waiting = self.state.load(Relaxed) == WAITING;
        let for_ms = |since: u64| now.saturating_sub(since);
        if is_waiting && stalled_since == 0 {
            let waited = for_ms(self.waiting_since.load(Relaxed));
            return Some((true, self.of_peer.load(Relaxed), waited));
        }
        if self.state.load(Relaxed) == UPGRADED {
            return None;
        }
        let stalled = (stalled_since != 0).then(|| for_ms(stalled_since)).filter(|ms| *ms >= STALLED_MS)?;
        Some((false, self.of_peer.load(Relaxed), stalled))
    }

    /// Waits until the connection has given way.
    pub(in crate::http) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Notes that the connection is no HTTP any more, and never waits again.
    pub(in crate::http) fn upgraded(&self) {
        self.state.store(UPGRADED, Relaxed);
    }
}

/// The address under which a caller's connections are counted.
fn whose(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << (128 - NETWORK_BITS_V6));
            if address.is_loopback() { peer } else { Ipv6Addr::from_bits(network).into() }
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::metrics::Metrics;

    fn table(connections: usize, per_peer: usize, reserved: usize) -> Arc<Connections> {
        let limits = ConnectionLimits {
            connections,
            per_peer,
            reserved,
            heads_bytes: 1000,
            ..ConnectionLimits::default()
        };
        Connections::new(&limits, Arc::new(Metrics::new()))
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn has_ended(place: &ConnectionSlot) -> bool {
        place.state.load(Relaxed) == ENDED
    }

    async fn tick() {
        advance(Duration::from_millis(10)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_connection_of_the_address_that_has_most_gives_way() {
        let table = table(4, 0, 0);
        let few = table.admit(peer(1), false).unwrap();
        tick().await;
        let mut many = Vec::new();
        for _ in 0..3 {
            many.push(table.admit(peer(2), false).unwrap());
            tick().await;
        }
        // The oldest of the three is busy, and one that answered just now waits from now on.
        assert!(table.begin(&many[0]) && table.begin(&many[1]));
        tick().await;
        table.finish(&many[1]);
        tick().await;
        let new = table.admit(peer(3), false).unwrap();
        assert!(!new.is_spare && has_ended(&many[2]));
        assert!(!has_ended(&many[0]) && !has_ended(&many[1]) && !has_ended(&few));
        // A connection that has given way answers no request that comes too late, and leaves once.
        assert!(!table.begin(&many[2]));
        table.leave(&many[2]);
        assert_eq!(table.open.lock().places.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_stay_and_callers_on_this_host_and_of_the_health_still_get_in() {
        let table = table(2, 0, 1);
        let busy: Vec<_> = (0..2).map(|_| table.admit(peer(1), false).unwrap()).collect();
        assert!(busy.iter().all(|place| table.begin(place)));
        let local = table.admit(IpAddr::from([127, 0, 0, 1]), true).unwrap();
        assert!(!local.is_spare && table.begin(&local));
        let spare: Vec<_> = (0..SPARE_PLACES).map(|_| table.admit(peer(2), false).unwrap()).collect();
        assert!(spare.iter().all(|place| place.is_spare) && !busy.iter().any(|place| has_ended(place)));
        // The spare places are for those who come: the first gives way.
        assert!(table.admit(peer(3), false).unwrap().is_spare && has_ended(&spare[0]));
        // One whose caller takes nothing of its answer gives way after a while.
        table.sent(&busy[0], true);
        assert!(table.admit(peer(3), false).unwrap().is_spare && !has_ended(&busy[0]));
        advance(Duration::from_millis(STALLED_MS)).await;
        assert!(!table.admit(peer(3), false).unwrap().is_spare && has_ended(&busy[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_share_and_loses_its_own_connection_for_a_new_one() {
        let table = table(100, 2, 0);
        let places: Vec<_> = (0..2).map(|_| table.admit(peer(1), false).unwrap()).collect();
        assert!(table.begin(&places[0]));
        tick().await;
        let other = table.admit(peer(2), false).unwrap();
        let third = table.admit(peer(1), false).unwrap();
        assert!(!third.is_spare && has_ended(&places[1]) && !has_ended(&other));
        assert!(table.begin(&third) && table.admit(peer(1), false).unwrap().is_spare);
        // A network of IPv6 is one caller, and IPv4 in IPv6 is IPv4.
        let v6 = |text: &str| whose(text.parse().unwrap());
        assert_eq!(v6("2001:db8:1:2:a::1"), v6("2001:db8:1:2:b::2"));
        assert_ne!(v6("2001:db8:1:2::1"), v6("2001:db8:1:3::1"));
        assert_eq!(v6("::ffff:10.0.0.1"), peer(1));
        for place in places.iter().chain([&third, &other]) {
            table.leave(place);
        }
        assert_eq!(table.open.lock().of_peers.len(), 1, "the spare one");
    }

    #[tokio::test(start_paused = true)]
    async fn heads_are_bounded_in_all_and_a_head_in_time() {
        let table = table(100, 0, 0);
        let places: Vec<_> = (0..3).map(|_| table.admit(peer(1), false).unwrap()).collect();
        for (place, bytes) in places.iter().zip([400, 500, 50]) {
            table.received(place, bytes);
        }
        assert_eq!(table.head_bytes.load(Relaxed), 950);
        assert!(table.begin(&places[0]));
        table.received(&places[0], 10_000);
        assert_eq!(table.head_bytes.load(Relaxed), 550, "a body is no head");
        table.received(&places[2], 500);
        assert!(has_ended(&places[2]) && !has_ended(&places[1]));
        assert_eq!(table.head_bytes.load(Relaxed), 500);
        let after = |place: &ConnectionSlot| table.due(place);
        let (head, idle) = (table.limits.head_ms, table.limits.idle_ms);
        assert_eq!((after(&places[0]), after(&places[1])), (None, Some(head + 1)));
        table.finish(&places[0]);
        assert_eq!(after(&places[0]), Some(idle + 1));
        tick().await;
        table.received(&places[0], 1);
        assert_eq!(after(&places[0]), Some(10 + head + 1));
        advance(Duration::from_millis(head - 10)).await;
        table.end_overdue();
        assert!(!has_ended(&places[1]));
        tick().await;
        table.end_overdue();
        assert!(has_ended(&places[1]) && !has_ended(&places[0]));
    }
}
