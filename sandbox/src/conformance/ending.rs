//! How commands end: by signals, by deadlines, when their caller leaves; never by a pipe that a process holds.

use std::time::{Duration, Instant};

use super::case::Case;
use crate::{ExecSpec, SandboxExt};

laws! {
    a_signal_is_told [Commands] "exit code -1, its name, no deadline";
    a_deadline_kills [Commands] "within seconds, with the output until then";
    a_deadline_kills_grandchildren [Commands] "one in the background, one in a session of its own";
    a_deadline_kills_who_ignores_signals [Commands] "TERM, INT and HUP are trapped";
    a_grandchild_that_holds_the_pipe_is_not_waited_for [Commands] "`sleep 300 &` and the end of the script";
    a_quick_command_has_its_exit_code_in_spite_of_a_deadline [Commands] "no deadline is told";
    a_dropped_call_kills_the_command [Commands] "it does not go on to write its file";
    a_deadline_of_nothing_ends_at_once [Commands] "as one that has passed";
}

const MANY_SECONDS: Duration = Duration::from_secs(60);

fn with_timeout(script: &str, milliseconds: u64) -> ExecSpec {
    ExecSpec { timeout: Some(Duration::from_millis(milliseconds)), ..ExecSpec::shell(script) }
}

async fn a_signal_is_told(case: Case) {
    for (number, name) in [(9, "SIGKILL"), (15, "SIGTERM")] {
        let result = case.shell(&format!("echo before; kill -{number} $$; echo after")).await;
        assert_eq!((result.exit_code, result.signal.as_deref(), result.timed_out), (-1, Some(name), false));
        assert_eq!(result.stdout_text(), "before\n");
    }
}

async fn a_deadline_kills(case: Case) {
    let begin = Instant::now();
    let result = case.exec(with_timeout("echo started; sleep 300; echo late", 1000)).await.unwrap();
    assert_eq!((result.exit_code, result.timed_out, result.stdout_text()), (-1, true, "started\n".into()));
    assert!(begin.elapsed() < MANY_SECONDS, "{:?}", begin.elapsed());
}

/// Whether `file` stops growing, as what a living process appends to does not.
async fn is_still(case: &Case, file: &str) -> bool {
    let path = case.path(file);
    let begin = Instant::now();
    while begin.elapsed() < MANY_SECONDS {
        let before = case.read(&path).await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        if case.read(&path).await.unwrap() == before {
            return true;
        }
    }
    false
}

const TICKING: &str = "(while :; do echo tick >> ticks; sleep 0.05; done)";

async fn a_deadline_kills_grandchildren(case: Case) {
    let script = format!("{TICKING} & while ! test -s ticks; do sleep 0.05; done; sleep 300");
    let result = case.exec(with_timeout(&script, 3000)).await.unwrap();
    assert!(result.timed_out);
    assert!(is_still(&case, "ticks").await);
}

async fn a_deadline_kills_who_ignores_signals(case: Case) {
    let script = "trap '' TERM INT HUP; while :; do echo tick >> ticks; sleep 0.05; done";
    let begin = Instant::now();
    assert!(case.exec(with_timeout(script, 2000)).await.unwrap().timed_out);
    assert!(begin.elapsed() < MANY_SECONDS);
    assert!(is_still(&case, "ticks").await);
}

async fn a_grandchild_that_holds_the_pipe_is_not_waited_for(case: Case) {
    let begin = Instant::now();
    let result = case.shell("(sleep 300 &); sleep 300 & echo done").await;
    assert_eq!((result.exit_code, result.stdout_text(), result.timed_out), (0, "done\n".into(), false));
    assert!(begin.elapsed() < MANY_SECONDS, "{:?}", begin.elapsed());
}

async fn a_quick_command_has_its_exit_code_in_spite_of_a_deadline(case: Case) {
    let result = case.exec(with_timeout("exit 5", 60_000)).await.unwrap();
    assert_eq!((result.exit_code, result.timed_out), (5, false));
}

async fn a_dropped_call_kills_the_command(case: Case) {
    let running = case.exec(ExecSpec::shell(TICKING));
    let begun = async {
        while !case.sandbox.exists(&case.alice, &case.path("ticks")).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        result = running => panic!("it ended: {result:?}"),
        () = begun => {}
    }
    assert!(is_still(&case, "ticks").await);
}

async fn a_deadline_of_nothing_ends_at_once(case: Case) {
    let begin = Instant::now();
    let result = case.exec(with_timeout("sleep 300", 0)).await.unwrap();
    assert_eq!((result.exit_code, result.timed_out), (-1, true));
    assert!(begin.elapsed() < MANY_SECONDS);
}
