//! [`Runs`]: commands in which the service takes part. They outlive a connection.
//!
//! Each [`run`] has a task that reads the command, keeps the events that the service has not acknowledged, and sends them on the connection to
//! which the run is attached. [`sandbox::wire::live`] has the rules.

mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::live::{Input, LiveEnd, LiveEnding, LiveRun, LiveSpec, Order, Output, Stream};
use sandbox::wire::live::{EVENT_BYTES_MAX, RUN_BYTES_MAX, RUNS_MAX};
use sandbox::wire::response::Failed;
use sandbox::wire::{Data, live};
use sandbox::{ErrorKind, ExecSpec, Sandbox, UserId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::run::Run;
use crate::outcomes::Outcomes;
use crate::tasks::Tasks;

/// How long a command goes on without a service that takes part in it.
const ALONE_MAX: Duration = Duration::from_secs(600);
/// How long commands that are killed at the end may take to be given up, and how often it is looked.
const CLOSING: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// A command to begin.
#[derive(Debug)]
pub(crate) enum What {
    /// Its output is told as it comes.
    AsItComes(LiveSpec),
    /// Its output is told when it has ended, as much as its bound keeps.
    AtItsEnd(ExecSpec),
}

/// The commands of this machine in which the service takes part. A clone has the same.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sandbox: Arc<dyn Sandbox>,
    user: UserId,
    table: Mutex<HashMap<String, Arc<Run>>>,
    alone_max: Duration,
    outcomes: Outcomes,
    tasks: Tasks,
}

