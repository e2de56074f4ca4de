//! A word of advice when a wall refused a program, a file, memory or the network, or a limit ended the run.
//!
//! The kernel says `EACCES` and the shell prints `Permission denied`; neither tells an agent which wall it met and what to
//! do. Refusals are guessed from the messages of bash, dash, env, find, xargs, timeout, Python, C and C++: a wrong guess
//! costs a misleading sentence, a missed one nothing.

use std::path::Path;
use std::time::Duration;

use policy::RunLimits;

use crate::limit::Limit;
use crate::tier::Network;
use crate::walls::programs::{Programs, shorten};

/// How much of the end of standard error is looked at, in bytes.
pub(crate) const LOOK_BYTES: u64 = 4096;

const REFUSAL: &str = "Permission denied";
const READ_ONLY: &str = "Read-only file system";
/// What bash says of a script whose interpreter may not run or is not there.
const BAD_INTERPRETER: &str = "bad interpreter";
const NO_INTERPRETER: &str = "cannot execute: required file not found";
const NOT_FOUND: &str = "command not found";
/// Messages of programs that were refused memory: `strerror(ENOMEM)`, Python, C++, and programs with words of their
/// own.
const NO_MEMORY: [&str; 4] = ["Cannot allocate memory", "MemoryError", "bad_alloc", "ut of memory"];
/// Messages of programs that reached no name or address: glibc, curl, Python, pip, node.
const NO_NETWORK: [&str; 10] = [
    "Could not resolve host",
    "Couldn't connect to server",
    "Could not connect to server",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Failed to establish a new connection",
    "No matching distribution found",
    "getaddrinfo ENOTFOUND",
    "getaddrinfo EAI_AGAIN",
];
/// The message of a program that was refused a kind of socket.
const NO_SUCH_SOCKET: &str = "Address family not supported by protocol";
/// Calls that take a port, as Python, node and C name them before the reason.
const LISTENING: [&str; 3] = [".bind(", "bind: ", "listen EACCES"];
/// Messages of programs that the proxy refused a tunnel.
const REFUSED_BY_PROXY: [&str; 3] = [
    "CONNECT tunnel failed, response 403",
    "Tunnel connection failed: 403",
    "Received HTTP code 403 from proxy",
];
/// Where programs live that are on no search path of ours.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// The advice for a run that could not start a program which the host has replaced or installed since.
pub(crate) const PROGRAMS_REPLACED: &str = "programs of this host were replaced or installed while the service ran; it has looked them up again: repeat the command";

/// What a run met, as far as the advice needs it.
#[derive(Clone, Copy)]
pub(crate) struct Met<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) limits: &'a RunLimits,
    /// The directories of the run's own, as it knows them.
    pub(crate) own: [&'a Path; 2],
    pub(crate) network: Network,
}

/// The advice for a run that ended with `exit_code` and wrote `messages` last to standard error.
pub(crate) fn of(met: Met<'_>, exit_code: i32, messages: &str) -> Option<String> {
    if exit_code == 0 {
        return None;
    }
    messages
        .lines()
        .find_map(|line| about_program(met, line, exit_code))
        .or_else(|| about_semaphores(messages))
        .or_else(|| about_browser(messages))
        .or_else(|| about_listening(messages))
        .or_else(|| messages.lines().find_map(|line| about_file(met, line)))
        .or_else(|| about_memory(met.limits, messages))
        .or_else(|| about_network(met.network, messages))
}

/// The advice for a run that its deadline ended, of `most` at most. `spent` of it went by before the command began.
pub(crate) fn of_deadline(deadline: Duration, spent: Duration, most: u64) -> String {
    let after = deadline.as_millis();
    let advice = if after >= u128::from(most) {
        format!(
            "the deadline ended the run after {after} ms, the longest that is possible here: work in smaller pieces, \
             or start it in the background"
        )
    } else {
        format!(
            "the deadline ended the run after {after} ms: ask for more with `timeout_ms`, {most} at most, or start it in \
             the background"
        )
    };
    if spent < deadline / 2 {
        return advice;
    }
    let spent = spent.as_millis();
    format!("{advice}; copying what the command sees took {spent} ms of that: name fewer skills")
}

