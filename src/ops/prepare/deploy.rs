//! Deploying versions: each selected one is in a directory of its own below `projects`, whole or not at all, and others go.

use futures_util::{StreamExt, TryStreamExt, stream};
use policy::{SkillId, VersionId};
use sandbox::{DirEntry, FileKind};

use super::packages::{EntryKind, Package, PackageEntry, Packages, Placing};
use super::site::{Site, quote};
use super::steps::{Outcome, Steps};
use super::temporary::{is_temporary, temporary_name};
use crate::ops::error::{Error, Result};

/// Where versions are deployed.
const PROJECTS: &str = "projects";
/// Directories of other versions that one round removes; the rest goes in later ones.
const REMOVED_MAX: usize = 1000;
/// Files of one version that are written at once.
const WRITES_AT_ONCE: usize = 8;
/// Directories that one command renames.
const RENAMED_AT_ONCE: usize = 100;

/// A version of a skill, as a caller selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The id of the skill.
    pub skill_id: String,
    /// The id of the version.
    pub version_id: String,
}

/// A version that is in its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deployed {
    pub(super) skill: SkillId,
    pub(super) version: VersionId,
    /// Its directory, from the workspace.
    pub(super) directory: String,
}

/// What is to be done with the directories that are there.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Selected versions without a directory.
    missing: Vec<VersionId>,
    /// Names of directories of other versions.
    stale: Vec<String>,
    /// Names of directories that an earlier round left unfinished.
    unfinished: Vec<String>,
}

/// Makes the directories of `selected` be there and those of other versions go.
///
/// # Errors
/// The directories cannot be listed, or a version cannot be deployed: then nothing of this round is left.
pub(super) async fn deploy(
    site: &Site,
    packages: Option<&dyn Packages>,
    selected: &[Selected],
    steps: &mut Steps,
) -> Result<Vec<Deployed>> {
    let begun = steps.begin("deploy");
    let mut log = Vec::new();
    let valid = valid(selected, &mut log);
    site.make_dir(PROJECTS).await?;
    let entries = site.list(PROJECTS).await?;
    let plan = plan(&entries, &valid);
    for name in &plan.unfinished {
        remove(site, name, &mut log).await;
    }
    let count = plan.missing.len();
    let tell = |done| steps.advance(&begun, done, count);
    let absent = Round::new(site, packages).place_all(&plan.missing, &tell).await?;
    for version in &absent {
        log.push(format!("{version}: there is no package of this version for this caller: it is left out"));
    }
    let removed = remove_versions(site, &plan.stale, &mut log).await;
    let deployed: Vec<Deployed> =
        valid.into_iter().filter(|deployed| !absent.contains(&deployed.version)).collect();
    let count = count - absent.len();
    log.insert(0, format!("{} of {} versions deployed, {removed} removed", count, deployed.len()));
    steps.end(begun, Outcome::Done, &log.join("\n"));
    Ok(deployed)
}

/// The selected versions whose ids are possible, each once.
fn valid(selected: &[Selected], log: &mut Vec<String>) -> Vec<Deployed> {
    let mut valid: Vec<Deployed> = Vec::new();
    for (number, Selected { skill_id, version_id }) in selected.iter().enumerate() {
        match (SkillId::parse(skill_id), VersionId::parse(version_id)) {
            (Ok(skill), Ok(version)) => {
                if valid.iter().all(|other| other.version != version) {
                    let directory = format!("{PROJECTS}/{version}");
                    valid.push(Deployed { skill, version, directory });
                }
            }
            (Err(error), _) => log.push(format!("skill {number} is left out: {error}")),
            (_, Err(error)) => log.push(format!("skill {number} is left out: {error}")),
        }
    }
    valid
}

fn plan(entries: &[DirEntry], selected: &[Deployed]) -> Plan {
    let directories =
        || entries.iter().filter(|entry| entry.kind == FileKind::Directory).map(|entry| &entry.name);
    let is_selected = |name: &str| selected.iter().any(|other| other.version.as_str() == name);
    let missing = selected.iter().filter(|other| directories().all(|name| *name != other.version.as_str()));
    let stale = directories().filter(|name| VersionId::parse(name).is_ok() && !is_selected(name));
    Plan {
        missing: missing.map(|other| other.version.clone()).collect(),
        stale: stale.take(REMOVED_MAX).cloned().collect(),
        unfinished: directories().filter(|name| is_temporary(name)).take(REMOVED_MAX).cloned().collect(),
    }
}

