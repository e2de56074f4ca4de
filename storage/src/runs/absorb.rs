//! Taking what a command did to a copy into the overlay, or the workspace, that it is of.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use policy::{RelPath, TreeId, WorkspaceId};

use super::absorbed::Absorbed;
use super::ready::Taking;
use super::scan::Scan;
use super::steps::{Ready, adds_of, changes, deletions, growth_of, place};
use super::{By, PreparedRun};
use crate::core::copies::{Copy, CopyState, Entries, Fingerprint};
use crate::core::growth::Growth;
use crate::core::lock::TreeWrite;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::layers::room::Room;
use crate::layers::tree::Tree;
use crate::stat::Use;

/// Entries that are placed while the tree is held: some milliseconds' work. Each has an open file until then.
const BATCH: usize = 128;

impl PreparedRun {
    /// Takes what the command did into the overlay. Nothing may run in the view any more: from now on the next run in a copy
    /// does not find this one beside it.
    ///
    /// A skill that would become larger than it may be stays as it was, which [`Absorbed::refused`] tells. The work is done
    /// in batches, between which other requests go on: an entry that a request changes before its batch gives way to the
    /// command's, one that it changes after it stays. What is not taken in after `limits.files.absorb_ms`, or because the
    /// tree was replaced meanwhile, is left out, which [`Absorbed::left_out`] tells.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the skill was removed meanwhile; [`Error::NoSpace`], [`Error::Io`]. Each entry is
    /// then either taken over whole or as it was. Of several skills the others are taken in all the same, and the first error is
    /// told.
    pub fn absorb(&self) -> Result<Absorbed> {
        let mut absorbed = Absorbed::default();
        let mut failed = None;
        for seen in &self.skills {
            let taken = match &seen.by {
                By::Live(_) => Ok(()),
                By::Copy(copy) => self.absorb_own(&seen.id, copy, &mut absorbed),
                By::Shared(lease) => {
                    let mut state = lease.copy().copy.lock();
                    let taken = self.absorb_shared(&seen.id, &mut state, &mut absorbed);
                    lease.leave(&state);
                    taken
                }
            };
            // One that fails costs the others nothing.
            failed = failed.or(taken.err());
        }
        match failed {
            Some(error) => Err(error),
            None => {
                self.is_absorbed.store(true, Ordering::Relaxed);
                Ok(absorbed)
            }
        }
    }

    /// Takes in what the run did in a copy of its own. A command of another run to which it gave an open file goes on with
    /// that, and not with what is in the tree.
    fn absorb_own(&self, id: &TreeId, copy: &Copy, absorbed: &mut Absorbed) -> Result<()> {
        let taking = if self.may_be_held() { Taking::Copies } else { Taking::Away };
        let taken = self.absorb_copy(id, copy, taking, absorbed)?;
        for path in taken.into_iter().flat_map(|taken| taken.gone) {
            absorbed.skip(&path, "a command of another run changed it while it was taken in");
        }
        Ok(())
    }

    /// Whether a process may have files of the run's copies open: of another run of the same user and agent, to which the
    /// run's command can have given them, or of the run itself.
    fn may_be_held(&self) -> bool {
        let runs = self.store.workspaces().occupants(&WorkspaceId::of(&self.id));
        runs > 1 || !self.is_over.load(Ordering::Relaxed)
    }

    /// Takes in what the runs in a shared copy did.
    fn absorb_shared(&self, id: &TreeId, state: &mut CopyState, absorbed: &mut Absorbed) -> Result<()> {
        let taken = self.note_taken(id, state, absorbed);
        let has_links = |copy: &Copy| copy.before.values().any(|entry| entry.is_linked);
        state.is_exposed = self.may_be_held() || state.made.as_ref().is_some_and(has_links);
        taken
    }

    /// Takes in what the runs in a shared copy did, and notes how far the copy is as the tree is.
    fn note_taken(&self, id: &TreeId, state: &mut CopyState, absorbed: &mut Absorbed) -> Result<()> {
        let Some(copy) = &mut state.made else { return Ok(()) };
        let (skipped, left_out) = (absorbed.skipped.len(), absorbed.left_out);
        // Until the end: an error leaves a copy of which nothing is certain.
        state.is_doubtful = true;
        let Some(taken) = self.absorb_copy(id, copy, Taking::Copies, absorbed)? else {
            state.is_doubtful = false;
            return Ok(());
        };
        if absorbed.refused.is_some() || absorbed.left_out > left_out {
            return Ok(());
        }
        let Taken { mut after, gone, held } = taken;
        for path in &gone {
            after.remove(path);
        }
        copy.sources.retain(|path, _| copy.before.get(path).is_some_and(|was| after.get(path) == Some(was)));
        copy.before = after;
        let locks = self.store.locks();
        let now = locks.generation(id, &locks.read(id));
        let is_own = copy.generation.map(|generation| generation.after(held)) == Some(now);
        copy.generation = (is_own && gone.is_empty() && absorbed.skipped.len() == skipped).then_some(now);
        state.is_doubtful = false;
        Ok(())
    }

