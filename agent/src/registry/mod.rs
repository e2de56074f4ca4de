//! [`Registry`]: skills and agents that users publish for each other.
//!
//! * `install`: into a workspace, and out of it again.
//! * `package`: copying a skill or an agent out of a workspace, links flattened, and into one.
//! * `index`: the published entries and their authors, in one file that is written whole.
//!
//! The files: `index.json`, and a directory `packages/{package}` for each state of an entry. A package is written
//! before the index names it and removed after the index has forgotten it, so that a crash leaves at most a package
//! that the index does not name; [`Registry::open`] removes such packages.

mod entry;
mod error;
mod index;
mod install;
mod package;

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Place;
use crate::catalogue::{AGENTS_DIRECTORY, Agent, Clock, SKILLS_DIRECTORY, described, described::UNFINISHED};
use crate::place::Directory;
use crate::text::truncate;
use index::Index;
use package::copy_out;
use sandbox::{ErrorKind, FileKind, Sandbox, UserId};

pub use entry::{Entry, Kind, Mine, Sharing};
pub use error::RegistryError;
pub use package::{PACKAGE_BYTES_MAX, PACKAGE_FILES_MAX};

/// Entries of the whole registry.
pub const ENTRIES_MAX: usize = 10_000;
/// Entries of one author.
pub const AUTHOR_ENTRIES_MAX: usize = 200;
/// Entries in one answer.
pub const RESULTS_MAX: usize = 100;
/// Longest name, in characters.
const NAME_CHARACTERS_MAX: usize = 64;
/// Longest tags of an entry, in characters.
const TAGS_CHARACTERS_MAX: usize = 256;
/// Longest description that is kept, in characters: what a catalogue shows of one.
const DESCRIPTION_CHARACTERS_MAX: usize = 1024;
/// The largest file of an agent, in bytes: 256 KiB.
const AGENT_BYTES_MAX: u64 = 256 * 1024;

type Result<T, E = RegistryError> = std::result::Result<T, E>;

/// Published skills and agents, kept in a [`Place`] that is this value's alone.
///
/// * The author of an entry alone changes it. While an entry is public, no other author can publish its name.
/// * An installation is there whole, or no answer mentions it: `SKILL.md` comes last, and what a crash
///   leaves is replaced by the next installation.
/// * Execute bits are kept. Links are flattened where they lead to what is published anyway, and refused elsewhere.
#[derive(Debug)]
pub struct Registry {
    place: Place,
    sandbox: Arc<dyn Sandbox>,
    clock: Clock,
    /// The index as it is on the disk. Held while it is written, so that changes take turns.
    index: tokio::sync::Mutex<Index>,
    /// The names that are being published or installed.
    busy: Mutex<HashSet<(UserId, Kind, String)>>,
}

/// Takes its turn from `busy` when it ends.
struct Turn<'a>(&'a Registry, (UserId, Kind, String));

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

impl Registry {
    /// Opens the registry in `place`, or begins one; users' files are in `sandbox`.
    ///
    /// # Errors
    /// The index cannot be read, or is none.
    pub async fn open(place: Place, sandbox: Arc<dyn Sandbox>, clock: Clock) -> Result<Self> {
        let directory = place.directory();
        directory.make("packages").await?;
        let index = Index::read(&directory).await?;
        let named: HashSet<&str> = index.entries.iter().map(|entry| entry.package.as_str()).collect();
        for left in directory.below("packages")?.entries().await? {
            if !named.contains(left.name.as_str()) {
                directory.remove_all(&format!("packages/{}", left.name)).await?;
            }
        }
        drop(directory);
        let (index, busy) = (tokio::sync::Mutex::new(index), Mutex::default());
        Ok(Self { place, sandbox, clock, index, busy })
    }

