//! Commands through the service: one document for an answer, or a stream where more output is wanted than that holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::http::{Http, broken, document, json, nothing, success};
use crate::process::HeadTail;
use crate::{
    Error, ErrorKind, ExecResult, ExecSpec, OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX, Program, Result,
};

/// Characters of a hint that are kept.
const HINT_CHARACTERS: usize = 2000;
/// How much longer than a command may take its answer may: it may wait for a place, and its end for a moment.
const BEYOND: Duration = Duration::from_secs(60);
/// The longest time of a command without a deadline of its own: longer than the services' configured deadline.
const UNSAID: Duration = Duration::from_secs(600);
/// The longest line of a stream: an event has at most 32 KiB of output.
const LINE_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    args: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    dir: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skills: Option<&'static str>,
    encoding: &'static str,
    exec_id: &'a str,
}

/// The result of a run, as a document or as the last event of a stream.
#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    stdout_base64: String,
    #[serde(default)]
    stderr_base64: String,
    exit_code: i32,
    signal: Option<String>,
    timed_out: bool,
    #[serde(default)]
    hint: Option<String>,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Stdout {
        base64: String,
    },
    Stderr {
        base64: String,
    },
    Exit {
        result: Box<Ended>,
    },
    #[serde(other)]
    Other,
}

/// Runs `spec` at `at`. With `skills`, a command of a workspace sees the user's.
pub(super) async fn run(http: &Arc<Http>, at: &Address, spec: ExecSpec, skills: bool) -> Result<ExecResult> {
    let begin = Instant::now();
    let number = getrandom::u64().map_err(|error| {
        Error::new(ErrorKind::Internal, "exec", "the host gives no random numbers").because(error)
    })?;
    let exec_id = format!("sandbox-{number:016x}");
    let (command, args, shell) = match &spec.program {
        Program::Argv { program, arguments } => (Some(program.as_str()), arguments.as_slice(), None),
        Program::Shell(script) => (None, &[][..], Some(script.as_str())),
    };
    let milliseconds = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let request = Request {
        command,
        args,
        shell,
        dir: &at.path,
        env: &spec.environment,
        stdin_base64: (!spec.stdin.is_empty()).then(|| STANDARD.encode(&spec.stdin)),
        timeout_ms: spec.timeout.map(milliseconds),
        skills: skills.then_some("all"),
        encoding: "base64",
        exec_id: &exec_id,
    };
    let body = json("exec", &request)?;
    let target = format!("{}/exec", at.tree);
    let mut headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    // A document has at most as much output as the service keeps, which is this much unless configured otherwise.
    let is_stream = spec.output_bytes_max > OUTPUT_BYTES_DEFAULT;
    if is_stream {
        headers.push((ACCEPT, HeaderValue::from_static("application/x-ndjson")));
    }
    let patience = spec.timeout.unwrap_or(UNSAID).min(UNSAID) + BEYOND;
    let mut guard = Guard { http: http.clone(), target: format!("{target}/{exec_id}"), armed: true };
    let done = async {
        if is_stream {
            streamed(http, &target, &headers, body, spec.output_bytes_max, begin).await
        } else {
            let response = http.send("exec", Method::POST, &target, &headers, body, patience).await?;
            let ended: Ended = document("exec", success("exec", response).await?).await?;
            kept(&ended, spec.output_bytes_max, begin)
        }
    };
    let result = match tokio::time::timeout(patience, done).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(
            ErrorKind::Timeout,
            "exec",
            "the service did not tell the end of the command in time",
        )),
    };
    // A command that the service refused never ran; a command without an answer may be running.
    let is_unknown = |error: &Error| matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Disconnected);
    guard.armed = result.as_ref().is_err_and(is_unknown);
    result
}

