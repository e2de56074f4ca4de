//! [`Transaction`]: several renames that happen all or not at all, whenever the service dies.
//!
//! A transaction is a directory in the stage. What is to be placed is built in it under the names `0`, `1`, …;
//! [`Transaction::commit`] writes a record ([`crate::layers::record`]) of it, and from then on the change *is* done: it is applied at
//! once, and again at the next start if the service died in between. A transaction without a record is thrown away.
//!
//! Applying is idempotent. The record holds the inode number of each item: as long as the item in the stage has
//! it, the item is not yet placed.

mod steps;

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};

pub(crate) use self::steps::{Steps, TreeStep};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::destination::Destination;
use crate::layers::durability::Durability;
use crate::layers::record::{self, Proof};
use crate::layers::stage::{Draft, Stage};
use crate::layers::trash::Trash;
use crate::version;

/// Entries of the stage that a start looks at. A service has one for each change under way.
const STAGED_MAX: usize = 1_000_000;
/// The name at the top of a staged directory that a former layout would have carried out.
const FORMER_RECORDS: [&str; 2] = ["journal", "patch"];

/// One rename of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// Inode number of the item before it is placed.
    inode: u64,
    /// Where it is put.
    to: Destination,
}

/// The content of a record of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The staged directory, which has the items.
    staged: Staged,
    steps: Vec<Step>,
}

/// A directory in the stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Staged {
    name: String,
    inode: u64,
}

/// The content of a record.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// A transaction.
    Transaction(Plan),
    /// A patch of several files.
    Patch(Steps),
}

/// A change of several places that happens all or not at all.
pub(crate) struct Transaction {
    stage: Stage,
    draft: Draft,
    dir: Dir,
    steps: Vec<Step>,
    is_publication: bool,
}

/// A transaction that is committed: it will be applied, now or at the next start.
#[must_use]
pub(crate) struct Committed {
    // Dropped first, so that the directory goes when all is applied.
    plan: Plan,
    dir: Dir,
    draft: Option<Draft>,
    stage: Stage,
}

/// The outcome of recovering the stage of a former service.
#[derive(Default)]
pub(crate) struct Recovered {
    /// Transactions that were applied.
    pub(crate) finished: usize,
    /// Entries that belonged to nothing.
    pub(crate) swept: usize,
    /// Records that nothing proves, and which therefore were not carried out.
    pub(crate) refused: usize,
    /// Patches that are to be made, which takes the whole store, and the names of their records.
    pub(crate) patches: Vec<(OsString, Steps)>,
}

impl Staged {
    /// Describes the staged directory `dir`.
    pub(crate) fn of(name: &OsStr, dir: &Dir) -> Result<Self> {
        Ok(Self { name: name.to_string_lossy().into_owned(), inode: dir.stat()?.inode })
    }

    /// Opens the directory; `None` when there is another one, or none.
    pub(crate) fn open(&self, stage: &Stage) -> Result<Option<Dir>> {
        match stage.dir().open_dir_entry(OsStr::new(&self.name)) {
            Ok(dir) => Ok((dir.stat()?.inode == self.inode).then_some(dir)),
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Its name in the stage.
    pub(crate) fn name(&self) -> &OsStr {
        OsStr::new(&self.name)
    }
}

impl Record {
    /// Writes this down as `name`; see [`record::Records::write`].
    pub(crate) fn write(
        &self,
        stage: &Stage,
        name: &OsStr,
        is_publication: bool,
        sync: impl FnOnce(&std::fs::File) -> Result<()>,
    ) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::from_io("record", "stage", std::io::Error::other(error)))?;
        stage.records().write(name, &text, is_publication, sync)
    }
}

