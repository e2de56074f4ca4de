//! [`Shares`]: links by which installers, which send no token, read chosen skills, until a link is revoked or expires.
//!
//! A link names 160 random bits. Only their digest is kept, so that neither the disk nor a list gives a link away again.
//!
//! | Module | Holds |
//! | --- | --- |
//! | this one | the links: making, listing, revoking, finding |
//! | [`catalog`] | the skills that a link shows, and their names for installers |
//! | [`artifact`] | a shown skill as an archive, and the digests of archives |

pub mod artifact;
pub mod catalog;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use policy::{AgentId, SkillId, UserId};
use serde::{Deserialize, Serialize};
use storage::{SHARES_MAX, Store};

use self::artifact::KnownDigests;
use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use crate::access::now;
use crate::access::revoked::Revoked;
use crate::access::signed::random_hex;

/// Links of what one user sees at once, with all agents together: a user names agents freely.
pub const OF_USER_MAX: usize = 64;
/// Links of the skills of all users of one agent at once, below whatever user they were made: a manager names users freely.
pub const OF_AGENT_MAX: usize = 256;
/// Skills that a link may name.
pub const NAMED_MAX: usize = 256;
/// Longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 256;
/// Random bytes of a link.
const SECRET_BYTES: usize = 20;
/// What names the links that everybody has, in logs.
const PUBLIC: &str = "public";

/// Whose skills a link shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedView {
    /// Those of all users of the agent.
    Baseline,
    /// Those of the user, as the user sees them at the time.
    #[default]
    User,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Names it in lists and logs.
    pub id: String,
    /// The user among whose skills it was made.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
    /// Whose skills it shows.
    pub view: SharedView,
    /// Which of them; without any, all, also those that come later.
    pub skills: Option<Vec<SkillId>>,
    /// What it is for.
    pub note: Option<String>,
    /// Who made it.
    pub by: String,
    /// When, in seconds since 1970.
    pub created: u64,
    /// From when it counts no more.
    pub expires: Option<u64>,
    /// The id of the signed token with which it was made, if it was one.
    token: Option<String>,
    /// The digest of its secret, in hexadecimal digits.
    digest: String,
}

/// A link that is to be made.
#[derive(Clone, Debug)]
pub struct NewShare {
    /// As [`Share::user`].
    pub user: UserId,
    /// As [`Share::agent`].
    pub agent: AgentId,
    /// As [`Share::view`].
    pub view: SharedView,
    /// As [`Share::skills`].
    pub skills: Option<Vec<SkillId>>,
    /// As [`Share::note`].
    pub note: Option<String>,
    /// As [`Share::by`].
    pub by: String,
    /// The id of the signed token with which it is made.
    pub token: Option<String>,
    /// How long it lasts, in seconds; without a number until it is revoked.
    pub seconds: Option<u64>,
}

/// The links of a service, and what is known of the archives that they lead to.
pub struct Shares {
    /// By the digests of their secrets.
    table: RwLock<HashMap<String, Arc<Share>>>,
    /// Held while links are made and removed: how many there are is looked at and changed as one.
    turn: Mutex<()>,
    /// Of the agents whose skills everybody may read.
    public: HashMap<AgentId, Arc<Share>>,
    known: KnownDigests,
}

impl Share {
    /// The link that everybody has to the skills that `agent` has for all users. It is in no list and on no disk.
    fn public(agent: &AgentId) -> Result<Self> {
        Ok(Self {
            id: PUBLIC.to_owned(),
            user: UserId::parse(PUBLIC)?,
            agent: agent.clone(),
            view: SharedView::Baseline,
            skills: None,
            note: None,
            by: PUBLIC.to_owned(),
            created: 0,
            expires: None,
            token: None,
            digest: String::new(),
        })
    }