/// The advice for a run whose deadline, of `most` at most, passed before its command began.
pub(crate) fn of_deadline_before(deadline: Duration, most: u64) -> String {
    let after = deadline.as_millis();
    let more = if after >= u128::from(most) {
        "start it in the background".to_owned()
    } else {
        format!("ask for more with `timeout_ms`, {most} at most, or start it in the background")
    };
    format!(
        "the command did not begin: copying what it is to see took longer than the deadline of {after} ms. Name fewer \
         skills, or {more}; copies of skills that were made stay for the next run"
    )
}

/// The advice for a Python program that was refused a named semaphore, which has no path that its message could tell.
fn about_semaphores(messages: &str) -> Option<String> {
    (messages.contains("SemLock") && messages.contains(REFUSAL)).then(|| {
        "semaphores with names, as `multiprocessing.Pool`, `Queue` and `Lock` need them, are not there with network `host` \
         below tier `namespaces`: ask for another network, or use threads (`multiprocessing.pool.ThreadPool`)"
            .to_owned()
    })
}

/// The advice for a browser that was refused the list of its open files, whose path it does not tell.
fn about_browser(messages: &str) -> Option<String> {
    (messages.contains("proc_util.cc") && messages.contains(REFUSAL)).then(|| {
        "a browser lists its own open files in `/proc/self/fd`, which is closed with network `host` below tier `namespaces`: \
         ask for another network"
            .to_owned()
    })
}

/// The advice for a program that was refused a port of its own.
fn about_listening(messages: &str) -> Option<String> {
    let is_refused = messages.contains(REFUSAL) || messages.contains("permission denied");
    (is_refused && LISTENING.iter().any(|words| messages.contains(words))).then(|| {
        "listening was refused: commands listen on `localhost` or on all addresses, on ports from 1024 on; UNIX sockets have \
         their paths in the tree, in `$HOME` or in `$TMPDIR`"
            .to_owned()
    })
}

fn about_memory(limits: &RunLimits, messages: &str) -> Option<String> {
    // A group whose limit is reached refuses a system call memory where it would end a process that touches some.
    NO_MEMORY.iter().any(|words| messages.contains(words)).then(|| {
        format!(
            "a process was refused memory: one may have {} MiB of address space, and all of the run together {} MiB \
             of memory",
            limits.memory_bytes >> 20,
            limits.run_memory_bytes >> 20
        )
    })
}

fn about_network(network: Network, messages: &str) -> Option<String> {
    let has = |words: &[&str]| words.iter().any(|words| messages.contains(words));
    let advice = match network {
        Network::Proxy if has(&REFUSED_BY_PROXY) => {
            "the egress rules refuse this host: ask the operator to allow it (`commands.proxy`)"
        }
        Network::Proxy if has(&[NO_SUCH_SOCKET]) => {
            "sockets of this kind are refused: below tier `namespaces` there are those of TCP, to commands of the same user and \
             agent and to the proxy of `HTTP_PROXY` and `HTTPS_PROXY`, and UNIX streams"
        }
        Network::Proxy if has(&NO_NETWORK) => {
            "names and addresses outside are reached over HTTP and HTTPS through the proxy of `HTTP_PROXY` and \
             `HTTPS_PROXY` only: have the program use it"
        }
        Network::None if has(&NO_NETWORK) || has(&[NO_SUCH_SOCKET]) => {
            "this command has no network (`none`): ask for `proxy` where the operator allows it (`commands.network`)"
        }
        Network::None | Network::Proxy | Network::Host => return None,
    };
    Some(advice.to_owned())
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
             is still there, also in `$TMPDIR`: remove what is not needed"
                .to_owned()
        }
    }
}

