//! What `docs/SECURITY.md` says that one token can cost others by default are the defaults.

use std::collections::BTreeMap;

use crate::configuration::example_values;
use crate::read;

/// The ways in which a document writes a value.
fn written(setting: &str, value: u64) -> Vec<String> {
    let grouped = |value: u64| match value {
        0..1_000 => value.to_string(),
        1_000..1_000_000 => format!("{} {:03}", value / 1_000, value % 1_000),
        _ => format!("{} {:03} {:03}", value / 1_000_000, value / 1_000 % 1_000, value % 1_000),
    };
    let is_of = |unit: &str| setting.split(['.', '_']).any(|word| word == unit);
    match () {
        () if is_of("ms") => vec![format!("{} s", value / 1_000)],
        () if is_of("seconds") => vec![format!("{value} s")],
        () if is_of("bytes") => vec![format!("{} GiB", value >> 30), format!("{} MiB", value >> 20)],
        () => vec![grouped(value)],
    }
}

#[test]
fn the_costs_of_a_token_are_those_of_the_defaults() {
    let (document, defaults) = (read("docs/SECURITY.md"), example_values());
    let (_, section) = document.split_once("## What one token can cost others").unwrap();
    let mut compared = BTreeMap::new();
    for row in section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let mut table = String::new();
        for setting in cells[1].split('`').skip(1).step_by(2) {
            // Those after the first are without their table.
            let setting =
                if setting.contains('.') { setting.to_owned() } else { format!("{table}.{setting}") };
            table = setting.rsplit_once('.').unwrap().0.to_owned();
            let value = defaults.get(&setting).unwrap_or_else(|| panic!("there is no `{setting}`: {row}"));
            let ways = written(&setting, value.parse().unwrap());
            let words = format!(" {} ", cells[2].replace([',', ';', '.'], " "));
            let is_there = ways.iter().any(|way| words.contains(&format!(" {way} ")));
            assert!(is_there, "`{setting}` is {}: {row}", ways[0]);
            compared.insert(setting, row);
        }
    }
    assert!(compared.len() == 28, "{} settings were found: {:?}", compared.len(), compared.keys());
}
