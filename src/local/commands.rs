//! Commands through the runs of the service.

use std::sync::Arc;
use std::time::Instant;

use exec::Encoding;
use policy::TreeId;
use sandbox::{ExecResult, ExecSpec, HeadTail, OUTPUT_BYTES_MAX, Program, Result};

use super::errors;
use super::record::{Records, entry_of_command, recorded};
use super::store_path::At;
use crate::ops::Service;
use crate::ops::run::event::{Event, Kind};
use crate::ops::run::{Command, Commit, RunRequest, Skills};

/// Runs `spec` at `at`. With `skills`, a command of a workspace sees the user's.
pub(super) async fn run(
    service: &Arc<Service>,
    records: Records,
    at: At,
    spec: ExecSpec,
    skills: bool,
) -> Result<ExecResult> {
    let begin = Instant::now();
    let (entry, command) = match spec.program {
        Program::Argv { program, arguments } => {
            (entry_of_command(&at, &program), Command::Program { name: program, args: arguments })
        }
        Program::Shell(script) => (entry_of_command(&at, "bash"), Command::Shell(script)),
    };
    let sees_skills = skills && matches!(at.tree, TreeId::Workspace(..));
    let request = RunRequest {
        command,
        dir: at.path,
        env: spec.environment,
        stdin: (!spec.stdin.is_empty()).then(|| spec.stdin.to_vec()),
        timeout_ms: spec.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        isolation: None,
        skills: if sees_skills { Skills::All } else { Skills::None },
        network: None,
        encoding: Encoding::Text,
        changes: false,
        reached: false,
        tty: false,
        commit: Commit::Now,
    };
    let most = spec.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let run = async {
        // As it was written: the result that the service keeps is text, and no longer than it is configured to be.
        let (mut stdout, mut stderr) = (HeadTail::new(most), HeadTail::new(most));
        let hear = |event: Event| match event.kind {
            Kind::Stdout => stdout.push(&event.payload),
            Kind::Stderr => stderr.push(&event.payload),
            Kind::Started | Kind::Exit => {}
        };
        let outcome = service.attend(at.tree, request, hear).await;
        let result = outcome.map_err(|error| errors::of("exec", error))?.result;
        let ((stdout, stdout_dropped_bytes), (stderr, stderr_dropped_bytes)) =
            (stdout.finish(), stderr.finish());
        Ok(ExecResult {
            stdout,
            stderr,
            stdout_dropped_bytes,
            stderr_dropped_bytes,
            exit_code: result.exit_code,
            // A deadline is told as such; how it killed is not the caller's matter.
            signal: result.signal.filter(|_| !result.timed_out),
            timed_out: result.timed_out,
            duration: begin.elapsed(),
            hint: result.hint,
        })
    };
    recorded((service, records), "exec", entry, run).await
}