    /// Takes the differences of a copy into its tree; `None` when there are none, or none that could be looked at.
    fn absorb_copy(
        &self,
        id: &TreeId,
        copy: &Copy,
        taking: Taking,
        absorbed: &mut Absorbed,
    ) -> Result<Option<Taken>> {
        let begun = Instant::now();
        let allowed = Duration::from_millis(self.store.options().files.absorb_ms);
        let mut after = BTreeMap::new();
        let limit = self.store.options().files.tree_entries;
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        let mut scan = Scan { room: Room::of_entries(limit), found: &mut after, absorbed };
        match Interrupt::after(allowed).enter(|| scan.directory(&copy.dir, OsStr::new(""), DEPTH_MAX)) {
            Err(Error::TooLong { .. }) => {
                let ms = allowed.as_millis();
                absorbed.refused =
                    Some(format!("there is more than can be compared in {ms} ms (`limits.files.absorb_ms`)"));
                return Ok(Some(Taken { after, gone: Vec::new(), held: 0 }));
            }
            scanned => scanned?,
        }
        if after == copy.before {
            return Ok(None);
        }
        let mut standing = Standing::default();
        let gone = self.take_in(id, copy, &after, (begun + allowed, taking), &mut standing, absorbed);
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        absorbed.absorb_ms = absorbed.absorb_ms.saturating_add(took.max(1));
        Ok(Some(Taken { after, gone: gone?, held: standing.held }))
    }

