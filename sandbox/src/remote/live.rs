//! Commands on a runner in which a caller takes part. They go on from one connection of the runner to the next.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::PATIENCE;
use super::exec::{BEYOND, TIMEOUT, refused, request, result, sentence};
use super::inputs::Inputs;
use super::link::{Attached, Call, Link, disconnected};
use super::machine::Machine;
use crate::asked::{Ask, Asked};
use crate::live::{LiveEnd, LiveEnding, LiveRun, LiveSpec, Order, Output, Stream, WindowSize};
use crate::process::HeadTail;
use crate::wire::live::{self, UNACKNOWLEDGED_MAX};
use crate::wire::response::Failed;
use crate::wire::{Data, Request, Response, request as asked};
use crate::{Error, ErrorKind, ExecResult, ExecSpec, OUTPUT_BYTES_MAX, Result};

/// How long a runner that was lost may take to come back until a command is told to be lost.
const AWAY_MAX: Duration = Duration::from_secs(300);
/// The same, while it is not known whether the command runs.
const BEGINNING_MAX: Duration = Duration::from_secs(30);
/// How many events are acknowledged at once.
const ACKNOWLEDGED: u64 = (UNACKNOWLEDGED_MAX / 2) as u64;
/// Pieces of output that wait for their reader, pieces of input and orders that wait for the runner.
const WAITING: usize = 4;

/// Runs a command to its end, across connections. The runner keeps the ends of its output only.
pub(super) async fn exec(machine: Arc<Machine>, link: Arc<Link>, spec: ExecSpec) -> Result<ExecResult> {
    let begun = Instant::now();
    let most = spec.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let spec = LiveSpec { command: spec, stdin_open: false, terminal: None };
    let LiveRun { mut output, mut end, .. } = start(machine, link, spec, Some(most as u64)).await?;
    let (mut stdout, mut stderr) = (HeadTail::new(most), HeadTail::new(most));
    while let Some(came) = output.recv().await {
        match came.stream {
            Stream::Stdout => stdout.push(&came.bytes),
            Stream::Stderr => stderr.push(&came.bytes),
        }
    }
    let told = end.wait().await?;
    let ((stdout, stdout_dropped), (stderr, stderr_dropped)) = (stdout.finish(), stderr.finish());
    Ok(ExecResult {
        stdout,
        stderr,
        stdout_dropped_bytes: told.stdout_dropped_bytes.saturating_add(stdout_dropped),
        stderr_dropped_bytes: told.stderr_dropped_bytes.saturating_add(stderr_dropped),
        duration: begun.elapsed(),
        ..told
    })
}

/// Begins a command on the machine that `link` connects.
pub(super) async fn begin(machine: Arc<Machine>, link: Arc<Link>, spec: LiveSpec) -> Result<LiveRun> {
    start(machine, link, spec, None).await
}

/// Begins a command, of whose output all is told, or at its end as much as `output_bytes_max`.
async fn start(
    machine: Arc<Machine>,
    mut link: Arc<Link>,
    spec: LiveSpec,
    output_bytes_max: Option<u64>,
) -> Result<LiveRun> {
    if !link.is_live() {
        let message = "this runner tells of a command when it has ended only: replace it with a newer one";
        return Err(refused(ErrorKind::Unsupported, message));
    }
    let LiveSpec { command, stdin_open, terminal } = spec;
    let timeout = command.timeout.unwrap_or(TIMEOUT);
    let command = asked::Exec { output_bytes_max, ..request(&link, command, timeout)? };
    let run = name()?;
    let begin = Request::Begin(live::Begin { run: run.clone(), command, stdin_open, terminal });
    let mut given_up = GivenUp { machine: Some(machine), link: Arc::clone(&link), run };
    let begun = Instant::now();
    let attached = loop {
        let attached = match link.attached(&given_up.run) {
            Ok(attached) => ask(&link, &begin, PATIENCE).await.map(|()| attached),
            Err(error) => Err(error),
        };
        match attached {
            Ok(attached) => break attached,
            // It is asked again by the same name: begun once, it does not begin again. Not for ever: a large request may never come through.
            Err(error) if error.kind() == ErrorKind::Disconnected && begun.elapsed() < BEGINNING_MAX => {
                link = given_up.next(BEGINNING_MAX).await?;
            }
            Err(error) => return Err(error),
        }
    };
    let (output, outputs) = mpsc::channel(WAITING);
    let (input, inputs) = mpsc::channel(WAITING);
    let (orders, ordered) = mpsc::channel(WAITING);
    let (end, ending) = LiveEnd::new();
    let (is_open, is_terminal) = (stdin_open || terminal.is_some(), terminal.is_some());
    let asked = Asked::new(inputs, ordered, is_open);
    let inputs = Inputs::new(asked, is_open, is_terminal);
    let until = begun + timeout + BEYOND;
    // Who waits for the whole command is answered in its time, wherever the runner is.
    let until_at_last = if output_bytes_max.is_some() { until } else { until + AWAY_MAX };
    let (waiting, order, size) = (None, None, None);
    let relay = Relay {
        given_up,
        attached,
        begun,
        until,
        until_at_last,
        last: 0,
        output,
        waiting,
        inputs,
        order,
        size,
    };
    tokio::spawn(relay.run(ending));
    Ok(LiveRun { output: outputs, input, orders, end })
}

