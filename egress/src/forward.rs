//! [`forward`]: one plain request in absolute form, and its answer. Then both connections end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::body::{self, BodyError};
use super::head::{self, AnswerHead, HeadError};
use super::meter::Meter;
use super::refusal::Refusal;
use super::relay::{Direction, End, pump};
use super::request::Plain;

/// Most answers of status 1xx before the answer.
const INTERIM_MAX: usize = 8;

/// Sends `request` to `server` and passes the answer to `client`; `early` is what of the body has been read.
///
/// # Errors
/// A [`Refusal`] as long as nothing of an answer has been passed on.
pub(super) async fn forward(
    client: &mut TcpStream,
    early: &[u8],
    request: &Plain,
    server: &mut TcpStream,
    meter: &Meter,
) -> Result<End, Refusal> {
    let (client_reads, mut client_writes) = client.split();
    let (mut server_reads, mut server_writes) = server.split();
    let mut body = BufReader::new(early.chain(client_reads));
    let has_begun = AtomicBool::new(false);
    let sending = async {
        let head = request.head();
        meter.sent(head.len()).map_err(BodyError::Spent)?;
        server_writes.write_all(&head).await.map_err(BodyError::Server)?;
        body::send(request.framing, &mut body, &mut server_writes, meter).await?;
        discard(&mut body, meter).await
    };
    let sending = async {
        match sending.await {
            // The answer decides, from here on or already.
            Ok(()) | Err(BodyError::Server(_)) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let answering = answer(&mut server_reads, &mut client_writes, &has_begun, meter);
    tokio::select! {
        answered = answering => answered,
        error = sending => match error {
            BodyError::Malformed(what) if !has_begun.load(Ordering::Relaxed) => Err(Refusal::Malformed(what)),
            BodyError::Spent(bound) if !has_begun.load(Ordering::Relaxed) => Err(Refusal::Bytes(bound)),
            BodyError::Spent(_) => Ok(End::Spent),
            BodyError::Malformed(_) | BodyError::Client(_) | BodyError::Server(_) => Ok(End::Broken),
        },
        time = meter.idle() => if has_begun.load(Ordering::Relaxed) { Ok(End::Idle) } else { Err(Refusal::Idle(time)) },
    }
}

/// Reads what comes after the request, so that closing does not destroy the answer on its way (RFC 9112, section
/// 9.6). None of it is passed on.
async fn discard(from: &mut (impl AsyncBufRead + Unpin), meter: &Meter) -> Result<(), BodyError> {
    let mut buffer = [0; 1024];
    loop {
        match from.read(&mut buffer).await.map_err(BodyError::Client)? {
            0 => return Ok(()),
            count => meter.sent(count).map_err(BodyError::Spent)?,
        }
    }
}

/// Passes on interim answers, the answer, and its body as far as it goes.
async fn answer(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    has_begun: &AtomicBool,
    meter: &Meter,
) -> Result<End, Refusal> {
    let mut read = Vec::new();
    for _ in 0..=INTERIM_MAX {
        // The meter ends a connection that is idle for too long: an answer may take its time.
        let raw = head::read_from(read, from, Duration::MAX).await.map_err(|error| match error {
            HeadError::Ended { was_silent: true } => Refusal::BadAnswer("there was none"),
            HeadError::Ended { was_silent: false } | HeadError::Timeout => {
                Refusal::BadAnswer("it ended in its head")
            }
            HeadError::TooLarge => Refusal::BadAnswer("its head is too large"),
        })?;
        let (answer, rest) = raw.into_answer()?;
        if answer.status == 101 {
            return Err(Refusal::BadAnswer("it changes the protocol, which the request did not ask for"));
        }
        let is_interim = (100..200).contains(&answer.status);
        let lines = written(&answer, is_interim);
        meter.received(lines.len()).map_err(Refusal::Bytes)?;
        has_begun.store(true, Ordering::Relaxed);
        if to.write_all(&lines).await.is_err() {
            return Ok(End::Broken);
        }
        if !is_interim {
            let mut all = rest.chain(from);
            return Ok(pump(&mut all, to, Direction::Received, meter).await.err().unwrap_or(End::Complete));
        }
        read = rest;
    }
    Ok(End::Broken)
}

/// The head of an answer as the client gets it. Its body is passed on as it is, so its framing is too.
fn written(answer: &AnswerHead, is_interim: bool) -> Vec<u8> {
    let AnswerHead { status, reason, fields } = answer;
    let mut lines = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    head::write_fields(head::passed_on(fields), &mut lines);
    if is_interim {
        lines.extend_from_slice(b"\r\n");
        return lines;
    }
    // With both, `Transfer-Encoding` counts (RFC 9112, section 6.3), and only one of them is passed on.
    let framing = ["transfer-encoding", "content-length"]
        .into_iter()
        .find(|name| head::values(fields, name).next().is_some())
        .unwrap_or_default();
    head::write_fields(fields.iter().filter(|field| field.name == framing), &mut lines);
    lines.extend_from_slice(b"via: 1.1 filesecbox\r\nconnection: close\r\n\r\n");
    lines
}
