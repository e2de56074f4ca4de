//! [`Accounts`]: the user of a run by name, for programs that see the host's `/etc/passwd`, in which no line is the run's.
//!
//! C libraries ask a daemon for users before they read that file (glibc) or after (musl), over a socket of a fixed path
//! (nscd(8)). A program that connects to that path is connected to its supervisor, which knows the run's user, as `sandbox`
//! with the run's home directory, and those of the file, and no others: what else the library could ask is out of a run's reach.
//! For groups the library gets no answer, and reads their file. The daemon of the host, if there is one, is not asked.
//!
//! # References
//! nscd/nscd-client.h of glibc; src/passwd/nscd.h of musl.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::slot::{Asked, DescriptorSlot, Outcome};

const DAEMON: [&[u8]; 2] = [b"/var/run/nscd/socket", b"/run/nscd/socket"];
const USERS: &str = "/etc/passwd";
/// How much of that file is looked at, in bytes.
const USERS_BYTES_MAX: u64 = 1024 * 1024;
/// Questions of one run that are open at once. The oldest is dropped first.
const OPEN_MAX: usize = 16;
/// The version of the protocol, and its questions that are answered here.
const VERSION: i32 = 2;
const BY_NAME: i32 = 0;
const BY_NUMBER: i32 = 1;
/// The size of a question without its key, in bytes: version, kind and length of the key.
const HEAD_BYTES: usize = 12;
/// The longest key that is read, its end included, in bytes: longer than the name of a user may be.
const KEY_BYTES_MAX: usize = 256;
const FOUND: i32 = 1;
/// There is none. That nothing is kept here would be another answer, after which the library asks no more for a while.
const NOT_FOUND: i32 = 0;
/// The size of an answer without its texts, in bytes.
const ANSWER_HEAD_BYTES: usize = 36;

/// The questions of one run for users.
#[derive(Debug)]
pub(super) struct Accounts {
    /// The line of the run's user, as in passwd(5).
    own: String,
    open: VecDeque<OwnedFd>,
}

impl Accounts {
    /// The user of a run with this id and this home directory.
    pub(super) fn new(id: u32, home: &str) -> Self {
        Self { own: format!("sandbox:x:{id}:{id}::{home}:/bin/bash"), open: VecDeque::new() }
    }

    /// Tells whether the daemon is asked for by this path.
    pub(super) fn is_at(path: &[u8]) -> bool {
        DAEMON.contains(&path)
    }

    /// Connects the caller's socket.
    ///
    /// # Errors
    /// As `socketpair(2)`.
    pub(super) fn connect(&mut self, asked: &Asked<'_>, socket: i32) -> Result<Outcome, Errno> {
        let slot = DescriptorSlot::of(asked.target, socket)?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        slot.fill(&theirs, asked.listener, asked.call)?;
        while self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(ours);
        Ok(Outcome::Made)
    }

    /// The sockets on which questions come.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.iter().map(AsFd::as_fd)
    }

    /// Answers the questions that have come on those sockets, in the order of [`Accounts::sockets`], that `are_ready`.
    pub(super) fn answer(&mut self, are_ready: &[bool]) {
        let mut ready = are_ready.iter().copied();
        let own = &self.own;
        // The library sends a question at once, and reads one answer.
        self.open.retain(|socket| {
            let is_ready = ready.next().unwrap_or(false);
            if is_ready {
                reply(socket, own);
            }
            !is_ready
        });
    }
}

