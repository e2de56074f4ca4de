//! [`Canary`]: what is tried in order to see that walls hold, and how it ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::{Gid, Uid, chown};
use serde::{Deserialize, Serialize};

use crate::tier::Layer;

/// The text that a canary would read where the walls have a hole.
const SECRET: &str = "canary-outside-the-tree";

/// What the control prints.
const WORKS: &str = "inside\nok\n";

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// The attempt, in words.
    pub attempt: String,
    /// Enforced: the attempt ended as it must. Otherwise how it ended, or why it was not made.
    pub outcome: Layer,
}

/// What a canary does.
#[derive(Clone)]
pub(super) struct Attempt {
    /// In words.
    words: &'static str,
    /// As a shell takes it, with the directory outside the tree as `$1`: it prints [`SECRET`] where it succeeds.
    script: String,
}

/// What must work. It stands before all attempts, and prints [`WORKS`].
pub(super) fn control() -> Attempt {
    let script = "cat inside && echo ok > made && read -r made < made && echo $made".to_owned();
    Attempt { words: "read and write inside the tree", script }
}

/// What the walls must stop: of commands with a root of their own or of the host's, which may execute code of their trees or
/// not, whose changes of modes are judged, and where `service` is its process when signals to it are to be stopped.
pub(super) fn attempts(
    mounts: bool,
    code_in_trees: bool,
    judges_modes: bool,
    service: Option<i32>,
) -> Vec<Attempt> {
    // What a shell does by itself, it does: each further program would take a millisecond of the start.
    let mut attempts = vec![
        Attempt {
            words: "read a file outside the tree",
            script: "read -r text < \"$1/secret\"; echo \"$text\"".to_owned(),
        },
        Attempt {
            words: "write a file outside the tree",
            script: format!("echo x > \"$1/new\" && echo {SECRET}"),
        },
    ];
    let (words, program) = match (code_in_trees, mounts) {
        (false, _) => ("execute a program from the tree", "./copy"),
        (true, true) => ("execute a program from shared memory", "cp copy /dev/shm && /dev/shm/copy"),
        (true, false) => ("execute a program outside the tree", "\"$1/copy\""),
    };
    attempts.push(Attempt { words, script: format!("{program} -c 'echo {SECRET}'") });
    if mounts {
        let script = format!("test -e \"$1/secret\" && echo {SECRET}");
        attempts.push(Attempt { words: "see a file of the host", script });
        let script = format!(
            "for p in /proc/[0-9]*; do test -r $p/status && read -r key name < $p/status && case $name in *filesecbox*) echo {SECRET};; esac; done"
        );
        attempts.push(Attempt { words: "see a process of the host", script });
    }
    if judges_modes {
        let script = format!("chmod 600 \"$1/secret\" && echo {SECRET}");
        attempts.push(Attempt { words: "change the mode of a file outside the tree", script });
    }
    if let Some(service) = service {
        let signal = format!("kill -0 {service} && echo {SECRET}");
        // In a namespace of its own the number may be one of the attempt's own processes, as in a container, where
        // numbers are small.
        let script = match mounts {
            true => format!("test -e /proc/{service} || {{ {signal}; }}"),
            false => signal,
        };
        attempts.push(Attempt { words: "signal the service", script });
    }
    attempts
}

/// All of them one after the other. The script says where each begins and ends.
pub(super) fn script_of(all: &[Attempt]) -> String {
    let part = |(number, attempt): (usize, &Attempt)| {
        format!("echo {}( {} )\necho {}", begin(number), attempt.script, end(number))
    };
    all.iter().enumerate().map(part).collect()
}

fn begin(number: usize) -> String {
    format!("begin {number}\n")
}

fn end(number: usize) -> String {
    format!("end {number}\n")
}

/// How each of them ended, by what the script printed; `ended` tells how it ended itself. The first is the control.
pub(super) fn outcomes(all: &[Attempt], printed: &str, ended: &str) -> Vec<Canary> {
    let said = |number: usize| {
        let (_, from) = printed.split_once(&begin(number))?;
        from.split_once(&end(number)).map(|(said, _)| said)
    };
    let outcome = |number: usize| match said(number) {
        Some(WORKS) if number == 0 => Layer::Enforced,
        _ if number == 0 => Layer::unavailable(ended.to_owned()),
        Some(said) if said.contains(SECRET) => Layer::unavailable("it succeeded, and must not"),
        Some(_) => Layer::Enforced,
        None => Layer::unavailable(format!("it was not made; {ended}")),
    };
    let canary = |(number, attempt): (usize, &Attempt)| Canary {
        attempt: attempt.words.to_owned(),
        outcome: outcome(number),
    };
    all.iter().enumerate().map(canary).collect()
}