    /// Publishes a skill or an agent of the author's workspace, or publishes it again.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn publish(
        &self,
        author: &UserId,
        kind: Kind,
        name: &str,
        tags: &str,
        sharing: Sharing,
    ) -> Result<Entry> {
        check_name(name)?;
        if tags.chars().count() > TAGS_CHARACTERS_MAX {
            return Err(RegistryError::Tags);
        }
        let _turn = self.turn(author, kind, name)?;
        self.index.lock().await.may_publish(author, kind, name)?;
        let workspace = self.workspace(author).await?;
        let description = truncate(&description(&workspace, kind, name).await?, DESCRIPTION_CHARACTERS_MAX);
        let store = self.place.directory();
        let package = random_name()?;
        let root = store.below(&format!("packages/{package}"))?;
        let done = async {
            let (files, bytes) = copy_out(&workspace, kind, name, &root).await?;
            let mut index = self.index.lock().await;
            // Another author may have published the name meanwhile.
            index.may_publish(author, kind, name)?;
            let published_seconds = seconds(&self.clock);
            let entry = Entry {
                id: index.id_for(author, kind, name),
                kind,
                name: name.to_owned(),
                author: author.clone(),
                description,
                tags: tags.to_owned(),
                sharing,
                published_seconds,
                files,
                bytes,
                package: package.clone(),
            };
            let (next, before) = index.with(entry.clone());
            next.write(&store).await?;
            *index = next;
            Ok((entry, before))
        };
        match done.await {
            Ok((entry, before)) => {
                if let Some(before) = before {
                    // The next start finds a package that stays.
                    drop(store.remove_all(&format!("packages/{before}")).await);
                }
                Ok(entry)
            }
            Err(error) => {
                drop(root.remove_all("").await);
                Err(error)
            }
        }
    }

    /// Makes an entry private: it is neither found nor installed by others any more.
    ///
    /// # Errors
    /// [`RegistryError::NoEntry`], [`RegistryError::NotAuthor`].
    pub async fn unpublish(&self, user: &UserId, id: u64) -> Result<()> {
        let mut index = self.index.lock().await;
        let entry = index.get(id).filter(|entry| entry.is_seen_by(user)).ok_or(RegistryError::NoEntry(id))?;
        if entry.author != *user {
            return Err(RegistryError::NotAuthor(id));
        }
        let (next, _) = index.with(Entry { sharing: Sharing::Private, ..entry.clone() });
        next.write(&self.place.directory()).await?;
        *index = next;
        Ok(())
    }

    /// Removes an entry and its files from the registry; what is installed stays.
    ///
    /// # Errors
    /// [`RegistryError::NoEntry`], [`RegistryError::NotAuthor`].
    pub async fn remove(&self, user: &UserId, id: u64) -> Result<()> {
        let mut index = self.index.lock().await;
        let entry = index.get(id).filter(|entry| entry.is_seen_by(user)).ok_or(RegistryError::NoEntry(id))?;
        if entry.author != *user {
            return Err(RegistryError::NotAuthor(id));
        }
        let package = entry.package.clone();
        let store = self.place.directory();
        let next = index.without(id);
        next.write(&store).await?;
        *index = next;
        drop(store.remove_all(&format!("packages/{package}")).await);
        Ok(())
    }

    /// An entry that `user` may see.
    ///
    /// # Errors
    /// [`RegistryError::NoEntry`].
    pub async fn get(&self, user: &UserId, id: u64) -> Result<Entry> {
        let index = self.index.lock().await;
        index.get(id).filter(|entry| entry.is_seen_by(user)).cloned().ok_or(RegistryError::NoEntry(id))
    }

    /// The public entry of a name; while there is one, it is the only one.
    pub async fn find(&self, kind: Kind, name: &str) -> Option<Entry> {
        let index = self.index.lock().await;
        index
            .entries
            .iter()
            .find(|entry| entry.sharing == Sharing::Public && entry.kind == kind && entry.name == name)
            .cloned()
    }

    /// Public entries with all these words in name, description or tags, in upper or lower case, newest first; at most
    /// [`RESULTS_MAX`]. No words find all.
    pub async fn search(&self, words: &str) -> Vec<Entry> {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let index = self.index.lock().await;
        let is_found = |entry: &&Entry| {
            let text = format!("{}\n{}\n{}", entry.name, entry.description, entry.tags).to_lowercase();
            entry.sharing == Sharing::Public && words.iter().all(|word| text.contains(word))
        };
        newest(index.entries.iter().filter(is_found))
    }

    /// The entries that a user has published, and those in the workspace.
    ///
    /// # Errors
    /// An error of the sandbox.
    pub async fn mine(&self, user: &UserId) -> Result<Mine> {
        let published = newest(self.index.lock().await.entries.iter().filter(|entry| entry.author == *user));
        let workspace = self.workspace(user).await?;
        let mut installed = Vec::new();
        let skills = workspace.below(SKILLS_DIRECTORY)?;
        for entry in skills.entries().await? {
            if entry.kind == FileKind::Directory
                && described::skill_file(&skills.below(&entry.name)?).await?.is_some()
            {
                installed.push(format!("{}:{}", Kind::Skill, entry.name));
            }
        }
        let agents = workspace.below(AGENTS_DIRECTORY)?.entries().await?;
        let agents = agents.iter().filter(|entry| entry.kind == FileKind::File);
        installed.extend(
            agents.filter_map(|entry| Some(format!("{}:{}", Kind::Agent, entry.name.strip_suffix(".md")?))),
        );
        installed.sort_unstable();
        Ok(Mine { published, installed })
    }

    async fn workspace<'a>(&'a self, user: &'a UserId) -> Result<Directory<'a>> {
        let root = self.sandbox.workspace(user).await?;
        Ok(Directory { sandbox: &*self.sandbox, user, root })
    }

    fn turn(&self, user: &UserId, kind: Kind, name: &str) -> Result<Turn<'_>> {
        let key = (user.clone(), kind, name.to_owned());
        if !self.busy.lock().insert(key.clone()) {
            return Err(RegistryError::Busy { kind, name: name.to_owned() });
        }
        Ok(Turn(self, key))
    }
}

