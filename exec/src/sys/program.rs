//! A program with its arguments and environment, laid out as `execve` takes them.

use std::convert::Infallible;
use std::ffi::{CString, NulError, c_char};
use std::io;

/// A program ready to be executed: nothing more needs to be allocated.
///
/// * `argv` and `envp` point into `strings` and end with a null pointer;
/// * `strings` is never changed, so the pointers stay good when the whole is moved (a `CString` is a heap block).
pub(crate) struct Program {
    path: CString,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    _strings: [Vec<CString>; 2],
}

impl Program {
    /// Lays out the program file `path`.
    ///
    /// # Errors
    /// When a text holds a NUL.
    pub(crate) fn new(path: &[u8], arguments: &[String], environment: &[String]) -> Result<Self, NulError> {
        let strings = [owned(arguments)?, owned(environment)?];
        let [argv, envp] = strings
            .each_ref()
            .map(|texts| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect());
        Ok(Self { path: CString::new(path)?, argv, envp, _strings: strings })
    }

    /// Turns this process into the program; returns only on failure.
    ///
    /// # Errors
    /// As `execve(2)`.
    pub(crate) fn execute(&self) -> io::Result<Infallible> {
        // SAFETY: all three are kept alive by `self`; the two arrays end with a null pointer and hold pointers to
        // strings that end with a NUL.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        Err(io::Error::last_os_error())
    }
}

fn owned(texts: &[String]) -> Result<Vec<CString>, NulError> {
    texts.iter().map(|text| CString::new(text.as_bytes())).collect()
}
