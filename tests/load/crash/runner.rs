//! [`Runner`]: commands that write into a merged view; their files are taken over one by one, each whole.

use super::Actor;
use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

const TREE: &str = "/v1/skills/runner/running/base";
/// Files that every run writes.
const FILES: usize = 4;

/// Runs one command after the other.
#[derive(Default)]
pub(super) struct Runner {
    next: u64,
    /// The run whose files must at least be there.
    acknowledged: u64,
}

impl Actor for Runner {
    fn prepare(&mut self, client: &Client) -> Result<(), Broken> {
        let answer = client.upload("runner/running", "baseline", &skill::archive(&["base"], 1))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Ok(())
    }

    fn verify(&mut self, client: &Client) -> Result<(), Broken> {
        for file in 0..FILES {
            let answer = client.get(&format!("{TREE}/raw/out-{file}.txt"))?;
            if answer.status == 404 && self.acknowledged == 0 {
                continue;
            }
            assert_eq!(answer.status, 200, "{}", answer.text());
            let text = String::from_utf8(answer.body).unwrap();
            let mut lines = text.lines();
            let run: u64 = lines.next().unwrap_or_default().parse().unwrap();
            assert!(lines.clone().count() == 20 && lines.all(|line| line == run.to_string()), "torn: {text}");
            assert!((self.acknowledged..=self.next).contains(&run), "run {run}, not {}", self.acknowledged);
        }
        Ok(())
    }

    fn step(&mut self, client: &Client, _random: &mut Random) -> Result<(), Broken> {
        self.next += 1;
        let run = self.next;
        // Put in place whole, as a program does that cares: in a live view the service stores what a command wrote so
        // far, whether or not it got to its end.
        let line = format!(
            "for f in 0 1 2 3; do for l in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; \
             do echo {run}; done > tmp-$f; mv tmp-$f out-$f.txt; done"
        );
        let answer = client.shell(TREE, &line)?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["data"]["exit_code"], 0, "{}", answer.text());
        self.acknowledged = run;
        Ok(())
    }
}
