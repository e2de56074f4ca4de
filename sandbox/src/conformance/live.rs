//! Commands in which a caller takes part while they run: output as it comes, input by pieces, signals, terminals.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::case::Case;
use crate::live::{Input, LiveRun, LiveSpec, Order, Signal, Stream, WindowSize};
use crate::{Error, ErrorKind, ExecResult, ExecSpec, Result, SandboxExt};

laws! {
    output_comes_as_it_is_written [Live] "a line is there while the command waits for its input";
    input_ends_when_the_caller_says_so [Live] "`cat`, then what follows it";
    without_open_input_a_command_reads_what_it_was_given [Live] "bytes and the end of them";
    the_streams_stay_apart [Live] "each with what was written to it";
    a_reader_who_is_slow_loses_nothing [Live] "1.3 MB of lines, in order";
    input_of_any_size_passes_through [Live] "8 MiB through `cat`, both ways at once";
    a_signal_reaches_the_command [Live] "TERM is caught by a trap";
    a_command_is_halted_and_goes_on [Live] "STOP and CONT";
    the_end_tells_code_signal_and_deadline [Live] "exit 5; SIGKILL; a deadline, with the output until then";
    the_output_before_a_deadline_is_whole [Live] "and comes when the reader reads it";
    a_caller_who_leaves_has_the_command_killed [Live] "with its descendants";
    who_holds_the_output_is_not_waited_for [Live] "`sleep 300 &` and the end of the script";
    a_program_that_is_missing_is_told [Live] "as by `exec`";
    orders_for_what_has_ended_do_nothing [Live] "nor does input";
    a_terminal_is_one [Live] "`test -t`, its size, the controlling terminal";
    a_terminal_gets_another_size [Live] "and the command is told";
    a_terminal_has_its_size_before_what_is_typed_then [Live] "40 sizes, each with a line behind it";
    keys_are_signals_in_a_terminal [Live] "Ctrl-C";
    a_shell_in_a_terminal_is_spoken_to [Live] "line by line, to its end";
}

/// Longer than anything here takes, on the slowest machine.
const MANY_SECONDS: Duration = Duration::from_secs(120);
const SIZE: WindowSize = WindowSize { rows: 31, cols: 97 };

struct Talk {
    run: LiveRun,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Talk {
    async fn next(&mut self) -> bool {
        let next = tokio::time::timeout(MANY_SECONDS, self.run.output.recv()).await;
        let Some(output) = next.unwrap() else { return false };
        assert!(!output.bytes.is_empty() && output.bytes.len() <= 64 * 1024, "{}", output.bytes.len());
        match output.stream {
            Stream::Stdout => self.stdout.extend_from_slice(&output.bytes),
            Stream::Stderr => self.stderr.extend_from_slice(&output.bytes),
        }
        true
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).replace("\r\n", "\n")
    }

    /// Reads until standard output has `text`.
    async fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.next().await, "it ended before {text:?}: {:?}", self.text());
        }
    }

    async fn say(&self, text: &str) {
        self.run.input.send(Input::Bytes(Bytes::copy_from_slice(text.as_bytes()))).await.unwrap();
    }

    /// Reads all, and waits for the end.
    async fn ended(&mut self) -> ExecResult {
        while self.next().await {}
        let ended = tokio::time::timeout(MANY_SECONDS, self.run.end.wait()).await.unwrap().unwrap();
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty());
        ended
    }
}

impl Case {
    async fn begin(&self, mut spec: LiveSpec) -> Result<Talk> {
        spec.command.directory.get_or_insert_with(|| self.dir.clone());
        assert!(self.sandbox.has_live(&self.alice));
        let run = self.sandbox.begin(&self.alice, spec).await?;
        Ok(Talk { run, stdout: Vec::new(), stderr: Vec::new() })
    }

    async fn open(&self, script: &str) -> Talk {
        let spec = LiveSpec { command: ExecSpec::shell(script), stdin_open: true, terminal: None };
        self.begin(spec).await.unwrap()
    }

    async fn closed(&self, command: ExecSpec) -> Talk {
        self.begin(LiveSpec { command, stdin_open: false, terminal: None }).await.unwrap()
    }

    async fn terminal(&self, script: &str) -> Talk {
        let spec = LiveSpec { command: ExecSpec::shell(script), stdin_open: true, terminal: Some(SIZE) };
        self.begin(spec).await.unwrap()
    }
}

