//! [`Transaction`]: several renames that happen all or not at all, whenever the service dies.
//!
//! A transaction is a directory in the stage. What is to be placed is built in it under the names `0`, `1`, …;
//! [`Transaction::commit`] writes a `journal` beside them, and from then on the change *is* done: it is applied at
//! once, and again at the next start if the service died in between. A transaction without a journal is swept.
//!
//! Applying is idempotent. The journal holds the inode number of each item: as long as the item in the stage has
//! it, the item is not yet placed.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};

use policy::RelPath;
use serde::{Deserialize, Serialize};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::patch;
use crate::stage::{Durability, Stage, Trash};
use crate::version;

const JOURNAL: &str = "journal";
const JOURNAL_DRAFT: &str = "journal.draft";
/// A journal of as many steps as an archive can hold skills.
const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One rename of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// Inode number of the item before it is placed.
    inode: u64,
    /// Directory that receives the item, from the store's root. It is made when it is missing.
    into: RelPath,
    /// Name there.
    name: String,
    /// Directory, from the store's root, that keeps what was replaced, under its version.
    keep_replaced_in: Option<RelPath>,
}

/// A change of several places that happens all or not at all.
pub(crate) struct Transaction {
    stage: Stage,
    trash: Trash,
    dir: Dir,
    steps: Vec<Step>,
    is_publication: bool,
}

/// A transaction that is committed: it will be applied, now or at the next start.
#[must_use]
pub(crate) struct Committed {
    // Dropped first, so that the directory goes when all is applied.
    steps: Vec<Step>,
    dir: Dir,
    trash: Option<Trash>,
    durability: Durability,
}

impl Transaction {
    pub(crate) fn begin(stage: &Stage) -> Result<Self> {
        let trash = stage.trash();
        let dir = stage.dir().create_dir(&trash.name, 0o700)?;
        Ok(Self { stage: stage.clone(), trash, dir, steps: Vec::new(), is_publication: false })
    }

    /// As [`Transaction::begin`], of whole skills: with relaxed durability too, their files are on the disk before they
    /// take the place of others.
    ///
    /// The file system may write a rename before the bytes of what was renamed (ext4, "delayed allocation"): without this, a
    /// loss of power leaves a published skill of empty files.
    pub(crate) fn begin_publication(stage: &Stage) -> Result<Self> {
        Ok(Self { is_publication: true, ..Self::begin(stage)? })
    }

    /// The name under which the next item is to be built in [`Transaction::dir`].
    pub(crate) fn next_name(&self) -> OsString {
        self.steps.len().to_string().into()
    }

    /// The directory in which items are built.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Plans to place the item just built as `name` in `into`; see [`Step`].
    pub(crate) fn place(
        &mut self,
        into: RelPath,
        name: &str,
        keep_replaced_in: Option<RelPath>,
    ) -> Result<()> {
        let item = self.next_name();
        let stat = self.dir.stat_entry(&item)?;
        let stat = stat.ok_or_else(|| Error::NotFound(item.to_string_lossy().into_owned()))?;
        self.steps.push(Step { inode: stat.inode, into, name: name.to_owned(), keep_replaced_in });
        Ok(())
    }

    /// Makes the items and the journal durable. After this the change is done, whatever happens.
    pub(crate) fn commit(self, root: &Dir) -> Result<Committed> {
        let durability = self.stage.durability();
        // What can fail for want of space is done before there is no way back: applying only renames.
        for step in &self.steps {
            self.stage.ensure_path(root, &step.into)?;
            step.keep_replaced_in.as_ref().map(|keep| self.stage.ensure_path(root, keep)).transpose()?;
        }
        let text = serde_json::to_vec(&self.steps)
            .map_err(|error| Error::from_io("journal", "stage", std::io::Error::other(error)))?;
        let mut draft = self.dir.create_file(OsStr::new(JOURNAL_DRAFT), 0o600)?;
        draft.write_all(&text).map_err(|error| Error::from_io("write", "journal", error))?;
        let waits = match durability {
            Durability::Strict => true,
            Durability::Relaxed => self.is_publication,
            Durability::Never => false,
        };
        if waits {
            // One call for the journal and every file of every item.
            self.dir.sync_file_system()?;
        }
        interrupt::commit()?;
        self.dir.rename(OsStr::new(JOURNAL_DRAFT), &self.dir, OsStr::new(JOURNAL))?;
        if durability == Durability::Strict {
            self.dir.sync()?;
            self.stage.dir().sync()?;
        }
        Ok(Committed { steps: self.steps, dir: self.dir, trash: Some(self.trash), durability })
    }
}