/// A tree with a neighbour that must stay out of reach; removed when dropped.
pub(super) struct Cage {
    root: PathBuf,
    pub(super) tree: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) outside: PathBuf,
    pub(super) owner: Option<u32>,
}

impl Cage {
    /// Makes it inside `directory`, of `owner`.
    pub(super) fn build(directory: &Path, owner: Option<u32>) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let root = directory.join(format!("probe-{}-{now}", std::process::id()));
        fs::create_dir(&root)?;
        let part = |name| root.join(name);
        let cage =
            Self { tree: part("tree"), scratch: part("scratch"), outside: part("outside"), root, owner };
        for path in [&cage.tree, &cage.scratch, &cage.outside] {
            fs::create_dir(path)?;
        }
        fs::write(cage.outside.join("secret"), SECRET)?;
        fs::write(cage.tree.join("inside"), "inside\n")?;
        for directory in [&cage.tree, &cage.outside] {
            fs::copy("/bin/sh", directory.join("copy"))?;
        }
        if let Some(uid) = owner {
            // The neighbour too: only Landlock stands between, not the owner of its files.
            for path in [&cage.tree, &cage.scratch, &cage.outside] {
                chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))?;
            }
        }
        Ok(cage)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(
                path = %self.root.display(), %error,
                "failed to remove the directory of a probe: it stays"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Makes all of them without any walls, in a place whose name a shell would read as more than a name.
    fn without_walls(all: &[Attempt]) -> Vec<Canary> {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("it's a $(false) \"place\"");
        fs::create_dir(&place).unwrap();
        let cage = Cage::build(&place, None).unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(script_of(all)).arg("sh").arg(&cage.outside).current_dir(&cage.tree);
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        outcomes(all, &String::from_utf8_lossy(&output.stdout), &said)
    }

    #[test]
    fn without_walls_each_attempt_succeeds_and_is_told() {
        let process = i32::try_from(std::process::id()).unwrap();
        for code_in_trees in [true, false] {
            let all = [vec![control()], attempts(false, code_in_trees, true, Some(process))].concat();
            let canaries = without_walls(&all);
            assert_eq!(canaries.len(), 6, "{canaries:?}");
            assert!(canaries[0].outcome.is_enforced(), "{canaries:?}");
            for canary in &canaries[1..] {
                let told = Layer::unavailable("it succeeded, and must not");
                assert_eq!(canary.outcome, told, "{canaries:?}");
            }
        }
    }

    #[test]
    fn without_a_root_of_its_own_a_command_sees_files_and_processes() {
        // Only what is about the root: not every host executes what is in its shared memory.
        let seeing = |attempt: &Attempt| attempt.words.starts_with("see a ");
        let mut all = vec![control()];
        all.extend(attempts(true, true, false, None).into_iter().filter(seeing));
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("filesecbox");
        // By another process: a child that another test forks meanwhile has no copy of a descriptor for writing, with which the
        // kernel executes nothing (ETXTBSY, execve(2)).
        assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
        let mut shown = Command::new(&program).arg("60").spawn().unwrap();
        let canaries = without_walls(&all);
        shown.kill().unwrap();
        shown.wait().unwrap();
        assert_eq!(canaries.len(), 3, "{canaries:?}");
        assert!(canaries[1..].iter().all(|canary| !canary.outcome.is_enforced()), "{canaries:?}");
    }

    #[test]
    fn an_attempt_that_was_not_made_is_no_wall() {
        let all = [vec![control()], attempts(false, true, false, None)].concat();
        let cut = format!("{}{WORKS}{}{}", begin(0), end(0), begin(1));
        let canaries = outcomes(&all, &cut, "exit code 2");
        assert!(canaries[0].outcome.is_enforced(), "{canaries:?}");
        assert!(canaries[1..].iter().all(|canary| !canary.outcome.is_enforced()), "{canaries:?}");
    }
}