    /// Takes the differences into the tree in batches, until `until`. The tree is held for the placing of each batch only:
    /// what is placed is prepared before, and other requests go on between. Returns what had gone meanwhile.
    fn take_in(
        &self,
        id: &TreeId,
        copy: &Copy,
        after: &Entries,
        (until, taking): (Instant, Taking),
        standing: &mut Standing,
        absorbed: &mut Absorbed,
    ) -> Result<Vec<OsString>> {
        if self.store.is_strict() {
            // One call for the bytes of all files, before the first of them takes an old one's place.
            self.store.stage().dir().sync_file_system()?;
        }
        let deletions = deletions(copy, after);
        let changes = changes(copy, after, absorbed);
        if !self.admit_differences(id, copy, after, standing, absorbed)? {
            return Ok(Vec::new());
        }
        let (mut trash, mut gone) = (Vec::new(), Vec::new());
        let mut left = deletions.len() + changes.len();
        let cut = 'batches: {
            for batch in deletions.chunks(BATCH) {
                if Instant::now() >= until {
                    break 'batches Some(self.out_of_time());
                }
                let Some(tree) = self.hold(id, copy, standing)? else { break 'batches Some(replaced()) };
                for deletion in batch {
                    match tree.tree.remove(&deletion.path) {
                        Ok(removed) => trash.extend(removed.trash),
                        Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => {}
                        Err(other) => return Err(other),
                    }
                    absorbed.deleted += usize::from(!deletion.is_replaced);
                }
                left -= batch.len();
                standing.inode = Some(self.standing(id)?);
            }
            for batch in changes.chunks(BATCH) {
                if Instant::now() >= until {
                    break 'batches Some(self.out_of_time());
                }
                let ready: Vec<Ready> = batch
                    .iter()
                    .map(|change| self.ready(&copy.dir, change, taking))
                    .collect::<Result<_>>()?;
                let Some(tree) = self.hold(id, copy, standing)? else { break 'batches Some(replaced()) };
                let mut made = None;
                for (change, ready) in batch.iter().zip(ready) {
                    if matches!(ready, Ready::Gone) {
                        gone.push(OsString::from(change.path.as_str()));
                        continue;
                    }
                    if matches!(ready, Ready::Foreign) {
                        absorbed.skip(
                            change.path.as_str().as_ref(),
                            "it is another user's file, which was linked in",
                        );
                        continue;
                    }
                    match place(tree.tree.as_ref(), change, ready, &mut made) {
                        // Only what is to be removed is kept: a descriptor for each entry would soon be too many.
                        Ok(Some(placed)) => {
                            trash.extend(placed.trash);
                            match change.is_known {
                                true => absorbed.modified += 1,
                                false => absorbed.created += 1,
                            }
                        }
                        Ok(None) => absorbed.skip(
                            change.path.as_str().as_ref(),
                            "it is neither a file, a directory nor a link",
                        ),
                        Err(Error::IsDirectory(_) | Error::NotADirectory(_) | Error::Escape(_)) => absorbed
                            .skip(
                                change.path.as_str().as_ref(),
                                "another request put something else there meanwhile",
                            ),
                        Err(other) => return Err(other),
                    }
                }
                left -= batch.len();
                standing.inode = Some(self.standing(id)?);
            }
            None
        };
        if let Some(reason) = cut {
            absorbed.left_out += left;
            absorbed.left_out_because = Some(reason);
        }
        if self.store.is_strict() {
            // And one for all names, instead of one for each directory.
            self.store.stage().dir().sync_file_system()?;
        }
        drop(trash);
        Ok(gone)
    }

    /// Admits what all differences together add to the tree; `false` when there is no room. From then on it counts, so
    /// that no other request takes the room meanwhile.
    fn admit_differences(
        &self,
        id: &TreeId,
        copy: &Copy,
        after: &Entries,
        standing: &mut Standing,
        absorbed: &mut Absorbed,
    ) -> Result<bool> {
        let touched = after.iter().filter(|(path, now)| copy.before.get(*path) != Some(now));
        let gone = copy.before.keys().filter(|path| !after.contains_key(*path));
        let all: Vec<(&OsString, Option<&Fingerprint>)> =
            touched.map(|(path, now)| (path, Some(now))).chain(gone.map(|path| (path, None))).collect();
        let mut growth = Growth { adds: Use::default(), takes: Use::default(), is_exact: false };
        for batch in all.chunks(BATCH) {
            let _held = self.store.locks().read(id);
            match self.store.tree(id) {
                Ok(tree) => growth = growth.plus(&growth_of(tree.as_ref(), batch)),
                Err(Error::NotFound(_)) => growth = growth.plus(&adds_of(batch)),
                Err(other) => return Err(other),
            }
        }
        let Some(_held) = self.hold(id, copy, standing)? else { return Ok(false) };
        match self.store.admit(id, &growth) {
            Err(refused @ (Error::Quota { .. } | Error::Countless(_) | Error::Full { .. })) => {
                absorbed.refused = Some(refused.to_string());
                Ok(false)
            }
            admitted => {
                let admitted = admitted?;
                self.store.accounts().change(id, &growth);
                drop(admitted);
                Ok(true)
            }
        }
    }

    /// Holds the tree alone for one batch. `None` when another tree is in its place than the one that `stood` there.
    fn hold(&self, id: &TreeId, copy: &Copy, standing: &mut Standing) -> Result<Option<Held>> {
        standing.held += 1;
        let alone = self.store.locks().write(id);
        let tree = match id {
            TreeId::Skill(user, agent, skill) => self.store.changing(
                user,
                agent,
                skill,
                Some(self.store.occupancy().base_since(id, &copy.base)),
            )?,
            TreeId::Workspace(..) => self.store.tree_alone(id)?,
        };
        if let Some(inode) = standing.inode
            && inode != self.standing(id)?
        {
            return Ok(None);
        }
        if let Err(Error::NotFound(_)) = tree.stat(&RelPath::root()) {
            let message = "the skill was removed while the command ran; what it wrote is dropped";
            return Err(Error::Conflict(message.to_owned()));
        }
        Ok(Some(Held { tree, _alone: alone }))
    }

    /// The inode number of the directory that changes of the tree go to, as far as there is one.
    fn standing(&self, id: &TreeId) -> Result<Option<u64>> {
        let dirs = self.store.counted_dirs(id)?;
        Ok(dirs.first().map(Dir::stat).transpose()?.map(|stat| stat.inode))
    }

    fn out_of_time(&self) -> String {
        let ms = self.store.options().files.absorb_ms;
        format!("taking it in takes longer than {ms} ms (`limits.files.absorb_ms`)")
    }
}

/// What was taken of a copy.
struct Taken {
    /// The entries of the copy.
    after: Entries,
    /// Those of them that had gone when they were to be taken.
    gone: Vec<OsString>,
    /// How often the tree was held alone.
    held: u64,
}

/// Where the changes of a tree go, as far as it was looked at, and how often it was held alone.
#[derive(Default)]
struct Standing {
    /// The inode number of the directory, where there was one.
    inode: Option<Option<u64>>,
    held: u64,
}

/// A tree that is held for one batch.
struct Held {
    tree: Box<dyn Tree>,
    _alone: TreeWrite,
}

fn replaced() -> String {
    "another request replaced or reset the tree meanwhile".to_owned()
}
