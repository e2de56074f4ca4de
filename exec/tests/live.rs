//! Taking part in a run: output as it comes, input piece by piece, signals, a terminal. With namespaces and without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    missing_docs,
    reason = "a test fails by panicking, and skips loudly"
)]

mod support;

use std::time::{Duration, Instant};

use exec::{Chunk, Control, ExecResult, Feed, Live, RunSpec, Signal, Stream, WindowSize};
use support::Sandbox;
use tokio::sync::{mpsc, oneshot, watch};

/// The other ends of a run's [`Live`].
struct Part {
    output: mpsc::Receiver<Chunk>,
    input: mpsc::Sender<Feed>,
    control: Option<oneshot::Receiver<Control>>,
    kill: watch::Sender<bool>,
}

fn live(chunks: usize, terminal: Option<WindowSize>) -> (Live, Part) {
    let (output, output_of) = mpsc::channel(chunks);
    let (input_of, input) = mpsc::channel(4);
    let (begun, control) = oneshot::channel();
    let (kill_of, kill) = watch::channel(false);
    let live = Live { output, input: Some(input), begun, kill, terminal };
    (live, Part { output: output_of, input: input_of, control: Some(control), kill: kill_of })
}

/// Starts a shell script and hands out the other ends.
fn start(
    sandbox: &Sandbox,
    script: &str,
    chunks: usize,
    terminal: Option<WindowSize>,
) -> (tokio::task::JoinHandle<Result<ExecResult, exec::Error>>, Part) {
    let (live, part) = live(chunks, terminal);
    let spec: RunSpec = sandbox.spec("bash", &["-c", script]);
    let launcher = sandbox.launcher.clone();
    (tokio::spawn(async move { launcher.run_live(spec, live).await }), part)
}

impl Part {
    async fn control(&mut self) -> Control {
        self.control.take().unwrap().await.expect("the command was started")
    }

