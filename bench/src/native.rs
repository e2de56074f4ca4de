//! The floors: the same work done by system calls or by a program, without any service.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Failure, Result};
use crate::load::Slice;

/// The median time of `work`, repeated as long as the slice allows.
///
/// # Errors
/// The error of `work`.
pub(crate) fn median(slice: Slice, mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < slice.calls && (start.elapsed() < slice.time || times.len() < slice.calls_min) {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Opens, reads and closes a file.
///
/// # Errors
/// [`Failure::Io`].
pub(crate) fn read(path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(Failure::io("open"))?;
    file.read_to_end(&mut bytes).map_err(Failure::io("read"))?;
    Ok(())
}

/// Replaces a file through a temporary name; `strict` waits for the disk twice, for the file and its directory.
///
/// # Errors
/// [`Failure::Io`].
pub(crate) fn write(dir: &Path, bytes: &[u8], strict: bool) -> Result<()> {
    let draft = dir.join("draft");
    let mut file = File::create(&draft).map_err(Failure::io("create"))?;
    file.write_all(bytes).map_err(Failure::io("write"))?;
    if strict {
        file.sync_all().map_err(Failure::io("fsync"))?;
    }
    fs::rename(&draft, dir.join("file")).map_err(Failure::io("rename"))?;
    if strict {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(Failure::io("fsync"))?;
    }
    Ok(())
}

/// Walks a directory and looks at every file.
///
/// # Errors
/// [`Failure::Io`].
pub(crate) fn walk(dir: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry.map_err(|error| Failure::io("walk")(error.into()))?;
        entry.metadata().map_err(|error| Failure::io("walk")(error.into()))?;
    }
    Ok(())
}

/// Runs a program to its end.
///
/// # Errors
/// [`Failure::Io`], also when it fails.
pub(crate) fn run(program: &str, arguments: &[&str], dir: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    let output = command.output().map_err(Failure::io(format!("run `{program}`")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::io(format!("run `{program}`"))(std::io::Error::other(text)))
}

/// Tells whether a program, by name or by absolute path, is installed.
#[must_use]
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
