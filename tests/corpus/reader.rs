//! Reads what a skill made, with another program than the one that made it.

use std::fs;
use std::process::{Command, Stdio};

use crate::plan::Made;

/// Reads `bytes`, the file `made`, and expects what the plan says.
///
/// The readers run on the test's host, on files of skills that this repository has.
///
/// # Panics
/// When the reader fails or says something else.
pub(crate) fn read(made: &Made, bytes: &[u8]) {
    let said = match &made.reader {
        None => String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| panic!("{}: {error}", made.path)),
        Some(line) => said_by(line, made, bytes),
    };
    for word in &made.says {
        assert!(said.contains(word), "{}: {:?} does not say `{word}`:\n{said}", made.path, made.reader);
    }
}

fn said_by(line: &str, made: &Made, bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    // Readers look at the ending.
    let file = directory.path().join(made.path.rsplit('/').next().unwrap());
    fs::write(&file, bytes).unwrap();
    let mut command = Command::new("/bin/bash");
    command.args(["-o", "pipefail", "-c", line]).current_dir(directory.path()).env("FILE", &file);
    // The programs of the system, as commands of the service have them.
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("PYTHONUTF8", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: `{line}` ends with {}:\n{said}", made.path, output.status);
    said
}