impl Committed {
    /// Places the item of step `index`. The caller holds the lock of the tree it goes to.
    pub(crate) fn apply(&self, root: &Dir, index: usize) -> Result<()> {
        let Some(step) = self.steps.get(index) else { return Ok(()) };
        let item = OsString::from(index.to_string());
        let name = OsStr::new(step.name.as_str());
        let into = root.ensure_path(&step.into)?;
        if self.dir.stat_entry(&item)?.is_some_and(|stat| stat.inode == step.inode) {
            match self.dir.rename_new(&item, &into, name) {
                Err(Error::AlreadyExists(_)) => self.dir.exchange(&item, &into, name)?,
                placed => placed?,
            }
        }
        if let Some(keep) = &step.keep_replaced_in
            && let Some(version) = version::of_entry(&self.dir, &item)?
        {
            let keep = root.ensure_path(keep)?;
            match self.dir.rename_new(&item, &keep, OsStr::new(version.as_str())) {
                // The same version is kept already; this copy goes with the transaction.
                Err(Error::AlreadyExists(_)) => {}
                kept => kept?,
            }
            if self.durability == Durability::Strict {
                keep.sync()?;
            }
        }
        if self.durability == Durability::Strict {
            into.sync()?;
        }
        Ok(())
    }

    /// Forgets the transaction, all of whose steps were applied. What it replaced goes with the value returned.
    pub(crate) fn finish(mut self) -> Option<Trash> {
        // The journal goes first: without it the rest is only garbage.
        if let Err(error) = self.dir.remove_file(OsStr::new(JOURNAL)) {
            tracing::warn!(%error, "a finished transaction stays until the next start");
            return None;
        }
        self.trash.take()
    }
}

impl Drop for Committed {
    fn drop(&mut self) {
        // Not finished: what is committed stays for the next start to apply.
        if let Some(trash) = self.trash.take() {
            std::mem::forget(trash);
        }
    }
}

/// Applies every committed transaction that a crash left in the stage and sweeps everything else from it but patches,
/// which [`Store::redo_patches`](crate::Store) makes.
///
/// Returns how many transactions were applied and how many other entries were removed.
pub(crate) fn recover(root: &Dir, stage: &Stage) -> Result<(usize, usize)> {
    let mut applied = 0;
    let mut removed = 0;
    for entry in stage.dir().entries()? {
        if patch::is_on_record(stage, &entry.name) {
            // It takes the whole store to make it.
            continue;
        }
        if let Some(committed) = read(stage, &entry.name)? {
            for index in 0..committed.steps.len() {
                committed.apply(root, index)?;
            }
            drop(committed.finish());
            applied += 1;
        } else {
            removed += 1;
        }
        if let Err(error) = stage.dir().remove_tree(&entry.name) {
            tracing::warn!(%error, "a staged entry stays until the next start");
        }
    }
    Ok((applied, removed))
}

