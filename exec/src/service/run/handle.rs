//! [`RunHandle`]: a run that the launcher has, until its result.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::service::enforcement::Circumstances;
use crate::service::launcher::Launcher;
use crate::service::launcher::known::Bounds;
use crate::service::networks::RunNetwork;
use crate::service::own_mounts::OwnMounts;
use crate::service::residents::{Resident, Surroundings};
use crate::service::run::hint;
use crate::service::run::live::Live;
use crate::service::run::output::{Capture, Stream};
use crate::service::run::result::ExecResult;
use crate::service::run::spec::{RunSpec, deadline, remaining};
use crate::service::run::stdio::ServicePipes;
use crate::service::run::watch::Watch;
use crate::step::Step;
use crate::supervisor::Supervised;
use crate::workloads::Working;

/// A run that the launcher has. Dropping it kills the whole tree of processes.
#[must_use]
pub struct RunHandle {
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) spec: RunSpec,
    pub(crate) live: Option<Live>,
    pub(crate) began: Instant,
    /// Its part in the work of its user.
    pub(crate) working: Working,
    pub(crate) has_own_uid: bool,
    /// Its network, which is kept until its end.
    pub(crate) run_network: RunNetwork,
    pub(crate) pipes: ServicePipes,
    pub(crate) reports: OwnedFd,
    /// The socket through which the launcher got it.
    pub(crate) through: Arc<OwnedFd>,
    /// The surroundings of the run, and its own mounts, when its first process may stay.
    pub(crate) lasting: Option<(Surroundings, OwnMounts)>,
    /// Whether its first process had stayed.
    pub(crate) is_residents: bool,
    /// The facts for its supervisor, when it has one.
    pub(crate) supervised: Option<Supervised>,
    /// What it may execute: the programs as they were looked up when it began.
    pub(crate) bounds: Arc<Bounds>,
}

impl RunHandle {
    /// Waits for the end of the run, its deadline, or the death of the launcher. When the future is dropped, the whole
    /// tree of processes is killed.
    ///
    /// # Errors
    /// As [`Launcher::run`].
    pub async fn end(self) -> Result<ExecResult, Error> {
        let Self {
            launcher,
            mut spec,
            live,
            began,
            working,
            has_own_uid,
            run_network,
            pipes,
            reports,
            through,
            lasting,
            is_residents,
            supervised,
            bounds,
        } = self;
        let programs = &bounds.programs;
        let mut capture = Capture::new(spec.limits.output_bytes);
        let allowed = deadline(&spec);
        let deadline = tokio::time::Instant::from_std(began + remaining(&spec));
        let mut watch = Watch::new(pipes, reports, deadline, launcher.buffers.lend(), live)?;
        watch.halt = spec.halt.take();
        watch.supervised = supervised;
        let watched = watch.until_ended(&mut capture).await;
        launcher.buffers.take_back(watch.take_buffer());
        if matches!(watched, Err(Error::LauncherDied)) {
            // Before the error is told, so that a caller who repeats the command finds a launcher.
            launcher.replace_soon(Arc::clone(&through)).await?;
        }
        if let Err(Error::Step { step: Step::Execute, .. }) = watched
            && launcher.looks_again(spec.allowed.as_ref(), programs).await
        {
            return Err(Error::ProgramReplaced { program: spec.program });
        }
        let ending = watched?;
        if let Some(worked) = watch.worked {
            working.end(worked);
        }
        let reach = watch.reach;
        if let (Some((surroundings, mounts)), Some(socket)) = (lasting, watch.into_resident()) {
            let namespace = run_network.namespace().cloned();
            launcher.keep(Resident { surroundings, mounts, socket, through, namespace });
        }
        let enforcement = launcher.enforcement(Circumstances {
            own_uid: has_own_uid,
            reach,
            network: spec.network,
            run_network: &run_network,
            bounds: &bounds,
        });
        let exit_code = ending.code.unwrap_or(-1);
        // "Found but not executable", and not found (bash(1), EXIT STATUS).
        let is_replaced = matches!(ending.code, Some(126 | 127))
            && launcher.looks_again(spec.allowed.as_ref(), programs).await;
        let hint = match (ending.limit(), capture.total(Stream::Err)) {
            (Some(limit), _) => Some(hint::of_limit(limit, &spec.limits)),
            (None, _) if ending.timed_out => {
                Some(hint::of_deadline(allowed, spec.spent, spec.limits.timeout_ms))
            }
            _ if is_replaced => Some(hint::PROGRAMS_REPLACED.to_owned()),
            (None, 0) => None,
            _ => {
                let met = hint::Met {
                    programs,
                    limits: &spec.limits,
                    own: [&spec.view.tree, &spec.view.scratch],
                    network: spec.network,
                };
                hint::of(met, exit_code, &capture.end(Stream::Err, hint::LOOK_BYTES))
            }
        };
        let duration_ms = u64::try_from((spec.spent + began.elapsed()).as_millis()).unwrap_or(u64::MAX);
        let result = ExecResult::new(&capture, ending, spec.encoding, duration_ms, enforcement, hint);
        Ok(ExecResult { is_residents, ..result })
    }
}