async fn output_comes_as_it_is_written(case: Case) {
    let mut talk = case.open("echo 一; read answer; echo \"got $answer\"").await;
    talk.until("一\n").await;
    talk.say("two\n").await;
    talk.until("got two\n").await;
    let ended = talk.ended().await;
    assert_eq!((ended.exit_code, ended.signal, ended.timed_out), (0, None, false));
    assert_eq!(talk.text(), "一\ngot two\n");
}

async fn input_ends_when_the_caller_says_so(case: Case) {
    let mut talk = case.open("cat; echo end").await;
    talk.say("a").await;
    talk.until("a").await;
    talk.say("b").await;
    talk.run.input.send(Input::End).await.unwrap();
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!(talk.text(), "abend\n");
}

async fn without_open_input_a_command_reads_what_it_was_given(case: Case) {
    let command = ExecSpec { stdin: Bytes::from_static(b"given"), ..ExecSpec::shell("cat; echo /end") };
    let mut talk = case.closed(command).await;
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!(talk.text(), "given/end\n");
    assert!(talk.run.input.send(Input::End).await.is_err());
}

async fn the_streams_stay_apart(case: Case) {
    let mut talk = case.closed(ExecSpec::shell("printf 'out\\377'; printf 'err\\376' >&2")).await;
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!((&*talk.stdout, &*talk.stderr), (&b"out\xff"[..], &b"err\xfe"[..]));
}

async fn a_reader_who_is_slow_loses_nothing(case: Case) {
    let mut talk = case.closed(ExecSpec::shell("seq 1 200000")).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        talk.next().await;
    }
    assert_eq!(talk.ended().await.exit_code, 0);
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(talk.text() == expected, "{} bytes", talk.stdout.len());
}

async fn input_of_any_size_passes_through(case: Case) {
    const PIECES: usize = 128;
    let mut talk = case.open("cat").await;
    let piece: Bytes = (0..=255).cycle().take(64 * 1024).collect::<Vec<u8>>().into();
    let (input, sent) = (talk.run.input.clone(), piece.clone());
    let feeding = async move {
        for _ in 0..PIECES {
            input.send(Input::Bytes(sent.clone())).await.unwrap();
        }
        input.send(Input::End).await.unwrap();
    };
    let ((), ended) = tokio::join!(feeding, talk.ended());
    assert_eq!(ended.exit_code, 0);
    assert!(talk.stdout == piece.repeat(PIECES), "{} bytes", talk.stdout.len());
}

async fn a_signal_reaches_the_command(case: Case) {
    let mut talk =
        case.open("trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done").await;
    talk.until("ready\n").await;
    talk.run.orders.send(Order::Signal(Signal::Term)).await.unwrap();
    assert_eq!(talk.ended().await.exit_code, 7);
    assert!(talk.text().ends_with("caught\n"), "{}", talk.text());
}

async fn a_command_is_halted_and_goes_on(case: Case) {
    let mut talk = case.open("echo ready; read line; echo went on").await;
    talk.until("ready\n").await;
    talk.run.orders.send(Order::Signal(Signal::Stop)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    talk.say("line\n").await;
    let silence = tokio::time::timeout(Duration::from_millis(500), talk.run.output.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
    talk.run.orders.send(Order::Signal(Signal::Cont)).await.unwrap();
    talk.until("went on\n").await;
    assert_eq!(talk.ended().await.exit_code, 0);
}

async fn the_end_tells_code_signal_and_deadline(case: Case) {
    let ended = case.closed(ExecSpec::shell("exit 5")).await.ended().await;
    assert_eq!((ended.exit_code, ended.signal, ended.timed_out), (5, None, false));
    let ended = case.closed(ExecSpec::shell("kill -9 $$")).await.ended().await;
    assert_eq!((ended.exit_code, ended.signal.as_deref(), ended.timed_out), (-1, Some("SIGKILL"), false));
    let late = ExecSpec { timeout: Some(Duration::from_secs(1)), ..ExecSpec::shell("echo until; sleep 300") };
    let mut talk = case.closed(late).await;
    let begun = Instant::now();
    let ended = talk.ended().await;
    assert_eq!((ended.exit_code, ended.timed_out, talk.text().as_str()), (-1, true, "until\n"));
    assert!(begun.elapsed() < MANY_SECONDS);
}

async fn the_output_before_a_deadline_is_whole(case: Case) {
    let script = "seq 1 20000; sleep 300";
    let late = ExecSpec { timeout: Some(Duration::from_secs(2)), ..ExecSpec::shell(script) };
    let mut talk = case.closed(late).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(talk.ended().await.timed_out);
    // What did not fit the pipe was never written.
    let lines: Vec<String> = talk.text().lines().map(str::to_owned).collect();
    assert!(lines.len() > 1000, "{}", lines.len());
    let expected = (1..).map(|number: usize| number.to_string());
    assert!(lines.iter().take(lines.len() - 1).zip(expected).all(|(line, number)| *line == number));
}

async fn a_caller_who_leaves_has_the_command_killed(case: Case) {
    let script = "(while :; do echo tick >> ticks; sleep 0.05; done) & echo on; wait";
    let mut talk = case.open(script).await;
    talk.until("on\n").await;
    drop(talk);
    let (path, begun) = (case.path("ticks"), Instant::now());
    loop {
        let before = case.sandbox.read(&case.alice, &path).await.unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(700)).await;
        if case.sandbox.read(&case.alice, &path).await.unwrap_or_default() == before {
            break;
        }
        assert!(begun.elapsed() < MANY_SECONDS, "it goes on");
    }
}

async fn who_holds_the_output_is_not_waited_for(case: Case) {
    let begun = Instant::now();
    let mut talk = case.closed(ExecSpec::shell("sleep 300 & echo done")).await;
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!(talk.text(), "done\n");
    assert!(begun.elapsed() < MANY_SECONDS, "{:?}", begun.elapsed());
}

async fn a_program_that_is_missing_is_told(case: Case) {
    for terminal in [None, Some(SIZE)] {
        let command = ExecSpec::argv("no-such-program", ["x"]);
        let begun = case.begin(LiveSpec { command, stdin_open: false, terminal }).await;
        let failed: Error = begun.map(|_| ()).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::NotFound);
    }
}