/// A name that no other run has.
fn name() -> Result<String> {
    let number = || {
        getrandom::u64()
            .map_err(|error| refused(ErrorKind::Internal, "the host gives no random numbers").because(error))
    };
    Ok(format!("{:016x}{:016x}", number()?, number()?))
}

/// Asks for what is answered by `ok`.
async fn ask(link: &Link, request: &Request, patience: Duration) -> Result<()> {
    let call = Call { operation: "exec", request, patience, output_bytes_max: 0 };
    match link.call(call).await?.response {
        Response::Ok => Ok(()),
        Response::Error(told) => Err(failure(&told)),
        _ => Err(refused(ErrorKind::Internal, "the runner answered something else than was asked")),
    }
}

fn failure(told: &Failed) -> Error {
    refused(told.kind(false), &sentence(&told.message))
}

/// A run that the runner is told to kill when this is dropped, at the latest when it is connected again.
struct GivenUp {
    /// `None` once the run has ended.
    machine: Option<Arc<Machine>>,
    link: Arc<Link>,
    run: String,
}

impl GivenUp {
    /// Waits for the next connection.
    async fn next(&mut self, patience: Duration) -> Result<Arc<Link>> {
        let machine =
            self.machine.as_ref().ok_or_else(|| refused(ErrorKind::Internal, "the run has ended"))?;
        self.link = machine.after(&self.link, patience).await?;
        Ok(Arc::clone(&self.link))
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        let Some(machine) = self.machine.take() else { return };
        let kill = Request::Kill(live::Kill { run: self.run.clone() });
        if !self.link.has_ended() {
            return self.link.tell(&kill);
        }
        let link = Arc::clone(&self.link);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(link) = machine.after(&link, AWAY_MAX).await {
                    link.tell(&kill);
                }
            });
        }
    }
}

/// A run between its caller and its runner.
struct Relay {
    given_up: GivenUp,
    attached: Attached,
    begun: Instant,
    /// When the runner must have told the end.
    until: Instant,
    /// The same, however often it was away.
    until_at_last: Instant,
    /// The number of the last event that has come.
    last: u64,
    output: mpsc::Sender<Output>,
    /// Output that the caller has no room for yet.
    waiting: Option<Output>,
    inputs: Inputs,
    /// An order that the runner is not told yet.
    order: Option<Order>,
    /// The size that the terminal was given last.
    size: Option<WindowSize>,
}

/// A piece of input on its way.
type Feeding = Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>;

impl Relay {
    async fn run(mut self, ending: LiveEnding) {
        let LiveEnding { result, mut given_up } = ending;
        let ended = tokio::select! {
            ended = self.relay() => ended,
            _ = &mut given_up => return,
        };
        let Self { given_up: mut run, output, .. } = self;
        if ended.is_ok() {
            // The runner knows that it has ended.
            run.machine = None;
        }
        drop(output);
        // The caller may be gone.
        drop(result.send(ended.and_then(|told| told)));
    }

