//! Putting load on a service and measuring it: one client for latency, many for throughput.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::client::Connection;
use crate::error::{Failure, Result};

/// The figures of one slice of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Median latency.
    pub p50: Duration,
    /// Latency that one request in a hundred exceeds.
    pub p99: Duration,
    /// Requests answered per second.
    pub per_second: f64,
}

/// How long a slice of load is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Time after which no request is begun.
    pub time: Duration,
    /// Requests after which no further one is begun.
    pub calls: usize,
    /// Requests made however long they take.
    pub calls_min: usize,
}

/// One client that sends a request when the one before is answered. `request` builds the next, untimed.
///
/// # Errors
/// [`Failure::Answer`] for the first answer of 400 or above; [`Failure::Io`].
pub(crate) fn serial(
    connection: &mut Connection,
    slice: Slice,
    request: &mut dyn FnMut() -> Vec<u8>,
) -> Result<Sample> {
    let latencies = latencies(connection, slice, request)?;
    let busy: Duration = latencies.iter().sum();
    Ok(sample(latencies, busy))
}

/// As [`serial`]; how long each request took, in their order.
///
/// # Errors
/// As [`serial`].
pub(crate) fn latencies(
    connection: &mut Connection,
    slice: Slice,
    request: &mut dyn FnMut() -> Vec<u8>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let start = Instant::now();
    while latencies.len() < slice.calls && (start.elapsed() < slice.time || latencies.len() < slice.calls_min)
    {
        let request = request();
        let sent = Instant::now();
        connection.call(&request)?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// `clients` connections, each with one request under way, in one thread: all the same, until the slice is over.
///
/// # Errors
/// As [`serial`].
pub(crate) fn parallel(address: SocketAddr, clients: usize, slice: Slice, request: &[u8]) -> Result<Sample> {
    let (start, mut begun) = (Instant::now(), 0);
    each(address, clients, &mut |_| {
        let is_over = begun >= clients && (start.elapsed() >= slice.time || begun >= slice.calls);
        begun += 1;
        (!is_over).then_some(Cow::Borrowed(request))
    })
}

/// `clients` connections, each with one request under way, in one thread. `next` gives the request that the client of
/// that number, counted from 0, sends after the answer to its last one, and `None` when it is to send no more.
///
/// # Errors
/// As [`serial`].
pub(crate) fn each<'a>(
    address: SocketAddr,
    clients: usize,
    next: &mut dyn FnMut(usize) -> Option<Cow<'a, [u8]>>,
) -> Result<Sample> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Connection::open(address)?);
    }
    let mut latencies = Vec::new();
    let start = Instant::now();
    let mut sent = Vec::new();
    for (client, connection) in connections.iter_mut().enumerate() {
        sent.push(begin(connection, next(client))?);
    }
    while sent.iter().any(Option::is_some) {
        let ready = readable(&connections)?;
        for (client, ((connection, sent), ready)) in
            connections.iter_mut().zip(&mut sent).zip(ready).enumerate()
        {
            let (true, Some((at, request))) = (ready, sent.as_ref()) else { continue };
            connection.receive()?;
            let Some((status, start, end)) = connection.complete(request)? else { continue };
            if status >= 400 {
                return Err(connection.refusal(request, status, start, end));
            }
            latencies.push(at.elapsed());
            *sent = begin(connection, next(client))?;
        }
    }
    let elapsed = start.elapsed();
    Ok(sample(latencies, elapsed))
}

/// Sends a request if there is one; when, and which.
fn begin<'a>(
    connection: &mut Connection,
    request: Option<Cow<'a, [u8]>>,
) -> Result<Option<(Instant, Cow<'a, [u8]>)>> {
    let Some(request) = request else { return Ok(None) };
    let at = Instant::now();
    connection.send(&request)?;
    Ok(Some((at, request)))
}

/// Waits until something arrives and tells where.
fn readable(connections: &[Connection]) -> Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> =
        connections.iter().map(|connection| PollFd::new(connection.stream(), PollFlags::IN)).collect();
    poll(&mut fds, None).map_err(|errno| Failure::io("poll")(errno.into()))?;
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// The figures of single latencies, taken in `elapsed`.
pub(crate) fn sample(mut latencies: Vec<Duration>, elapsed: Duration) -> Sample {
    latencies.sort_unstable();
    let at = |share: f64| -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let index = ((latencies.len().saturating_sub(1)) as f64 * share) as usize;
        latencies.get(index).copied().unwrap_or_default()
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
    let per_second = latencies.len() as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    Sample { p50: at(0.5), p99: at(0.99), per_second }
}
