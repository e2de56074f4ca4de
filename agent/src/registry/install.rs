//! Into a workspace, and out of it again.
//!
//! The trait has no renaming, so an installation is told of by its last file: without a `SKILL.md` a directory is no skill.
//! While one is made or removed, it holds the mark `.unfinished`, by which the next installation knows what a crash left.

use bytes::Bytes;

use super::package::copy_in;
use super::{AGENT_BYTES_MAX, Entry, Kind, Registry, RegistryError, Result, UNFINISHED, check_name};
use crate::catalogue::{AGENTS_DIRECTORY, SKILL_FILE, SKILLS_DIRECTORY, described};
use sandbox::{ErrorKind, FileKind, UserId, WriteMode};

impl Registry {
    /// Copies an entry into the workspace of a user.
    ///
    /// # Errors
    /// See [`RegistryError`]; nothing is installed then.
    pub async fn install(&self, user: &UserId, id: u64) -> Result<Entry> {
        let entry = self.get(user, id).await?;
        let (kind, name) = (entry.kind, entry.name.as_str());
        let _turn = self.turn(user, kind, name)?;
        let package = self.place.directory().below(&format!("packages/{}", entry.package))?;
        let workspace = self.workspace(user).await?;
        let taken = || RegistryError::Installed { kind, name: name.to_owned() };
        if kind == Kind::Agent {
            let bytes = package
                .read(&format!("{name}.md"), AGENT_BYTES_MAX)
                .await?
                .ok_or(RegistryError::NoEntry(id))?;
            workspace.make(AGENTS_DIRECTORY).await?;
            let path = format!("{AGENTS_DIRECTORY}/{name}.md");
            return match workspace.write(&path, bytes, WriteMode::Create, None).await {
                Ok(()) => Ok(entry),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken()),
                Err(error) => Err(error.into()),
            };
        }
        let path = format!("{SKILLS_DIRECTORY}/{name}");
        match workspace.kind(&path).await? {
            None => {}
            Some(FileKind::Directory) => {
                let entries = workspace.below(&path)?.entries().await?;
                // A crash may come before the mark is made.
                if !entries.is_empty() && !entries.iter().any(|entry| entry.name == UNFINISHED) {
                    return Err(taken());
                }
                workspace.remove_all(&path).await?;
            }
            Some(_) => return Err(taken()),
        }
        let skill = workspace.below(&path)?;
        let done = async {
            skill.make("").await?;
            skill.write(UNFINISHED, Bytes::new(), WriteMode::Create, None).await?;
            copy_in(&package, &skill, (entry.files, entry.bytes)).await?;
            Ok(skill.sandbox.remove(skill.user, &skill.path(UNFINISHED)?).await?)
        };
        match done.await {
            Ok(()) => Ok(entry),
            Err(error) => {
                drop(skill.remove_all("").await);
                Err(error)
            }
        }
    }

    /// Removes a skill or an agent from the workspace of a user.
    ///
    /// # Errors
    /// [`RegistryError::NotInstalled`], and what the sandbox met.
    pub async fn uninstall(&self, user: &UserId, kind: Kind, name: &str) -> Result<()> {
        check_name(name)?;
        let _turn = self.turn(user, kind, name)?;
        let workspace = self.workspace(user).await?;
        let (directory, file, expected) = match kind {
            Kind::Skill => (SKILLS_DIRECTORY, name.to_owned(), FileKind::Directory),
            Kind::Agent => (AGENTS_DIRECTORY, format!("{name}.md"), FileKind::File),
        };
        // A link is nothing that was installed, and what it leads to is not to be emptied.
        let entries = workspace.below(directory)?.entries().await?;
        if !entries.iter().any(|entry| entry.name == file && entry.kind == expected) {
            return Err(RegistryError::NotInstalled { kind, name: name.to_owned() });
        }
        let path = format!("{directory}/{file}");
        if kind == Kind::Skill {
            // From here on the skill counts as unfinished, until all of it is gone.
            let marker = described::skill_file(&workspace.below(&path)?).await?;
            workspace.write(&format!("{path}/{UNFINISHED}"), Bytes::new(), WriteMode::Replace, None).await?;
            let marker = marker.as_deref().unwrap_or(SKILL_FILE);
            workspace.remove_all(&format!("{path}/{marker}")).await?;
        }
        Ok(workspace.remove_all(&path).await?)
    }
}
