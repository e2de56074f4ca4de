//! [`Runner`]: connections to the service, one after the other, for as long as the process lives.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use sandbox::SandboxPath;
use sandbox::wire::register::{DISCONNECT, REGISTER_OK, Registered};
use sandbox::wire::response::Failed;
use sandbox::wire::{Feature, Frame, Register};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::connect::{ConnectError, Socket, Way};
use crate::screen::Screen;
use crate::transfer::Courier;
use crate::{Runs, Session};

/// How long the answer to the registration may take.
const CONSENT: Duration = Duration::from_secs(10);
/// How often the service is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Answers that wait to be sent, at most.
const WAITING: usize = 8;
/// Codes that no later attempt changes.
const FINAL: [&str; 2] = ["AUTH_FAILED", "FORBIDDEN"];

/// A machine that is lent.
#[derive(Debug)]
pub(crate) struct Runner {
    /// The way to the service.
    pub(crate) way: Arc<Way>,
    /// Where it is shown that files are carried.
    pub(crate) screen: Screen,
    /// The first frame.
    pub(crate) register: Register,
    /// What does the work, for the user whose machine it is.
    pub(crate) runs: Runs,
    /// The directory that is lent.
    pub(crate) workspace: SandboxPath,
    /// The longest pause between two attempts.
    pub(crate) pause_max: Duration,
    /// Whether a service that says nothing to the registration has consented.
    pub(crate) is_founding: bool,
}

/// The service does not want this runner.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct Rejected(String);

/// How a connection ended.
enum End {
    Stopped,
    Rejected(Rejected),
    Lost(String),
}

impl Runner {
    /// Connects again and again until `stop`.
    ///
    /// # Errors
    /// [`Rejected`]: another attempt would not change it.
    pub(crate) async fn run(&self, stop: &CancellationToken) -> Result<(), Rejected> {
        let mut backoff = Backoff::new(self.pause_max);
        loop {
            let mut connected = None;
            let why = match self.hold(stop, &mut connected).await {
                End::Stopped => return Ok(()),
                End::Rejected(rejected) => return Err(rejected),
                End::Lost(why) => why,
            };
            let lasted = connected.map_or(Duration::ZERO, |since: Instant| since.elapsed());
            let pause = backoff.pause(lasted, getrandom::u64().unwrap_or(0));
            self.way.figures.lost(&why);
            warn!(%why, again_in_s = pause.as_secs_f32(), "not connected");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Holds one connection to its end.
    async fn hold(&self, stop: &CancellationToken, connected: &mut Option<Instant>) -> End {
        let socket = tokio::select! {
            socket = self.way.connect() => socket,
            () = stop.cancelled() => return End::Stopped,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error @ ConnectError::Refused(_)) => return End::Rejected(Rejected(error.to_string())),
            Err(error) => return End::Lost(error.to_string()),
        };
        let (mut sink, mut stream) = socket.split();
        if let Err(error) = sink.send(Message::text(self.register.to_text())).await {
            return End::Lost(error.to_string());
        }
        let first = tokio::select! {
            first = tokio::time::timeout(CONSENT, next(&mut stream)) => first,
            () = stop.cancelled() => {
                farewell(&mut sink).await;
                return End::Stopped;
            }
        };
        let first = match first {
            Ok(Ok(first)) => Some(first),
            Ok(Err(End::Lost(why))) => return End::Lost(format!("{why} after the registration")),
            Ok(Err(end)) => return end,
            Err(_) if self.is_founding => None,
            Err(_) => {
                let why = format!(
                    "the service said nothing for {} s: `--founding` takes that for consent",
                    CONSENT.as_secs()
                );
                return End::Lost(why);
            }
        };
        let features = match first.as_deref().map_or(Ok(Vec::new()), agreed) {
            Ok(features) => features,
            Err(end) => return end,
        };
        *connected = Some(Instant::now());
        info!(exact = features.contains(&Feature::Exact), "connected");
        let (outgoing, answers) = mpsc::channel(WAITING);
        let session = Session::with_courier(
            self.runs.clone(),
            self.workspace.clone(),
            &features,
            outgoing,
            Some(Courier::new(Arc::clone(&self.way), self.screen.clone())),
        );
        self.way.figures.connected(session.under_way());
        if let Some(first) = &first {
            session.receive(first).await;
        }
        let end = tokio::select! {
            end = listen(&session, &mut stream) => end,
            end = speak(&mut sink, answers, stop) => end,
        };
        session.close().await;
        end
    }
}

/// What the first frame of the service agrees to; an `error` is a rejection.
fn agreed(text: &str) -> Result<Vec<Feature>, End> {
    let Ok(frame) = Frame::parse(text) else { return Ok(Vec::new()) };
    match &*frame.kind {
        REGISTER_OK => {
            Ok(frame.body::<Registered>().map(|registered| registered.features).unwrap_or_default())
        }
        "error" => {
            let told: Failed = frame.body().unwrap_or_default();
            let sentence =
                |text: &str| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
            let (code, message) = (sentence(&told.code), sentence(&told.message));
            if FINAL.contains(&&*code) {
                let why = format!(
                    "the service rejects this runner ({code}: {message}): check the token and the user"
                );
                return Err(End::Rejected(Rejected(why)));
            }
            Err(End::Lost(format!("the service refuses the registration ({code}: {message})")))
        }
        _ => Ok(Vec::new()),
    }
}

/// The next frame with a text; JSON in binary frames is taken as well.
async fn next(stream: &mut SplitStream<Socket>) -> Result<String, End> {
    loop {
        let lost = |why: String| End::Lost(why);
        match stream.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
            Some(Ok(Message::Binary(bytes))) => {
                if let Ok(text) = std::str::from_utf8(&bytes) {
                    return Ok(text.to_owned());
                }
            }
            Some(Ok(Message::Close(_))) | None => {
                return Err(lost("the service closed the connection".to_owned()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(lost(error.to_string())),
        }
    }
}

async fn listen(session: &Session, stream: &mut SplitStream<Socket>) -> End {
    loop {
        match next(stream).await {
            Ok(text) => session.receive(&text).await,
            Err(end) => return end,
        }
    }
}

/// Sends answers and pings until the connection is lost, or `stop`.
async fn speak(
    sink: &mut SplitSink<Socket, Message>,
    mut answers: mpsc::Receiver<String>,
    stop: &CancellationToken,
) -> End {
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => {
                farewell(sink).await;
                return End::Stopped;
            }
            Some(text) = answers.recv() => Message::text(text),
            _ = ping.tick() => Message::Ping(tungstenite::Bytes::new()),
        };
        let sent = tokio::select! {
            sent = sink.send(message) => sent,
            // The rest of a frame cannot be taken back: there is no farewell then.
            () = stop.cancelled() => return End::Stopped,
        };
        if let Err(error) = sent {
            return End::Lost(error.to_string());
        }
    }
}

/// Tells the service that this runner leaves.
async fn farewell(sink: &mut SplitSink<Socket, Message>) {
    let leave = async {
        sink.send(Message::text(format!("{{\"type\":\"{DISCONNECT}\"}}"))).await?;
        sink.close().await
    };
    // A service that does not hear it sees the connection end.
    let _gone = tokio::time::timeout(FAREWELL, leave).await;
}
