//! [`Publisher`] and [`Uploader`]: whole skills of the application and of a user, version by version.

use super::Actor;
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

/// The version of a skill that a tree shows whole; `None` when there is no such skill.
///
/// # Panics
/// When the skill is of no single version.
fn version_of(client: &Client, tree: &str) -> Result<Option<u64>, Broken> {
    let Some(files) = client.files(tree)? else { return Ok(None) };
    let mut marks = Vec::new();
    for path in &files {
        let answer = client.get(&format!("{tree}/raw/{path}"))?;
        assert_eq!(answer.status, 200, "{path} is listed: {}", answer.text());
        marks.push(skill::mark_of(path, &answer.body));
    }
    let version: u64 = marks.first().unwrap_or_else(|| panic!("`{tree}` is empty")).parse().unwrap();
    assert!(marks.iter().all(|mark| *mark == version.to_string()), "half a skill: {files:?} {marks:?}");
    assert_eq!(files, skill::names(version), "half a skill");
    Ok(Some(version))
}

/// Publishes two baseline skills in one archive and removes one of them now and then.
#[derive(Default)]
pub(super) struct Publisher {
    next: u64,
    acknowledged: [Option<u64>; 2],
    asked: Option<[Option<u64>; 2]>,
}

const PAIR: [&str; 2] = ["left", "right"];

impl Publisher {
    fn publish(&mut self, client: &Client) -> Result<(), Broken> {
        self.next += 1;
        self.asked = Some([Some(self.next); 2]);
        let answer = client.upload("publisher/published", "baseline", &skill::archive(&PAIR, self.next))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.acknowledged = asked;
        }
    }
}

impl Actor for Publisher {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        self.publish(client)
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let [left, right] =
            PAIR.map(|name| version_of(client, &format!("/v1/skills/reader/published/{name}")));
        let found = [left?, right?];
        let asked = self.asked.take();
        assert!(
            found == self.acknowledged || Some(found) == asked,
            "the pair is {found:?}, acknowledged {:?}, asked for {asked:?}",
            self.acknowledged
        );
        self.acknowledged = found;
        let list = client.get("/v1/skills/reader/published/list")?;
        assert_eq!(list.status, 200, "{}", list.text());
        let listed = list.json()["data"].as_array().unwrap().len();
        assert_eq!(listed, found.iter().flatten().count(), "{}", list.text());
        Ok(())
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        let [left, right] = self.acknowledged;
        if left.is_none() || random.chance(85) {
            return self.publish(client);
        }
        self.asked = Some([None, right]);
        let answer = client.delete("/v1/skills/publisher/published/left?scope=baseline")?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.acknowledge();
        Ok(())
    }
}

/// Replaces a skill of the baseline for one user, and hides it now and then.
#[derive(Default)]
pub(super) struct Uploader {
    next: u64,
    acknowledged: Option<u64>,
    asked: Option<Option<u64>>,
}

impl Uploader {
    fn upload(&mut self, client: &Client) -> Result<(), Broken> {
        self.next += 1;
        self.asked = Some(Some(self.next));
        let answer = client.upload("uploader/replaced", "overlay", &skill::archive(&["mine"], self.next))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.acknowledged = asked;
        }
    }
}

impl Actor for Uploader {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        // A version that no upload to the overlay has: it must never shine through.
        let answer = client.upload("uploader/replaced", "baseline", &skill::archive(&["mine"], 1_000_000))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.upload(client)
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let found = version_of(client, "/v1/skills/uploader/replaced/mine")?;
        let asked = self.asked.take();
        assert!(
            found == self.acknowledged || Some(found) == asked,
            "the skill is {found:?}, acknowledged {:?}, asked for {asked:?}",
            self.acknowledged
        );
        self.acknowledged = found;
        let other = version_of(client, "/v1/skills/somebody/replaced/mine")?;
        assert_eq!(other, Some(1_000_000), "another user sees the baseline");
        Ok(())
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        if self.acknowledged.is_none() || random.chance(80) {
            return self.upload(client);
        }
        self.asked = Some(None);
        let answer = client.delete("/v1/skills/uploader/replaced/mine?scope=overlay")?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.acknowledge();
        Ok(())
    }
}
