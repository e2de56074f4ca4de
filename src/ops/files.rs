//! Operations on the files of one tree that this service holds. Requests that may be about a remote one take [`super::tree`].

use std::collections::HashMap;

use policy::{RelPath, TreeId};
use storage::patch::{FilePatch, PatchOptions, Patched};
use storage::tree::{Child, Opened, Walked};
use storage::{Condition, Files, Layer, Stat, Written};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::seen::Seen;

/// Edits, or hunks, that are no light work any more.
const LIGHT_CHANGES: usize = 32;
/// Bytes in them that are no light work any more.
const LIGHT_BYTES: usize = 256 * 1024;

/// A copy to be made.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The source.
    pub from: RelPath,
    /// Where to.
    pub to: RelPath,
    /// Whether a file there is replaced.
    pub overwrite: bool,
    /// Whether a directory is copied with everything in it.
    pub recursive: bool,
    /// The condition on `to`.
    pub condition: Condition,
}

/// The conditions on the files of a patch.
#[derive(Clone, Debug)]
pub enum Conditions {
    /// Of the only file that it has.
    Single(Condition),
    /// Of each file that is named.
    Named(HashMap<RelPath, Condition>),
}

impl Conditions {
    /// Conditions by path; each must be of a file that the patch has.
    fn of(self, patch: &[FilePatch]) -> Result<HashMap<RelPath, Condition>> {
        match (self, patch) {
            (Self::Single(Condition::Always), _) => Ok(HashMap::new()),
            (Self::Single(condition), [file]) => Ok(HashMap::from([(file.from.clone(), condition)])),
            (Self::Single(_), _) => Err(Error::Invalid(
                "a condition in the header goes with a patch of one file: send `etags` for several"
                    .to_owned(),
            )),
            (Self::Named(conditions), patch) => {
                let is_known =
                    |path: &RelPath| patch.iter().any(|file| file.from == *path || file.to == *path);
                match conditions.keys().find(|path| !is_known(path)) {
                    Some(path) => {
                        Err(Error::Invalid(format!("`etags` has `{path}`, which the patch has not")))
                    }
                    None => Ok(conditions),
                }
            }
        }
    }
}

