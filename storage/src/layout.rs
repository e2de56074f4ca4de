//! Where everything lies below the store's root. No other file knows this layout.
//!
//! ```text
//! skill/baseline/{agent}/{skill}/…          current version of an application skill
//! skill/overlay/{user}/{agent}/{skill}/…    a user's changes, an overlayfs upper directory
//! sandbox/{user}/{agent}/…                  a workspace
//! .filesecbox/format                        version of this layout
//! .filesecbox/lock                          held by the one service that uses the store
//! .filesecbox/salt                          what tells the user ids of this store from those of others
//! .filesecbox/journal.key                   what proves records to be the service's
//! .filesecbox/journal/{name}                records of changes that are to be done again after a crash
//! .filesecbox/archives/{version}-{digest}   packages of versions of skills, as platforms sent them
//! .filesecbox/unpacked/                     the files of packages as they are unpacked, to be copied; a cache
//!   lists/{digest}                          what a package holds
//!   files/{xx}/{digest}                     contents of files, each once
//! .filesecbox/refused/{name}                what looked like a record and was not carried out, for the operator
//! .filesecbox/policies/{agent}-{number}     what was set for single agents
//! .filesecbox/runners/{user}-{number}       the machines that a user lends, and which of them is in use
//! .filesecbox/devboxes/{name}-{number}      the devboxes, and the state of each
//! .filesecbox/shares/{share}-{number}        links by which installers read skills
//! .filesecbox/revoked/{token}-{number}      signed tokens that count no more
//! .filesecbox/stage/                        what is being built, and mount points between two runs; thrown away at start
//! .filesecbox/trash/{bin}/{item}            what was thrown away, until it is removed
//! .filesecbox/versions/{agent}/{skill}/{version}/…   former versions, and those that wait to become current
//! .filesecbox/history/{agent}/{skill}/      the log of a skill's publications, and in `pins/` what never goes by itself
//! .filesecbox/bases/{agent}/{skill}/{user}  the version an overlay began with, and what was published as it
//! .filesecbox/work/{run}/…                  trees that were copied for a run; thrown away at start
//! .filesecbox/work/copy-{digest}/…          trees that were copied for all runs in a skill, where nothing can be mounted
//! .filesecbox/views/{view}/…                what a live view needs; swept at start
//! .filesecbox/packages/{user}/{agent}/…     home directory of commands
//! .filesecbox/kept/{user}/{agent}/          `workspace` and `home`, set aside because they were not used
//! .filesecbox/sandboxes/{user}/{agent}/     when a sandbox was used last, as an attribute; what follows
//!   manifests/{snapshot}                    what a snapshot of the workspace holds
//!   objects/{xx}/{digest}                   contents of files that snapshots hold
//!   unfinished                              there while objects may lie about that no manifest names
//! .filesecbox/aliases/{name}               links to programs that the host has under another name; made at each start
//! .filesecbox/t/{number}                    links to the directories for temporary files in homes; made for runs, swept at start
//! .filesecbox/keys/, audit/, registry/      the service's, which lie here for company only
//! ```

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use policy::{AgentId, PathError, RelPath, SkillId, UserId};

use crate::error::Result;

/// The version of the layout that this code writes and reads.
pub(crate) const FORMAT: &str = "2\n";
/// The one before it, which is made the current one at start: it had records in the stage, which nothing proved.
pub(crate) const FORMER_FORMAT: &str = "1\n";

/// The service's own directory.
pub(crate) const OWN: &str = ".filesecbox";
/// The stage: changes that are being built.
pub(crate) const STAGE: &str = ".filesecbox/stage";
/// The trash: entries that were thrown away.
pub(crate) const TRASH: &str = ".filesecbox/trash";
/// Records of changes that are to be done again after a crash.
pub(crate) const JOURNAL: &str = ".filesecbox/journal";
/// What was set for single agents.
pub(crate) const POLICIES: &str = ".filesecbox/policies";
/// The machines that users lend.
pub(crate) const RUNNERS: &str = ".filesecbox/runners";
/// The devboxes.
pub(crate) const DEVBOXES: &str = ".filesecbox/devboxes";
/// Links by which installers read skills.
pub(crate) const SHARES: &str = ".filesecbox/shares";
/// Signed tokens that count no more.
pub(crate) const REVOCATIONS: &str = ".filesecbox/revoked";
/// Packages of versions of skills.
pub(crate) const ARCHIVES: &str = ".filesecbox/archives";
/// The files of packages as they are unpacked.
pub(crate) const UNPACKED: &str = ".filesecbox/unpacked";
/// Files that looked like records and were not carried out.
pub(crate) const REFUSED: &str = ".filesecbox/refused";
/// Trees that were copied for runs.
pub(crate) const WORK: &str = ".filesecbox/work";
/// The directories of live views.
pub(crate) const VIEWS: &str = ".filesecbox/views";