    /// Relays until the end; the outer error is that the end is not known.
    async fn relay(&mut self) -> Result<Result<ExecResult>> {
        let mut feeding: Feeding = None;
        let caller = self.output.clone();
        loop {
            if !self.attached.link().has_ended() {
                if let Some(order) = self.order.take() {
                    self.tell(order);
                }
                feeding = feeding.or_else(|| self.next_feeding());
            }
            let takes_input = self.inputs.takes_more();
            tokio::select! {
                event = self.attached.next(), if self.waiting.is_none() => match event {
                    Some(event) => {
                        if let Some(ended) = self.take(event)? {
                            return Ok(ended);
                        }
                    }
                    None if self.attached.link().has_ended() => {
                        feeding = None;
                        self.attach_again().await?;
                    }
                    None => return Err(refused(ErrorKind::Internal, "the runner tells more of a command than was agreed")),
                },
                room = caller.reserve(), if self.waiting.is_some() => {
                    if let (Some(output), Ok(room)) = (self.waiting.take(), room) {
                        room.send(output);
                    }
                    if self.last.is_multiple_of(ACKNOWLEDGED) {
                        self.acknowledge();
                    }
                }
                fed = fed(&mut feeding) => {
                    feeding = None;
                    match fed {
                        Ok(()) => drop(self.inputs.pieces.pop_front()),
                        // It is sent again on the next connection.
                        Err(error) if error.kind() == ErrorKind::Disconnected => feeding = Some(Box::pin(std::future::pending())),
                        Err(_) => {
                            self.inputs.pieces.clear();
                            self.inputs.close();
                        }
                    }
                }
                ask = self.inputs.asked.next(takes_input), if self.order.is_none() => match ask {
                    Ask::Order(order) => self.order = Some(order),
                    Ask::Input(input) => self.inputs.take(&self.given_up.run, input),
                },
                () = tokio::time::sleep_until(self.until) => {
                    return Err(refused(ErrorKind::Timeout, "the runner did not tell the end of the command in time"));
                }
            }
        }
    }

    /// Takes an event; the end is given back.
    fn take(&mut self, event: live::Event) -> Result<Option<Result<ExecResult>>> {
        if event.seq <= self.last {
            return Ok(None);
        }
        if event.seq != self.last + 1 {
            return Err(refused(ErrorKind::Internal, "the runner left out what a command did"));
        }
        self.last = event.seq;
        match event.what {
            live::What::Output(_, Data(bytes)) if bytes.is_empty() => {}
            live::What::Output(stream, Data(bytes)) => self.waiting = Some(Output { stream, bytes }),
            live::What::End(told) => {
                self.acknowledge();
                let streams = (HeadTail::new(0), HeadTail::new(0));
                let ended = told.map(|told| result(told, streams, self.begun.elapsed()));
                return Ok(Some(ended.map_err(|told| failure(&told))));
            }
        }
        Ok(None)
    }

    fn acknowledge(&self) {
        let run = self.given_up.run.clone();
        self.attached.link().tell(&Request::Ack(live::Ack { run, seq: self.last }));
    }

    fn tell(&mut self, order: Order) {
        if let Order::Resize(size) = order {
            self.size = Some(size);
        }
        let run = self.given_up.run.clone();
        self.attached.link().tell(&match order {
            Order::Signal(signal) => Request::Signal(live::SendSignal { run, signal }),
            Order::Resize(size) => Request::Resize(live::Resize { run, size }),
        });
    }

    fn next_feeding(&self) -> Feeding {
        let request = Request::Input(self.inputs.pieces.front()?.clone());
        let link = Arc::clone(self.attached.link());
        // As long as the command runs, it may not read.
        let patience = self.until.saturating_duration_since(Instant::now());
        Some(Box::pin(async move { ask(&link, &request, patience).await }))
    }

    /// Goes on where the last connection was lost.
    async fn attach_again(&mut self) -> Result<()> {
        loop {
            // A runner that comes and goes without end is given up, too.
            let left = self.until_at_last.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(disconnected("exec"));
            }
            let link = self.given_up.next(left.min(AWAY_MAX)).await?;
            let attached = link.attached(&self.given_up.run)?;
            let run = self.given_up.run.clone();
            let attach = Request::Attach(live::Attach { run, after: self.last });
            match ask(&link, &attach, PATIENCE).await {
                Ok(()) => {
                    self.attached = attached;
                    // It may have been on its way when the connection was lost; the same size again is nothing to the command.
                    if let Some(size) = self.size {
                        self.tell(Order::Resize(size));
                    }
                    self.until = self.until.max(Instant::now() + BEYOND).min(self.until_at_last);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Disconnected => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn fed(feeding: &mut Feeding) -> Result<()> {
    match feeding {
        Some(feeding) => feeding.await,
        None => std::future::pending().await,
    }
}
