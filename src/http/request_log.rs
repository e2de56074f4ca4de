//! The facts of a request that become known while it is answered: its caller, its tree.
//!
//! The middleware around all routes makes the facts and reads them at the end, for the log and the audit log; the
//! extractors of [`super::extract`] note what they find out. The facts go with the task that answers the request, so that
//! no operation has to pass them on, and a note that is made elsewhere is lost without harm.

use std::any::Any;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use policy::{AgentId, RelPath, Scope, SkillId, UserId, VersionId};
use storage::SnapshotId;

use crate::access::{Caller, Role};
use crate::audit::Account;
use crate::ops::admission::Owner;
use crate::ops::admission::permits::Permit;
use crate::ops::run::id::ExecId;

/// The header that carries the id of a request: of the sender's making in it, of the service's in its answer.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken from a sender, in bytes.
const ID_BYTES_MAX: usize = 64;
/// Paths of one request that are kept; a change of more files says how many there were.
const PATHS_MAX: usize = 8;
/// Bytes of a program's name that are kept.
const PROGRAM_BYTES_MAX: usize = 64;

tokio::task_local! {
    static FACTS: Arc<RequestLog>;
}

/// The known facts of one request.
#[derive(Debug)]
pub(super) struct RequestLog {
    /// Its id, which no sender chooses.
    pub(super) id: String,
    /// The id that its sender gave it.
    pub(super) caller_id: Option<String>,
    /// Whether it may change something.
    pub(super) is_change: bool,
    /// Whether its body came too slowly.
    pub(super) is_slow: AtomicBool,
    noted: Mutex<Noted>,
    /// Room that its body takes.
    room: Mutex<Vec<Permit<Owner>>>,
}

/// The noted facts of a request.
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
    /// The id of a token that is issued or revoked.
    pub(super) issued: Option<String>,
    /// The agent whose policy it is about.
    pub(super) agent: Option<AgentId>,
    /// The digest of what was set before.
    pub(super) before: Option<String>,
    /// The digest of what is set now.
    pub(super) after: Option<String>,
    /// Whether it only tells what it would change.
    pub(super) dry_run: bool,
    /// The program that is to run.
    pub(super) program: Option<String>,
    /// For a request in another vendor's words, the route that it stands for, and the door by which it came.
    pub(super) stands_for: Option<(&'static str, &'static str)>,
}

impl RequestLog {
    /// The facts of a request with these headers. Its sender's id is kept beside its own when it has 1 to 64 letters,
    /// digits and `-_.`.
    pub(super) fn new(headers: &HeaderMap, is_change: bool) -> Self {
        let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| is_sane(id));
        Self {
            id: fresh_id(),
            caller_id: sent.map(str::to_owned),
            is_change,
            is_slow: AtomicBool::new(false),
            noted: Mutex::default(),
            room: Mutex::default(),
        }
    }

    /// Tells whether the request was refused for who sent it.
    pub(super) fn is_refused(&self) -> bool {
        self.noted.lock().is_refused
    }

    /// Whom the request is charged to, as far as that is known.
    pub(super) fn account(&self) -> Account {
        self.noted.lock().account()
    }

    /// The role of the caller, once that is known.
    pub(super) fn role(&self) -> Option<&'static str> {
        self.noted.lock().caller.as_ref().map(|caller| caller.role.word())
    }

    /// Tells of the facts noted so far. Nothing can be noted meanwhile.
    pub(super) fn tell(&self, of: impl FnOnce(&Noted)) {
        of(&self.noted.lock());
    }

    /// The facts noted so far.
    pub(super) fn noted(&self) -> Noted {
        self.noted.lock().clone()
    }
}

impl Noted {
    /// Whom the record of the request is charged to: a user with a token of their own; else the token, and the user it
    /// acts for where it may act for any.
    pub(super) fn account(&self) -> Account {
        let Some(Caller { role, token }) = &self.caller else { return Account::Strangers };
        match role {
            Role::User { user, .. } => Account::User(user.to_string()),
            Role::Admin | Role::Engine => {
                Account::Token(token.clone(), self.user.as_ref().map(UserId::to_string))
            }
            // Which user a manager names makes no difference, so it is no account either.
            Role::Manager(_) | Role::Monitor => Account::Token(token.clone(), None),
        }
    }
}