/// Removes directories of versions, each of which leaves its name at once: what is there under a name is whole. Failing is only told.
/// How many versions are there no more.
async fn remove_versions(site: &Site, names: &[String], log: &mut Vec<String>) -> usize {
    if site.is_shared() {
        let aside = set_aside(site, names, log).await;
        for name in &aside {
            remove(site, name, log).await;
        }
        return aside.len();
    }
    // This process alone is there, and its store moves what is removed away before it empties it: also where no command can run,
    // because the user's own take all places.
    let mut removed = 0;
    for name in names {
        site.confirm().await;
        removed += usize::from(remove(site, name, log).await);
    }
    removed
}

/// Gives directories of other versions names of unfinished ones, behind the fence; the names of those that have one. A version
/// that is being removed is thus never taken for one that is there, and what a former holder of the lease still removes is in no
/// one's way.
async fn set_aside(site: &Site, stale: &[String], log: &mut Vec<String>) -> Vec<String> {
    let mut aside = Vec::new();
    for some in stale.chunks(RENAMED_AT_ONCE) {
        let renamed: Vec<(&String, String)> = some.iter().map(|name| (name, temporary_name(name))).collect();
        // Each line of the output is the number of one that has its new name.
        let script: String = renamed
            .iter()
            .enumerate()
            .map(|(number, (from, to))| {
                let [from, to] = [from.as_str(), to].map(|name| quote(&format!("{PROJECTS}/{name}")));
                format!("mv {from} {to} && echo {number}\n")
            })
            .collect();
        match site.name_fenced(&script).await {
            Ok(ran) => {
                let numbers: Vec<usize> =
                    ran.stdout_text().lines().filter_map(|line| line.parse().ok()).collect();
                if numbers.len() < some.len() {
                    log.push(
                        "not all other versions could be removed: the next round tries again".to_owned(),
                    );
                }
                let named = renamed.into_iter().enumerate().filter(|(number, _)| numbers.contains(number));
                aside.extend(named.map(|(_, (_, to))| to));
            }
            Err(error) => log.push(format!("other versions could not be removed: {error}")),
        }
    }
    aside
}

/// Removes a directory of `projects`, and tells whether it is gone; failing is only told.
async fn remove(site: &Site, name: &str, log: &mut Vec<String>) -> bool {
    let removed = site.remove_all(&format!("{PROJECTS}/{name}")).await;
    if let Err(error) = &removed {
        tracing::warn!(%error, "failed to remove a directory of a former round: it stays");
        log.push(format!("`{name}` could not be removed: {error}"));
    }
    removed.is_ok()
}

/// Hears how many versions have been seen to.
type Tell<'a> = dyn Fn(usize) + Sync + 'a;

/// What a round deploys, and the directories that it has made.
struct Round<'a> {
    site: &'a Site,
    packages: Option<&'a dyn Packages>,
    /// Versions that are written aside, and the names of their directories.
    temporary: Vec<(VersionId, String)>,
    placed: Vec<VersionId>,
}

impl<'a> Round<'a> {
    fn new(site: &'a Site, packages: Option<&'a dyn Packages>) -> Self {
        Self { site, packages, temporary: Vec::new(), placed: Vec::new() }
    }

    /// Writes each version aside, then gives all of them their names. Gives those without a package. After an error nothing
    /// of the round is left. `tell` hears how many versions have been seen to.
    async fn place_all(mut self, missing: &[VersionId], tell: &Tell<'_>) -> Result<Vec<VersionId>> {
        let placed = self.try_place_all(missing, tell).await;
        if placed.is_err() {
            let placed: Vec<String> = self.placed.iter().map(ToString::to_string).collect();
            remove_versions(self.site, &placed, &mut Vec::new()).await;
            for (_, name) in &self.temporary {
                remove(self.site, name, &mut Vec::new()).await;
            }
        }
        placed
    }

    async fn try_place_all(&mut self, missing: &[VersionId], tell: &Tell<'_>) -> Result<Vec<VersionId>> {
        let mut absent = Vec::new();
        let Some(packages) = self.packages else { return Ok(missing.to_vec()) };
        packages.bring(missing).await?;
        // One after the other: what is unpacked aside counts for the user until it is written.
        for (number, version) in missing.iter().enumerate() {
            self.site.confirm().await;
            match packages.place(version, &format!("{PROJECTS}/{version}")).await? {
                Placing::Whole => self.placed.push(version.clone()),
                Placing::Absent => absent.push(version.clone()),
                Placing::ByFiles => match packages.unpack(version).await? {
                    Some(package) => {
                        let name = temporary_name(version.as_str());
                        self.temporary.push((version.clone(), name.clone()));
                        write_package(self.site, &*package, &format!("{PROJECTS}/{name}")).await?;
                    }
                    None => absent.push(version.clone()),
                },
            }
            tell(number + 1);
        }
        self.name_all().await?;
        Ok(absent)
    }

