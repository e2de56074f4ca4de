//! [`Keeper`]: takes snapshots of a workspace, goes back to them, and forks them into another.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Actor;
use super::model::{Change, Model};
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

const TREE: &str = "/v1/sandbox/keeper/kept";
const FORK: &str = "/v1/sandbox/keeper/forked";
/// Where snapshots are unpacked to be looked at.
const PROOF: &str = "/v1/sandbox/keeper/proof";
const PATHS: [&str; 6] = ["a", "b", "c", "d/e", "d/f", "g/h/i"];
const SNAPSHOTS_MAX: usize = 6;

/// Everything that this actor has.
#[derive(Clone, Default, PartialEq)]
struct State {
    tree: Model,
    fork: Model,
    snapshots: BTreeMap<String, Model>,
}

/// Keeps states of one workspace.
#[derive(Default)]
pub(super) struct Keeper {
    acknowledged: State,
    /// The state, if the request without an answer was done. A snapshot that was asked for has no id yet.
    asked: Option<State>,
    number: u64,
    restored: usize,
    proved: usize,
}

impl Keeper {
    fn acknowledge(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.acknowledged = asked;
        }
    }

    fn ask(&mut self, change: impl FnOnce(&mut State)) {
        let mut asked = self.acknowledged.clone();
        change(&mut asked);
        self.asked = Some(asked);
    }

    fn edit(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        self.number += 1;
        let path = (*random.pick(&PATHS).unwrap()).to_owned();
        let remove = self.acknowledged.tree.files.contains_key(&path) && random.chance(20);
        let change = match remove {
            true => Change::RemoveFile { path },
            false => Change::Write { path, bytes: skill::proof(&self.number.to_string()) },
        };
        self.ask(|state| state.tree = state.tree.after(&change).with_parents());
        let answer = match &change {
            Change::Write { path, bytes } => client.put(&format!("{TREE}/raw/{path}?parents=true"), bytes)?,
            other => other.send(client, TREE)?,
        };
        assert!(answer.is_success(), "{change:?}: {}", answer.text());
        self.acknowledge();
        Ok(())
    }

    fn take(&mut self, client: &Client) -> Result<(), Broken> {
        // Nothing else is different afterwards.
        self.ask(|_| {});
        let answer = client.post(&format!("{TREE}/snapshots"), &json!({ "name": "快照" }))?;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let id = answer.json()["data"]["id"].as_str().unwrap().to_owned();
        let tree = self.acknowledged.tree.clone();
        self.asked = None;
        self.acknowledged.snapshots.insert(id, tree);
        Ok(())
    }

    fn found(client: &Client) -> Result<BTreeSet<String>, Broken> {
        let answer = client.get(&format!("{TREE}/snapshots"))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let list = answer.json()["data"].as_array().unwrap().clone();
        Ok(list.iter().map(|snapshot: &Value| snapshot["id"].as_str().unwrap().to_owned()).collect())
    }

    /// Unpacks a snapshot and looks whether it is what it must be.
    fn prove(&mut self, client: &Client, id: &str) -> Result<(), Broken> {
        let target = json!({ "user": "keeper", "agent": "proof", "replace": true });
        let answer = client.post(&format!("{TREE}/snapshots/{id}/fork"), &target)?;
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert!(Model::read(client, PROOF)? == self.acknowledged.snapshots[id], "snapshot {id} is another");
        self.proved += 1;
        Ok(())
    }
}

impl Actor for Keeper {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        let mut random = Random::new(1);
        self.edit(client, &mut random)?;
        self.take(client)
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let asked = self.asked.take();
        let (tree, fork) = (Model::read(client, TREE)?, Model::read(client, FORK)?);
        let is_either = |of: fn(&State) -> &Model, found: &Model| {
            found == of(&self.acknowledged) || asked.as_ref().is_some_and(|asked| found == of(asked))
        };
        let told = |of: fn(&State) -> &Model, found: &Model| {
            let asked = asked.as_ref().map(of).map(Model::outline);
            format!(
                "is neither: {:#?}, nor {asked:#?}: {:#?}",
                of(&self.acknowledged).outline(),
                found.outline()
            )
        };
        assert!(is_either(|state| &state.tree, &tree), "the workspace {}", told(|state| &state.tree, &tree));
        assert!(is_either(|state| &state.fork, &fork), "the fork {}", told(|state| &state.fork, &fork));
        let found = Self::found(client)?;
        let known: BTreeSet<String> = self.acknowledged.snapshots.keys().cloned().collect();
        let lost: Vec<&String> = known.difference(&found).collect();
        let removing = |id: &String| asked.as_ref().is_some_and(|asked| !asked.snapshots.contains_key(id));
        assert!(lost.iter().all(|id| removing(id)), "snapshots are lost: {lost:?}");
        let new: Vec<String> = found.difference(&known).cloned().collect();
        assert!(
            new.is_empty() || (new.len() == 1 && asked.is_some()),
            "snapshots came from nowhere: {new:?}"
        );
        self.acknowledged.snapshots.retain(|id, _| found.contains(id));
        for id in new {
            self.acknowledged.snapshots.insert(id.clone(), self.acknowledged.tree.clone());
            self.prove(client, &id)?;
        }
        (self.acknowledged.tree, self.acknowledged.fork) = (tree, fork);
        let turn = self.acknowledged.snapshots.keys().nth(self.proved % SNAPSHOTS_MAX).cloned();
        turn.map_or(Ok(()), |id| self.prove(client, &id))
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        let ids: Vec<String> = self.acknowledged.snapshots.keys().cloned().collect();
        let Some(id) = random.pick(&ids).cloned() else { return self.take(client) };
        let snapshot = format!("{TREE}/snapshots/{id}");
        match random.below(10) {
            0..=4 => self.edit(client, random),
            5..=6 if ids.len() < SNAPSHOTS_MAX => self.take(client),
            7 if ids.len() > 1 => {
                self.ask(|state| drop(state.snapshots.remove(&id)));
                let answer = client.delete(&snapshot)?;
                assert_eq!(answer.status, 200, "{}", answer.text());
                self.acknowledge();
                Ok(())
            }
            8 => {
                self.ask(|state| state.fork = state.snapshots[&id].clone());
                let target = json!({ "user": "keeper", "agent": "forked", "replace": true });
                let answer = client.post(&format!("{snapshot}/fork"), &target)?;
                assert_eq!(answer.status, 201, "{}", answer.text());
                self.acknowledge();
                Ok(())
            }
            _ => {
                self.ask(|state| state.tree = state.snapshots[&id].clone());
                let answer = client.send("POST", &format!("{snapshot}/restore"), None, b"")?;
                assert_eq!(answer.status, 200, "{}", answer.text());
                self.restored += 1;
                self.acknowledge();
                Ok(())
            }
        }
    }

    fn told(&self) -> Option<String> {
        Some(format!(
            "{} snapshots restored, {} unpacked and compared after kills",
            self.restored, self.proved
        ))
    }
}
