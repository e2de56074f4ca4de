//! Requests that only services of the second founding generation ask.
//!
//! * [`streams`]: processes with streams, and terminals; they end with the connection.
//! * Commands in the background outlive it: [`crate::tasks`]. Downloads: [`crate::download`].

mod streams;

use sandbox::live::WindowSize;
use sandbox::wire::founding::{
    Download, Downloaded, FoundingAnswer, StreamName, StreamStart, TaskName, TaskOutput, TaskStart,
};
use sandbox::wire::request::Exec;
use sandbox::wire::response::Failed;
use sandbox::wire::{Founding, Response};
use sandbox::{ErrorKind, LiveSpec};

pub(super) use self::streams::Streams;
use self::streams::{Kind, Start};
use super::Machine;
use crate::download::Destination;
use crate::tasks::LONGEST;

type Answer = Result<Response, Failed>;

/// The size of a terminal whose size is not told.
const SIZE: WindowSize = WindowSize { rows: 24, cols: 80 };

impl Machine {
    /// Does what has no answer; `false` for a request that has one.
    pub(super) fn founding_order(&self, request: &Founding) -> bool {
        match request {
            Founding::StdioWrite(asked) => self.streams.feed(Kind::Stdio, asked),
            Founding::PtyStdin(asked) => self.streams.feed(Kind::Pty, asked),
            Founding::PtyResize(asked) => {
                self.streams.resize(&asked.stream_id, WindowSize { rows: asked.rows, cols: asked.cols });
            }
            _ => return false,
        }
        true
    }

    pub(super) async fn founding(&self, request: Founding) -> Answer {
        match request {
            Founding::StdioStart(asked) => self.start(Kind::Stdio, asked).await,
            Founding::PtyCreate(asked) => self.start(Kind::Pty, asked).await,
            Founding::StdioClose(asked) => self.streams.close(Kind::Stdio, &asked.stream_id),
            Founding::PtyClose(asked) => self.streams.close(Kind::Pty, &asked.stream_id),
            Founding::BgExec(asked) => self.start_task(asked).await,
            Founding::BgStatus(asked) => {
                let told =
                    self.runs.tasks().status(&asked.task_id).ok_or_else(|| no_task("bg_status", &asked))?;
                Ok(Response::Founding(FoundingAnswer::TaskOutput(TaskOutput {
                    task_id: asked.task_id,
                    ..told
                })))
            }
            Founding::BgKill(asked) => match self.runs.tasks().kill(&asked.task_id) {
                true => Ok(Response::Ok),
                false => Err(no_task("bg_kill", &asked)),
            },
            Founding::DownloadFile(asked) => self.download(asked).await,
            Founding::Llm => {
                Err(Failed::new(ErrorKind::Unsupported, "local LLM not configured on this runner"))
            }
            // They have no answer: `founding_order` took them.
            Founding::StdioWrite(_) | Founding::PtyStdin(_) | Founding::PtyResize(_) => Ok(Response::Ok),
        }
    }

    async fn start(&self, kind: Kind, asked: StreamStart) -> Answer {
        let StreamStart { stream_id, command, args, env, dir, cols, rows } = asked;
        let terminal = match kind {
            Kind::Stdio => None,
            Kind::Pty if cols == 0 || rows == 0 => Some(SIZE),
            Kind::Pty => Some(WindowSize { rows, cols }),
        };
        // A terminal without a program is one of the user's shell.
        let command = match terminal {
            Some(_) if command.is_empty() => self.shell().await?,
            _ => command,
        };
        let args = std::iter::once(command).chain(args).collect();
        let spec = self.lasting(Exec { args, env, dir, ..Exec::default() })?;
        let spec = LiveSpec { command: spec, stdin_open: true, terminal };
        let start = Start { kind, name: stream_id.clone(), spec, pushes: self.answers.outgoing() };
        self.streams.start(&self.sandbox, &self.user, start).await?;
        Ok(Response::Founding(FoundingAnswer::Started(StreamName { stream_id })))
    }

    async fn start_task(&self, asked: TaskStart) -> Answer {
        let spec = self.lasting(asked.command)?;
        self.runs.begin_task(&asked.task_id, spec).await?;
        Ok(Response::Founding(FoundingAnswer::TaskStarted(TaskName { task_id: asked.task_id })))
    }

    async fn download(&self, asked: Download) -> Answer {
        let path = self.path(&asked.output_path)?;
        let to = Destination { sandbox: &self.sandbox, user: &self.user, path: &path };
        let size = self.downloads.fetch(&asked.url, to).await?;
        Ok(Response::Founding(FoundingAnswer::Downloaded(Downloaded { size })))
    }

    /// A command that may take as long as a terminal is used.
    fn lasting(&self, asked: Exec) -> Result<sandbox::ExecSpec, Failed> {
        Ok(sandbox::ExecSpec { timeout: Some(LONGEST), ..self.spec(asked)? })
    }

    async fn shell(&self) -> Result<String, Failed> {
        self.sandbox.shell(&self.user).await.map_err(|error| Failed::of(&error))
    }
}

fn no_task(what: &str, asked: &TaskName) -> Failed {
    Failed::new(
        ErrorKind::Internal,
        format!("{what} failed: task {} not found", asked.task_id.escape_debug()),
    )
}