impl Transaction {
    pub(crate) fn begin(stage: &Stage) -> Result<Self> {
        let draft = stage.draft();
        let dir = stage.dir().create_dir(&draft.name, 0o700)?;
        Ok(Self { stage: stage.clone(), draft, dir, steps: Vec::new(), is_publication: false })
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

    /// Plans to put the item just built at `to`.
    pub(crate) fn place(&mut self, to: Destination) -> Result<()> {
        let item = self.next_name();
        let stat = self.dir.stat_entry(&item)?;
        let stat = stat.ok_or_else(|| Error::NotFound(item.to_string_lossy().into_owned()))?;
        self.steps.push(Step { inode: stat.inode, to });
        Ok(())
    }

    /// Makes the items and the record durable. After this the change is done, even across a crash.
    pub(crate) fn commit(self, root: &Dir) -> Result<Committed> {
        // Steps that can fail for want of space come before the record: applying only renames.
        for step in &self.steps {
            self.stage.ensure_path(root, &step.to.place()?.0)?;
            step.to.keeps_replaced_in()?.map(|keep| self.stage.ensure_path(root, &keep)).transpose()?;
        }
        let Self { stage, draft, dir, steps, is_publication } = self;
        let plan = Plan { staged: Staged::of(&draft.name, &dir)?, steps };
        // One call for the record and every file of every item.
        let sync = |_: &std::fs::File| dir.sync_file_system();
        Record::Transaction(plan.clone()).write(&stage, &draft.name, is_publication, sync)?;
        Ok(Committed { plan, dir, draft: Some(draft), stage })
    }
}

impl Committed {
    /// Places the item of step `index`. The caller holds the lock of the tree it goes to.
    pub(crate) fn apply(&self, root: &Dir, index: usize) -> Result<()> {
        let Some(step) = self.plan.steps.get(index) else { return Ok(()) };
        let is_strict = self.stage.durability() == Durability::Strict;
        let item = OsString::from(index.to_string());
        let (into, name) = step.to.place()?;
        let (into, name) = (root.ensure_path(&into)?, OsStr::new(&name));
        if self.dir.stat_entry(&item)?.is_some_and(|stat| stat.inode == step.inode) {
            self.stage.put_in(&self.dir, &item, &into, || match self.dir.rename_new(&item, &into, name) {
                Err(Error::AlreadyExists(_)) => self.dir.exchange(&item, &into, name),
                placed => placed,
            })?;
        }
        if let Some(keep) = step.to.keeps_replaced_in()?
            && let Some(version) = version::of_entry(&self.dir, &item)?
        {
            let keep = root.ensure_path(&keep)?;
            match self.dir.rename_new(&item, &keep, OsStr::new(version.as_str())) {
                // The same version is kept already; this copy goes with the transaction.
                Err(Error::AlreadyExists(_)) => {}
                kept => kept?,
            }
            if is_strict {
                keep.sync()?;
            }
        }
        if is_strict {
            into.sync()?;
        }
        Ok(())
    }

    /// Forgets the transaction, all of whose steps were applied, or none. What it replaced goes with the values
    /// returned, and until then counts for the tree that it was in.
    pub(crate) fn finish(mut self) -> Vec<Trash> {
        // The record goes first: without it the rest is only garbage.
        if let Err(error) = self.stage.records().remove(self.plan.staged.name()) {
            tracing::warn!(%error, "a finished transaction stays until the next start");
            return Vec::new();
        }
        let replaced = self.replaced();
        drop(self.draft.take());
        replaced
    }

    /// Throws away what is in the place of items that were placed.
    fn replaced(&self) -> Vec<Trash> {
        let mut trash = Vec::new();
        for (index, step) in self.plan.steps.iter().enumerate() {
            let item = OsString::from(index.to_string());
            let thrown = || {
                let is_replaced = self.dir.stat_entry(&item)?.is_some_and(|stat| stat.inode != step.inode);
                let owner = step.to.owner()?;
                is_replaced.then(|| self.stage.discard(&self.dir, &item, owner.as_ref())).transpose()
            };
            match thrown() {
                Ok(thrown) => trash.extend(thrown),
                Err(error) => tracing::warn!(%error, "what was replaced is removed at once"),
            }
        }
        trash
    }
}

impl Drop for Committed {
    fn drop(&mut self) {
        // Not finished: what is committed stays for the next start to apply.
        if let Some(draft) = self.draft.take() {
            std::mem::forget(draft);
        }
    }
}

/// Applies every transaction of which a former service left a record, and throws away everything else in the stage, but
/// for patches, which the floor of files makes.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::Io`]: the record is tried again at the next start.
pub(crate) fn recover(root: &Dir, stage: &Stage) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    for name in stage.records().names()? {
        let record = match stage.records().read(&name)? {
            Proof::Draft => {
                stage.records().remove(&name)?;
                continue;
            }
            Proof::Refused(reason) => Err(reason),
            Proof::Genuine(text) => serde_json::from_slice(&text).map_err(|_| "it says nothing that is done"),
        };
        let done = match record {
            Ok(Record::Patch(steps)) => {
                recovered.patches.push((name, steps));
                continue;
            }
            Ok(Record::Transaction(plan)) => apply_all(root, stage, plan)?,
            Err(reason) => Err(reason),
        };
        match done {
            Ok(()) => recovered.finished += 1,
            Err(reason) => {
                tracing::error!(
                    record = %name.to_string_lossy(), reason,
                    "a record of an unfinished change is not proven to be the service's: it is not carried out, and \
                     kept in `.filesecbox/refused`"
                );
                stage.records().refuse(&name)?;
                recovered.refused += 1;
            }
        }
    }
    for entry in stage.dir().entries_at_most(STAGED_MAX)? {
        if recovered.patches.iter().any(|(_, steps)| steps.staged().name() == entry.name) {
            continue;
        }
        match stage.discard(stage.dir(), &entry.name, None) {
            Ok(trash) => trash.later(),
            Err(error) => tracing::warn!(%error, "a staged entry stays until the next start"),
        }
        recovered.swept += 1;
    }
    Ok(recovered)
}

