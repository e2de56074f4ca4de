//! [`Tasks`]: commands in the background, as services of the second founding generation ask for them. They outlive a connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::live::{LiveRun, LiveSpec, Stream};
use sandbox::wire::founding::{NAME_BYTES_MAX, TaskOutput, TaskStatus};
use sandbox::wire::response::Failed;
use sandbox::{ErrorKind, ExecSpec, HeadTail, Sandbox, UserId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The longest life of a command in the background, and of a process with streams.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Tasks that are known, at most: those that run, and the last that have ended.
const TASKS_MAX: usize = 64;
/// Bytes of each output stream that are kept.
const OUTPUT_BYTES: usize = 256 << 10;

/// The commands in the background of this machine. A clone has the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<HashMap<String, Arc<Task>>>>);

#[derive(Debug)]
struct Task {
    state: Mutex<State>,
    killed: CancellationToken,
}

#[derive(Debug)]
struct State {
    status: TaskStatus,
    exit_code: i32,
    stdout: HeadTail,
    stderr: HeadTail,
    /// When it ended.
    ended: Option<Instant>,
}

impl Task {
    fn new() -> Self {
        let state = State {
            status: TaskStatus::Running,
            exit_code: 0,
            stdout: HeadTail::new(OUTPUT_BYTES),
            stderr: HeadTail::new(OUTPUT_BYTES),
            ended: None,
        };
        Self { state: Mutex::new(state), killed: CancellationToken::new() }
    }

    /// Notes the end, unless there was one: of a task that is killed, the first word stands.
    fn end(&self, status: TaskStatus, exit_code: i32) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            (state.status, state.exit_code, state.ended) = (status, exit_code, Some(Instant::now()));
        }
    }

    async fn watch(&self, run: LiveRun) {
        let LiveRun { mut output, mut end, .. } = run;
        let ended = async {
            while let Some(came) = output.recv().await {
                let mut state = self.state.lock();
                match came.stream {
                    Stream::Stdout => state.stdout.push(&came.bytes),
                    Stream::Stderr => state.stderr.push(&came.bytes),
                }
            }
            end.wait().await
        };
        tokio::select! {
            ended = ended => match ended {
                Ok(result) if result.exit_code == 0 => self.end(TaskStatus::Completed, 0),
                Ok(result) => self.end(TaskStatus::Failed, result.exit_code),
                Err(_) => self.end(TaskStatus::Failed, -1),
            },
            () = self.killed.cancelled() => self.end(TaskStatus::Killed, -1),
        }
        info!(status = ?self.state.lock().status, "a task has ended");
    }
}

impl Tasks {
    /// Begins a task, which goes on without the connection.
    pub(crate) async fn begin(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        user: &UserId,
        name: &str,
        command: ExecSpec,
    ) -> Result<(), Failed> {
        let task = self.enter(name)?;
        let mut place = Place { tasks: self, name, task: Arc::clone(&task), has_begun: false };
        let spec = LiveSpec { command, stdin_open: false, terminal: None };
        let run = sandbox.begin(user, spec).await.map_err(|error| {
            let told = Failed::of(&error);
            Failed { code: "EIO".to_owned(), message: format!("exec error: {}", told.message), ..told }
        })?;
        place.has_begun = true;
        tokio::spawn(async move { task.watch(run).await });
        Ok(())
    }

    fn enter(&self, name: &str) -> Result<Arc<Task>, Failed> {
        let invalid = |message: String| Failed::new(ErrorKind::Invalid, message);
        if name.is_empty() {
            return Err(invalid("task_id required".to_owned()));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(invalid(format!("task_id has at most {NAME_BYTES_MAX} bytes")));
        }
        let mut table = self.0.lock();
        if table.get(name).is_some_and(|task| task.state.lock().ended.is_none()) {
            return Err(invalid(format!("duplicate task_id: {}", name.escape_debug())));
        }
        if table.len() >= TASKS_MAX && !table.contains_key(name) {
            let ended =
                table.iter().filter_map(|(name, task)| Some((task.state.lock().ended?, name.clone())));
            let oldest = ended.min().map(|(_, name)| name);
            let full = || Failed::new(ErrorKind::Busy, format!("{TASKS_MAX} tasks run: kill one"));
            table.remove(&oldest.ok_or_else(full)?);
        }
        let task = Arc::new(Task::new());
        table.insert(name.to_owned(), Arc::clone(&task));
        Ok(task)
    }

    /// How it stands with a task, without its name; `None` when there is no such task.
    pub(crate) fn status(&self, name: &str) -> Option<TaskOutput> {
        let task = Arc::clone(self.0.lock().get(name)?);
        let (status, exit_code, stdout, stderr) = {
            let state = task.state.lock();
            (state.status, state.exit_code, state.stdout.clone(), state.stderr.clone())
        };
        let text = |kept: HeadTail| String::from_utf8_lossy(&kept.finish().0).into_owned();
        Some(TaskOutput {
            task_id: String::new(),
            status,
            exit_code,
            stdout: text(stdout),
            stderr: text(stderr),
        })
    }

    /// Kills a task, if it runs; `false` when there is no such task.
    pub(crate) fn kill(&self, name: &str) -> bool {
        let Some(task) = self.0.lock().get(name).cloned() else { return false };
        task.end(TaskStatus::Killed, -1);
        task.killed.cancel();
        true
    }

    /// Kills all.
    pub(crate) fn kill_all(&self) {
        for task in self.0.lock().values() {
            task.end(TaskStatus::Killed, -1);
            task.killed.cancel();
        }
    }
}

/// A task that is forgotten when its command cannot begin, or its request is given up before.
struct Place<'a> {
    tasks: &'a Tasks,
    name: &'a str,
    task: Arc<Task>,
    has_begun: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            return;
        }
        let mut table = self.tasks.0.lock();
        if table.get(self.name).is_some_and(|task| Arc::ptr_eq(task, &self.task)) {
            table.remove(self.name);
        }
    }
}