async fn orders_for_what_has_ended_do_nothing(case: Case) {
    let mut talk = case.open("exit 3").await;
    let (input, orders) = (talk.run.input.clone(), talk.run.orders.clone());
    assert_eq!(talk.ended().await.exit_code, 3);
    // They may be taken until the end is noticed.
    let _ = orders.send(Order::Signal(Signal::Term)).await;
    let _ = orders.send(Order::Resize(SIZE)).await;
    let _ = input.send(Input::Bytes(Bytes::from_static(b"x"))).await;
}

async fn a_terminal_is_one(case: Case) {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo own > /dev/tty; echo $?";
    let mut talk = case.terminal(script).await;
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!((talk.text().as_str(), talk.stderr.len()), ("31 97\nown\n0\n", 0));
}

async fn a_terminal_gets_another_size(case: Case) {
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut talk = case.terminal(script).await;
    talk.until("ready\n").await;
    talk.run.orders.send(Order::Resize(WindowSize { rows: 50, cols: 200 })).await.unwrap();
    assert_eq!(talk.ended().await.exit_code, 0);
    assert!(talk.text().ends_with("50 200\n"), "{}", talk.text());
}

async fn a_terminal_has_its_size_before_what_is_typed_then(case: Case) {
    let mut talk = case.terminal("echo ready; while read -r line; do stty size; done").await;
    talk.until("ready\n").await;
    for rows in 41..=80 {
        talk.run.orders.send(Order::Resize(WindowSize { rows, cols: 120 })).await.unwrap();
        talk.say("size\n").await;
        talk.until(" 120\n").await;
        assert!(talk.text().ends_with(&format!("{rows} 120\n")), "{rows}: {}", talk.text());
        talk.stdout.clear();
    }
    talk.run.input.send(Input::End).await.unwrap();
    assert_eq!(talk.ended().await.exit_code, 0);
}

async fn keys_are_signals_in_a_terminal(case: Case) {
    let script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut talk = case.terminal(script).await;
    talk.until("ready\n").await;
    talk.say("\x03").await;
    assert_eq!(talk.ended().await.exit_code, 9);
    assert!(talk.text().ends_with("interrupted\n"), "{}", talk.text());
}

async fn a_shell_in_a_terminal_is_spoken_to(case: Case) {
    let shell = case.sandbox.shell(&case.alice).await.unwrap();
    let command = ExecSpec::argv(shell, [""; 0]);
    let spec = LiveSpec { command, stdin_open: true, terminal: Some(SIZE) };
    let mut talk = case.begin(spec).await.unwrap();
    talk.say("echo $((6 * 7)) > n; cat n; pwd\n").await;
    talk.until("42\n").await;
    talk.until(case.dir.file_name().unwrap()).await;
    talk.run.input.send(Input::End).await.unwrap();
    assert_eq!(talk.ended().await.exit_code, 0);
    assert_eq!(case.read(&case.path("n")).await.unwrap().as_ref(), b"42\n");
}
