//! [`Sweeper`]: makes workspaces and forgets about them; they go whole, and not before their time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Actor;
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

/// The time without use after which a workspace goes. Every actor looks after its trees at each start, so only the
/// sweeper's workspaces are ever idle for so long.
pub(super) const IDLE: Duration = Duration::from_secs(8);
const FILES: usize = 3;

/// A workspace of this actor.
struct Made {
    /// When it was used last.
    used: Instant,
    /// The files of it that were acknowledged.
    files: usize,
    has_run: bool,
}

/// Makes workspaces that no actor uses.
#[derive(Default)]
pub(super) struct Sweeper {
    next: u64,
    made: BTreeMap<String, Made>,
    swept: usize,
    kept: usize,
}

impl Sweeper {
    fn tree(name: &str) -> String {
        format!("/v1/sandbox/sweeper/{name}")
    }

    /// Looks at what there is, which is no use of it.
    fn there(client: &Client) -> Result<BTreeMap<String, (bool, bool)>, Broken> {
        let answer = client.get("/v1/sandbox/sweeper")?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let list = answer.json()["data"].as_array().unwrap().clone();
        let row = |row: &serde_json::Value| {
            let is_there = (row["workspace"] == true, row["home"] == true);
            (row["agent"].as_str().unwrap().to_owned(), is_there)
        };
        Ok(list.iter().map(row).collect())
    }
}

impl Actor for Sweeper {
    fn prepare(&mut self, _client: &Client) -> Result<(), Broken> {
        Ok(())
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let there = Self::there(client)?;
        let mut used = None;
        for (number, (name, made)) in self.made.iter_mut().enumerate() {
            let (workspace, home) = there.get(name).copied().unwrap_or_default();
            if made.used.elapsed() < IDLE {
                assert!(workspace || made.files == 0, "{name} went after {:?}", made.used.elapsed());
                assert!(home || !made.has_run, "the home of {name} went after {:?}", made.used.elapsed());
            }
            // One of them is used again, and is whole if it is there.
            if workspace && number == 0 && self.kept.is_multiple_of(3) {
                for file in 0..made.files {
                    let answer = client.get(&format!("{}/raw/{file}", Self::tree(name)))?;
                    assert_eq!(answer.status, 200, "{name} is half there: {}", answer.text());
                    assert_eq!(skill::mark_of(name, &answer.body), *name);
                }
                used = Some(name.clone());
            }
        }
        if let Some(made) = used.and_then(|name| self.made.get_mut(&name)) {
            made.used = Instant::now();
        }
        self.kept += 1;
        let before = self.made.len();
        self.made.retain(|name, made| there.contains_key(name) || made.used.elapsed() < IDLE);
        self.swept += before - self.made.len();
        Ok(())
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        self.next += 1;
        let name = format!("w{:06}", self.next);
        self.made.insert(name.clone(), Made { used: Instant::now(), files: 0, has_run: false });
        for file in 0..FILES {
            let answer = client.put(&format!("{}/raw/{file}", Self::tree(&name)), &skill::proof(&name))?;
            assert!(answer.is_success(), "{}", answer.text());
            let made = self.made.get_mut(&name).unwrap();
            (made.files, made.used) = (file + 1, Instant::now());
        }
        if random.chance(30) {
            let answer = client.shell(&Self::tree(&name), "echo x > ~/x")?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let made = self.made.get_mut(&name).unwrap();
            (made.has_run, made.used) = (true, Instant::now());
        }
        Ok(())
    }

    fn told(&self) -> Option<String> {
        let (made, swept) = (self.next, self.swept);
        assert!(made < 100 || swept > 0, "nothing of {made} workspaces was swept");
        Some(format!("{made} workspaces were left alone, {swept} of them were swept"))
    }
}
