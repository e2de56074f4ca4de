//! `GET /ws/{u}`: the WebSocket on which a runner registers and is asked. `docs/RUNNER.md` specifies the frames.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use policy::UserId;
use sandbox::wire::register::DISCONNECT;
use sandbox::wire::response::Failed;
use sandbox::wire::{FRAME_BYTES_MAX, Frame, Register, Response as Answer};
use tokio::time::{Instant, MissedTickBehavior};

use crate::access::{Action, Caller};
use crate::audit::record::now;
use crate::audit::{Account, Effect, Entry};
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::extract::{LendingUser, NoParams};
use crate::http::request_log::Noted;
use crate::ops::runners::{Registering, Registration, Unregistered};

/// How long a connection may take to register.
const REGISTER: Duration = Duration::from_secs(10);
/// How often a connection shows that it lives, and how long the other side may be silent.
const PULSE: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(60);
/// How long one frame may take to be sent.
const SEND: Duration = Duration::from_secs(10);

type Sink = SplitSink<WebSocket, Message>;

pub(in crate::http) async fn connect(
    State(app): State<App>,
    LendingUser { user, has_token }: LendingUser,
    _: NoParams,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade
        .map_err(|_| Problem::invalid("a runner needs a WebSocket: connect with `ws://` and `Upgrade`"))?;
    let registering = app
        .service
        .runners()
        .enter(has_token.then(|| user.clone()))
        .ok_or_else(|| Problem::busy("too many runners are registering: wait for one of them", 1))?;
    let upgrade = upgrade.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move { serve(app, user, socket, registering).await }))
}

/// The life of a connection.
async fn serve(app: App, user: UserId, socket: WebSocket, registering: Registering) {
    let (mut sink, mut frames) = socket.split();
    let first = tokio::time::timeout(REGISTER, first_frame(&mut frames)).await;
    let Ok(Some(text)) = first else { return };
    let registered = register(&app, &user, &text).await;
    drop((text, registering));
    let (mut registration, token) = match registered {
        Ok(registered) => registered,
        Err(refused) => {
            tracing::info!(%user, code = refused.code, "a runner was refused");
            let _ = send(&mut sink, Message::text(Answer::Error(refused).to_text(None))).await;
            let _ = tokio::time::timeout(SEND, sink.close()).await;
            return;
        }
    };
    tracing::info!(%user, exact = registration.link.is_exact(), "a runner has connected");
    if send(&mut sink, Message::text(registration.answer.to_text())).await.is_ok() {
        let heard = tokio::sync::watch::Sender::new(Instant::now());
        let cut = registration.cut.clone();
        let link = Arc::clone(&registration.link);
        tokio::select! {
            () = receive(&mut frames, &link, &heard) => {}
            () = transmit(&app, &user, &token, &mut registration, &mut sink, heard.subscribe()) => {}
            () = cut.cancelled() => {}
            () = app.service.stopped() => {}
        }
    }
    app.service.runner_left(&registration);
    tracing::info!(%user, "a runner has left");
    let _ = tokio::time::timeout(SEND, sink.close()).await;
}

/// The first text that comes; `None` when the connection ends before.
async fn first_frame(frames: &mut SplitStream<WebSocket>) -> Option<String> {
    loop {
        match frames.next().await?.ok()? {
            Message::Text(text) => return Some(text.to_string()),
            Message::Binary(bytes) => return String::from_utf8(bytes.into()).ok(),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
        }
    }
}

