//! A word of advice when the kernel refused a program or memory, or a limit ended the run.
//!
//! The kernel says `EACCES` and the shell prints `Permission denied`; neither tells an agent that a list exists.
//! Refusals are guessed from the messages of bash, dash, env, find, xargs, timeout, Python, C and C++: a wrong guess
//! costs a misleading sentence, a missed one nothing.

use std::path::Path;

use policy::RunLimits;

use crate::limit::Limit;
use crate::walls::programs::{Programs, shorten};

/// How much of the end of standard error is looked at, in bytes.
pub(crate) const LOOK_BYTES: u64 = 4096;

const REFUSAL: &str = "Permission denied";
/// Messages of programs that were refused memory: `strerror(ENOMEM)`, Python, C++, and programs with words of their
/// own.
const NO_MEMORY: [&str; 4] = ["Cannot allocate memory", "MemoryError", "bad_alloc", "ut of memory"];
/// Where programs live that are on no search path of ours.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// The advice for a run that ended with `exit_code` and wrote `messages` last to standard error.
pub(crate) fn of(programs: &Programs, limits: &RunLimits, exit_code: i32, messages: &str) -> Option<String> {
    if exit_code == 0 {
        return None;
    }
    let refused = messages.lines().filter(|line| line.contains(REFUSAL));
    refused.filter_map(|line| advice(programs, line, exit_code)).next().or_else(|| {
        // A group whose limit is reached refuses a system call memory where it would end a process that touches some.
        NO_MEMORY.iter().any(|words| messages.contains(words)).then(|| {
            format!(
                "a process was refused memory: one may have {} MiB of address space, and all of the run together \
                 {} MiB of memory",
                limits.memory_bytes >> 20,
                limits.run_memory_bytes >> 20
            )
        })
    })
}

/// The advice for a run that went beyond `limit`.
pub(crate) fn of_limit(limit: Limit, limits: &RunLimits) -> String {
    match limit {
        Limit::Memory => format!(
            "the processes of the run together needed more than {} MiB of memory: work in smaller pieces or with \
             fewer processes",
            limits.run_memory_bytes >> 20
        ),
        Limit::Cpu => {
            format!("a process used more than {} s of processor time: do less in one run", limits.cpu_seconds)
        }
        Limit::FileSize => {
            format!("a file was to grow beyond {} MiB: write several smaller ones", limits.file_bytes >> 20)
        }
        Limit::Disk => {
            "the run wrote more than the disk or its share of it has room for, and was ended; what it wrote \
                        is still there: remove what is not needed"
                .to_owned()
        }
    }
}

fn advice(programs: &Programs, line: &str, exit_code: i32) -> Option<String> {
    let (before, after) = line.split_once(REFUSAL)?;
    // Python names the file after the reason, everyone else before it.
    let named = after.trim_start_matches(':').trim();
    let word = if named.is_empty() {
        before.trim_end().trim_end_matches(':').rsplit(' ').next()?
    } else {
        named.split(" -> ").next()?
    };
    let word = word.trim_matches(['\'', '"', '`', '‘', '’', ':']);
    let name = Path::new(word).file_name()?.to_str()?;
    let by_path = word.contains('/');
    if is_system_program(programs, word, name) {
        if programs.names().any(|allowed| allowed == name) {
            return None;
        }
        let allowed: Vec<&str> = programs.names().collect();
        return Some(format!("`{}` may not run here; allowed: {}", shorten(name), allowed.join(" ")));
    }
    // 126: "found but not executable" (bash(1), EXIT STATUS).
    (by_path && exit_code == 126).then(|| {
        format!(
            "`{0}` cannot be started by its path here: name its interpreter, as in `bash {0}` or `python3 {0}`",
            shorten(word)
        )
    })
}

fn is_system_program(programs: &Programs, word: &str, name: &str) -> bool {
    let system = SYSTEM_DIRECTORIES.iter().map(Path::new);
    let mut directories = programs.search_path().iter().map(|path| path.as_path()).chain(system);
    let elsewhere = word.contains('/')
        && !directories
            .clone()
            .chain([Path::new("/bin"), Path::new("/sbin")])
            .any(|directory| Path::new(word).parent() == Some(directory));
    !elsewhere && directories.any(|directory| directory.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walls::programs::{SEARCH_PATH, Whitelist};

    fn hint(exit_code: i32, messages: &str) -> Option<String> {
        let whitelist = Whitelist::Listed { direct: vec!["sh".to_owned()], helpers: vec![] };
        let programs = Programs::resolve(&whitelist, &SEARCH_PATH.map(Into::into));
        of(&programs, &RunLimits::default(), exit_code, messages)
    }

    #[test]
    fn a_refused_program_is_named_however_the_message_is_worded() {
        // `cat` is not on this test's list and exists everywhere.
        for message in [
            "bash: line 1: /usr/bin/cat: Permission denied\n",
            "sh: 1: cat: Permission denied",
            "env: ‘cat’: Permission denied",
            "xargs: cat: Permission denied",
            "timeout: failed to run command 'cat': Permission denied",
            "Traceback (most recent call last):\nPermissionError: [Errno 13] Permission denied: 'cat'\n",
        ] {
            assert_eq!(
                hint(126, message).as_deref(),
                Some("`cat` may not run here; allowed: sh"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_script_started_by_its_path_is_told_its_interpreter() {
        let advice = hint(126, "bash: line 1: ./run.sh: Permission denied").unwrap();
        assert!(advice.contains("`bash ./run.sh`"), "{advice}");
    }

    #[test]
    fn a_process_that_was_refused_memory_is_told_how_much_there_is() {
        for message in [
            "OSError: [Errno 12] Cannot allocate memory\n",
            "Traceback (most recent call last):\nMemoryError\n",
            "bash: fork: Cannot allocate memory\n",
            "terminate called after throwing an instance of 'std::bad_alloc'\n",
            "awk: out of memory\n",
            "FATAL: Out of memory\n",
        ] {
            let advice = hint(1, message).unwrap();
            assert!(advice.contains("4096 MiB of address space") && advice.contains("2048 MiB"), "{advice}");
        }
        assert_eq!(hint(0, "MemoryError"), None);
    }

    #[test]
    fn a_refused_file_is_no_refused_program() {
        assert_eq!(hint(1, "cat: /etc/shadow: Permission denied"), None);
        assert_eq!(hint(1, "ls: cannot open directory '/root': Permission denied"), None);
        assert_eq!(hint(0, "sh: 1: cat: Permission denied"), None);
        assert_eq!(hint(1, "Permission denied"), None);
    }
}
