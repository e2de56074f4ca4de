//! Looking at entries, listing and walking directories.

use policy::skill_md::Finding;
use policy::{RelPath, TreeId};
use storage::{Kind, files};

use super::facts::{Entry, Facts, Walked};
use super::{Location, Tree};
use crate::ops::admission::Job;
use crate::ops::error::{Error, Result};

impl Tree {
    /// Tells what `path` is; a link at its end is followed.
    ///
    /// # Errors
    /// As [`Service::stat`](crate::ops::Service::stat); [`Error::Remote`].
    pub async fn stat(&self, path: &RelPath) -> Result<Facts> {
        match &self.location {
            Location::Local { version } => {
                let (stat, layer) = self.service.stat(self.seen(version), path.clone()).await?;
                let owner = self.service.owner_seen(&self.id, &stat);
                Ok(Facts::local(stat, Some(layer)).owned(owner))
            }
            Location::Remote(backend) => Ok(Facts::remote(backend.stat(path).await?)),
        }
    }

    /// Tells what `path` itself is, and of a link where it points to.
    ///
    /// # Errors
    /// As [`Service::look`](crate::ops::Service::look); [`Error::Unsupported`] where a backend holds the tree.
    pub async fn look(&self, path: &RelPath) -> Result<Facts> {
        let Location::Local { version } = &self.location else {
            let message = "`follow=false` is for workspaces that this service holds: leave it out";
            return Err(Error::Unsupported(message.to_owned()));
        };
        let (stat, layer, target) = self.service.look(self.seen(version), path.clone()).await?;
        let owner = self.service.owner_seen(&self.id, &stat);
        Ok(Facts::local(stat, Some(layer)).owned(owner).pointing(target))
    }

    /// What other programs do not take of a skill as it is.
    ///
    /// # Errors
    /// As [`storage::Files::open`]; [`Error::Unsupported`] for a workspace.
    pub async fn lint(&self) -> Result<Vec<Finding>> {
        match (&self.id, &self.location) {
            (TreeId::Skill(_, _, skill), Location::Local { version }) => {
                self.service.lint(self.seen(version), skill.to_string()).await
            }
            _ => Err(Error::Unsupported("a workspace is no skill: name one".to_owned())),
        }
    }

    /// Lists the directory `path`, sorted by name; names that no path can have are left out, because no request could ask for them.
    ///
    /// # Errors
    /// As [`storage::Files::list_with_links`]; [`Error::Remote`].
    pub async fn list_dir(&self, path: &RelPath) -> Result<Vec<Entry>> {
        match &self.location {
            Location::Local { version } => {
                let (store, id, path) = (self.service.store.clone(), self.id.clone(), path.clone());
                let files = self.service.store.files(self.id.clone()).of_version(version.clone());
                let list = move || {
                    let found = files.list_with_links(&path)?.into_iter();
                    let entry = |files::Entry { child, stat, target }: files::Entry| {
                        // A name that no path can have has no stat.
                        let (name, stat) = (child.name.into_string().ok()?, stat?);
                        let owner = store.owner_seen(&id, &stat);
                        let facts = Facts::local(stat, Some(child.layer)).owned(owner).pointing(target);
                        Some(Entry { name, facts })
                    };
                    Ok(found.filter_map(entry).collect())
                };
                self.service.work(Job::read(&self.id), list).await
            }
            Location::Remote(backend) => {
                Ok(backend.list_dir(path).await?.into_iter().map(Entry::from).collect())
            }
        }
    }

    /// Walks the directory `path` for files and links, sorted by path. With `look`, their facts are looked for; a backend tells
    /// what it knows in any case.
    ///
    /// # Errors
    /// As [`storage::Files::walk`]; [`storage::Error::TooManyEntries`]; [`Error::Remote`].
    pub async fn walk(&self, path: &RelPath, depth: usize, look: bool) -> Result<Vec<Walked>> {
        match &self.location {
            Location::Local { version } => {
                let path = path.clone();
                let walk = move |files: &storage::Files| {
                    let mut met = files.walk(&path, depth, look)?;
                    met.retain(|entry| matches!(entry.kind, Kind::File | Kind::Symlink));
                    Ok(met.into_iter().map(Walked::from).collect())
                };
                self.service.look_through(self.seen(version), walk).await
            }
            Location::Remote(backend) => {
                let most = self.service.file_limits.tree_entries;
                Ok(backend.walk(path, depth, most).await?.into_iter().map(Walked::from).collect())
            }
        }
    }
}
