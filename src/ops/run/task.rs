//! A planned run, from its permit to its result: its view is prepared, the command runs, and its changes are taken in.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use egress::{Pass, Reached};
use exec::{ExecResult, Launcher, Limit, Live, RunSpec, Unbegun};
use policy::TreeId;
use storage::{Absorbed, Interrupt, PreparedRun};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::RunOutcome;
use super::changes::{self, Changes, Watched};
use super::confined::Confined;
use super::pending::Pending;
use super::plan::Planned;
use super::under_way::Entry;
use crate::audit::{self, Account};
use crate::metrics::Outcome;
use crate::ops::admission::permits::Permit;
use crate::ops::disk::Watching;
use crate::ops::error::{Error, Result};
use crate::ops::{Service, blocking};
use crate::telemetry::Context;
use crate::telemetry::span::{Begun, Run};

/// The trees that a run may change, and what was in them before.
type Before = (Result<changes::Snapshot, String>, Watched);

/// A run that may have begun.
struct Prepared {
    view: PreparedRun,
    before: Option<Before>,
    /// Looks after the disk while the command runs.
    watching: Watching,
    begun: Result<exec::RunHandle, exec::Error>,
}

/// How far a run has come when its view is prepared, or cannot be in time.
enum Readied {
    Begun(Box<Prepared>),
    /// It ended before its command began.
    Unbegun(Box<ExecResult>),
}

impl Service {
    /// Carries a planned run out, and counts and traces it.
    ///
    /// # Errors
    /// As [`Service::run`].
    pub(super) async fn run_planned(
        &self,
        permit: Permit,
        mut planned: Planned,
        live: Option<Live>,
    ) -> Result<(RunOutcome, Option<Pending>)> {
        let (traced, begun) = (planned.traced.take(), Begun::now());
        let ended = self.carry_out(permit, planned, live).await;
        self.tell(traced, begun, ended.as_ref().ok().map(|(outcome, _)| &outcome.result));
        ended
    }

    /// Counts a run that is over, and tells of it where it has a span.
    pub(super) fn tell(
        &self,
        traced: Option<(String, Context)>,
        begun: Begun,
        result: Option<&ExecResult<Confined>>,
    ) {
        match result {
            Some(result) => self.metrics.ran(result.enforcement.word(), result),
            None => self.metrics.ran_without_result(),
        }
        if let (Some(spans), Some((program, context))) = (&self.spans, traced) {
            let run = Run {
                program: &program,
                outcome: result.map_or(Outcome::Failed, Outcome::of),
                tier: result.map(|result| result.enforcement.word()),
            };
            spans.push(run.ended(&context, begun));
        }
    }

    async fn carry_out(
        &self,
        permit: Permit,
        planned: Planned,
        live: Option<Live>,
    ) -> Result<(RunOutcome, Option<Pending>)> {
        let is_terminal = live.as_ref().is_some_and(|live| live.terminal.is_some());
        let entry = self.under_way.enter(planned.plan.sandbox(), is_terminal);
        let Planned { plan, spec, pass, tree, reached: is_told, watched, aside, traced: _ } = planned;
        let asks_for_changes = watched.is_some();
        let kill = live.as_ref().map(|live| live.kill.clone());
        // One that is to end comes to its end there.
        tokio::select! {
            () = self.launcher.wait_for_turn_of(&spec) => {}
            () = killed(kill) => {}
            () = self.stop.cancelled() => {}
            () = entry.stop.cancelled() => {}
        }
        let Prepared { view, before, watching, begun } = match self
            .begin_command(plan, spec, watched, live, &entry)
            .await?
        {
            Readied::Begun(prepared) => *prepared,
            Readied::Unbegun(result) => {
                drop(entry);
                let result = result.confined_by(|walls| Confined::Here(walls.into()));
                let reached = self.end_pass(tree, pass, is_told).await;
                let changes = asks_for_changes.then(Changes::default);
                return Ok((RunOutcome { result, absorbed: Absorbed::default(), changes, reached }, None));
            }
        };
        let mut ended = pin!(async { begun?.end().await });
        let result = tokio::select! {
            result = &mut ended => Ok(result.map(|result| result.confined_by(|walls| Confined::Here(walls.into())))),
            () = self.stop.cancelled() => Err(Error::Stopping),
            () = entry.stop.cancelled() => {
                // The run counts as under way until nothing of it is left that could change the workspace.
                watching.withdraw();
                drop(ended.await);
                Err(Error::Removed)
            }
        };
        drop((entry, watching));
        let reached = self.end_pass(tree, pass, is_told).await;
        let result = match result {
            Ok(Ok(result)) => result,
            // Nothing is taken in. The processes of a run that a stop dropped may be ending for a moment yet.
            Err(reason) => return clean_up(permit, view, Err(reason)),
            Ok(Err(error)) => return clean_up(permit, view, Err(error.into())),
        };
        // Else the launcher did not tell of the end in time.
        if result.exit_code >= 0 || result.signal.is_some() {
            view.note_end();
        }
        match aside {
            Some(aside) => {
                let look = blocking(move || Ok((view.difference()?, view)));
                let (difference, view) = look.await?;
                let changes = Some(difference.into());
                drop(permit);
                let outcome = RunOutcome { result, absorbed: Absorbed::default(), changes, reached };
                Ok((outcome, Some(Pending::new(view, aside))))
            }
            None if view.is_copy() => {
                let (absorbed, view) = blocking(move || Ok((view.absorb()?, view))).await?;
                let changes = self.changes(before).await;
                let result = told(result, &absorbed);
                let outcome = |changes| (RunOutcome { result, absorbed, changes, reached }, None);
                clean_up(permit, view, changes.map(outcome))
            }
            None => {
                let changes = self.changes(before).await;
                let absorbed = Absorbed::default();
                let outcome = |changes| (RunOutcome { result, absorbed, changes, reached }, None);
                clean_up(permit, view, changes.map(outcome))
            }
        }
    }