/// Lets `answering` note what it finds out.
pub(super) async fn scope_of<T>(facts: Arc<RequestLog>, answering: impl Future<Output = T>) -> T {
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

/// The id that the sender gave the request being answered.
pub(super) fn caller_request_id() -> Option<String> {
    FACTS.try_with(|facts| facts.caller_id.clone()).unwrap_or_default()
}

/// The facts of the request being answered, for what goes on when it is answered: with them, the room that is held for it
/// stays.
pub(super) fn kept() -> Option<Arc<dyn Any + Send + Sync>> {
    FACTS.try_with(|facts| Arc::clone(facts) as Arc<dyn Any + Send + Sync>).ok()
}

/// Tells whether the request being answered may change something.
pub(super) fn is_change() -> bool {
    FACTS.try_with(|facts| facts.is_change).unwrap_or(false)
}

/// Whom the record of the request being answered is charged to, as far as that is known.
pub(super) fn account() -> Account {
    FACTS.try_with(|facts| facts.account()).unwrap_or(Account::Strangers)
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
pub(super) fn hold(room: Permit<Owner>) {
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

/// Notes which machine of a user the request is about.
pub(super) fn runner(user: &UserId, name: &str) {
    let end = name.floor_char_boundary(PROGRAM_BYTES_MAX);
    let name = name.get(..end).unwrap_or_default();
    note(|noted| noted.tree = Some(format!("runners/{user}/{name}")));
}

/// Notes which package the request is about.
pub(super) fn package(version: &VersionId) {
    note(|noted| noted.tree = Some(format!("packages/{version}")));
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

/// Notes the id of the token that is revoked.
pub(super) fn token(id: &str) {
    note(|noted| noted.issued = Some(id.to_owned()));
}

/// Notes which agent's policy the request is about.
pub(super) fn agent(agent: &AgentId) {
    note(|noted| noted.agent = Some(agent.clone()));
}

/// Notes the digests of what was set before and what is set now.
pub(super) fn set(before: Option<String>, after: Option<String>) {
    note(|noted| (noted.before, noted.after) = (before, after));
}

/// Notes that the request only tells what it would change.
pub(super) fn dry_run() {
    note(|noted| noted.dry_run = true);
}

/// Notes which run the request is about.
pub(super) fn run(id: &ExecId) {
    note(|noted| noted.run = Some(id.as_str().to_owned()));
}

/// Notes that the request, which came by `door`, stands for the route `action`.
pub(super) fn stands_for(action: &'static str, door: &'static str) {
    note(|noted| noted.stands_for = Some((action, door)));
}

/// Notes which program is to run. Its arguments are not recorded.
pub(super) fn program(name: &str) {
    let end = name.floor_char_boundary(PROGRAM_BYTES_MAX);
    note(|noted| noted.program = name.get(..end).map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_of_a_sender_is_kept_beside_the_requests_own() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, text.parse().unwrap());
            RequestLog::new(&headers, false)
        };
        for sane in ["a", "8f14e45f-ceea-467f-a1b2-1f3870be274c", &"x".repeat(64), "a_b.c"] {
            let facts = of(sane);
            assert_eq!(facts.caller_id.as_deref(), Some(sane));
            assert_ne!(facts.id, sane);
        }
        for other in ["", "a b", "a\"b", "é", &"x".repeat(65), "a/b", "{}"] {
            assert_eq!(of(other).caller_id, None);
        }
        assert_ne!(fresh_id(), fresh_id());
    }

    #[test]
    fn a_user_is_charged_whichever_token_asks_and_a_token_by_whom_it_acts_for() {
        let (alice, demo) = (UserId::parse("alice").unwrap(), AgentId::parse("demo").unwrap());
        let noted = |role: Role, user: Option<&str>| {
            let caller = Some(Caller { role, token: "t".to_owned() });
            let user = user.map(|user| UserId::parse(user).unwrap());
            Noted { caller, user, ..Noted::default() }.account()
        };
        let token = |user: Option<&str>| Account::Token("t".to_owned(), user.map(str::to_owned));
        let own = Role::User { user: alice, agent: Some(demo.clone()) };
        assert_eq!(noted(own, Some("bob")), Account::User("alice".to_owned()));
        assert_eq!(noted(Role::Engine, Some("bob")), token(Some("bob")));
        assert_eq!(noted(Role::Admin, None), token(None));
        assert_eq!(noted(Role::Manager(demo), Some("bob")), token(None));
        assert_eq!(Noted::default().account(), Account::Strangers);
    }
}
