//! The launcher: what stands before a command, confines itself and becomes the command.

use std::io;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use landlock::RulesetStatus;

use super::rules::{END_OF_RULES, Rules};
use super::{calls, capabilities};

/// Becomes the command that the arguments of this process name, confined; returns only when that fails.
pub fn main() -> ExitCode {
    let error = become_command();
    // Where the word goes that nothing was started, there is nothing else to tell it to.
    let _gone = io::stderr().write_all(sandbox::not_launched(&error).as_bytes());
    ExitCode::from(127)
}

fn become_command() -> io::Error {
    let mut rules = Rules { own: Vec::new(), read: Vec::new() };
    let mut words = std::env::args_os().skip(2);
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    loop {
        match words.next() {
            Some(word) if word == END_OF_RULES => break,
            Some(word) if word.to_str().is_some_and(|word| rules.add(word)) => {}
            _ => return invalid(),
        }
    }
    let Some(program) = words.next() else { return invalid() };
    match rules.enforce() {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced && status.no_new_privs => {}
        // Without walls there is no command.
        Ok(_) => return io::Error::other("Landlock is not enforced"),
        Err(error) => return io::Error::other(error),
    }
    if let Err(errno) = capabilities::enforce() {
        return io::Error::other(errno);
    }
    if let Err(error) = calls::enforce() {
        return io::Error::other(error);
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "this process is the confined one, and becomes the program"
    )]
    let mut command = Command::new(program);
    command.args(words).exec()
}
