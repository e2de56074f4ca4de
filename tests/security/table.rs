//! The table of attacks and tiers: what is promised, as `docs/SECURITY.md` keeps it, and what was found.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::attack::Attack;
use crate::expectation::{Expected, Finding, Tier};
use crate::host;

/// Where the table stands.
pub(crate) const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/SECURITY.md");
const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// A theme and its attacks.
pub(crate) type Theme = (&'static str, &'static [Attack]);

/// The promises about all attacks, as the document has them.
pub(crate) fn promised(themes: &[Theme]) -> String {
    let mut text = String::new();
    for (theme, attacks) in themes {
        text += &format!("\n### {theme}\n\n| Attack | `process` | `landlock` | `namespaces` |\n");
        text += "| --- | --- | --- | --- |\n";
        for attack in *attacks {
            let cells = Tier::ALL.map(|tier| cell(attack.expectations.of(tier)));
            text += &format!("| {} | {} |\n", sentence(attack.name), cells.join(" | "));
        }
    }
    text
}

/// Compares the document's table with the suite's; with `FILESECBOX_BLESS=1` writes it instead.
///
/// # Panics
/// When they differ.
pub(crate) fn check_document(themes: &[Theme]) {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (head, rest) = document.split_once(BEGIN).expect("the begin of the table");
    let (table, tail) = rest.split_once(END).expect("the end of the table");
    let promised = promised(themes) + "\n";
    if std::env::var("FILESECBOX_BLESS").is_ok() {
        std::fs::write(DOCUMENT, format!("{head}{BEGIN}{promised}{END}{tail}")).unwrap();
        return;
    }
    assert!(
        table == promised,
        "docs/SECURITY.md has another table than the suite: run `FILESECBOX_BLESS=1 cargo test --test security -- \
         the_document`"
    );
}

/// The findings, attack by attack and stage by stage.
pub(crate) fn found(findings: &BTreeMap<&'static str, BTreeMap<String, Found>>) -> String {
    let mut text = String::new();
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (name, stages) in findings {
        for (stage, found) in stages {
            *counts.entry(stage).or_default().entry(found.word()).or_default() += 1;
        }
        text += &line(name, stages);
        text.push('\n');
    }
    for (stage, words) in counts {
        let words: Vec<String> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
        text += &format!("{stage}: {}\n", words.join(", "));
    }
    text
}

/// What was found of one attack, stage by stage.
pub(crate) fn line(name: &str, stages: &BTreeMap<String, Found>) -> String {
    stages
        .iter()
        .fold(format!("{name}:"), |line, (stage, found)| format!("{line} [{stage}: {}]", found.told()))
}

/// The attacks that took longest on all stages together.
pub(crate) fn slowest(times: &mut [(Duration, &'static str)]) -> String {
    times.sort_unstable_by(|one, other| other.cmp(one));
    let lines = times.iter().take(12).map(|(time, name)| format!("{:5.1} s {name}", time.as_secs_f64()));
    format!("slowest:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// The outcome of one attack on one stage, beside the expectation.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// It was made.
    Made(Expected, Finding),
    /// It was not, as stated.
    NotRun,
    /// The control failed, or the attack could not be made.
    Broken(String),
}

impl Found {
    /// The fault, if there is one.
    pub(crate) fn complaint(&self) -> Option<String> {
        match self {
            Self::Made(Expected::Stopped, Finding::Through(evidence)) => {
                Some(format!("got through: {evidence}"))
            }
            Self::Broken(message) => Some(message.clone()),
            Self::Made(Expected::Stopped, Finding::Skipped(why)) if !host::may_lack("every-attack") => {
                Some(format!("left out: {why}"))
            }
            Self::Made(..) | Self::NotRun => None,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Made(Expected::NotStopped(_), Finding::Stopped) => "stopped without being promised",
            Self::Made(_, Finding::Stopped) => "stopped",
            Self::Made(Expected::Stopped, Finding::Through(_)) => "GOT THROUGH",
            Self::Made(_, Finding::Through(_)) => "not stopped, as told",
            Self::Made(_, Finding::Skipped(_)) => "skipped",
            Self::NotRun => "not run",
            Self::Broken(_) => "BROKEN",
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Made(_, Finding::Through(evidence) | Finding::Skipped(evidence)) => {
                format!("{}: {evidence}", self.word())
            }
            _ => self.word().to_owned(),
        }
    }
}

fn sentence(name: &str) -> String {
    name.replace('_', " ")
}

fn cell([root, without]: [Expected; 2]) -> String {
    if root == without { root.to_string() } else { format!("{root}; without root {without}") }
}