    /// Ends the way of a run that is over through the proxy, and keeps in the audit log what it asked for. Waits for that
    /// only where it is to be told.
    async fn end_pass(&self, tree: TreeId, pass: Option<Pass>, is_told: bool) -> Option<Reached> {
        let Some(pass) = pass.filter(Pass::is_used) else { return is_told.then(Reached::default) };
        let audit = Arc::clone(&self.audit);
        let ending = self.runs.spawn(async move {
            let reached = pass.end().await;
            if !reached.is_empty() {
                let account = Account::User(tree.user().to_string());
                audit.note_charged(&account, audit::Entry::of_network(&tree, &reached));
            }
            reached
        });
        if is_told { Some(ending.await.unwrap_or_default()) } else { None }
    }

    /// Prepares the view of a run and begins its command. The deadline of the run counts from here on: copying ends with it,
    /// and when the run is killed.
    async fn begin_command(
        &self,
        plan: storage::PlannedRun,
        mut spec: RunSpec,
        watched: Option<Watched>,
        live: Option<Live>,
        entry: &Entry,
    ) -> Result<Readied> {
        let asked = Instant::now();
        let (store, disk) = (self.store.clone(), Arc::clone(&self.disk));
        let launcher: Arc<Launcher> = Arc::clone(&self.launcher);
        let runtime = Handle::current();
        let time = Interrupt::after(spec.timeout);
        let plan = plan.copying_within(time.clone());
        let (kill, until) = (live.as_ref().map(|live| live.kill.clone()), time.clone());
        if kill.as_ref().is_some_and(|kill| *kill.borrow()) {
            time.abandon();
        }
        let killed = killed(kill);
        // All of it away from the runtime, once: each thread that has to be woken costs a run a twentieth of a
        // millisecond.
        let mut readied = pin!(blocking(move || {
            let unbegun = |why| {
                let result = launcher.unbegun(&spec, why, asked.elapsed())?;
                Ok(Readied::Unbegun(Box::new(result)))
            };
            // Preparing makes what is missing of a workspace, which may have been removed after its runs were killed.
            if until.is_abandoned() {
                return unbegun(Unbegun::Killed);
            }
            let view = match plan.prepare() {
                Err(storage::Error::TooLong { .. }) => return unbegun(Unbegun::Late),
                Err(storage::Error::Abandoned) => return unbegun(Unbegun::Killed),
                prepared => prepared?,
            };
            let gauges = view.gauges()?;
            if launcher.mounts() {
                spec.attachments = view.attachments()?;
                spec.leases = view.leases();
                spec.recurs = view.recurs();
            }
            // Through the same door as afterwards: what the run sees is there by now.
            let before = watched.map(|trees| (changes::look(&store, &trees), trees));
            let watching = disk.watch(gauges);
            spec.halt = Some(watching.halt.clone());
            spec.spent = asked.elapsed();
            let begun = runtime.block_on(launcher.begin(spec, live));
            Ok(Readied::Begun(Box::new(Prepared { view, before, watching, begun })))
        }));
        let readied = tokio::select! {
            readied = &mut readied => readied,
            () = killed => abandoned(&time, readied).await,
            () = self.stop.cancelled() => abandoned(&time, readied).await,
            () = entry.stop.cancelled() => abandoned(&time, readied).await,
        };
        match readied? {
            Readied::Unbegun(_) if self.stop.is_cancelled() => Err(Error::Stopping),
            Readied::Unbegun(_) if entry.stop.is_cancelled() => Err(Error::Removed),
            readied => Ok(readied),
        }
    }

    /// Looks again, where it was looked before.
    async fn changes(&self, before: Option<Before>) -> Result<Option<Changes>> {
        let Some((before, trees)) = before else { return Ok(None) };
        let store = self.store.clone();
        blocking(move || {
            let after = changes::look(&store, &trees);
            Ok(Some(changes::compare(&trees, before, after)))
        })
        .await
    }
}

/// Has copying end, and waits for that: `readied` may have come further already.
async fn abandoned(time: &Interrupt, readied: impl Future<Output = Result<Readied>>) -> Result<Readied> {
    time.abandon();
    readied.await
}

/// Waits until the run is killed by its name; for ever, when it cannot be.
async fn killed(kill: Option<watch::Receiver<bool>>) {
    if let Some(mut kill) = kill
        && kill.wait_for(|is_killed| *is_killed).await.is_ok()
    {
        return;
    }
    pending().await
}

/// The result with a hint about changes that were not kept.
fn told(mut result: ExecResult<Confined>, absorbed: &Absorbed) -> ExecResult<Confined> {
    if let Some(reason) = &absorbed.refused {
        result.limit = Some(Limit::Disk);
        result.hint = Some(format!("nothing that the run changed in the skill was kept: {reason}"));
    }
    if let Some(reason) = &absorbed.left_out_because {
        let left_out = absorbed.left_out;
        result.hint = Some(format!("{left_out} changes that the run made were left out: {reason}"));
    }
    result
}

/// Removes what was made for a run while `answer` is on its way. The permit is free only afterwards, so that no more than a
/// bounded number of runs wait to be cleaned up.
fn clean_up<T>(permit: Permit, mut view: PreparedRun, answer: T) -> T {
    // Before the answer: who has it may remove or replace the workspace next, publish another baseline, or begin a run.
    view.begin_to_leave();
    tokio::task::spawn_blocking(move || {
        drop(view);
        drop(permit);
    });
    answer
}