impl Runs {
    /// No command runs; later ones run in `sandbox`, for `user`.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>, user: UserId) -> Self {
        Self::kept_for(sandbox, user, ALONE_MAX)
    }

    /// As [`Runs::new`], with another time for which a command goes on alone.
    #[must_use]
    pub fn kept_for(sandbox: Arc<dyn Sandbox>, user: UserId, alone_max: Duration) -> Self {
        Self(Arc::new(Inner {
            sandbox,
            user,
            table: Mutex::default(),
            alone_max,
            outcomes: Outcomes::default(),
            tasks: Tasks::default(),
        }))
    }

    /// Where they run.
    pub(crate) fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.0.sandbox
    }

    /// The user whose they are.
    pub(crate) fn user(&self) -> &UserId {
        &self.0.user
    }

    /// How changes went, which outlives a connection as well.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.0.outcomes
    }

    /// Commands in the background, as founding services ask for them.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// Begins a command in the background.
    pub(crate) async fn begin_task(&self, name: &str, command: ExecSpec) -> Result<(), Failed> {
        self.0.tasks.begin(&self.0.sandbox, &self.0.user, name, command).await
    }

    /// How many commands run, or have ended and their events have not come to the service.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins a run, unless there is one of this name, and attaches it to a connection either way. Waits until its command runs.
    pub(crate) async fn begin(
        &self,
        name: &str,
        what: What,
        outgoing: mpsc::Sender<String>,
    ) -> Result<(), Failed> {
        if name.is_empty() || name.len() > RUN_BYTES_MAX {
            let message = format!("`run` has 1 to {RUN_BYTES_MAX} bytes");
            return Err(Failed::new(ErrorKind::Invalid, message));
        }
        let run = {
            let mut table = self.0.table.lock();
            match table.get(name) {
                Some(run) => {
                    run.attach(None, outgoing);
                    Arc::clone(run)
                }
                None if table.len() >= RUNS_MAX => {
                    let message = format!("{RUNS_MAX} commands run here already: wait for one of them");
                    return Err(Failed::new(ErrorKind::Busy, message));
                }
                None => {
                    let run = Arc::new(Run::new(name, outgoing));
                    table.insert(name.to_owned(), Arc::clone(&run));
                    // Not of the connection's tasks: it goes on without it.
                    tokio::spawn(self.clone().live(Arc::clone(&run), what));
                    run
                }
            }
        };
        let mut started = run.started.subscribe();
        match started.wait_for(Option::is_some).await {
            Ok(started) => started.clone().unwrap_or(Ok(())),
            Err(_) => Err(Failed::new(ErrorKind::Internal, "the command was lost")),
        }
    }

    /// Attaches a run to a connection, behind the event `after`.
    pub(crate) fn attach(
        &self,
        name: &str,
        after: u64,
        outgoing: mpsc::Sender<String>,
    ) -> Result<(), Failed> {
        let run = self.find(name)?;
        if after > run.state.lock().last {
            return Err(Failed::new(ErrorKind::Invalid, "the run has not come so far"));
        }
        run.attach(Some(after), outgoing);
        Ok(())
    }

    /// Notes that the events up to `seq` have come.
    pub(crate) fn acknowledge(&self, name: &str, seq: u64) {
        if let Ok(run) = self.find(name) {
            run.state.lock().acknowledge(seq);
            run.changed.notify_one();
        }
    }

    /// Carries an order out, if the command runs.
    pub(crate) fn order(&self, name: &str, order: Order) {
        if let Ok(run) = self.find(name)
            && let Some(orders) = &run.state.lock().orders
        {
            // A caller who sends more than can be carried out loses some.
            let _full = orders.try_send(order);
        }
    }

    /// Kills the command of a run and forgets the run.
    pub(crate) fn kill(&self, name: &str) {
        if let Ok(run) = self.find(name) {
            run.killed.cancel();
        }
    }

    /// Kills all commands, and waits a moment until they are given up.
    pub(crate) async fn close(&self) {
        self.0.tasks.kill_all();
        self.0.table.lock().values().for_each(|run| run.killed.cancel());
        let until = Instant::now() + CLOSING;
        while !self.is_empty() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Puts input behind what was taken before; what was taken already is passed over.
    pub(crate) async fn feed(&self, input: live::Input) -> Result<(), Failed> {
        let live::Input { run, at, data: Data(mut bytes), end } = input;
        let closed = || Failed::new(ErrorKind::Invalid, "the input of the run is closed");
        if bytes.len() > EVENT_BYTES_MAX {
            let message = format!("a piece of input has at most {EVENT_BYTES_MAX} bytes");
            return Err(Failed::new(ErrorKind::TooLarge, message));
        }
        let run = self.find(&run)?;
        let mut taken = run.input.lock().await;
        let known = taken.count.checked_sub(at);
        let known = known.ok_or_else(|| Failed::new(ErrorKind::Invalid, "input before this is missing"))?;
        let known_bytes = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
        let is_end_known = known > bytes.len() as u64;
        let rest = bytes.split_off(known_bytes);
        if !rest.is_empty() {
            // Between the room and the count nothing is awaited: what was counted was taken, and the other way round.
            let sender = taken.sender.clone().ok_or_else(closed)?;
            let room = sender.reserve().await.map_err(|_| closed())?;
            taken.count += rest.len() as u64;
            room.send(Input::Bytes(rest));
        }
        if end && !is_end_known {
            let sender = taken.sender.clone().ok_or_else(closed)?;
            let room = sender.reserve().await.map_err(|_| closed())?;
            taken.count += 1;
            room.send(Input::End);
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Arc<Run>, Failed> {
        let found = self.0.table.lock().get(name).cloned();
        found.ok_or_else(|| {
            Failed::new(
                ErrorKind::NotFound,
                "there is no such run: it has ended, or the runner was restarted",
            )
        })
    }

    /// The life of a run.
    async fn live(self, run: Arc<Run>, what: What) {
        let _entry = Entry { runs: &self, run: &run };
        let begun = tokio::select! {
            begun = self.command(what) => begun,
            () = run.killed.cancelled() => return,
        };
        let live = match begun {
            Ok(live) => live,
            Err(error) => {
                // Gone before it is told: the same name begins anew.
                self.forget(&run);
                run.started.send_replace(Some(Err(Failed::of(&error))));
                return;
            }
        };
        let LiveRun { output, input, orders, end } = live;
        run.input.lock().await.sender = Some(input);
        run.state.lock().orders = Some(orders);
        run.started.send_replace(Some(Ok(())));
        tokio::select! {
            () = run.relay(output, end, self.0.alone_max) => {}
            () = run.killed.cancelled() => {}
        }
    }

    async fn command(&self, what: What) -> sandbox::Result<LiveRun> {
        match what {
            What::AsItComes(spec) => self.0.sandbox.begin(&self.0.user, spec).await,
            What::AtItsEnd(spec) => Ok(collected(Arc::clone(&self.0.sandbox), self.0.user.clone(), spec)),
        }
    }

    fn forget(&self, run: &Arc<Run>) {
        let mut table = self.0.table.lock();
        if table.get(&run.name).is_some_and(|there| Arc::ptr_eq(there, run)) {
            table.remove(&run.name);
        }
    }
}

/// A command whose output comes when it has ended: as much as its bound keeps.
fn collected(sandbox: Arc<dyn Sandbox>, user: UserId, spec: ExecSpec) -> LiveRun {
    let ((pieces, output), (input, _), (orders, _)) = (mpsc::channel(1), mpsc::channel(1), mpsc::channel(1));
    let (end, LiveEnding { result, mut given_up }) = LiveEnd::new();
    tokio::spawn(async move {
        let mut ended = tokio::select! {
            ended = sandbox.exec(&user, spec) => ended,
            _ = &mut given_up => return,
        };
        if let Ok(ended) = &mut ended {
            let streams = [(Stream::Stdout, &mut ended.stdout), (Stream::Stderr, &mut ended.stderr)];
            for (stream, bytes) in streams {
                let mut bytes = std::mem::take(bytes);
                while !bytes.is_empty() {
                    let bytes = bytes.split_to(bytes.len().min(EVENT_BYTES_MAX));
                    if pieces.send(Output { stream, bytes }).await.is_err() {
                        return;
                    }
                }
            }
        }
        // The result is there before the end of the output is seen.
        let _gone = result.send(ended);
        drop(pieces);
    });
    LiveRun { output, input, orders, end }
}

/// The place of a run in the table, free when it is dropped.
struct Entry<'a> {
    runs: &'a Runs,
    run: &'a Arc<Run>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.runs.forget(self.run);
    }
}