    fn counts_at(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Tells whether it was made with a token that `revoked` is about.
    fn is_made_with(&self, revoked: &Revoked) -> bool {
        match (revoked, &self.token) {
            (Revoked::Token(id), Some(token)) => id == token,
            (Revoked::User(user), Some(_)) => self.by == user.as_str(),
            (_, None) => false,
        }
    }

    /// The account of those who read by links of what this user sees, or of what all users of this agent have: they take nothing
    /// from the requests of those who made them. It does not depend on names that the maker of a link chooses freely.
    ///
    /// # Errors
    /// [`Error::Id`], never.
    pub fn account(&self) -> Result<UserId> {
        let of = match self.view {
            SharedView::User => format!("user/{}", self.user),
            SharedView::Baseline => format!("agent/{}", self.agent),
        };
        let digits = blake3::hash(of.as_bytes()).to_hex();
        Ok(UserId::parse(&format!("shares-{}", digits.get(..32).unwrap_or_default()))?)
    }
}

impl Shares {
    /// The links that `store` has kept; of those that have expired nothing stays. The skills that the agents `public` have for all users
    /// are shown to everybody.
    ///
    /// # Errors
    /// Those of [`Store::shares`] and [`Store::keep_share`].
    pub fn open(store: &Store, public: &[AgentId]) -> storage::Result<Self> {
        let mut table = HashMap::new();
        for (key, text) in store.shares()? {
            match serde_json::from_str::<Share>(&text) {
                Ok(share) if share.counts_at(now()) => {
                    table.insert(share.digest.clone(), Arc::new(share));
                }
                Ok(_) => store.keep_share(&key, None)?,
                // Written by another version.
                Err(_) => tracing::error!(share = key, "a share link cannot be read: it does not count"),
            }
        }
        let (turn, known) = (Mutex::new(()), KnownDigests::default());
        let public =
            public.iter().filter_map(|agent| Some((agent.clone(), Arc::new(Share::public(agent).ok()?))));
        Ok(Self { table: RwLock::new(table), turn, public: public.collect(), known })
    }

    fn all(&self) -> Vec<Arc<Share>> {
        self.table.read().values().cloned().collect()
    }

    /// Keeps a link and puts it in force, if its maker may make it still.
    fn put(&self, store: &Store, share: Share, may_still: impl Fn() -> bool) -> Result<Arc<Share>> {
        let _turn = self.turn.lock();
        // Revoking a token takes its links away in a turn of its own, after it: none slips in between.
        if !may_still() {
            return Err(Error::Denied("the token that asked for the link counts no more"));
        }
        self.remove(store, |share| !share.counts_at(now()))?;
        let all = self.all();
        let alike = all.iter().filter(|other| other.view == share.view);
        let (own, most, whose) = match share.view {
            SharedView::User => (alike.filter(|other| other.user == share.user).count(), OF_USER_MAX, "user"),
            SharedView::Baseline => {
                (alike.filter(|other| other.agent == share.agent).count(), OF_AGENT_MAX, "agent")
            }
        };
        if own >= most {
            return Err(full(format!("there are {most} share links of this {whose}")));
        }
        if all.len() >= SHARES_MAX {
            return Err(full(format!("there are {SHARES_MAX} share links")));
        }
        let text = serde_json::to_string(&share).map_err(|_| Error::Panicked)?;
        store.keep_share(&share.id, Some(&text))?;
        let share = Arc::new(share);
        self.table.write().insert(share.digest.clone(), Arc::clone(&share));
        Ok(share)
    }

    /// Removes the links that `goes` picks. Each is gone from the disk before it counts no more, so that no restart makes it count
    /// again.
    fn remove(&self, store: &Store, goes: impl Fn(&Share) -> bool) -> Result<usize> {
        let going: Vec<_> = self.all().into_iter().filter(|share| goes(share)).collect();
        for share in &going {
            store.keep_share(&share.id, None)?;
            self.table.write().remove(&share.digest);
        }
        Ok(going.len())
    }
}

impl Service {
    /// Makes a link. Returns it and its secret, which nothing tells again. `may_still` tells at the last moment whether the token that
    /// asks for it counts.
    ///
    /// # Errors
    /// [`Error::Full`] when there are too many; [`Error::Denied`]; those of writing it down.
    pub async fn make_share(
        &self,
        new: NewShare,
        may_still: impl Fn() -> bool + Send + 'static,
    ) -> Result<(Arc<Share>, String)> {
        let random = |_| Error::Panicked;
        let secret = random_hex::<SECRET_BYTES>().map_err(random)?;
        let id = random_hex::<8>().map_err(random)?;
        let NewShare { user, agent, view, skills, note, by, token, seconds } = new;
        let created = now();
        let expires = seconds.map(|seconds| created.saturating_add(seconds));
        let digest = digest(&secret);
        let job = Job::of(&user, Weight::Light).going_on();
        let share = Share { id, user, agent, view, skills, note, by, created, expires, token, digest };
        let (store, shares) = (self.store.clone(), Arc::clone(&self.shares));
        let share = self.work(job, move || shares.put(&store, share, may_still)).await?;
        Ok((share, secret))
    }

