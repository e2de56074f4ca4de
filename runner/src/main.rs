//! The `filesecbox-runner` program: the runner and, under a hidden name, the launcher of its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: the launcher has one thread, and must not carry what the runner loads.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == runner::SUBCOMMAND) {
        return runner::launcher_main();
    }
    runner::main()
}