/// The advice for a line that tells of a program that could not be started.
fn about_program(met: Met<'_>, line: &str, exit_code: i32) -> Option<String> {
    if let Some((before, _)) = line.split_once(NO_INTERPRETER) {
        let script = last_word(before)?;
        return Some(format!(
            "the interpreter that the first line of `{}` names is not installed here",
            shorten(script)
        ));
    }
    if exit_code == 127
        && let Some((before, _)) = line.split_once(NOT_FOUND)
    {
        return Some(format!("`{}` is not installed here", shorten(last_word(before)?)));
    }
    let (before, _) = line.split_once(REFUSAL)?;
    let word = match before.split_once(BAD_INTERPRETER) {
        Some((before, _)) => last_word(before)?,
        None => refused_word(line)?,
    };
    let name = Path::new(word).file_name()?.to_str()?;
    let by_path = word.contains('/');
    if is_system_program(met.programs, word, name) {
        if met.programs.names().any(|allowed| allowed == name) {
            return None;
        }
        let allowed: Vec<&str> = met.programs.names().collect();
        return Some(format!("`{}` may not run here; allowed: {}", shorten(name), allowed.join(" ")));
    }
    // 126: "found but not executable" (bash(1), EXIT STATUS).
    (by_path && exit_code == 126).then(|| {
        format!(
            "`{0}` cannot be started by its path here: give it the execute bit (`chmod +x {0}`), or name its \
             interpreter, as in `bash {0}` or `python3 {0}`",
            shorten(word)
        )
    })
}

/// The advice for a line that tells of a file outside the run's own directories.
fn about_file(met: Met<'_>, line: &str) -> Option<String> {
    if line.contains(READ_ONLY) {
        return Some(
            "the system is read-only here: write to the tree, to `$HOME` or to `$TMPDIR`".to_owned(),
        );
    }
    let path = Path::new(refused_word(line)?);
    let is_outside = path.is_absolute() && !met.own.iter().any(|own| path.starts_with(own));
    is_outside.then(|| {
        format!(
            "`{}` is closed to commands, which reach their tree, `$HOME`, `$TMPDIR` and the system's libraries: have \
             what is needed copied into the tree",
            shorten(&path.display().to_string())
        )
    })
}

/// The word of a line that says what was refused.
fn refused_word(line: &str) -> Option<&str> {
    let (before, after) = line.split_once(REFUSAL)?;
    // Python names the file after the reason, everyone else before it.
    let named = after.trim_start_matches(':').trim();
    if named.is_empty() { last_word(before) } else { named.split(" -> ").next().map(bare) }
}

/// The last word before a reason.
fn last_word(text: &str) -> Option<&str> {
    let word = bare(text.trim_end().trim_end_matches(':').rsplit(' ').next()?);
    (!word.is_empty()).then_some(word)
}