/// Links to programs that the host has under another name.
pub(crate) const ALIASES: &str = ".filesecbox/aliases";

/// The name of the directory for temporary files in a home. It belongs to the user and agent, outlives their runs and
/// counts with their home.
pub(crate) const TEMPORARY_NAME: &str = "tmp";
/// Links to these directories.
pub(crate) const SHORT_WAYS: &str = ".filesecbox/t";

/// The baselines of all agents.
pub(crate) const BASELINE: &str = "skill/baseline";
/// The publications of all baseline skills, and the versions of them that are pinned.
pub(crate) const HISTORY: &str = ".filesecbox/history";
/// The bases of all overlays.
pub(crate) const BASES: &str = ".filesecbox/bases";
/// All overlays.
pub(crate) const OVERLAYS: &str = "skill/overlay";
/// All workspaces.
pub(crate) const WORKSPACES: &str = "sandbox";
/// All home directories of commands.
pub(crate) const HOMES: &str = ".filesecbox/packages";
/// Sandboxes that were set aside because they were not used.
pub(crate) const KEPT: &str = ".filesecbox/kept";
/// The service's own facts about sandboxes.
pub(crate) const SANDBOXES: &str = ".filesecbox/sandboxes";

/// Every directory that must exist before the store is used.
pub(crate) const DIRECTORIES: [&str; 25] = [
    BASELINE,
    OVERLAYS,
    WORKSPACES,
    OWN,
    STAGE,
    TRASH,
    JOURNAL,
    REFUSED,
    POLICIES,
    RUNNERS,
    DEVBOXES,
    SHARES,
    REVOCATIONS,
    ARCHIVES,
    UNPACKED,
    ".filesecbox/versions",
    HISTORY,
    BASES,
    WORK,
    VIEWS,
    HOMES,
    KEPT,
    SANDBOXES,
    ALIASES,
    SHORT_WAYS,
];

/// Every file in [`OWN`] that a start reads.
pub(crate) const FILES: [&str; 4] = ["format", "lock", SALT, RECORD_KEY];
/// The salt that tells the user ids of this store from those of others.
pub(crate) const SALT: &str = "salt";
/// The key that proves records.
pub(crate) const RECORD_KEY: &str = "journal.key";

/// Those of [`DIRECTORIES`] that no command of any user id has a reason to enter.
pub(crate) const SERVICE_ONLY: [&str; 17] = [
    STAGE,
    TRASH,
    JOURNAL,
    REFUSED,
    POLICIES,
    RUNNERS,
    DEVBOXES,
    SHARES,
    REVOCATIONS,
    ARCHIVES,
    UNPACKED,
    ".filesecbox/versions",
    HISTORY,
    BASES,
    VIEWS,
    KEPT,
    SANDBOXES,
];

fn place(parts: &[&str]) -> Result<RelPath> {
    // Ids are single segments of at most 128 bytes, so the joined path keeps every rule of `RelPath`.
    RelPath::parse(&parts.join("/")).map_err(|error: PathError| error.into())
}

/// The baseline skills of an agent.
pub(crate) fn baseline(agent: &AgentId) -> Result<RelPath> {
    place(&["skill/baseline", agent.as_str()])
}

/// The overlays of one user with one agent.
pub(crate) fn overlay(user: &UserId, agent: &AgentId) -> Result<RelPath> {
    place(&[OVERLAYS, user.as_str(), agent.as_str()])
}

/// A workspace.
pub(crate) fn workspace(user: &UserId, agent: &AgentId) -> Result<RelPath> {
    place(&[WORKSPACES, user.as_str(), agent.as_str()])
}

/// The former versions of a baseline skill.
pub(crate) fn versions(agent: &AgentId, skill: &SkillId) -> Result<RelPath> {
    place(&[".filesecbox/versions", agent.as_str(), skill.as_str()])
}

/// The overlay of trees that have none: nothing is ever put there.
pub(crate) fn nothing() -> Result<RelPath> {
    place(&[STAGE, "none"])
}

/// The publications of all baseline skills of an agent.
pub(crate) fn histories(agent: &AgentId) -> Result<RelPath> {
    place(&[HISTORY, agent.as_str()])
}

/// The publications of a baseline skill.
pub(crate) fn history(agent: &AgentId, skill: &SkillId) -> Result<RelPath> {
    place(&[HISTORY, agent.as_str(), skill.as_str()])
}

/// The pinned versions of a baseline skill, an empty file for each.
pub(crate) fn pins(agent: &AgentId, skill: &SkillId) -> Result<RelPath> {
    place(&[HISTORY, agent.as_str(), skill.as_str(), "pins"])
}

/// The base versions of all overlays of a baseline skill, one file per user.
pub(crate) fn bases(agent: &AgentId, skill: &SkillId) -> Result<RelPath> {
    place(&[".filesecbox/bases", agent.as_str(), skill.as_str()])
}

