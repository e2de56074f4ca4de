//! [`Connection`]: one connection of a command: head, token, target, exchange, one line in the log.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;

use super::forward::forward;
use super::head::{self, HEAD_BYTES_MAX, HeadError, RawHead, RequestHead};
use super::meter::Meter;
use super::pass::{Account, Run, Served};
use super::pending::Arrival;
use super::proxy::Egress;
use super::refusal::Refusal;
use super::relay::{End, tunnel};
use super::request::Request;

/// How long a refused client may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// The bytes that a refused client may still send meanwhile.
const FAREWELL_BYTES: u64 = 256 * 1024;
/// Longest method that is logged; others are no words.
const METHOD_BYTES_MAX: usize = 16;

/// A connection that has just been accepted.
pub(super) struct Connection {
    egress: Arc<Egress>,
    /// The user and agent whose runs may use it; `None` for all.
    account: Option<Arc<Account>>,
    stream: TcpStream,
}

/// The facts of a request for the log, as far as they are known.
struct Seen {
    method: Option<String>,
    target: Option<(String, u16)>,
}

impl Connection {
    pub(super) fn new(egress: Arc<Egress>, account: Option<Arc<Account>>, stream: TcpStream) -> Self {
        Self { egress, account, stream }
    }

    /// Serves the one request of the connection.
    ///
    /// Until it has places among the run's connections and all, and while it is told that it gets none, it is one of
    /// those that newer ones push out.
    pub(super) async fn serve(mut self, arrival: Arrival) {
        let _ = self.stream.set_nodelay(true);
        let admitted = tokio::select! {
            admitted = self.admit() => admitted,
            () = arrival.pushed_out() => None,
        };
        let Some((run, head, early)) = admitted else { return };
        let _served = Served::new(&run);
        let meter = Meter::new(Arc::clone(&run), self.egress.config.idle);
        let mut seen =
            Seen { method: Some(head.method.clone()).filter(|method| is_word(method)), target: None };
        let egress = Arc::clone(&self.egress);
        let outcome = match judge(&egress, &run, head, &mut seen) {
            Ok((request, _places)) => {
                drop(arrival);
                tokio::select! {
                    biased;
                    () = run.revoked.cancelled() => "revoked",
                    outcome = self.exchange(&run, request, &early, &meter) => outcome,
                }
            }
            Err(refusal) => {
                tokio::select! {
                    () = self.refuse(&refusal) => {}
                    () = arrival.pushed_out() => {}
                }
                refusal.rule()
            }
        };
        seen.log(&run, outcome, &meter);
    }

    /// Reads the head and finds the run by its token, before anything else of the head counts; or says why not.
    async fn admit(&mut self) -> Option<(Arc<Run>, RequestHead, Vec<u8>)> {
        let within = self.egress.config.head;
        let admitted = match head::read(&mut self.stream, within).await {
            Ok(raw) => self.owner(raw),
            Err(HeadError::TooLarge) => Err(Refusal::HeadTooLarge(HEAD_BYTES_MAX)),
            Err(HeadError::Timeout) => Err(Refusal::HeadTimeout(within)),
            Err(HeadError::Ended { .. }) => return None,
        };
        match admitted {
            Ok(admitted) => Some(admitted),
            Err(refusal) => {
                // Not a warning: a client without a token could fill the log.
                tracing::debug!(outcome = refusal.rule(), "egress refused without a token");
                self.refuse(&refusal).await;
                None
            }
        }
    }

    fn owner(&self, raw: RawHead) -> Result<(Arc<Run>, RequestHead, Vec<u8>), Refusal> {
        let (head, early) = raw.into_request()?;
        let token = head.token().ok_or(Refusal::Unauthenticated)?;
        let run = self.egress.passes.find(&token).ok_or(Refusal::Unauthenticated)?;
        // A token that came to another user's hands is good for nothing in that user's network.
        if self.account.as_ref().is_some_and(|account| !account.has(&run.who)) {
            return Err(Refusal::Unauthenticated);
        }
        Ok((run, head, early))
    }

    /// Does what is asked for, or says why not; gives one word for the log.
    async fn exchange(&mut self, run: &Run, request: Request, early: &[u8], meter: &Meter) -> &'static str {
        match self.answer(run, request, early, meter).await {
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
        request: Request,
        early: &[u8],
        meter: &Meter,
    ) -> Result<End, Refusal> {
        let route = &self.egress.route;
        match request {
            Request::Connect(target) => {
                let mut server = route.tunnel(&target, run).await?;
                if self.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
                    return Ok(End::Broken);
                }
                Ok(tunnel(&mut self.stream, early, &mut server.stream, &server.early, meter).await)
            }
            Request::Plain(mut plain) => {
                let mut server = route.plain(&plain.target, run).await?;
                plain.is_for_proxy = route.has_upstream();
                let end = forward(&mut self.stream, early, &plain, &mut server, meter).await?;
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

/// Reads the request and takes its places.
fn judge<'a>(
    egress: &'a Egress,
    run: &'a Run,
    head: RequestHead,
    seen: &mut Seen,
) -> Result<(Request, [SemaphorePermit<'a>; 3]), Refusal> {
    let request = Request::new(head)?;
    let target = request.target();
    seen.target = Some((target.host.to_string(), target.port));
    let of_run = Refusal::RunConnections(egress.config.connections_per_run);
    let mine = run.connections.try_acquire().map_err(|_| of_run)?;
    let of_user = Refusal::UserConnections(egress.config.connections_per_user);
    let ours = run.share.connections.try_acquire().map_err(|_| of_user)?;
    let all = egress.connections.try_acquire().map_err(|_| Refusal::Connections)?;
    run.moves(0).map_err(Refusal::Bytes)?;
    Ok((request, [mine, ours, all]))
}

fn is_word(method: &str) -> bool {
    method.len() <= METHOD_BYTES_MAX && method.bytes().all(|byte| byte.is_ascii_alphabetic())
}

impl Seen {
    /// Writes the one line of a request. Paths, queries, fields and bodies are the command's own business.
    fn log(self, run: &Run, outcome: &str, meter: &Meter) {
        let (bytes_out, bytes_in) = meter.totals();
        let (host, port) = self.target.unwrap_or_default();
        run.reached.lock().add(&host, port, outcome, (bytes_out, bytes_in));
        tracing::info!(
            user = run.who.user.as_str(),
            agent = run.who.agent.as_str(),
            run = run.who.run,
            method = self.method.as_deref().unwrap_or("-"),
            host,
            port,
            outcome,
            bytes_out,
            bytes_in,
            ms = u64::try_from(meter.elapsed().as_millis()).unwrap_or(u64::MAX),
            "egress"
        );
    }
}
