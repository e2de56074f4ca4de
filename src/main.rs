//! The `filesecbox` program: service, command line and, under a hidden name, the launcher of commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: the launcher is single-threaded and must not carry what the service loads.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == exec::SUBCOMMAND) {
        return exec::launcher_main();
    }
    filesecbox::cli::main()
}