    /// Gives the directories that were written aside the names of their versions, where nothing may have them: moved onto a
    /// directory one would end up inside.
    async fn name_all(&mut self) -> Result<()> {
        if self.temporary.is_empty() {
            return Ok(());
        }
        // Each line of the output is a version that has its name.
        let mut script = String::new();
        for (version, name) in &self.temporary {
            let (from, to) = (quote(&format!("{PROJECTS}/{name}")), quote(&format!("{PROJECTS}/{version}")));
            let inside = quote(&format!("{PROJECTS}/{version}/{name}"));
            script.push_str(&format!(
                "if [ -e {to} ] || [ -L {to} ]; then exit 3; fi\nmv {from} {to} && [ ! -e {inside} ] && echo {version} || exit 1\n"
            ));
        }
        let named = self.site.name_fenced(&script).await?;
        let lines = named.stdout_text();
        let versions = self.temporary.iter().map(|(version, _)| version);
        let is_named = |version: &VersionId| lines.lines().any(|line| line == version.as_str());
        let (done, left): (Vec<_>, Vec<_>) = versions.cloned().partition(is_named);
        self.placed.extend(done);
        match (named.exit_code, named.timed_out, left.first()) {
            (0, false, None) => Ok(()),
            (3, false, Some(version)) => Err(occupied(version)),
            (_, _, version) => Err(Error::RunFailed(format!(
                "`{PROJECTS}/{}` could not be put in its place: look whether commands run in the workspace",
                version.map_or("", VersionId::as_str)
            ))),
        }
    }
}

/// Something has the name of a version.
pub(in crate::ops) fn occupied(version: &VersionId) -> Error {
    Error::Invalid(format!("`{PROJECTS}/{version}` is there and is no directory of this version: remove it"))
}

async fn write_package(site: &Site, package: &dyn Package, into: &str) -> Result<()> {
    site.make_dir(into).await?;
    let (mut directories, mut files): (Vec<String>, Vec<(String, &str, u32)>) = (Vec::new(), Vec::new());
    for PackageEntry { path, kind } in package.entries() {
        let there = format!("{into}/{path}");
        match kind {
            EntryKind::Directory => directories.push(there),
            EntryKind::File { mode } => files.push((there, path, *mode)),
        }
    }
    for directory in directories {
        site.make_dir(&directory).await?;
    }
    let writes = files.into_iter().map(|(there, path, mode)| async move {
        site.write(&there, package.open(path).await?, Some(mode)).await
    });
    // Boxed, because a stream of borrowing futures is not known to be sent between threads.
    let writes: Vec<_> =
        writes.map(|write| Box::pin(write) as futures_util::future::BoxFuture<'_, Result<()>>).collect();
    stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "aaaaaaaaaaaaaaaaaaaaaaa1";
    const TWO: &str = "aaaaaaaaaaaaaaaaaaaaaaa2";

    fn selected(version_id: &str) -> Selected {
        Selected { skill_id: "写作".to_owned(), version_id: version_id.to_owned() }
    }

    #[test]
    fn only_directories_of_versions_go_and_only_missing_versions_are_deployed() {
        let entry = |name: &str, kind| DirEntry { name: name.to_owned(), kind, size: 0 };
        let three = "aaaaaaaaaaaaaaaaaaaaaaa3";
        let entries = [
            entry(ONE, FileKind::Directory),
            entry(TWO, FileKind::File),
            entry(three, FileKind::Directory),
            entry("notes", FileKind::Directory),
            entry(".tmp-x_1-2", FileKind::Directory),
            entry(".tmp-", FileKind::Directory),
            entry(".tmp-a.b", FileKind::Directory),
            entry(".tmp-file", FileKind::File),
            entry("aaaaaaaaaaaaaaaaaaaaaaa4", FileKind::Symlink),
        ];
        let valid = valid(&[selected(ONE), selected(TWO)], &mut Vec::new());
        let expected = Plan {
            missing: vec![VersionId::parse(TWO).unwrap()],
            stale: vec![three.to_owned()],
            unfinished: vec![".tmp-x_1-2".to_owned()],
        };
        assert_eq!(plan(&entries, &valid), expected);
    }

    #[test]
    fn ids_that_are_none_are_left_out_with_a_warning_and_a_version_counts_once() {
        let mut log = Vec::new();
        let bad_skill = Selected { skill_id: "../x".to_owned(), version_id: TWO.to_owned() };
        let found = valid(&[selected(ONE), selected("v1"), bad_skill, selected(ONE)], &mut log);
        assert_eq!(found.iter().map(|other| other.version.as_str()).collect::<Vec<_>>(), [ONE]);
        assert_eq!(log.len(), 2);
    }
}
