//! One record: what it says, and the hash that chains it to the one before.
//!
//! A record is one line of JSON whose last two fields are `prev`, the hash of the record before, and `hash`, the
//! SHA-256 of everything on the line before `,"hash":`. Both are 64 hexadecimal digits; `prev` of the very first record
//! is 64 zeros. So the hash is over bytes as they lie there, and no other program has to write JSON as we do to check
//! it.

use std::collections::BTreeMap;

use egress::{Reached, ReachedHost};
use policy::TreeId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::text::Text;

/// The outcome of a change whose caller went away before it was answered.
pub const UNANSWERED: &str = "unanswered";
/// `prev` of the very first record.
pub const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The text before the hash on a line.
const BEFORE_HASH: &str = ",\"hash\":\"";

/// An event, before it has its place in the chain. The code that makes an entry bounds its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// When, as RFC 3339 in UTC.
    pub time: String,
    /// The id that the service gave the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The id that its sender gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_request: Option<String>,
    /// The caller's role; nothing for an unknown caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The name of the caller's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The user whose trees it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Method and template of the route; for acts of the service and calls over MCP, a word or two.
    pub action: String,
    /// The door by which a request in another vendor's words came, such as `anthropic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// The tree, such as `sandbox/alice/demo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Another tree: the workspace that a snapshot is forked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The id of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// `baseline` for what belongs to all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Paths in the tree, the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Text>,
    /// Paths that are not among `paths`.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_paths: u64,
    /// The agent whose policy it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The SHA-256 of what was set before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The SHA-256 of what is set now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether nothing was to be changed, only told what would be.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// The program that ran; never its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The name of a run, by which its end is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What a run asked of the egress proxy: the first few hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedHost>,
    /// Requests of a run that are not counted in `reached`.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_reached: u64,
    /// The id of a token that was issued or revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued: Option<String>,
    /// `ok`, the code of a failure, or [`UNANSWERED`].
    pub outcome: String,
    /// The status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Refused and failed requests of the same account, or of strangers, that have no record of their own, since the
    /// last that has.
    #[serde(skip_serializing_if = "is_zero")]
    pub suppressed: u64,
    /// How many of these had which outcome.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub suppressed_outcomes: BTreeMap<String, u64>,
    /// Of a start: what is wrong with the files before it, as far as a start sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Of a start: what lay behind the last whole record of the file before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn: Option<Torn>,
}

/// The bytes behind the last whole record of a file, as a crash leaves them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Torn {
    /// How many bytes.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal.
    pub sha256: String,
    /// Whether it is more than the one line that a crash can tear.
    pub is_damage: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number, from 1.
    pub seq: u64,
    /// The event.
    #[serde(flatten)]
    pub entry: Entry,
    /// The hash of the record before.
    pub prev: String,
    /// Its own hash.
    #[serde(default, skip_serializing)]
    pub hash: String,
}

/// Where the next record goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last record; 0 for none.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: FIRST.to_owned() }
    }
}

impl Entry {
    /// The end of a run that went on after its request was answered. `outcome` is the word that figures have for it.
    #[must_use]
    pub fn of_run(tree: &TreeId, run: &str, outcome: &str) -> Self {
        Self {
            user: Some(tree.user().to_string()),
            tree: Some(tree_name(tree)),
            run: Some(run.to_owned()),
            outcome: outcome.to_owned(),
            ..Self::of_service("run ended")
        }
    }

    /// What a run that is over asked of the egress proxy.
    #[must_use]
    pub fn of_network(tree: &TreeId, reached: &Reached) -> Self {
        /// Hosts that a record names.
        const HOSTS_MAX: usize = 8;
        let (named, more) = reached.hosts.split_at(reached.hosts.len().min(HOSTS_MAX));
        let more: u64 = more.iter().map(|host| host.requests).sum();
        Self {
            user: Some(tree.user().to_string()),
            tree: Some(tree_name(tree)),
            reached: named.to_vec(),
            more_reached: more.saturating_add(reached.unnamed),
            ..Self::of_service("run reached")
        }
    }