/// Reads the journal of the stage entry `name`, if it is a committed transaction.
fn read(stage: &Stage, name: &OsStr) -> Result<Option<Committed>> {
    let dir = match stage.dir().open_dir_entry(name) {
        Ok(dir) => dir,
        Err(Error::NotADirectory(_) | Error::Escape(_)) => return Ok(None),
        Err(other) => return Err(other),
    };
    let file = match dir.open_file_entry(OsStr::new(JOURNAL)) {
        Ok((file, _)) => file,
        Err(Error::NotFound(_)) => return Ok(None),
        Err(other) => return Err(other),
    };
    let mut text = Vec::new();
    file.take(JOURNAL_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Error::from_io("read", "journal", error))?;
    // Without a sync a loss of power can leave a journal without its bytes. It cannot be applied; refusing to start
    // would not mend it.
    let Ok(steps) = serde_json::from_slice(&text) else {
        tracing::warn!("an unreadable journal is swept");
        return Ok(None);
    };
    Ok(Some(Committed { steps, dir, trash: None, durability: stage.durability() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A baseline skill `s` at version 1, a stage, and a transaction that puts version 2 there and a file beside.
    struct Fixture {
        _temp: tempfile::TempDir,
        root: Dir,
        stage: Stage,
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn make_skill(parent: &Dir, name: &OsStr, text: &str) {
        let dir = parent.create_dir(name, 0o755).unwrap();
        dir.create_file(OsStr::new("f"), 0o644).unwrap().write_all(text.as_bytes()).unwrap();
        version::set_label(&dir, &version::digest(&dir).unwrap()).unwrap();
    }

    impl Fixture {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = Dir::ambient_open(temp.path()).unwrap();
            make_skill(&root.ensure_path(&path("skills")).unwrap(), OsStr::new("s"), "1");
            let stage = root.ensure_path(&path("stage")).unwrap();
            let stage = Stage::new(stage, Durability::Relaxed).unwrap();
            Self { _temp: temp, root, stage }
        }

        fn transaction(&self) -> Transaction {
            let mut transaction = Transaction::begin(&self.stage).unwrap();
            make_skill(transaction.dir(), &transaction.next_name(), "2");
            transaction.place(path("skills"), "s", Some(path("versions/s"))).unwrap();
            transaction.dir().create_file(&transaction.next_name(), 0o600).unwrap();
            transaction.place(path("new/place"), "beside", None).unwrap();
            transaction
        }

        /// Every file below the root but the stage's, with its text.
        fn state(&self) -> Vec<(String, String)> {
            let mut state = Vec::new();
            for entry in ["skills/s/f", "new/place/beside"] {
                if let Ok((mut file, _)) = self.root.open_file(&path(entry)) {
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    state.push((entry.to_owned(), text));
                }
            }
            if let Ok(versions) = self.root.open_dir(&path("versions/s")) {
                state.extend(versions.entries().unwrap().into_iter().map(|entry| {
                    let mut text = String::new();
                    let kept = versions.open_dir_entry(&entry.name).unwrap();
                    kept.open_file_entry(OsStr::new("f")).unwrap().0.read_to_string(&mut text).unwrap();
                    ("version".to_owned(), text)
                }));
            }
            state
        }

        /// Recovers as the next start does, twice, and returns what is there then.
        fn recovered(&self) -> (usize, Vec<(String, String)>) {
            let (finished, _) = recover(&self.root, &self.stage).unwrap();
            assert_eq!(self.stage.dir().entries().unwrap(), []);
            assert_eq!(recover(&self.root, &self.stage).unwrap(), (0, 0));
            (finished, self.state())
        }
    }

    fn old() -> Vec<(String, String)> {
        vec![("skills/s/f".into(), "1".into())]
    }

    fn new() -> Vec<(String, String)> {
        let all = [("skills/s/f", "2"), ("new/place/beside", ""), ("version", "1")];
        all.map(|(at, text)| (at.to_owned(), text.to_owned())).into()
    }

    #[test]
    fn a_crash_before_the_journal_leaves_the_old_state() {
        let fixture = Fixture::new();
        std::mem::forget(fixture.transaction());
        assert_eq!(fixture.recovered(), (0, old()));
    }

    #[test]
    fn a_crash_after_any_step_that_follows_the_journal_ends_in_the_new_state() {
        for applied in 0..=2 {
            let fixture = Fixture::new();
            let committed = fixture.transaction().commit(&fixture.root).unwrap();
            for index in 0..applied {
                committed.apply(&fixture.root, index).unwrap();
            }
            drop(committed);
            assert_eq!(fixture.recovered(), (1, new()), "{applied} applied");
        }
    }

    #[test]
    fn a_crash_between_placing_an_item_and_keeping_what_it_replaced_ends_in_the_new_state() {
        let fixture = Fixture::new();
        let committed = fixture.transaction().commit(&fixture.root).unwrap();
        let into = fixture.root.open_dir(&path("skills")).unwrap();
        committed.dir.exchange(OsStr::new("0"), &into, OsStr::new("s")).unwrap();
        drop(committed);
        assert_eq!(fixture.recovered(), (1, new()));
    }

    #[test]
    fn a_crash_after_the_journal_is_forgotten_changes_nothing_more() {
        let fixture = Fixture::new();
        let committed = fixture.transaction().commit(&fixture.root).unwrap();
        committed.apply(&fixture.root, 0).unwrap();
        committed.apply(&fixture.root, 1).unwrap();
        committed.dir.remove_file(OsStr::new(JOURNAL)).unwrap();
        drop(committed);
        assert_eq!(fixture.recovered(), (0, new()));
    }

    #[test]
    fn applying_twice_is_applying_once() {
        let fixture = Fixture::new();
        let committed = fixture.transaction().commit(&fixture.root).unwrap();
        for index in [0, 0, 1, 1, 0] {
            committed.apply(&fixture.root, index).unwrap();
        }
        committed.finish();
        assert_eq!(fixture.recovered(), (0, new()));
    }

    #[test]
    fn a_transaction_that_is_dropped_changes_nothing() {
        let fixture = Fixture::new();
        drop(fixture.transaction());
        assert_eq!(fixture.stage.dir().entries().unwrap(), []);
        assert_eq!(fixture.state(), old());
    }
}
