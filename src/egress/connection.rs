//! [`Connection`]: one connection of a command: head, token, target, exchange, one line in the log.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::forward::forward;
use super::head::{self, HEAD_BYTES_MAX, HeadError, RawHead};
use super::meter::Meter;
use super::pass::Run;
use super::pending::Arrival;
use super::proxy::Egress;
use super::refusal::Refusal;
use super::relay::{End, tunnel};
use super::request::Request;

/// How long a refused client may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// What a refused client may still send meanwhile, in bytes.
const FAREWELL_BYTES: u64 = 256 * 1024;
/// Longest method that is logged; others are no words.
const METHOD_BYTES_MAX: usize = 16;

/// A connection that has just been accepted.
pub(super) struct Connection {
    egress: Arc<Egress>,
    stream: TcpStream,
}

/// What the log says of a request, as far as it is known.
#[derive(Default)]
struct Seen {
    method: Option<String>,
    target: Option<(String, u16)>,
}

impl Connection {
    pub(super) fn new(egress: Arc<Egress>, stream: TcpStream) -> Self {
        Self { egress, stream }
    }

    /// Serves the one request of the connection.
    pub(super) async fn serve(mut self, arrival: Arrival) {
        let _ = self.stream.set_nodelay(true);
        let within = self.egress.config.head;
        let read = tokio::select! {
            read = head::read(&mut self.stream, within) => read,
            () = arrival.pushed_out() => return,
        };
        drop(arrival);
        let admitted = match read {
            Ok(raw) => self.admitted(raw),
            Err(HeadError::TooLarge) => Err(Refusal::HeadTooLarge(HEAD_BYTES_MAX)),
            Err(HeadError::Timeout) => Err(Refusal::HeadTimeout(within)),
            Err(HeadError::Ended { .. }) => return,
        };
        let (run, head, early) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                // Whoever has no token could fill the log.
                tracing::debug!(outcome = refusal.rule(), "egress refused without a token");
                return self.refuse(&refusal).await;
            }
        };
        let meter = Meter::new(Arc::clone(&run), self.egress.config.idle);
        let mut seen = Seen::default();
        let outcome = tokio::select! {
            biased;
            () = run.revoked.cancelled() => "revoked",
            outcome = self.exchange(&run, head, &early, &meter, &mut seen) => outcome,
        };
        let (bytes_out, bytes_in) = meter.totals();
        let (host, port) = seen.target.unwrap_or_default();
        tracing::info!(
            user = run.who.user.as_str(),
            agent = run.who.agent.as_str(),
            run = run.who.run,
            method = seen.method.as_deref().unwrap_or("-"),
            host,
            port,
            outcome,
            bytes_out,
            bytes_in,
            ms = u64::try_from(meter.elapsed().as_millis()).unwrap_or(u64::MAX),
            "egress"
        );
    }

    /// Finds the run by its token, before anything else of the head counts.
    fn admitted(&self, raw: RawHead) -> Result<(Arc<Run>, head::RequestHead, Vec<u8>), Refusal> {
        let (head, early) = raw.into_request()?;
        let token = head.token().ok_or(Refusal::Unauthenticated)?;
        let run = self.egress.passes.find(&token).ok_or(Refusal::Unauthenticated)?;
        Ok((run, head, early))
    }

    /// Does what is asked for, or says why not; gives one word for the log.
    async fn exchange(
        &mut self,
        run: &Run,
        head: head::RequestHead,
        early: &[u8],
        meter: &Meter,
        seen: &mut Seen,
    ) -> &'static str {
        let is_word = |method: &str| {
            method.len() <= METHOD_BYTES_MAX && method.bytes().all(|byte| byte.is_ascii_alphabetic())
        };
        seen.method = Some(head.method.clone()).filter(|method| is_word(method));
        match self.answer(run, head, early, meter, seen).await {
            Ok(end) => end.word(),
            Err(refusal) => {
                self.refuse(&refusal).await;
                refusal.rule()
            }
        }
    }

    async fn answer(
        &mut self,
        run: &Run,
        head: head::RequestHead,
        early: &[u8],
        meter: &Meter,
        seen: &mut Seen,
    ) -> Result<End, Refusal> {
        let egress = Arc::clone(&self.egress);
        let request = Request::new(head)?;
        let target = request.target();
        seen.target = Some((target.host.to_string(), target.port));
        let of_run = Refusal::RunConnections(egress.config.connections_per_run);
        let _mine = run.connections.try_acquire().map_err(|_| of_run)?;
        let _all = egress.connections.try_acquire().map_err(|_| Refusal::Connections)?;
        run.moves(0).map_err(Refusal::Bytes)?;
        match request {
            Request::Connect(target) => {
                let mut server = egress.route.tunnel(&target, run).await?;
                if self.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
                    return Ok(End::Broken);
                }
                Ok(tunnel(&mut self.stream, early, &mut server.stream, &server.early, meter).await)
            }
            Request::Plain(mut plain) => {
                let mut server = egress.route.plain(&plain.target, run).await?;
                plain.is_for_proxy = egress.route.has_upstream();
                let end = forward(&mut self.stream, early, &plain, &mut server.stream, meter).await?;
                if end == End::Complete {
                    self.take_leave().await;
                }
                Ok(end)
            }
        }
    }

    /// Says why, and lets the client read it.
    async fn refuse(&mut self, refusal: &Refusal) {
        let answer = refusal.answer();
        let told = tokio::time::timeout(FAREWELL, self.stream.write_all(answer.as_bytes())).await;
        if let Ok(Ok(())) = told {
            self.take_leave().await;
        }
    }

    /// Ends our side first and reads on for a moment: closing with unread bytes destroys the answer on its way
    /// (RFC 9112, section 9.6).
    async fn take_leave(&mut self) {
        let leaving = async {
            self.stream.shutdown().await?;
            let mut rest = (&mut self.stream).take(FAREWELL_BYTES);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        let _ = tokio::time::timeout(FAREWELL, leaving).await;
    }
}