fn kept(ended: &Ended, most: usize, begin: Instant) -> Result<ExecResult> {
    let stream = |base64: &str, all_bytes: u64| {
        let bytes = decoded(base64)?;
        let mut kept = HeadTail::new(most);
        kept.push(&bytes);
        let (kept, _) = if bytes.len() > most { kept.finish() } else { (Bytes::from(bytes), 0) };
        let dropped = all_bytes.saturating_sub(kept.len() as u64);
        Ok::<_, Error>((kept, dropped))
    };
    let stdout = stream(&ended.stdout_base64, ended.stdout_bytes)?;
    let stderr = stream(&ended.stderr_base64, ended.stderr_bytes)?;
    Ok(result(ended, stdout, stderr, begin))
}

fn result(ended: &Ended, stdout: (Bytes, u64), stderr: (Bytes, u64), begin: Instant) -> ExecResult {
    ExecResult {
        stdout: stdout.0,
        stderr: stderr.0,
        stdout_dropped_bytes: stdout.1,
        stderr_dropped_bytes: stderr.1,
        exit_code: ended.exit_code,
        // A deadline is told as such; how it killed is not the caller's matter.
        signal: ended.signal.clone().filter(|_| !ended.timed_out),
        timed_out: ended.timed_out,
        duration: begin.elapsed(),
        hint: ended.hint.as_deref().map(short),
    }
}

/// The beginning of a hint: as much as anybody reads.
fn short(hint: &str) -> String {
    hint.chars().take(HINT_CHARACTERS).collect()
}

async fn streamed(
    http: &Http,
    target: &str,
    headers: &[(HeaderName, HeaderValue)],
    body: super::upload::Body,
    most: usize,
    begin: Instant,
) -> Result<ExecResult> {
    let response = http.send("exec", Method::POST, target, headers, body, UNSAID).await?;
    let mut pieces = success("exec", response).await?.into_body().into_data_stream();
    let most = most.min(OUTPUT_BYTES_MAX);
    let (mut stdout, mut stderr) = (HeadTail::new(most), HeadTail::new(most));
    let (mut waiting, mut searched) = (BytesMut::new(), 0);
    while let Some(piece) = pieces.try_next().await.map_err(|error| broken("exec").because(error))? {
        waiting.extend_from_slice(&piece);
        // Each byte is looked at once, in however many pieces a line comes.
        while let Some(end) = waiting.iter().skip(searched).position(|byte| *byte == b'\n') {
            let line = waiting.split_to(searched + end + 1);
            searched = 0;
            if line.trim_ascii().is_empty() {
                continue; // a sign of life
            }
            let event = serde_json::from_slice(&line).map_err(|error| {
                Error::new(ErrorKind::Internal, "exec", "an event of the service cannot be understood")
                    .because(error)
            })?;
            match event {
                Event::Stdout { base64 } => stdout.push(&decoded(&base64)?),
                Event::Stderr { base64 } => stderr.push(&decoded(&base64)?),
                Event::Exit { result: ended } => {
                    // Bytes that did not come as events are missing, as are bytes that were not kept here.
                    let counted = |kept: HeadTail, all_bytes: u64| {
                        let (kept, _) = kept.finish();
                        let dropped = all_bytes.saturating_sub(kept.len() as u64);
                        (kept, dropped)
                    };
                    let stdout = counted(stdout, ended.stdout_bytes);
                    return Ok(result(&ended, stdout, counted(stderr, ended.stderr_bytes), begin));
                }
                Event::Other => {}
            }
        }
        searched = waiting.len();
        if searched > LINE_BYTES_MAX {
            return Err(Error::new(ErrorKind::Internal, "exec", "an event of the service is too long"));
        }
    }
    Err(broken("exec"))
}

fn decoded(base64: &str) -> Result<Vec<u8>> {
    STANDARD.decode(base64).map_err(|error| {
        Error::new(ErrorKind::Internal, "exec", "the output of the command cannot be understood")
            .because(error)
    })
}

/// Kills the run when its call is given up.
struct Guard {
    http: Arc<Http>,
    target: String,
    armed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (http, target) = (self.http.clone(), std::mem::take(&mut self.target));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The caller is gone: the result has no receiver. A run that goes on ends at its deadline.
                let _killed = http.send("exec", Method::DELETE, &target, &[], nothing(), BEYOND).await;
            });
        }
    }
}
