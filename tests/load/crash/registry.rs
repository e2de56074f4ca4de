//! [`Registrar`]: uploads, promotes, goes back and removes, and holds the registry to what it was told.

use serde_json::Value;

use super::Actor;
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

const AGENT: &str = "registered";
const SKILL: &str = "/v1/skills/registrar/registered/s";

/// The rows of the baseline skill and of the user's own, if there are any.
type Rows = [Option<Value>; 2];

/// The change of one row by a request.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    Same,
    /// There is one, published now.
    Published,
    Nothing,
}

/// Publishes and removes one skill in both layers.
#[derive(Default)]
pub(super) struct Registrar {
    number: u64,
    acknowledged: Rows,
    /// The rows, if the request without an answer was done.
    asked: Option<[Becomes; 2]>,
    compared: usize,
}

impl Registrar {
    fn rows(client: &Client) -> Result<Rows, Broken> {
        let answer = client.get(&format!("/v1/registry?agent={AGENT}"))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["complete"], true, "{answer}");
        let mut rows = Rows::default();
        for row in answer["data"].as_array().unwrap() {
            let own = usize::from(row["user_id"].is_string());
            assert!(rows[own].replace(row.clone()).is_none(), "two rows for one skill: {answer}");
        }
        Ok(rows)
    }

    fn ask(
        &mut self,
        client: &Client,
        becomes: [Becomes; 2],
        send: impl FnOnce(&Client) -> Result<crate::client::Answer, Broken>,
    ) -> Result<(), Broken> {
        self.asked = Some(becomes);
        let answer = send(client)?;
        assert!(answer.is_success(), "{becomes:?}: {} {}", answer.status, answer.text());
        let rows = Self::rows(client)?;
        self.check(&rows, true);
        self.acknowledged = rows;
        self.asked = None;
        Ok(())
    }

    /// Whether `rows` are those acknowledged, or those that the last request makes; `is_done` says that they must be the latter.
    fn check(&self, rows: &Rows, is_done: bool) {
        let asked = self.asked.unwrap_or([Becomes::Same; 2]);
        for ((row, before), becomes) in rows.iter().zip(&self.acknowledged).zip(asked) {
            let is_as_before = row == before;
            let is_as_asked = match becomes {
                Becomes::Same => is_as_before,
                Becomes::Published => row.as_ref().is_some_and(|row| row["uploaded_by"] == "anonymous"),
                Becomes::Nothing => row.is_none(),
            };
            assert!(
                is_as_asked || (!is_done && is_as_before),
                "the row is {row:?}, was {before:?}, and was to become {becomes:?}"
            );
        }
    }
}

impl Actor for Registrar {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        self.number = 1;
        self.ask(client, [Becomes::Published, Becomes::Same], |client| {
            client.upload(&format!("registrar/{AGENT}"), "baseline", &skill::archive(&["s"], 1))
        })
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        let rows = Self::rows(client)?;
        self.check(&rows, false);
        // The same holds for all other users' rows: a rebuild makes the rows that are there. No actor changes anything
        // now.
        let all = |client: &Client| Ok::<_, Broken>(client.get("/v1/registry")?.json());
        let before = all(client)?;
        let rebuilt = client.send("POST", "/v1/registry/rebuild", None, b"")?;
        assert_eq!(rebuilt.status, 200, "{}", rebuilt.text());
        assert_eq!(all(client)?, before, "a rebuild makes other rows");
        self.compared += before["data"].as_array().unwrap().len();
        (self.acknowledged, self.asked) = (rows, None);
        Ok(())
    }

    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken> {
        use Becomes::{Nothing, Published, Same};
        self.number += 1;
        let archive = skill::archive(&["s"], self.number);
        let place = format!("registrar/{AGENT}");
        let [baseline, own] = self.acknowledged.clone();
        match random.below(6) {
            0 => {
                // Something new: a promotion that was killed may have left what all users have by now.
                self.ask(client, [Same, Published], |client| client.upload(&place, "overlay", &archive))?;
                self.ask(client, [Published, Nothing], |client| {
                    client.send("POST", &format!("{SKILL}/promote?force=true"), None, b"")
                })
            }
            1 if baseline.is_some() => {
                let answer = client.get(&format!("{SKILL}/versions"))?;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let versions = answer.json();
                let Some(former) = versions["data"][1]["version"].as_str() else { return Ok(()) };
                let target = format!("{SKILL}/rollback?version={former}");
                self.ask(client, [Published, Same], |client| client.send("POST", &target, None, b""))
            }
            2 if own.is_some() => self.ask(client, [Same, Nothing], |client| {
                client.send("POST", &format!("{SKILL}/reset"), None, b"")
            }),
            3 if own.is_some() => {
                self.ask(client, [Same, Nothing], |client| client.delete(&format!("{SKILL}?scope=overlay")))
            }
            4 if baseline.is_some() && random.chance(30) => {
                self.ask(client, [Nothing, Same], |client| client.delete(&format!("{SKILL}?scope=baseline")))
            }
            1..=3 => self.ask(client, [Same, Published], |client| client.upload(&place, "overlay", &archive)),
            _ => self.ask(client, [Published, Same], |client| client.upload(&place, "baseline", &archive)),
        }
    }

    fn told(&self) -> Option<String> {
        Some(format!("{} rows of the registry were as a rebuild makes them", self.compared))
    }
}
