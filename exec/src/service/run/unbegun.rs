//! [`Unbegun`]: why a command did not begin although nothing refused it, and the result of such a run.

use std::time::Duration;

use super::hint;
use super::output::Capture;
use super::result::{Ending, ExecResult};
use super::spec::{RunSpec, check, deadline};
use crate::error::Error;
use crate::service::enforcement::Circumstances;
use crate::service::launcher::Launcher;
use crate::service::networks::RunNetwork;
use crate::wire::Reach;

/// Why a command did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbegun {
    /// Its deadline passed while its caller made ready what it was to see.
    Late,
    /// It was killed meanwhile.
    Killed,
}

impl Launcher {
    /// The result of a run that was ended `after` its caller had begun with it, and before it was handed to this launcher. It
    /// names the walls that the command would have had.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Unpassable`], [`Error::Identity`]: the run could not have begun at all.
    pub fn unbegun(&self, spec: &RunSpec, why: Unbegun, after: Duration) -> Result<ExecResult, Error> {
        check(spec)?;
        let own_uid = self.identity(spec.view.owner)?.is_some();
        let enforcement = self.enforcement(Circumstances {
            own_uid,
            reach: Reach::Open,
            network: spec.network,
            run_network: &RunNetwork::Shared,
            bounds: &self.bounds(spec.allowed.as_ref()),
        });
        let (signal, timed_out, hint) = match why {
            Unbegun::Late => {
                (None, true, Some(hint::of_deadline_before(deadline(spec), spec.limits.timeout_ms)))
            }
            Unbegun::Killed => (Some(libc::SIGKILL), false, None),
        };
        let ending = Ending { code: None, signal, timed_out, limit: None };
        let capture = Capture::new(spec.limits.output_bytes);
        let duration_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Ok(ExecResult::new(&capture, ending, spec.encoding, duration_ms, enforcement, hint))
    }
}