/// Judges a registration: first the token, then the user, as founding services do. Gives the token, too.
async fn register(app: &App, user: &UserId, text: &str) -> Result<(Registration, String), Failed> {
    let refused =
        |code: &str, message: &str| Failed { code: code.to_owned(), message: message.to_owned(), kind: None };
    let invalid = |message: String| refused("INVALID", &message);
    let frame = Frame::parse(text).map_err(|error| invalid(error.to_string()))?;
    let register = Register::read(&frame).map_err(invalid)?;
    let token = Some(register.auth_token.as_str()).filter(|token| !token.is_empty());
    let audit = app.service.audit();
    let caller = may(app, user, token).map_err(|()| {
        audit.note_refused(&Account::Strangers, entry(user, None, None, "unauthenticated"));
        refused("AUTH_FAILED", "authentication failed: the token is not valid for this user's runners")
    })?;
    if register.user_id.is_empty() {
        return Err(refused("INVALID", "missing user_id"));
    }
    if UserId::parse(&register.user_id).ok().as_ref() != Some(user) {
        return Err(refused("FORBIDDEN", "user_id mismatch"));
    }
    // As with every change: a runner that connects again and again does not wash the log away.
    let account =
        Noted { caller: Some(caller.clone()), user: Some(user.clone()), ..Noted::default() }.account();
    audit.admit(&account).map_err(|spent| refused("EBUSY", &spent.to_string()))?;
    let slot = audit.reserve().map_err(|_| refused("EIO", "the audit log cannot be written: try again"))?;
    let registered = app.service.register_runner(user, &register, caller.token_name()).await;
    let outcome = if registered.is_ok() { "ok" } else { "denied" };
    let effect = if registered.is_ok() { Effect::Change } else { Effect::Nothing };
    let entry = entry(user, Some(&caller), registered.as_ref().ok(), outcome);
    if slot.charge(&account, effect, entry).await.is_err() {
        if let Ok(registration) = &registered {
            app.service.runner_left(registration);
        }
        return Err(refused("EIO", "the audit log cannot be written: try again"));
    }
    match registered {
        Ok(registration) => Ok((registration, register.auth_token)),
        Err(Unregistered::Invalid(message)) => Err(invalid(message)),
        Err(Unregistered::Revoked) => {
            Err(refused("AUTH_FAILED", "the token was revoked for runners: use another one"))
        }
        Err(Unregistered::Full) => {
            Err(refused("EBUSY", "this user has too many runners: revoke one that is not used"))
        }
        Err(Unregistered::Failed) => Err(refused("EIO", "the service failed to take the runner: try again")),
    }
}

/// The record of a registration.
fn entry(
    user: &UserId,
    caller: Option<&Caller>,
    registration: Option<&Registration>,
    outcome: &str,
) -> Entry {
    Entry {
        time: now(),
        role: caller.map(|caller| caller.role.word().to_owned()),
        token: caller.map(|caller| caller.token.clone()),
        user: Some(user.to_string()),
        action: "GET /ws/{u}".to_owned(),
        tree: registration.map(|of| format!("runners/{user}/{}", of.name())),
        outcome: outcome.to_owned(),
        ..Entry::default()
    }
}

/// Tells whether a runner of `user` may have this token: who may use all that the user has.
fn may(app: &App, user: &UserId, token: Option<&str>) -> Result<Caller, ()> {
    let caller = app.access.caller(token).map_err(|_| ())?;
    caller.role.may(Action::OfUser(user)).map_err(|_| ())?;
    Ok(caller)
}

/// Hands frames to the link until the connection ends.
async fn receive(
    frames: &mut SplitStream<WebSocket>,
    link: &sandbox::Link,
    heard: &tokio::sync::watch::Sender<Instant>,
) {
    while let Some(Ok(message)) = frames.next().await {
        heard.send_replace(Instant::now());
        match message {
            Message::Text(text) if is_goodbye(&text) => return,
            Message::Text(text) => link.receive(&text),
            Message::Binary(bytes) => {
                if let Ok(text) = std::str::from_utf8(&bytes) {
                    link.receive(text);
                }
            }
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return,
        }
    }
}

fn is_goodbye(text: &str) -> bool {
    // Such a frame is short, and no answer is parsed twice.
    text.len() < 256 && Frame::parse(text).is_ok_and(|frame| frame.kind == DISCONNECT)
}

/// Sends what is asked, and now and then that the connection lives, until it does not, or its token counts no longer.
async fn transmit(
    app: &App,
    user: &UserId,
    token: &str,
    registration: &mut Registration,
    sink: &mut Sink,
    heard: tokio::sync::watch::Receiver<Instant>,
) {
    let mut pulse = tokio::time::interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pulse.reset();
    loop {
        let sent = tokio::select! {
            asked = registration.outgoing.recv() => match asked {
                Some(frame) => send(sink, Message::text(frame.text)).await,
                None => pending().await,
            },
            _ = pulse.tick() => {
                let token = Some(token).filter(|token| !token.is_empty());
                if heard.borrow().elapsed() > SILENCE || may(app, user, token).is_err() {
                    return;
                }
                send(sink, Message::Ping(Bytes::new())).await
            }
        };
        // A link ends by itself when too much waits for a machine that does not read.
        if sent.is_err() || registration.link.has_ended() {
            return;
        }
    }
}

async fn send(sink: &mut Sink, message: Message) -> Result<(), ()> {
    match tokio::time::timeout(SEND, sink.send(message)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(()),
    }
}