fn bare(word: &str) -> &str {
    word.trim_matches(['\'', '"', '`', '‘', '’', ':'])
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

    fn hint_in(network: Network, exit_code: i32, messages: &str) -> Option<String> {
        let whitelist = Whitelist::Listed {
            direct: vec!["sh".to_owned()],
            helpers: vec![],
            aliases: vec![],
            directories: vec![],
        };
        let programs = Programs::resolve(&whitelist, &SEARCH_PATH.map(Into::into));
        let (limits, own) = (RunLimits::default(), [Path::new("/workspace"), Path::new("/home/sandbox")]);
        of(Met { programs: &programs, limits: &limits, own, network }, exit_code, messages)
    }

    fn hint(exit_code: i32, messages: &str) -> Option<String> {
        hint_in(Network::None, exit_code, messages)
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
            "bash: line 1: ./p.pl: /usr/bin/cat: bad interpreter: Permission denied",
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
    fn a_server_that_may_not_listen_is_told_where_it_may() {
        for message in [
            "    self.socket.bind(self.server_address)\nPermissionError: [Errno 13] Permission denied\n",
            "Error: listen EACCES: permission denied 127.0.0.1:3000\n",
            "nc: bind: Permission denied\n",
        ] {
            assert!(hint(1, message).unwrap().contains("listening was refused"), "{message}");
        }
        let socket = "FATAL: socket() failed: Address family not supported by protocol (97)";
        assert!(hint_in(Network::Proxy, 1, socket).unwrap().contains("those of TCP"));
        assert!(hint_in(Network::None, 1, socket).unwrap().contains("no network"));
    }

    #[test]
    fn a_pool_of_processes_is_told_why_there_is_none() {
        let message = "Traceback (most recent call last):\n    sl = self._semlock = _multiprocessing.SemLock(\n\
                       PermissionError: [Errno 13] Permission denied\n";
        assert!(hint(1, message).unwrap().contains("ThreadPool"));
        assert_eq!(hint(1, "SemLock"), None);
    }

    #[test]
    fn a_browser_is_told_which_directory_it_lacks() {
        let message = "[3163:3163:1123/164643.683281:FATAL:sandbox/linux/services/proc_util.cc:39] Check failed: . : \
                       Permission denied (13)\n";
        assert!(hint(1, message).unwrap().contains("/proc/self/fd"));
    }

    #[test]
    fn what_is_not_installed_is_named() {
        for (message, name) in [
            ("bash: line 1: nc: command not found", "`nc` is not installed"),
            ("bash: ./x.rb: cannot execute: required file not found", "first line of `./x.rb`"),
        ] {
            let advice = hint(127, message).unwrap();
            assert!(advice.contains(name), "{advice}");
        }
        assert_eq!(hint(1, "make: nc: command not found"), None);
    }

    #[test]
    fn a_refused_file_is_no_refused_program() {
        for message in [
            "cat: /etc/shadow: Permission denied",
            "PermissionError: [Errno 13] Permission denied: '/etc/shadow'",
            "bash: line 1: /etc/shadow: Permission denied",
        ] {
            let advice = hint(1, message).unwrap();
            assert!(
                advice.contains("`/etc/shadow` is closed") && !advice.contains("may not run"),
                "{advice}"
            );
        }
        assert_eq!(hint(1, "cat: /workspace/a: Permission denied"), None);
        assert_eq!(hint(0, "sh: 1: cat: Permission denied"), None);
        assert_eq!(hint(1, "Permission denied"), None);
        let advice = hint(1, "touch: cannot touch '/usr/x': Read-only file system").unwrap();
        assert!(advice.contains("`$HOME`"), "{advice}");
    }

    #[test]
    fn a_program_without_a_network_is_told_which_it_has() {
        let pip = "ERROR: No matching distribution found for rich";
        let refused = "curl: (56) CONNECT tunnel failed, response 403";
        for (network, message, expected) in [
            (Network::None, pip, Some("`none`")),
            (Network::Proxy, "curl: (6) Could not resolve host: a.example", Some("`HTTPS_PROXY`")),
            (Network::Proxy, refused, Some("egress rules")),
            (Network::Host, pip, None),
            (Network::None, refused, None),
        ] {
            let advice = hint_in(network, 1, message);
            assert_eq!(advice.is_some(), expected.is_some(), "{message}");
            assert!(advice.unwrap_or_default().contains(expected.unwrap_or_default()), "{message}");
        }
    }

    #[test]
    fn a_deadline_tells_itself_and_the_longest() {
        let (half, longest) = (Duration::from_millis(500), Duration::from_secs(300));
        let advice = of_deadline(half, Duration::from_millis(249), 300_000);
        assert!(advice.contains("after 500 ms") && advice.contains("300000"), "{advice}");
        assert!(!advice.contains("copying"), "{advice}");
        let advice = of_deadline(half, Duration::from_millis(250), 300_000);
        assert!(advice.contains("after 500 ms") && advice.contains("took 250 ms"), "{advice}");
        let advice = of_deadline(longest, Duration::ZERO, 300_000);
        assert!(advice.contains("longest"), "{advice}");
        let advice = of_deadline_before(half, 300_000);
        assert!(advice.contains("500 ms") && advice.contains("`timeout_ms`, 300000"), "{advice}");
        assert!(!of_deadline_before(longest, 300_000).contains("timeout_ms"));
    }
}