    /// A workspace that is removed: by the service itself, or one of several that a request has removed.
    #[must_use]
    pub fn of_workspace(action: &str, tree: &TreeId) -> Self {
        let user = Some(tree.user().to_string());
        Self { user, tree: Some(tree_name(tree)), ..Self::of_service(action) }
    }

    /// About how many bytes the record takes in the log: no fewer than it does.
    #[must_use]
    pub fn weight(&self) -> u64 {
        /// The fields' names, both hashes, numbers and the time.
        const FRAME_BYTES: usize = 720;
        /// Digest and length of a long text, with their names.
        const LONG_BYTES: usize = 112;
        /// The fields' names of a host that was reached, and its numbers.
        const HOST_BYTES: usize = 160;
        let Self { time: _, request, caller_request, role, token, user, action, tree, to, snapshot, .. } =
            self;
        let Self {
            scope, paths, program, run, reached, issued, outcome, suppressed_outcomes, broken, ..
        } = self;
        let Self { agent, before, after, .. } = self;
        let optional = [
            request,
            caller_request,
            role,
            token,
            user,
            tree,
            to,
            snapshot,
            scope,
            program,
            run,
            issued,
            broken,
            agent,
            before,
            after,
        ];
        let optional = optional.into_iter().flatten().map(String::as_str);
        let texts = optional.chain([action.as_str(), outcome]).chain(paths.iter().map(Text::kept));
        let hosts = reached.iter().flat_map(|host| [host.host.as_str(), host.outcome.as_str()]);
        let texts = texts.chain(hosts);
        // A quote or backslash takes two bytes in JSON; no other character of a name or path grows.
        let texts: usize = texts.map(|text| text.len() + escaped(text)).sum();
        let listed = paths.len() * LONG_BYTES + reached.len() * HOST_BYTES + suppressed_outcomes.len() * 48;
        u64::try_from(FRAME_BYTES + texts + listed).unwrap_or(u64::MAX)
    }

    /// An act of the service itself, now.
    #[must_use]
    pub fn of_service(action: &str) -> Self {
        Self { time: now(), action: action.to_owned(), outcome: "ok".to_owned(), ..Self::default() }
    }
}

/// A tree, as records have it: `sandbox/alice/demo`, `skills/alice/demo/report`.
#[must_use]
pub fn tree_name(tree: &TreeId) -> String {
    match tree {
        TreeId::Skill(user, agent, skill) => format!("skills/{user}/{agent}/{skill}"),
        TreeId::Workspace(user, agent) => format!("sandbox/{user}/{agent}"),
    }
}

/// This moment, as records have it: RFC 3339 in UTC.
#[must_use]
pub fn now() -> String {
    at(time::OffsetDateTime::now_utc())
}

/// A moment, as records have it.
pub(super) fn at(moment: time::OffsetDateTime) -> String {
    moment.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}

/// The line of `entry` behind `head`, with its end, and the head that it makes.
#[must_use]
pub fn line(head: &Head, entry: Entry) -> (String, Head) {
    let record = Record { seq: head.seq + 1, entry, prev: head.hash.clone(), hash: String::new() };
    // A structure of texts and numbers always becomes JSON.
    let json = serde_json::to_string(&record).unwrap_or_default();
    let hashed = json.strip_suffix('}').unwrap_or_default();
    let hash = hex::encode(Sha256::digest(hashed.as_bytes()));
    let line = format!("{hashed}{BEFORE_HASH}{hash}\"}}\n");
    (line, Head { seq: record.seq, hash })
}

/// Reads a line without its end; `None` when it is none, or has another hash than its bytes.
#[must_use]
pub fn parse(line: &[u8]) -> Option<Record> {
    let line = std::str::from_utf8(line).ok()?;
    let (hashed, hash) = line.rsplit_once(BEFORE_HASH)?;
    let record: Record = serde_json::from_str(line).ok()?;
    let is_whole = hash.strip_suffix("\"}") == Some(record.hash.as_str());
    (is_whole && hex::encode(Sha256::digest(hashed.as_bytes())) == record.hash).then_some(record)
}

