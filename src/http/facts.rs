//! What becomes known of a request while it is answered: who sent it, what it is about.
//!
//! The middleware around all routes makes the facts and reads them at the end, for the log and the audit log; the
//! extractors of [`super::request`] note what they find out. Facts go with the task that answers the request, so that
//! no operation has to pass them on, and a note that is made elsewhere is lost without harm.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use policy::{AgentId, RelPath, Scope, SkillId, UserId};
use storage::SnapshotId;

use crate::access::Caller;
use crate::ops::admission::Owner;
use crate::ops::places::Place;
use crate::ops::run::id::ExecId;

/// The header that carries the id of a request, in both directions.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken from a sender, in bytes.
const ID_BYTES_MAX: usize = 64;
/// Paths of one request that are kept; a change of more files says how many there were.
const PATHS_MAX: usize = 8;
/// Bytes of a program's name that are kept.
const PROGRAM_BYTES_MAX: usize = 64;

tokio::task_local! {
    static FACTS: Arc<Facts>;
}

/// What is known of one request.
#[derive(Debug)]
pub(super) struct Facts {
    /// Its id.
    pub(super) id: String,
    /// Whether its body came too slowly.
    pub(super) is_slow: AtomicBool,
    noted: Mutex<Noted>,
    /// Room that its body takes.
    room: Mutex<Vec<Place<Owner>>>,
}

/// What was noted of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    /// Who sent it.
    pub(super) caller: Option<Caller>,
    /// Whether it was refused for who sent it.
    pub(super) is_refused: bool,
    /// The user whose trees it is about.
    pub(super) user: Option<UserId>,
    /// The tree, such as `sandbox/alice/demo`.
    pub(super) tree: Option<String>,
    /// The workspace that a snapshot is forked to.
    pub(super) to: Option<String>,
    /// The id of a snapshot.
    pub(super) snapshot: Option<String>,
    /// For whole skills, whether it is about those of all users.
    pub(super) scope: Option<Scope>,
    /// Paths in the tree.
    pub(super) paths: Vec<String>,
    /// How many paths there were.
    pub(super) paths_total: usize,
    /// The name of the run.
    pub(super) run: Option<String>,
    /// The id of a token that is issued.
    pub(super) issued: Option<String>,
    /// The program that is to run.
    pub(super) program: Option<String>,
}

impl Facts {
    /// Facts of a request with these headers. Its sender's id is taken when it has 1 to 64 letters, digits and `-_.`.
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| is_sane(id));
        let id = sent.map_or_else(fresh_id, str::to_owned);
        Self { id, is_slow: AtomicBool::new(false), noted: Mutex::default(), room: Mutex::default() }
    }

    /// Tells whether the request was refused for who sent it.
    pub(super) fn is_refused(&self) -> bool {
        self.noted.lock().is_refused
    }

    /// The role of whoever sent it, once that is known.
    pub(super) fn role(&self) -> Option<&'static str> {
        self.noted.lock().caller.as_ref().map(|caller| caller.role.word())
    }

    /// What was noted so far.
    pub(super) fn noted(&self) -> Noted {
        self.noted.lock().clone()
    }
}

/// Lets `answering` note what it finds out.
pub(super) async fn scope_of<T>(facts: Arc<Facts>, answering: impl Future<Output = T>) -> T {
    FACTS.scope(facts, answering).await
}

fn is_sane(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// An id that no other request of this process has, and hardly one of another.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static SESSION: OnceLock<u32> = OnceLock::new();
    let session = SESSION.get_or_init(|| getrandom::u32().unwrap_or(0));
    format!("{session:08x}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn note(change: impl FnOnce(&mut Noted)) {
    let _ = FACTS.try_with(|facts| change(&mut facts.noted.lock()));
}

/// The id of the request being answered; outside of any, a fresh one.
pub(super) fn request_id() -> String {
    FACTS.try_with(|facts| facts.id.clone()).unwrap_or_else(|_| fresh_id())
}

/// Tells whether the body of the request being answered came too slowly.
pub(super) fn is_slow() -> bool {
    FACTS.try_with(|facts| facts.is_slow.load(Ordering::Relaxed)).unwrap_or(false)
}

/// The user whose trees the request being answered is about.
pub(super) fn user_of() -> Option<UserId> {
    FACTS.try_with(|facts| facts.noted.lock().user.clone()).unwrap_or_default()
}

/// Holds room until the request is answered.
pub(super) fn hold(room: Place<Owner>) {
    let _ = FACTS.try_with(|facts| facts.room.lock().push(room));
}

/// Notes who sends the request.
pub(super) fn caller(caller: &Caller) {
    note(|noted| noted.caller = Some(caller.clone()));
}

/// Notes that the request is refused for who sends it.
pub(super) fn refused() {
    note(|noted| noted.is_refused = true);
}

/// Notes which tree the request is about.
pub(super) fn tree(user: &UserId, agent: &AgentId, skill: Option<&SkillId>) {
    note(|noted| {
        noted.user = Some(user.clone());
        noted.tree = Some(match skill {
            Some(skill) => format!("skills/{user}/{agent}/{skill}"),
            None => format!("sandbox/{user}/{agent}"),
        });
    });
}

/// Notes of which user the request is about all sandboxes.
pub(super) fn user(user: &UserId) {
    note(|noted| noted.user = Some(user.clone()));
}

/// Notes which workspace a snapshot is forked to.
pub(super) fn fork(user: &UserId, agent: &AgentId) {
    note(|noted| noted.to = Some(format!("sandbox/{user}/{agent}")));
}

/// Notes which snapshot the request is about.
pub(super) fn snapshot(id: &SnapshotId) {
    note(|noted| noted.snapshot = Some(id.to_string()));
}

/// Notes which skill, or whose skills, the request is about.
pub(super) fn skills(user: &UserId, agent: &AgentId, skill: Option<&SkillId>) {
    note(|noted| {
        noted.user = Some(user.clone());
        let skill = skill.map_or_else(String::new, |skill| format!("/{skill}"));
        noted.tree = Some(format!("skills/{user}/{agent}{skill}"));
    });
}

/// Notes whether the request is about the skills of all users.
pub(super) fn scope(scope: Scope) {
    note(|noted| noted.scope = Some(scope));
}

/// Notes a path in the tree.
pub(super) fn path(path: &RelPath) {
    note(|noted| {
        noted.paths_total += 1;
        if noted.paths.len() < PATHS_MAX {
            noted.paths.push(path.to_string());
        }
    });
}

/// Notes for whom a token is issued, and what logs call it.
pub(super) fn issued(user: &UserId, id: &str) {
    note(|noted| {
        noted.user = Some(user.clone());
        noted.issued = Some(id.to_owned());
    });
}

/// Notes which run the request is about.
pub(super) fn run(id: &ExecId) {
    note(|noted| noted.run = Some(id.as_str().to_owned()));
}

/// Notes which program is to run. Its arguments are nobody's business.
pub(super) fn program(name: &str) {
    let end = name.floor_char_boundary(PROGRAM_BYTES_MAX);
    note(|noted| noted.program = name.get(..end).map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_is_taken_and_any_other_replaced() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, text.parse().unwrap());
            Facts::new(&headers).id
        };
        for sane in ["a", "8f14e45f-ceea-467f-a1b2-1f3870be274c", &"x".repeat(64), "a_b.c"] {
            assert_eq!(of(sane), sane);
        }
        for other in ["", "a b", "a\"b", "é", &"x".repeat(65), "a/b", "{}"] {
            assert_ne!(of(other), other);
        }
        assert_ne!(fresh_id(), fresh_id());
    }
}