/// The home directory of commands.
pub(crate) fn packages(user: &UserId, agent: &AgentId) -> Result<RelPath> {
    place(&[HOMES, user.as_str(), agent.as_str()])
}

/// The link to the directory for temporary files in the home of commands, and where it leads.
///
/// Programs make sockets in that directory, whose paths have 107 bytes at most; with the ids of a platform, a home takes most of
/// them. 64 bits of a digest with the store's `salt` keep the names of users apart and to themselves.
pub(crate) fn short_way(salt: &Salt, user: &UserId, agent: &AgentId) -> Result<(RelPath, String)> {
    let digest = blake3::keyed_hash(salt, format!("t\0{user}\0{agent}").as_bytes()).to_hex();
    let link = place(&[SHORT_WAYS, digest.get(..16).unwrap_or_default()])?;
    Ok((link, format!("../packages/{user}/{agent}/{TEMPORARY_NAME}")))
}

/// The directories that go when a sandbox goes: its workspace and its home.
pub(crate) fn of_sandbox(user: &UserId, agent: &AgentId) -> Result<[RelPath; 2]> {
    Ok([workspace(user, agent)?, packages(user, agent)?])
}

/// Where a sandbox is while it is set aside.
pub(crate) fn kept(user: &UserId, agent: &AgentId) -> Result<RelPath> {
    place(&[KEPT, user.as_str(), agent.as_str()])
}

/// The directory of the service's own facts about a sandbox.
pub(crate) fn sandbox(user: &UserId, agent: &AgentId) -> Result<RelPath> {
    place(&[SANDBOXES, user.as_str(), agent.as_str()])
}

/// The salt that tells the user ids of one store from those of others.
pub(crate) type Salt = [u8; 32];

/// First user id that sandboxes are given; 30 bits follow.
pub(crate) const OWNER_FIRST: u32 = 0x4000_0000;

/// The user and group id that owns a sandbox where the service may give files away.
///
/// It follows from the store's `salt` and the names, so no table must be kept: 30 bits of a digest. Two sandboxes
/// that meet by chance (1 in 2^30 for a given pair) lose the separation by user id between them and keep every other
/// wall. The salt keeps the stores of one machine apart: ending a run ends every process of its user id.
#[must_use]
pub(crate) fn owner(salt: &Salt, user: &UserId, agent: &AgentId) -> u32 {
    from_hash(blake3::keyed_hash(salt, format!("{user}\0{agent}").as_bytes()))
}

/// A user id for what lasts no longer than this process, made of a name that nothing else has.
///
/// Were it the same in every service of a host, one that starts would kill the probe of another that starts.
#[must_use]
pub(crate) fn passing_owner(fresh_name: &OsStr) -> u32 {
    from_hash(blake3::hash(fresh_name.as_bytes()))
}

/// Tells whether a user id is one that sandboxes have.
pub(crate) fn is_a_sandboxs(owner: u32) -> bool {
    (OWNER_FIRST..2 * OWNER_FIRST).contains(&owner)
}

fn from_hash(hash: blake3::Hash) -> u32 {
    let [a, b, c, d, ..] = *hash.as_bytes();
    OWNER_FIRST | (u32::from_le_bytes([a, b, c, d]) & (OWNER_FIRST - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_stable_differ_between_stores_and_are_never_a_system_user() {
        let id = |text| (UserId::parse(text).unwrap(), AgentId::parse("a").unwrap());
        let ((user, agent), (other, _)) = (id("u"), id("v"));
        let salt = [1; 32];
        assert_eq!(owner(&salt, &user, &agent), owner(&salt, &user, &agent));
        assert_ne!(owner(&salt, &user, &agent), owner(&salt, &other, &agent));
        assert_ne!(owner(&salt, &user, &agent), owner(&[2; 32], &user, &agent));
        let passing = passing_owner(OsStr::new("1"));
        assert_ne!(passing, passing_owner(OsStr::new("2")));
        let range = OWNER_FIRST..2 * OWNER_FIRST;
        assert!(range.contains(&owner(&salt, &user, &agent)) && range.contains(&passing));
    }

    #[test]
    fn the_document_of_the_layout_has_every_directory_and_the_formula_of_owners() {
        let document = include_str!("../../docs/LAYERS.md");
        let listed = document.split("```text").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        for place in DIRECTORIES.iter().filter(|place| **place != OWN) {
            assert!(listed.lines().any(|line| line.trim().starts_with(place)), "{place} is not listed");
        }
        assert!(listed.contains("  .filesecbox/salt "), "the salt is not listed");
        // The example of the document, for programmers of another program.
        let (user, agent) = (UserId::parse("alice").unwrap(), AgentId::parse("demo").unwrap());
        let example = owner(&[0; 32], &user, &agent);
        assert!(document.contains(&format!("owner of `alice` with `demo` is {example}")), "{example}");
    }
}
