//! [`Errand`]: what of a request a remote backend can be asked for.

use std::sync::Arc;
use std::time::Duration;

use exec::Encoding;
use policy::TreeId;
use sandbox::{ExecSpec, OUTPUT_BYTES_MAX, Program};

use super::{Command, Commit, RunRequest};
use crate::ops::remote::Backend;
use crate::ops::{Error, Result, Service};
use crate::telemetry::Context;

/// How much longer than its command a backend may take to answer.
pub(super) const BEYOND: Duration = Duration::from_secs(60);
/// Longest name of a signal, in characters.
pub(super) const SIGNAL_CHARACTERS: usize = 32;
/// The name in spans of a program that is not on the service's list: its own name may say anything.
const PROGRAM: &str = "elsewhere";

/// A command for a backend.
pub(super) struct Errand {
    pub(super) backend: Arc<Backend>,
    pub(super) spec: ExecSpec,
    /// After this it has passed its deadline.
    pub(super) timeout: Duration,
    pub(super) encoding: Encoding,
    pub(super) traced: Option<(String, Context)>,
}

impl Service {
    /// Works out what a backend is asked, and refuses what none can be asked for.
    pub(super) async fn errand(
        &self,
        id: &TreeId,
        backend: Arc<Backend>,
        request: RunRequest,
        longest: Option<u64>,
        kept_bytes: usize,
    ) -> Result<Errand> {
        self.policy_of(id).map_or(Ok(()), |policy| policy.check_readable())?;
        let mut limits = self.run_limits_of(id.agent());
        limits.timeout_ms = longest.unwrap_or(limits.timeout_ms);
        if request.stdin.as_ref().is_some_and(|stdin| stdin.len() > limits.stdin_bytes) {
            let limit = limits.stdin_bytes;
            return Err(Error::Invalid(format!("`stdin` has more than {limit} bytes: write it to a file")));
        }
        if request.isolation.is_some() {
            return Err(unsupported(&backend, "promise a tier: leave `isolation` out"));
        }
        if request.network.is_some() {
            return Err(unsupported(&backend, "promise what a command reaches: leave `network` out"));
        }
        if request.reached {
            return Err(unsupported(&backend, "tell what a command reached: leave `reached` out"));
        }
        if request.changes {
            return Err(unsupported(&backend, "tell what a command changed: leave `changes` out"));
        }
        if request.commit == Commit::Ask {
            return Err(unsupported(&backend, "keep changes aside: leave `commit` out"));
        }
        if !self.skills_of(id, request.skills).await?.is_empty() {
            return Err(unsupported(&backend, "show skills to a command: leave `skills` out"));
        }
        let directory = backend.path(&request.dir).await?;
        let program = match request.command {
            Command::Program { name, args } => {
                let arguments = args.into_iter().map(|argument| backend.in_its_words(argument));
                Program::Argv { program: name, arguments: arguments.collect() }
            }
            Command::Shell(line) => Program::Shell(line),
        };
        let timeout = limits.deadline(request.timeout_ms);
        let spec = ExecSpec {
            program,
            directory: Some(directory),
            environment: request.env,
            stdin: request.stdin.unwrap_or_default().into(),
            timeout: Some(timeout),
            output_bytes_max: kept_bytes.min(OUTPUT_BYTES_MAX),
        };
        check(&spec, limits.arguments_bytes)?;
        let traced = Context::current().and_then(|request| request.child());
        let traced = traced.map(|context| (PROGRAM.to_owned(), context));
        Ok(Errand { backend, spec, timeout, encoding: request.encoding, traced })
    }
}

/// The refusal of what `backend` has nothing like.
pub(super) fn unsupported(backend: &Backend, what: &str) -> Error {
    Error::Unsupported(format!("`{}`, where this workspace is, cannot {what}", backend.name()))
}

/// Refuses what no process could receive, and more than a command line may have.
fn check(spec: &ExecSpec, most: usize) -> Result<()> {
    let of_program = match &spec.program {
        Program::Argv { program, arguments } => std::iter::once(program).chain(arguments).collect(),
        Program::Shell(script) => vec![script],
    };
    let of_environment = spec.environment.iter().flat_map(|(name, value)| [name, value]);
    let mut bytes = 0;
    for text in of_program.into_iter().chain(of_environment) {
        if text.contains('\0') {
            return Err(exec::Error::Unpassable { text: text.clone() }.into());
        }
        bytes += text.len() + 1;
    }
    if bytes > most {
        let what = "command line with its environment";
        return Err(exec::Error::TooLarge { what, bytes, limit: most }.into());
    }
    Ok(())
}