/// Applies a whole transaction; says why when it cannot be one of the service's.
fn apply_all(root: &Dir, stage: &Stage, plan: Plan) -> Result<Result<(), &'static str>> {
    if plan.steps.iter().any(|step| step.to.owner().and_then(|_| step.to.place()).is_err()) {
        return Ok(Err("it leads elsewhere"));
    }
    let Some(dir) = plan.staged.open(stage)? else {
        // All was applied, and the directory gone, when the machine lost its power.
        stage.records().remove(plan.staged.name())?;
        return Ok(Ok(()));
    };
    let committed = Committed { plan, dir, draft: None, stage: stage.clone() };
    for index in 0..committed.plan.steps.len() {
        match committed.apply(root, index) {
            Ok(()) => {}
            Err(error @ (Error::NoSpace(_) | Error::OverQuota(_) | Error::Io { .. })) => return Err(error),
            Err(error) => {
                tracing::error!(%error, "a step of an unfinished change cannot be made");
                return Ok(Err("a step of it cannot be made"));
            }
        }
    }
    committed.finish().into_iter().for_each(Trash::later);
    Ok(Ok(()))
}

/// Keeps what a former layout would have carried out for the operator to look at: nothing proves that the service wrote
/// it. Tells how much there was.
///
/// # Errors
/// [`Error::TooManyEntries`], [`Error::Io`].
pub(crate) fn keep_former(stage: &Stage) -> Result<usize> {
    let mut kept = 0;
    for entry in stage.dir().entries_at_most(STAGED_MAX)? {
        let Ok(dir) = stage.dir().open_dir_entry(&entry.name) else { continue };
        let is_record = |name: &&str| dir.stat_entry(OsStr::new(name)).is_ok_and(|stat| stat.is_some());
        if FORMER_RECORDS.iter().any(is_record) {
            record::keep_aside(stage.records().refused(), stage.dir(), &entry.name)?;
            kept += 1;
        }
    }
    if kept > 0 {
        tracing::error!(
            kept,
            "an earlier version left changes unfinished, and nothing proves that they are the service's: they are not \
             carried out, and kept in `.filesecbox/refused`"
        );
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use policy::{AgentId, RelPath, SkillId, UserId};

    use super::*;
    use crate::layers::names::Names;
    use crate::layers::projects::Projects;
    use crate::layers::record::Records;
    use crate::layers::trash::TrashCan;

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
            make_skill(&root.ensure_path(&path("skill/baseline/a")).unwrap(), OsStr::new("s"), "1");
            let stage = Self::stage(&root);
            Self { _temp: temp, root, stage }
        }

        fn stage(root: &Dir) -> Stage {
            let open = |name: &str| root.ensure_path(&path(name)).unwrap();
            let names = Arc::new(Names::new().unwrap());
            let trash =
                TrashCan::open(open("trash"), Arc::clone(&names), Arc::new(|_| {}), Projects::default())
                    .unwrap();
            let records = Records::new(open("journal"), open("refused"), [1; 32], Durability::Relaxed);
            Stage::new(open("stage"), names, trash, records, Projects::default(), Durability::Relaxed)
        }

        fn transaction(&self) -> Transaction {
            let mut transaction = Transaction::begin(&self.stage).unwrap();
            make_skill(transaction.dir(), &transaction.next_name(), "2");
            let (agent, skill) = (AgentId::parse("a").unwrap(), SkillId::parse("s").unwrap());
            transaction.place(Destination::Baseline { agent: agent.clone(), skill: skill.clone() }).unwrap();
            transaction.dir().create_file(&transaction.next_name(), 0o600).unwrap();
            let user = UserId::parse("u").unwrap();
            transaction.place(Destination::Base { user, agent, skill }).unwrap();
            transaction
        }

        /// Every file below the root but the stage's, with its text.
        fn state(&self) -> Vec<(String, String)> {
            let mut state = Vec::new();
            for entry in ["skill/baseline/a/s/f", ".filesecbox/bases/a/s/u"] {
                if let Ok((mut file, _)) = self.root.open_file(&path(entry)) {
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    state.push((entry.to_owned(), text));
                }
            }
            if let Ok(versions) = self.root.open_dir(&path(".filesecbox/versions/a/s")) {
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
            let recovered = recover(&self.root, &self.stage).unwrap();
            assert_eq!(recovered.refused, 0);
            assert_eq!(self.stage.dir().entries().unwrap(), []);
            assert_eq!(self.stage.records().names().unwrap(), Vec::<OsString>::new());
            let again = recover(&self.root, &self.stage).unwrap();
            assert_eq!((again.finished, again.swept, again.refused), (0, 0, 0));
            (recovered.finished, self.state())
        }
    }

    fn old() -> Vec<(String, String)> {
        vec![("skill/baseline/a/s/f".into(), "1".into())]
    }

    fn new() -> Vec<(String, String)> {
        let all = [("skill/baseline/a/s/f", "2"), (".filesecbox/bases/a/s/u", ""), ("version", "1")];
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
        let into = fixture.root.open_dir(&path("skill/baseline/a")).unwrap();
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
        committed.stage.records().remove(committed.plan.staged.name()).unwrap();
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
        drop(committed.finish());
        assert_eq!(fixture.recovered(), (0, new()));
    }

    #[test]
    fn a_transaction_that_is_dropped_changes_nothing() {
        let fixture = Fixture::new();
        drop(fixture.transaction());
        assert_eq!(fixture.stage.dir().entries().unwrap(), []);
        assert_eq!(fixture.state(), old());
    }

    #[test]
    fn a_crash_after_all_steps_and_before_the_record_was_forgotten_leaves_no_record() {
        let fixture = Fixture::new();
        let mut committed = fixture.transaction().commit(&fixture.root).unwrap();
        committed.apply(&fixture.root, 0).unwrap();
        committed.apply(&fixture.root, 1).unwrap();
        drop(committed.draft.take());
        drop(committed);
        assert_eq!(fixture.recovered(), (1, new()));
    }

    #[test]
    fn a_record_that_leads_elsewhere_is_not_carried_out_whoever_wrote_it() {
        let fixture = Fixture::new();
        let committed = fixture.transaction().commit(&fixture.root).unwrap();
        let staged = committed.plan.staged.clone();
        committed.stage.records().remove(staged.name()).unwrap();
        drop(committed);
        // As if the key were known.
        for to in [
            r#"{"overlay": {"user": "u", "agent": "a", "path": "../../../.filesecbox/keys/signing"}}"#,
            r#"{"overlay": {"user": "u", "agent": "a", "path": ".s"}}"#,
            r#"{"into": ".filesecbox/keys", "name": "signing", "keep_replaced_in": null}"#,
        ] {
            let text = format!(
                r#"{{"transaction": {{"staged": {}, "steps": [{{"inode": 1, "to": {to}}}]}}}}"#,
                serde_json::to_string(&staged).unwrap()
            );
            fixture.stage.records().write(staged.name(), text.as_bytes(), false, |_| Ok(())).unwrap();
            let recovered = recover(&fixture.root, &fixture.stage).unwrap();
            assert_eq!((recovered.finished, recovered.refused), (0, 1), "{to}");
            assert_eq!(fixture.state(), old());
            fixture.stage.records().refused().remove_tree(staged.name()).unwrap();
        }
    }

    #[test]
    fn what_a_former_layout_would_have_carried_out_is_kept_and_never_read() {
        let fixture = Fixture::new();
        for (name, record) in [("0123456789abcdef-1", "journal"), ("0123456789abcdef-2", "patch")] {
            let dir = fixture.stage.dir().create_dir(OsStr::new(name), 0o700).unwrap();
            make_skill(&dir, OsStr::new("0"), "forged");
            let inode = dir.stat_entry(OsStr::new("0")).unwrap().unwrap().inode;
            let text = format!(
                r#"[{{"inode":{inode},"into":"skill/baseline/a","name":"s","keep_replaced_in":null}}]"#
            );
            dir.create_file(OsStr::new(record), 0o600).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(keep_former(&fixture.stage).unwrap(), 2);
        assert_eq!(fixture.recovered(), (0, old()));
        assert_eq!(fixture.stage.records().refused().entries().unwrap().len(), 2);
    }
}
