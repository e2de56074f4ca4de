//! [`Begun`]: a run that the launcher has, until its result.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::enforcement::Circumstances;
use crate::error::Error;
use crate::hint;
use crate::launcher::Launcher;
use crate::live::Live;
use crate::networks::Standing;
use crate::output::{Capture, Stream};
use crate::residents::{Resident, Surroundings};
use crate::result::ExecResult;
use crate::run::{RunSpec, deadline};
use crate::supervisor::Supervised;
use crate::watch::{Pipes, Watch};

/// A run that the launcher has. Dropping it kills the whole tree of processes.
#[must_use]
pub struct Begun {
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) spec: RunSpec,
    pub(crate) live: Option<Live>,
    pub(crate) began: Instant,
    pub(crate) has_own_uid: bool,
    /// Its network, which is kept until its end.
    pub(crate) standing: Standing,
    pub(crate) pipes: Pipes,
    pub(crate) reports: OwnedFd,
    /// The socket through which the launcher got it.
    pub(crate) through: Arc<OwnedFd>,
    /// What it sees, and its own mount of the tree, when its first process may stay.
    pub(crate) lasting: Option<(Surroundings, OwnedFd)>,
    /// Whether its first process had stayed.
    pub(crate) is_residents: bool,
    /// What its supervisor has to know, when it has one.
    pub(crate) supervised: Option<Supervised>,
}

impl Begun {
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
            has_own_uid,
            standing,
            pipes,
            reports,
            through,
            lasting,
            is_residents,
            supervised,
        } = self;
        let mut capture = Capture::new(spec.limits.output_bytes);
        let deadline = tokio::time::Instant::from_std(began + deadline(&spec));
        let mut watch = Watch::new(pipes, reports, deadline, launcher.buffers.lend())?;
        watch.halt = spec.halt.take();
        watch.supervised = supervised;
        if let Some(live) = live {
            watch.join(live)?;
        }
        let watched = watch.until_ended(&mut capture).await;
        launcher.buffers.take_back(std::mem::take(&mut watch.buffer));
        if matches!(watched, Err(Error::LauncherDied)) {
            // Before the error is told, so that whoever repeats the command finds a launcher.
            launcher.replace_soon(Arc::clone(&through)).await?;
        }
        let ending = watched?;
        let reach = watch.reach;
        if let (Some((surroundings, tree)), Some(socket)) = (lasting, watch.into_resident()) {
            let namespace = standing.namespace().cloned();
            launcher.keep(Resident { surroundings, tree, socket, through, namespace });
        }
        let enforcement = launcher.enforcement(Circumstances {
            own_uid: has_own_uid,
            reach,
            network: spec.network,
            standing: &standing,
        });
        let exit_code = ending.code.unwrap_or(-1);
        let hint = match (ending.limit(), capture.total(Stream::Err)) {
            (Some(limit), _) => Some(hint::of_limit(limit, &spec.limits)),
            (None, 0) => None,
            _ => hint::of(
                &launcher.programs,
                &spec.limits,
                exit_code,
                &capture.end(Stream::Err, hint::LOOK_BYTES),
            ),
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let result = ExecResult::new(&capture, ending, spec.encoding, duration_ms, enforcement, hint);
        Ok(ExecResult { is_residents, ..result })
    }
}