    /// Output up to `wanted`.
    async fn until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        while !text.contains(wanted) {
            let chunk = self.output.recv().await.unwrap_or_else(|| panic!("no `{wanted}` in {text}"));
            text.push_str(&String::from_utf8_lossy(&chunk.bytes));
        }
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_while_the_command_runs_and_input_goes() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (run, mut part) = start(&sandbox, "echo ready; read line; echo got $line; cat >&2", 2, None);
    part.until("ready\n").await;
    part.input.send(Feed::Bytes("数据\n".into())).await.unwrap();
    part.until("got 数据\n").await;
    part.input.send(Feed::Bytes(b"rest".to_vec())).await.unwrap();
    part.input.send(Feed::End).await.unwrap();
    let last = part.output.recv().await.unwrap();
    assert_eq!(last, Chunk { stream: Stream::Err, bytes: b"rest".to_vec() });
    let result = run.await.unwrap().unwrap();
    assert_eq!((result.exit_code, result.stdout.as_str()), (0, "ready\ngot 数据\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_loses_nothing_not_even_what_comes_at_the_end() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "python3 -c 'print(\"x\" * 1999999)'";
    let (run, mut part) = start(&sandbox, script, 1, None);
    let mut bytes = 0;
    while let Some(chunk) = part.output.recv().await {
        bytes += chunk.bytes.len();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(bytes, 2_000_000);
    assert_eq!(run.await.unwrap().unwrap().stdout_bytes, 2_000_000);
}

/// Takes the only thread of the runtime again and again for longer than pipes are read after the end of a command.
async fn hog() {
    loop {
        std::thread::sleep(Duration::from_millis(150));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_service_that_gets_no_processor_loses_no_output() {
    let Some(sandbox) = Sandbox::new() else { return };
    let hog = tokio::spawn(hog());
    for program in ["print(\"x\" * 399999)", "import sys; sys.stderr.write(\"x\" * 400000)"] {
        let (run, mut part) = start(&sandbox, &format!("python3 -c '{program}'"), 1, None);
        let mut bytes = 0;
        while let Some(chunk) = part.output.recv().await {
            bytes += chunk.bytes.len();
        }
        let result = run.await.unwrap().unwrap();
        assert_eq!((bytes, result.stdout_bytes + result.stderr_bytes), (400_000, 400_000));
        let result = sandbox.launcher.run(sandbox.spec("python3", &["-c", program])).await.unwrap();
        assert_eq!(result.stdout_bytes + result.stderr_bytes, 400_000);
    }
    hog.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_holds_although_nobody_reads() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (live, part) = live(1, None);
    let mut spec = sandbox.spec("bash", &["-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"]);
    spec.timeout = Duration::from_millis(500);
    let begun = Instant::now();
    let launcher = sandbox.launcher.clone();
    let run = tokio::spawn(async move { launcher.run_live(spec, live).await });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    drop(part);
    let result = run.await.unwrap().unwrap();
    assert!(result.timed_out && begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_group_and_a_kill_everything() {
    let Some(sandbox) = Sandbox::new() else { return };
    // It makes no process when the signal comes: one that is counted for the run can fail then (`fork: Interrupted
    // system call`).
    let script = "trap 'echo usr1' USR1; sleep 60 & echo ready; wait; while :; do :; done";
    let (run, mut part) = start(&sandbox, script, 2, None);
    let control = part.control().await;
    part.until("ready\n").await;
    assert!(control.signal(Signal::Usr1).unwrap());
    part.until("usr1\n").await;
    part.kill.send_replace(true);
    let result = run.await.unwrap().unwrap();
    assert_eq!((result.exit_code, result.signal.as_deref()), (-1, Some("SIGKILL")));
    // Without a process namespace the killed `sleep` is in the group until the launcher has collected it.
    let begun = Instant::now();
    while control.signal(Signal::Usr1).unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(10), "a process is left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_says_so_and_gives_no_handle() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (live, mut part) = live(1, None);
    let spec = sandbox.spec("perl", &[]);
    assert!(sandbox.launcher.run_live(spec, live).await.is_err());
    assert!(part.control.take().unwrap().await.is_err());
    assert_eq!(part.output.recv().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_belongs_to_the_command_and_has_the_size_it_is_given() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "python3 -c 'import os; print(os.isatty(2), os.get_terminal_size(), os.tcgetpgrp(0) == os.getpgrp())'; read; \
                  python3 -c 'import os; print(os.get_terminal_size())'; cat";
    let (run, mut part) = start(&sandbox, script, 2, Some(WindowSize { rows: 5, cols: 50 }));
    let control = part.control().await;
    part.until("True os.terminal_size(columns=50, lines=5) True").await;
    control.resize(WindowSize { rows: 6, cols: 60 }).unwrap();
    part.input.send(Feed::Bytes(b"\n".to_vec())).await.unwrap();
    part.until("(columns=60, lines=6)").await;
    part.input.send(Feed::Bytes("字\n".into())).await.unwrap();
    part.until("字\r\n").await;
    part.input.send(Feed::End).await.unwrap();
    let result = run.await.unwrap().unwrap();
    assert_eq!((result.exit_code, result.stderr_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_what_a_shell_in_a_terminal_runs_and_leaves_the_shell() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (run, mut part) =
        start(&sandbox, "exec bash --norc --noediting -i", 2, Some(WindowSize { rows: 24, cols: 80 }));
    part.input.send(Feed::Bytes(b"sh -c 'echo re\"\"ady; exec sleep 600'\n".to_vec())).await.unwrap();
    part.until("ready").await;
    part.input.send(Feed::Bytes(b"\x03".to_vec())).await.unwrap();
    part.input.send(Feed::Bytes(b"echo ended\"\" with $?\n".to_vec())).await.unwrap();
    part.until("ended with 130").await;
    part.input.send(Feed::Bytes(b"exit 7\n".to_vec())).await.unwrap();
    while part.output.recv().await.is_some() {}
    assert_eq!(run.await.unwrap().unwrap().exit_code, 7);
}

/// The terminal is no way out of the run: what is typed into another one, or into this one by the command itself, is
/// what `TIOCSTI` would do.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_cannot_type_into_its_terminal() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "python3 -c 'import fcntl, termios\ntry: fcntl.ioctl(0, termios.TIOCSTI, b\"x\")\nexcept OSError as e: print(\"refused\", e.errno)'";
    let (run, mut part) = start(&sandbox, script, 2, Some(WindowSize { rows: 24, cols: 80 }));
    part.until("refused").await;
    drop(part.input);
    assert_eq!(run.await.unwrap().unwrap().exit_code, 0);
}

#[test]
fn everything_holds_without_namespaces_too() {
    support::repeat_at_landlock("signals_reach_the_group_and_a_kill_everything");
}

#[test]
fn everything_holds_without_root_too() {
    support::repeat_without_root("signals_reach_the_group_and_a_kill_everything");
}