impl Service {
    /// Tells what `path` is.
    ///
    /// # Errors
    /// As [`storage::Files::stat`].
    pub async fn stat(&self, seen: impl Into<Seen>, path: RelPath) -> Result<(Stat, Layer)> {
        let seen = seen.into();
        let job = Job::read(&seen.id);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || Ok(files.stat(&path)?)).await
    }

    /// Opens the file `path`, for its bytes.
    ///
    /// # Errors
    /// As [`storage::Files::open`].
    pub async fn open(&self, seen: impl Into<Seen>, path: RelPath) -> Result<Opened> {
        let seen = seen.into();
        let job = Job::read(&seen.id);
        let files = self.store.files(seen.id).of_version(seen.version);
        if let Some(opened) = files.open_cached(&path) {
            return Ok(opened);
        }
        self.work(job, move || Ok(files.open(&path)?)).await
    }

    /// Tells what `path` itself is, and of a link where it points to.
    ///
    /// # Errors
    /// As [`storage::Files::look`].
    pub async fn look(&self, seen: impl Into<Seen>, path: RelPath) -> Result<(Stat, Layer, Option<String>)> {
        let seen = seen.into();
        let job = Job::read(&seen.id);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || Ok(files.look(&path)?)).await
    }

    /// Lists the directory `path`.
    ///
    /// # Errors
    /// As [`storage::Files::list`].
    pub async fn list_dir(&self, seen: impl Into<Seen>, path: RelPath) -> Result<Vec<(Child, Option<Stat>)>> {
        let seen = seen.into();
        let job = Job::read(&seen.id);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || Ok(files.list(&path)?)).await
    }

    /// Makes many small reads of a tree as one piece of work.
    ///
    /// # Errors
    /// Those of `look`.
    pub async fn look_through<T: Send + 'static>(
        &self,
        seen: impl Into<Seen>,
        look: impl FnOnce(&Files) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let seen = seen.into();
        let job = Job::on(&seen.id, Weight::Scan, Mode::LongRead);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || look(&files)).await
    }

    /// Walks the directory `path`, sorted by path.
    ///
    /// # Errors
    /// As [`storage::Files::walk`].
    pub async fn walk(
        &self,
        seen: impl Into<Seen>,
        path: RelPath,
        depth: usize,
        look: bool,
    ) -> Result<Vec<Walked>> {
        let seen = seen.into();
        let job = Job::on(&seen.id, Weight::Scan, Mode::LongRead);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || Ok(files.walk(&path, depth, look)?)).await
    }

    /// Makes the directory `path`. Tells whether it was not there.
    ///
    /// # Errors
    /// As [`storage::Files::make_dir`].
    pub async fn make_dir(&self, id: TreeId, path: RelPath, mode: u32, parents: bool) -> Result<bool> {
        let job = Job::change(&id);
        let files = self.store.files(id);
        self.work(job, move || Ok(files.make_dir(&path, mode, parents)?)).await
    }

    /// Renames `from` to `to`.
    ///
    /// # Errors
    /// As [`storage::Files::rename`].
    pub async fn rename(
        &self,
        id: TreeId,
        from: RelPath,
        to: RelPath,
        overwrite: bool,
        condition: Condition,
    ) -> Result<()> {
        // A directory that the baseline has a part in is copied.
        let job = match &id {
            TreeId::Skill(..) => Job::on(&id, Weight::Scan, Mode::LongChange),
            TreeId::Workspace(..) => Job::change(&id),
        };
        let files = self.store.files(id);
        self.work(job, move || Ok(files.rename(&from, &to, overwrite, &condition)?)).await
    }

    /// Copies `from` to `to`; what is written is `None` for a directory.
    ///
    /// # Errors
    /// As [`storage::Files::copy`].
    pub async fn copy(&self, id: TreeId, copy: Copy) -> Result<Option<Written>> {
        // A directory is copied while the tree is held, a file before.
        let mode = if copy.recursive { Mode::LongChange } else { Mode::ShortChange };
        let job = Job::on(&id, Weight::Long, mode);
        let files = self.store.files(id);
        self.work(job, move || {
            let Copy { from, to, overwrite, recursive, condition } = copy;
            Ok(files.copy(&from, &to, overwrite, recursive, &condition)?)
        })
        .await
    }

    /// Makes all changes of a patch, or none.
    ///
    /// # Errors
    /// As [`storage::Files::patch`]; [`Error::Invalid`] for a condition of a file that the patch does not have.
    pub async fn patch(
        &self,
        id: TreeId,
        patch: Vec<FilePatch>,
        dry_run: bool,
        conditions: Conditions,
    ) -> Result<Vec<Patched>> {
        let conditions = conditions.of(&patch)?;
        let options = PatchOptions { conditions, dry_run, limit: self.file_limits.text_bytes };
        let lines = patch.iter().flat_map(|file| &file.hunks).flat_map(|hunk| &hunk.lines);
        let (hunks, bytes) =
            (patch.iter().map(|file| file.hunks.len()).sum(), lines.map(|line| line.text.len()).sum());
        let job = of_texts(Job::change(&id), hunks, bytes);
        let files = self.store.files(id);
        self.work(job, move || Ok(files.patch(&patch, &options)?)).await
    }

    /// Removes `path`.
    ///
    /// # Errors
    /// As [`storage::Files::remove`].
    pub async fn remove(
        &self,
        id: TreeId,
        path: RelPath,
        recursive: bool,
        condition: Condition,
    ) -> Result<()> {
        let weight = if recursive { Weight::Scan } else { Weight::Light };
        let job = Job::on(&id, weight, Mode::ShortChange);
        let files = self.store.files(id);
        self.work(job, move || Ok(files.remove(&path, recursive, &condition)?)).await
    }
}

/// `job` as heavy as so many changes of texts with so many bytes in them make it.
pub(super) fn of_texts(job: Job, changes: usize, bytes: usize) -> Job {
    let is_large = bytes > LIGHT_BYTES;
    let weight = if changes > LIGHT_CHANGES || is_large { Weight::Scan } else { Weight::Light };
    Job { weight, ..job }.giving_way_if(is_large)
}
