//! The next event of a run, and waiting for it.

use std::future::pending;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use crate::service::run::input::Input;
use crate::service::run::live::{Chunk, Feed};
use crate::service::run::output::Stream;
use crate::service::run::output_pipe::OutputPipe;
use crate::service::run::spec::{Halt, HaltReason};

/// The next event of a run.
pub(super) enum Event {
    Report,
    /// The command has lived for a moment.
    Late,
    Output(Stream),
    Input,
    /// More input came; `None` when there will be no more.
    Fed(Option<Feed>),
    /// There is room for a piece of output; `None` when the receiver is gone.
    Room(Option<mpsc::OwnedPermit<Chunk>>),
    Timer,
    Halt(HaltReason),
    Kill,
}

/// The receiver of output as it comes, and room for the next piece, without which nothing is read.
pub(super) struct LiveSink {
    pub(super) sender: mpsc::Sender<Chunk>,
    pub(super) room: Option<mpsc::OwnedPermit<Chunk>>,
}

/// Waits until `fd` is ready.
pub(super) async fn ready(fd: &AsyncFd<OwnedFd>, interest: Interest) {
    // An error shows again, with its reason, when the descriptor is used.
    drop(fd.ready(interest).await);
}

/// Waits until there is output to read, or for ever when nothing more can come.
pub(super) async fn readable(pipe: Option<&OutputPipe>) {
    match pipe {
        Some(pipe) => pipe.readable().await,
        None => pending().await,
    }
}

/// Waits for the moment, or for ever without one.
pub(super) async fn passed(moment: Option<&mut Pin<Box<Sleep>>>) {
    match moment {
        Some(moment) => moment.await,
        None => pending().await,
    }
}

/// Waits until input can be written, or for more of it; for ever without any.
pub(super) async fn next_input(input: Option<&mut Input<AsyncFd<OwnedFd>>>) -> Event {
    let Some(input) = input else { return pending().await };
    let is_written = input.is_written();
    match &mut input.more {
        Some(more) if is_written => Event::Fed(more.recv().await),
        _ => {
            ready(&input.pipe, Interest::WRITABLE).await;
            Event::Input
        }
    }
}

/// Waits for room for a piece of output.
pub(super) async fn reserve(sink: Option<&LiveSink>) -> Option<mpsc::OwnedPermit<Chunk>> {
    let Some(sink) = sink else { return pending().await };
    sink.sender.clone().reserve_owned().await.ok()
}

/// Waits until the run is to be killed, or for ever when the sender is gone.
pub(super) async fn killed(kill: Option<&mut watch::Receiver<bool>>) {
    let Some(kill) = kill else { return pending().await };
    if kill.wait_for(|kill| *kill).await.is_err() {
        pending().await
    }
}

/// Waits until the run is to end, or for ever when the sender is gone.
pub(super) async fn halted(halt: Option<&mut Halt>) -> HaltReason {
    let Some(halt) = halt else { return pending().await };
    match halt.wait_for(Option::is_some).await.map(|reason| *reason) {
        Ok(Some(reason)) => reason,
        _ => pending().await,
    }
}