    /// The links of a user and agent that count, sorted by their ids.
    #[must_use]
    pub fn shares_of(&self, user: &UserId, agent: &AgentId) -> Vec<Arc<Share>> {
        let now = now();
        let mut own = self.shares.all();
        own.retain(|share| (&share.user, &share.agent) == (user, agent) && share.counts_at(now));
        own.sort_by(|a, b| a.id.cmp(&b.id));
        own
    }

    /// Revokes the link of a user and agent with this id.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`]; those of forgetting it.
    pub async fn revoke_share(&self, user: UserId, agent: AgentId, id: String) -> Result<()> {
        let job = Job::of(&user, Weight::Light);
        let named = id.clone();
        let is_it = move |share: &Share| share.user == user && share.agent == agent && share.id == named;
        match self.revoke_shares(job, is_it).await? {
            0 => Err(storage::Error::NotFound(format!("the share link {id}")).into()),
            _ => Ok(()),
        }
    }

    /// Revokes all links of a user.
    ///
    /// # Errors
    /// Those of forgetting them.
    pub(super) async fn revoke_shares_of(&self, user: &UserId) -> Result<()> {
        let of = user.clone();
        let job = Job::of(user, Weight::Light);
        self.revoke_shares(job, move |share| share.user == of).await.map(drop)
    }

    /// Revokes the links that were made with tokens that count no more.
    ///
    /// # Errors
    /// Those of forgetting them.
    pub(super) async fn revoke_shares_made_with(&self, revoked: Revoked) -> Result<()> {
        let job = Job::about(None, Weight::Light);
        self.revoke_shares(job, move |share| share.is_made_with(&revoked)).await.map(drop)
    }

    async fn revoke_shares(&self, job: Job, goes: impl Fn(&Share) -> bool + Send + 'static) -> Result<usize> {
        let (store, shares) = (self.store.clone(), Arc::clone(&self.shares));
        let work = move || {
            let _turn = shares.turn.lock();
            shares.remove(&store, goes)
        };
        self.work(job.going_on(), work).await
    }

    /// The link that everybody has to the skills of an agent, where the configuration says so.
    #[must_use]
    pub fn public_share(&self, agent: &AgentId) -> Option<Arc<Share>> {
        self.shares.public.get(agent).cloned()
    }

    /// The link with this secret, if there is one and it counts.
    #[must_use]
    pub fn share(&self, secret: &str) -> Option<Arc<Share>> {
        // By the digest of what was sent: the time that it takes tells nothing of other secrets.
        let share = self.shares.table.read().get(&digest(secret)).cloned()?;
        share.counts_at(now()).then_some(share)
    }
}

fn digest(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

fn full(what: String) -> Error {
    Error::Full { what, next: "revoke those that are not needed", retry_after_seconds: 60 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(by: &str, token: Option<&str>, expires: Option<u64>) -> Share {
        Share {
            id: "1".to_owned(),
            user: UserId::parse("u").unwrap(),
            agent: AgentId::parse("a").unwrap(),
            view: SharedView::User,
            skills: None,
            note: None,
            by: by.to_owned(),
            created: 5,
            expires,
            token: token.map(str::to_owned),
            digest: digest("secret"),
        }
    }

    #[test]
    fn a_link_ends_with_the_token_that_made_it_and_at_its_time() {
        let of_token = |id: &str| Revoked::Token(id.to_owned());
        let of_user = |user: &str| Revoked::User(UserId::parse(user).unwrap());
        for (share, revoked, expected) in [
            (share("u", Some("t"), None), of_token("t"), true),
            (share("u", Some("t"), None), of_token("other"), false),
            (share("u", Some("t"), None), of_user("u"), true),
            (share("u", Some("t"), None), of_user("v"), false),
            // Static tokens are revoked by no id; one may have the name of a user.
            (share("u", None, None), of_user("u"), false),
        ] {
            assert_eq!(share.is_made_with(&revoked), expected, "{share:?} {revoked:?}");
        }
        assert!(share("u", None, None).counts_at(u64::MAX));
        let brief = share("u", None, Some(9));
        assert!(brief.counts_at(8) && !brief.counts_at(9));
    }

    #[test]
    fn no_link_is_made_for_a_token_that_was_revoked_while_it_waited_for_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), storage::Options::default()).unwrap();
        let shares = Shares::open(&store, &[]).unwrap();
        let refused = shares.put(&store, share("u", Some("t"), None), || false);
        assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
        assert!(shares.all().is_empty() && store.shares().unwrap().is_empty());
        shares.put(&store, share("u", Some("t"), None), || true).unwrap();
        assert_eq!(Shares::open(&store, &[]).unwrap().all(), shares.all());
    }
}