fn reply(socket: &OwnedFd, own: &str) {
    let mut question = [0; HEAD_BYTES + KEY_BYTES_MAX];
    let Ok((_, length)) = recv(socket, &mut question, RecvFlags::DONTWAIT) else { return };
    let Some(question) = question.get(..length) else { return };
    if let Some(answer) = answer_to(question, own, &users) {
        // A caller that takes nothing gets nothing.
        let _ = send(socket, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// The users of the host, as far as every run may read of them.
fn users() -> String {
    let mut text = Vec::new();
    if let Ok(file) = rustix::fs::open(USERS, rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()) {
        let _ = std::fs::File::from(file).take(USERS_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The answer to a question; `None` where none is sent, because the question is none, or asks for the daemon's memory.
fn answer_to(question: &[u8], own: &str, users: &dyn Fn() -> String) -> Option<Vec<u8>> {
    let (head, key) = question.split_at_checked(HEAD_BYTES)?;
    let [version, kind, length] = [0, 4, 8].map(|at| number(head, at));
    let key = key.get(..usize::try_from(length?).ok()?)?;
    if version? != VERSION {
        return None;
    }
    let field = match kind? {
        BY_NAME => 0,
        BY_NUMBER => 2,
        // Lists of addresses and memory have another form, and are asked for elsewhere when the end comes.
        _ => return None,
    };
    let key = std::str::from_utf8(key.strip_suffix(&[0])?).ok()?;
    let is_wanted = |line: &&str| line.split(':').nth(field) == Some(key);
    let found = users().lines().find(is_wanted).map(str::to_owned);
    let line = found.as_deref().or(Some(own).filter(is_wanted));
    Some(line.and_then(user).unwrap_or_else(|| {
        let mut none = [VERSION, NOT_FOUND].map(i32::to_ne_bytes).concat();
        none.resize(ANSWER_HEAD_BYTES, 0);
        none
    }))
}

/// A line of passwd(5) as an answer.
fn user(line: &str) -> Option<Vec<u8>> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, password, uid, gid, gecos, directory, shell] = fields.as_slice() else { return None };
    let length = |text: &str| i32::try_from(text.len() + 1).ok();
    let id = |text: &str| text.parse::<u32>().ok().map(u32::cast_signed);
    let head = [
        Some(VERSION),
        Some(FOUND),
        length(name),
        length(password),
        id(uid),
        id(gid),
        length(gecos),
        length(directory),
        length(shell),
    ];
    let mut answer = Vec::new();
    for number in head {
        answer.extend(number?.to_ne_bytes());
    }
    for text in [name, password, gecos, directory, shell] {
        answer.extend(text.bytes());
        answer.push(0);
    }
    Some(answer)
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(version: i32, kind: i32, key: &[u8]) -> Option<Vec<u8>> {
        let length = i32::try_from(key.len()).unwrap();
        let question = [&[version, kind, length].map(i32::to_ne_bytes).concat(), key].concat();
        let users = || "root:x:0:0:root:/root:/bin/sh\nbroken\n:::\n".to_owned();
        answer_to(&question, "sandbox:x:7:7::/home/s:/bin/bash", &users)
    }

    #[test]
    fn the_run_and_the_host_have_users_and_there_are_no_others() {
        let user = user("sandbox:x:7:7::/home/s:/bin/bash");
        assert_eq!(user.as_ref().unwrap().len(), 36 + 8 + 2 + 1 + 8 + 10);
        assert_eq!(asked(2, 1, b"7\0"), user);
        assert_eq!(asked(2, 0, b"sandbox\0"), user);
        assert!(asked(2, 1, b"0\0").unwrap().windows(5).any(|word| word == b"root\0"));
        let none = asked(2, 1, b"8\0").unwrap();
        assert_eq!((none.len(), number(&none, 4)), (36, Some(0)));
        assert_eq!(asked(2, 0, b"broken\0"), Some(none));
    }

    #[test]
    fn what_is_no_question_for_a_user_gets_no_answer() {
        for (version, kind, key) in
            [(1, 1, &b"7\0"[..]), (2, 11, b"passwd\0"), (2, 1, b"7"), (2, 1, b"\xFF\0")]
        {
            assert_eq!(asked(version, kind, key), None);
        }
        for length in 0..14 {
            let whole = [&[2, 1, 2].map(i32::to_ne_bytes).concat(), &b"7\0"[..]].concat();
            assert_eq!(answer_to(&whole[..length.min(13)], "", &String::new), None, "{length}");
        }
        let lying = [2, 1, i32::MAX].map(i32::to_ne_bytes).concat();
        assert_eq!(answer_to(&lying, "", &String::new), None);
    }
}