/// The description of what is to be published, which proves that it is there and what it says it is.
async fn description(workspace: &Directory<'_>, kind: Kind, name: &str) -> Result<String> {
    let missing = || RegistryError::NotYours { kind, name: name.to_owned() };
    match kind {
        Kind::Skill => {
            let skill = workspace.below(&format!("{SKILLS_DIRECTORY}/{name}"))?;
            described::skill_file(&skill).await?.ok_or_else(missing)?;
            Ok(described::describe(&skill, name).await?.ok_or_else(missing)?.description)
        }
        Kind::Agent => {
            let text = workspace.read(&format!("{AGENTS_DIRECTORY}/{name}.md"), AGENT_BYTES_MAX).await?;
            let text = text.ok_or_else(missing)?;
            let agent = Agent::parse(name, &String::from_utf8_lossy(&text));
            agent
                .map(|agent| agent.description)
                .map_err(|reason| RegistryError::Content(format!("the agent cannot be published: {reason}")))
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_possible =
        |character: char| character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | ' ');
    let is_trimmed = name.trim() == name && !name.is_empty() && !name.starts_with('.');
    if is_trimmed
        && name.chars().count() <= NAME_CHARACTERS_MAX
        && name.len() <= 240
        && name.chars().all(is_possible)
    {
        Ok(())
    } else {
        Err(RegistryError::Name(name.chars().take(NAME_CHARACTERS_MAX).collect()))
    }
}

fn newest<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = entries.cloned().collect();
    entries.sort_by_key(|entry| std::cmp::Reverse((entry.published_seconds, entry.id)));
    entries.truncate(RESULTS_MAX);
    entries
}

fn seconds(clock: &Clock) -> u64 {
    clock.now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A name that nothing has had before.
fn random_name() -> Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        sandbox::Error::new(ErrorKind::Internal, "publish", "no random numbers").because(error)
    })?;
    Ok(hex::encode(bytes))
}
