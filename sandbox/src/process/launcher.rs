//! A launcher's word that it could not become the command.
//!
//! It says so on the standard error of the command that is not there, with the mark of the run. A command knows its mark, too: all that it
//! could pretend is that it was not started.

use std::io;

use super::family::MARK;
use crate::ExecResult;

/// The exit code of a launcher that could not become the command, as of a shell that does not find it.
const NOT_LAUNCHED: i32 = 127;

/// What a launcher writes to its standard error, before it exits with 127, when it cannot become the command because of `error`.
#[must_use]
pub fn not_launched(error: &io::Error) -> String {
    let mark = std::env::var(MARK).unwrap_or_default();
    line(&mark, error.raw_os_error().unwrap_or(0))
}

fn line(mark: &str, errno: i32) -> String {
    format!("not launched {mark} {errno}\n")
}

/// Why the command of `mark` was not started, when its launcher said so.
pub(super) fn failure(mark: &str, result: &ExecResult) -> Option<io::Error> {
    if result.exit_code != NOT_LAUNCHED || !result.stdout.is_empty() {
        return None;
    }
    let told = std::str::from_utf8(&result.stderr).ok()?;
    let errno = told.strip_prefix("not launched ")?.strip_prefix(mark)?.trim().parse().ok()?;
    if told != line(mark, errno) {
        return None;
    }
    Some(if errno == 0 {
        io::Error::other("the launcher failed")
    } else {
        io::Error::from_raw_os_error(errno)
    })
}
