//! Workspaces of two users at random: edits by requests and by commands, runs set aside, snapshots, restoring, forks.
//!
//! A snapshot is a tree of the model, too: after all further changes it gives back that tree and no other, to its
//! workspace and to a fork.

use policy::TreeId;
use storage::{Error, Placement, Snapshot, SnapshotNote, WorkspaceId};

use super::fixture::random::Random;
use super::fixture::{Fixture, Tree, agent, put, user_id};
use super::{Named, Operation, change_skill_by_command, live_sequences};
use crate::fixture::live::Way;

const USERS: [&str; 2] = ["u", "v"];
/// Has nothing but what it forks.
const FORKER: &str = "w";
const SNAPSHOTS_MAX: usize = 4;

struct Workspaces {
    fixture: Fixture,
    /// What each user has.
    trees: [Tree; 2],
    snapshots: [Vec<(Snapshot, Tree)>; 2],
    log: Vec<String>,
}

fn sandbox(user: &str) -> WorkspaceId {
    WorkspaceId { user: user_id(user), agent: agent() }
}

impl Workspaces {
    fn at(&self, user: &str) -> std::path::PathBuf {
        self.fixture.root().join("sandbox").join(user).join("agent")
    }

    #[track_caller]
    fn check(&self) {
        for (user, tree) in USERS.iter().zip(&self.trees) {
            let through = Tree::through(&self.fixture.workspace(user));
            assert_eq!(through.as_ref(), Some(tree), "what `{user}` sees; {:#?}", self.log);
            let on_disk = Tree::on_disk(&self.at(user));
            assert_eq!(on_disk.as_ref(), Some(tree), "what commands of `{user}` see; {:#?}", self.log);
        }
    }

    fn step(&mut self, random: &mut Random) {
        let choice = random.below(20);
        let whose = random.below(2);
        let user = USERS[whose];
        self.log.push(format!("{choice}, {user}"));
        match choice {
            0..8 => self.edit(random, whose),
            8..11 => {
                // Many of these are refused by the kernel, which is as good.
                let _ = change_skill_by_command(random, &self.at(user), &self.trees[whose]);
                self.trees[whose] = Tree::on_disk(&self.at(user)).unwrap();
            }
            11 | 12 => self.run_aside(random, whose),
            13..15 => {
                if self.snapshots[whose].len() == SNAPSHOTS_MAX {
                    let (gone, _) = self.snapshots[whose].remove(random.below(SNAPSHOTS_MAX));
                    self.fixture.store.snapshots().remove(&sandbox(user), &gone.id).unwrap();
                }
                let taken = self.fixture.store.snapshots().take(&sandbox(user), SnapshotNote::default());
                self.snapshots[whose].push((taken.unwrap(), self.trees[whose].clone()));
            }
            15..18 if !self.snapshots[whose].is_empty() => {
                let (snapshot, tree) = self.any_of(random, whose);
                drop(self.fixture.store.snapshots().restore(&sandbox(user), &snapshot.id).unwrap());
                self.trees[whose] = tree;
            }
            _ if !self.snapshots[whose].is_empty() => {
                let (snapshot, tree) = self.any_of(random, whose);
                let (from, to) = (sandbox(user), sandbox(USERS[1 - whose]));
                let fork = |replace| self.fixture.store.snapshots().fork(&from, &snapshot.id, &to, replace);
                let unasked = fork(false).map(drop);
                if self.trees[1 - whose].nodes.is_empty() {
                    assert!(unasked.is_ok(), "{unasked:?}; {:#?}", self.log);
                } else {
                    assert!(matches!(unasked, Err(Error::AlreadyExists(_))), "{unasked:?}; {:#?}", self.log);
                    assert!(fork(true).unwrap().0.replaced, "{:#?}", self.log);
                }
                self.trees[1 - whose] = tree;
            }
            _ => {}
        }
    }

    fn any_of(&self, random: &mut Random, whose: usize) -> (Snapshot, Tree) {
        self.snapshots[whose][random.below(self.snapshots[whose].len())].clone()
    }

    fn edit(&mut self, random: &mut Random, whose: usize) {
        let operation = Operation::random(random, &self.trees[whose], &self.trees[1 - whose]);
        if matches!(operation, Operation::RemoveSkill | Operation::Upload(_) | Operation::Reset) {
            return;
        }
        self.log.push(format!("{operation:?}"));
        let mut tree = Some(std::mem::take(&mut self.trees[whose]));
        let expected = operation.on_model(&mut tree, None);
        self.trees[whose] = tree.unwrap();
        let happened = operation.on_files(&self.fixture.workspace(USERS[whose]));
        assert_eq!(happened.is_ok(), expected.is_ok(), "{happened:?}; {:#?}", self.log);
    }

    /// A run on a copy, of which everything is kept or nothing.
    fn run_aside(&mut self, random: &mut Random, whose: usize) {
        let id = TreeId::Workspace(user_id(USERS[whose]), agent());
        let plan = self.fixture.store.runs().plan(&id, Placement::InPlace, &[]).unwrap();
        let run = plan.aside().unwrap().prepare().unwrap();
        let tree = run.view().tree.clone();
        assert_eq!(Tree::on_disk(&tree).as_ref(), Some(&self.trees[whose]), "a copy; {:#?}", self.log);
        for _ in 0..3 {
            let _ = change_skill_by_command(random, &tree, &Tree::on_disk(&tree).unwrap());
        }
        if random.chance(60) {
            let left = Tree::on_disk(&tree).unwrap();
            let absorbed = run.absorb().unwrap();
            self.log.push(format!("{absorbed:?}"));
            self.trees[whose] = left;
        }
    }
}

fn workspaces(seed: u64, _: Way) {
    let _named = Named(seed);
    let random = &mut Random::new(seed);
    let fixture = Fixture::new();
    for user in USERS {
        put(&fixture.workspace(user), "a", user);
    }
    let trees = USERS.map(|user| Tree::of(&[("a", user)]));
    let mut life = Workspaces { fixture, trees, snapshots: Default::default(), log: Vec::new() };
    for _ in 0..60 {
        life.step(random);
        life.check();
    }
    for (user, snapshots) in USERS.iter().zip(&life.snapshots) {
        for (snapshot, tree) in snapshots {
            let (from, to) = (sandbox(user), sandbox(FORKER));
            drop(life.fixture.store.snapshots().fork(&from, &snapshot.id, &to, true).unwrap());
            assert_eq!(Tree::on_disk(&life.at(FORKER)).as_ref(), Some(tree), "a snapshot; {:#?}", life.log);
        }
    }
    life.check();
    life.fixture.assert_swept();
}

#[test]
fn a_workspace_is_what_its_snapshots_and_forks_and_runs_made_of_it() {
    live_sequences(60, workspaces);
}
