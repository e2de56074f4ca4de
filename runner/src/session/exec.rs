//! Commands.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sandbox::live::Stream;
use sandbox::wire::request::Exec;
use sandbox::wire::response::{ExecOutput, ExecResult, Failed};
use sandbox::wire::{Data, FRAME_BYTES_MAX, PIECE_BYTES, Response};
use sandbox::{Error, ErrorKind, ExecSpec, HeadTail, OUTPUT_BYTES_MAX, Program};

use super::Machine;

/// The deadline of commands that are told none.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that a command may take, whatever is asked for.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The most bytes of each stream that are kept when the output is text in the result.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// What a frame has beside the two texts, more than enough.
const ENVELOPE_BYTES: usize = 4096;

impl Machine {
    pub(super) async fn exec(&self, asked: Exec, id: Option<&str>) -> Result<Response, Failed> {
        let in_pieces = asked.output_bytes_max;
        let spec = self.spec(asked)?;
        let result = self.sandbox.exec(&self.user, spec).await.map_err(|error| not_started(&error))?;
        let mut told = ExecResult {
            exit_code: result.exit_code,
            timed_out: result.timed_out,
            signal: result.signal.filter(|_| self.is_exact),
            stdout_dropped: result.stdout_dropped_bytes,
            stderr_dropped: result.stderr_dropped_bytes,
            hint: result.hint.filter(|_| self.is_exact),
            ..ExecResult::default()
        };
        if in_pieces.is_some() {
            self.tell_output(id, Stream::Stdout, result.stdout).await;
            self.tell_output(id, Stream::Stderr, result.stderr).await;
        } else {
            let streams = Texts { stdout: result.stdout, stderr: result.stderr };
            streams.put_into(&mut told);
        }
        Ok(Response::ExecResult(told))
    }

    pub(super) fn spec(&self, asked: Exec) -> Result<ExecSpec, Failed> {
        let invalid = |message: &str| Failed::new(ErrorKind::Invalid, message);
        let program = if asked.shell {
            Program::Shell(asked.command)
        } else {
            let mut words = asked.args.into_iter();
            let program = words.next().filter(|program| !program.is_empty());
            let program =
                program.ok_or_else(|| invalid("a command without a shell needs its program in `args`"))?;
            Program::Argv { program, arguments: words.collect() }
        };
        let mut environment = BTreeMap::new();
        for variable in asked.env {
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| invalid("a variable of `env` has no `=`: write NAME=value"))?;
            environment.insert(name.to_owned(), value.to_owned());
        }
        let seconds =
            u64::try_from(asked.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let output_bytes_max = asked.output_bytes_max.map_or(TEXT_BYTES_MAX, |most| {
            usize::try_from(most).unwrap_or(OUTPUT_BYTES_MAX).min(OUTPUT_BYTES_MAX)
        });
        Ok(ExecSpec {
            program,
            directory: Some(self.path(&asked.dir)?),
            environment,
            stdin: asked.stdin_data.map_or_else(|| asked.stdin.into(), |data| data.0),
            timeout: Some(
                asked.timeout_ms.map(Duration::from_millis).or(seconds).unwrap_or(TIMEOUT).min(TIMEOUT_MAX),
            ),
            output_bytes_max,
        })
    }

    async fn tell_output(&self, id: Option<&str>, stream: Stream, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            self.answers.say(id, &Response::ExecOutput(ExecOutput { stream, data: Data(piece) })).await;
        }
    }
}

/// Why no command ran, as founding runners tell it: `EIO`, unless the directory is outside or the request makes no sense.
fn not_started(error: &Error) -> Failed {
    let told = Failed::of(error);
    match error.kind() {
        // About a path: the directory leads out of the workspace. Else it is the program that may not be run.
        ErrorKind::PermissionDenied if error.path().is_some() => told,
        ErrorKind::Invalid | ErrorKind::Busy | ErrorKind::Disconnected | ErrorKind::TooLarge => told,
        _ => {
            let what = if error.path().is_some() { "the directory " } else { "" };
            Failed { code: "EIO".to_owned(), message: format!("exec error: {what}{}", told.message), ..told }
        }
    }
}

/// Output that is told as text.
struct Texts {
    stdout: Bytes,
    stderr: Bytes,
}

impl Texts {
    /// Puts the texts into the result, with less of their middles until a frame holds them: text grows on the wire by what JSON
    /// escapes.
    fn put_into(mut self, told: &mut ExecResult) {
        loop {
            let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
            let (out, err) = (escaped_bytes(&stdout), escaped_bytes(&stderr));
            if out + err + ENVELOPE_BYTES <= FRAME_BYTES_MAX {
                (told.stdout, told.stderr) = (stdout, stderr);
                return;
            }
            let (longer, dropped) = match out >= err {
                true => (&mut self.stdout, &mut told.stdout_dropped),
                false => (&mut self.stderr, &mut told.stderr_dropped),
            };
            let mut kept = HeadTail::new(longer.len() / 2);
            kept.push(longer);
            let (bytes, more) = kept.finish();
            *longer = bytes;
            *dropped += more;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many bytes a text has in JSON, at most.
fn escaped_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\t' | b'\r' | 8 | 12 => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum()
}
