//! [`RunSpec`]: one command to run, as the service describes it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use policy::{RelPath, RunLimits, View};

use super::result::Encoding;
use crate::error::Error;
use crate::limit::Limit;
use crate::network_owner::NetworkOwner;
use crate::service::mounts::Attachment;
use crate::tier::{Network, Tier};
use crate::walls::programs::{Allowed, shorten};

/// Longest deadline under any limits: beyond it the clock's own range ends.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// One command to run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The tree it runs in. In namespaces (see [`Launcher::mounts`](crate::Launcher::mounts)) [`View::tree`] and [`View::scratch`] are paths
    /// that the run sees, and `attachments` say what stands there.
    pub view: View,
    /// The directories that a run in namespaces sees besides the minimal root; unused at other tiers.
    pub attachments: Vec<Attachment>,
    /// Descriptors that stay open as long as anything of a run in namespaces lives; unused at other tiers.
    pub leases: Vec<Arc<OwnedFd>>,
    /// Whether another run with the same surroundings is likely, so that a resident pays.
    pub recurs: bool,
    /// What it may execute; `None` is what the launcher's configuration says.
    pub allowed: Option<Arc<Allowed>>,
    /// The program's bare name, which the whitelist must have.
    pub program: String,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// The whole environment; nothing is added.
    pub environment: Vec<(String, String)>,
    /// The working directory, inside the tree.
    pub directory: RelPath,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// The deadline, counted from the call; [`RunLimits::timeout_ms`] at most.
    pub timeout: Duration,
    /// The part of it that went by before the call, in which the caller made ready what the run sees.
    pub spent: Duration,
    /// Limits on resources and output.
    pub limits: RunLimits,
    /// The network that it may reach.
    pub network: Network,
    /// The user and agent whose network namespace it lives in, where runs have some; without an owner, no other run
    /// shares it.
    pub network_of: Option<NetworkOwner>,
    /// A floor above the configured one.
    pub minimum: Option<Tier>,
    /// Whether the result also carries raw bytes.
    pub encoding: Encoding,
    /// Ends the run early, when the caller finds a reason for it.
    pub halt: Option<Halt>,
}

/// A way to end a run from outside: the run is killed as soon as the channel carries a reason, and
/// [`RunHandle::end`](crate::RunHandle::end) is waited for as after any other end.
pub type Halt = tokio::sync::watch::Receiver<Option<HaltReason>>;

/// Why a run is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// The run goes beyond this limit, and its result says so.
    Limit(Limit),
    /// The run's files are taken from it. The launcher is waited for until nothing of the run is left, and not only for
    /// as long as an answer may take.
    Withdrawn,
}

impl RunSpec {
    /// A run of `program` in `view` with no arguments, environment or input, default limits and no network.
    #[must_use]
    pub fn new(view: View, program: impl Into<String>) -> Self {
        let limits = RunLimits::default();
        Self {
            view,
            attachments: Vec::new(),
            leases: Vec::new(),
            recurs: true,
            allowed: None,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: RelPath::root(),
            stdin: None,
            timeout: limits.deadline(None),
            spent: Duration::ZERO,
            limits,
            network: Network::None,
            network_of: None,
            minimum: None,
            encoding: Encoding::Text,
            halt: None,
        }
    }
}

/// How long a run may take.
pub(crate) fn deadline(spec: &RunSpec) -> Duration {
    spec.timeout.min(Duration::from_millis(spec.limits.timeout_ms)).min(LONGEST)
}

/// How long a run may still take when it begins.
pub(crate) fn remaining(spec: &RunSpec) -> Duration {
    deadline(spec).saturating_sub(spec.spent)
}

/// Checks what no process could receive, before anything is opened.
pub(super) fn check(spec: &RunSpec) -> Result<(), Error> {
    let limits = &spec.limits;
    if let Some(bytes) = spec.stdin.as_ref().map(Vec::len).filter(|bytes| *bytes > limits.stdin_bytes) {
        return Err(Error::TooLarge { what: "standard input", bytes, limit: limits.stdin_bytes });
    }
    let arguments = spec.arguments.iter().map(|argument| argument.len() + 1);
    let variables = spec.environment.iter().map(|(name, value)| name.len() + value.len() + 2);
    let bytes = arguments.chain(variables).sum();
    if bytes > limits.arguments_bytes {
        let what = "command line with its environment";
        return Err(Error::TooLarge { what, bytes, limit: limits.arguments_bytes });
    }
    let bad_argument = spec.arguments.iter().find(|argument| argument.contains('\0'));
    let bad_variable = spec
        .environment
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
        .map(|(name, _)| name);
    match bad_argument.or(bad_variable) {
        Some(text) => Err(Error::Unpassable { text: shorten(text).replace('\0', "␀") }),
        None => Ok(()),
    }
}