fn escaped(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            role: Some("user".to_owned()),
            paths: vec![path.to_owned().into()],
            ..Entry::of_service("PUT /v1/x")
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_names_the_one_before() {
        let (first, head) = line(&Head::default(), entry("数据/\"a\".md"));
        let (second, next) = line(&head, entry(",\"hash\":\""));
        let record = parse(first.trim_end().as_bytes()).unwrap();
        assert_eq!((record.seq, record.prev.as_str()), (1, FIRST));
        assert_eq!(record.entry.paths, [Text::from("数据/\"a\".md".to_owned())]);
        let record = parse(second.trim_end().as_bytes()).unwrap();
        assert_eq!((record.seq, record.prev), (2, head.hash));
        assert_eq!(record.hash, next.hash);
    }

    /// The longest record that a request can cause: every id as long as it may be, of bytes that grow in JSON.
    fn longest() -> Entry {
        let id = "\"".repeat(128);
        let path = |number: usize| Text::from(format!("{number}{}", "\"".repeat(4095)));
        Entry {
            request: Some("r".repeat(64)),
            caller_request: Some("c".repeat(64)),
            role: Some("manager".to_owned()),
            token: Some("\"".repeat(64)),
            user: Some(id.clone()),
            agent: Some(id.clone()),
            before: Some("b".repeat(64)),
            after: Some("a".repeat(64)),
            dry_run: true,
            tree: Some(format!("skills/{id}/{id}/{id}")),
            to: Some(format!("sandbox/{id}/{id}")),
            snapshot: Some("0".repeat(20)),
            scope: Some("baseline".to_owned()),
            paths: (0..8).map(path).collect(),
            more_paths: u64::MAX,
            program: Some("\"".repeat(64)),
            run: Some("r".repeat(128)),
            issued: Some("i".repeat(64)),
            outcome: "command_not_allowed".to_owned(),
            status: Some(400),
            suppressed: u64::MAX,
            suppressed_outcomes: (0..40).map(|number| (format!("{number:019}"), u64::MAX)).collect(),
            ..Entry::of_service("DELETE /v1/skills/{u}/{a}/{s}/versions/{version}/rollback")
        }
    }

    #[test]
    fn a_record_is_bounded_and_weighs_no_less_than_its_line() {
        let (longest_line, _) = line(&Head { seq: u64::MAX - 1, hash: FIRST.to_owned() }, longest());
        assert!(longest_line.len() < 8 * 1024, "{}", longest_line.len());
        let fullest = Entry { paths: vec!["\"".repeat(256).into(); 8], ..longest() };
        let usual = Entry { user: Some("alice".to_owned()), ..entry("notes/a.md") };
        for entry in [longest(), fullest, usual, Entry::of_service("start")] {
            let (line, _) = line(&Head::default(), entry.clone());
            assert!(line.len() as u64 <= entry.weight(), "{} {}", line.len(), entry.weight());
        }
    }

    #[test]
    fn what_a_run_reached_is_bounded_and_weighs_no_less_than_its_line() {
        let host = |number: usize| ReachedHost {
            host: format!("{number:02}{}", "h".repeat(251)),
            port: u16::MAX,
            outcome: "connections_per_user".to_owned(),
            requests: u64::MAX / 64,
            bytes_out: u64::MAX,
            bytes_in: u64::MAX,
        };
        let tree =
            TreeId::Workspace(policy::UserId::parse("u").unwrap(), policy::AgentId::parse("a").unwrap());
        let reached = Reached { hosts: (0..64).map(host).collect(), unnamed: 7 };
        let entry = Entry::of_network(&tree, &reached);
        assert_eq!((entry.reached.len(), entry.more_reached), (8, 56 * (u64::MAX / 64) + 7));
        let (line, _) = line(&Head::default(), entry.clone());
        assert!(line.len() < 8 * 1024 && line.len() as u64 <= entry.weight(), "{}", line.len());
    }

    #[test]
    fn a_line_with_any_byte_changed_is_none() {
        let (whole, _) = line(&Head::default(), entry("a"));
        let whole = whole.trim_end().as_bytes();
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] ^= 1;
            assert_eq!(parse(&changed), None, "{at}");
            assert_eq!(parse(&whole[..at]), None, "{at}");
        }
    }
}
