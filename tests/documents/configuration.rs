//! `docs/CONFIGURATION.md` and `docs/filesecbox.example.toml` against the configuration itself.

use std::collections::BTreeMap;

use filesecbox::config::Config;

use crate::read;

const EXAMPLE: &str = "docs/filesecbox.example.toml";
/// The tables of a configuration; the first is the file itself.
const TABLES: [&str; 23] = [
    "",
    "isolation",
    "commands",
    "commands.proxy",
    "limits",
    "limits.archive",
    "limits.files",
    "limits.disk",
    "limits.snapshots",
    "limits.runs",
    "limits.sessions",
    "limits.ports",
    "limits.connections",
    "workspaces",
    "prepare",
    "prepare.bucket",
    "runners",
    "devbox",
    "mcp",
    "access",
    "log",
    "audit",
    "telemetry",
];

fn parsed(text: &str) -> Config {
    toml::from_str(text).unwrap_or_else(|error| panic!("{EXAMPLE}: {error}"))
}

/// Every value of a table and the tables in it, by its dotted name, as TOML writes it.
fn values(table: &toml::Table, prefix: &str, found: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => {
                values(inner, &format!("{prefix}{name}."), found)
            }
            value => drop(found.insert(format!("{prefix}{name}"), value.to_string())),
        }
    }
}

pub(crate) fn example_values() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    values(&read(EXAMPLE).parse().unwrap(), "", &mut found);
    found
}

/// The fields of the configuration's table `table`, out of the message about one that does not exist.
fn fields_of(table: &str) -> Vec<String> {
    let unknown = if table.is_empty() { "?=1" } else { &format!("[{table}]\n?=1") };
    let error = toml::from_str::<Config>(&unknown.replace('?', "no-such-field")).unwrap_err().to_string();
    let line = error.lines().find(|line| line.contains("unknown field")).unwrap();
    let (_, expected) = line.split_once("expected ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_example_has_every_field_and_is_the_default() {
    assert_eq!(format!("{:?}", parsed(&read(EXAMPLE))), format!("{:?}", Config::default()));
    let names: Vec<String> = example_values().into_keys().collect();
    for table in TABLES {
        for field in fields_of(table) {
            let name = if table.is_empty() { field } else { format!("{table}.{field}") };
            let is_there = names.iter().any(|other| *other == name || other.starts_with(&format!("{name}.")));
            assert!(is_there || name == "tokens" || name == "agents", "{EXAMPLE} lacks `{name}`");
        }
    }
}

#[test]
fn the_example_is_a_configuration_with_its_commented_settings_too() {
    let text = read(EXAMPLE);
    // A setting is commented out without a space, a sentence with one.
    let uncommented = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
        _ => line,
    });
    let config = parsed(&uncommented.collect::<Vec<_>>().join("\n"));
    assert_eq!(config.tokens.len(), 5, "one for each role");
    assert_eq!(config.agents.len(), 1);
    config.check_values().unwrap();
    config.parsed_tokens().unwrap();
}

#[test]
fn every_setting_has_a_variable_that_wins_over_the_file() {
    let example = read(EXAMPLE);
    let path = std::env::temp_dir().join(format!("filesecbox-example-{}.toml", std::process::id()));
    std::fs::write(&path, example).unwrap();
    for (name, value) in example_values() {
        let variable = format!("FILESECBOX_{}", name.to_uppercase().replace('.', "__"));
        let with = |value: &str| {
            let variables = [(variable.clone(), value.to_owned())].into_iter();
            Config::read(Some(&path), variables)
        };
        let same = with(&value).unwrap_or_else(|error| panic!("{variable}={value}: {error}"));
        assert_eq!(format!("{same:?}"), format!("{:?}", Config::default()), "{variable}");
        // What no setting can be shows that the variable is looked at.
        assert!(with("[[[]]]").is_err(), "{variable} is not looked at");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_document_has_a_row_with_the_default_of_every_field() {
    let document = read("docs/CONFIGURATION.md");
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ").map(|cell| cell.trim().trim_matches('`'));
        Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
    });
    let documented: BTreeMap<String, String> =
        rows.filter(|(name, _)| !name.starts_with("FILESECBOX")).collect();
    let wanted = example_values();
    for (name, default) in &wanted {
        assert_eq!(documented.get(name), Some(default), "the row of `{name}`");
    }
}

/// The pairs "`name` = `value`" of a text.
fn stated(text: &str) -> Vec<(String, String)> {
    let pieces: Vec<&str> = text.split('`').collect();
    let pairs = pieces.windows(3).skip(1).step_by(2).filter(|pair| pair[1] == " = ");
    pairs.map(|pair| (pair[0].to_owned(), pair[2].to_owned())).collect()
}

#[test]
fn what_goes_by_itself_is_told_with_every_default() {
    let document = read("docs/OPERATING.md");
    let (_, section) = document.split_once("\n## What goes by itself\n").unwrap();
    let stated = stated(section.split("\n## ").next().unwrap());
    let defaults = example_values();
    for (name, value) in &stated {
        assert_eq!(defaults.get(name), Some(value), "docs/OPERATING.md about `{name}`");
    }
    // Settings that are about how long something stays, or how much of it; those of connections and of the proxy concern
    // nothing that is kept.
    let is_about_keeping = |name: &str| {
        let is_of_connections =
            ["limits.connections.", "limits.ports.", "commands.proxy."].iter().any(|of| name.starts_with(of));
        let ends =
            ["idle_ms", "keep_ms", "keep_days", "keep_versions", ".ended", "ended_ms", "ended_per_user"];
        !is_of_connections && ends.iter().any(|end| name.ends_with(end))
    };
    for name in defaults.keys().filter(|name| is_about_keeping(name)) {
        assert!(stated.iter().any(|(stated, _)| stated == name), "docs/OPERATING.md does not tell `{name}`");
    }
}

#[test]
fn the_readmes_settings_have_their_defaults() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Settings worth knowing\n").unwrap();
    let defaults = example_values();
    let mut told = Vec::new();
    for line in section.split("\n## ").next().unwrap().lines() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let mut cells = row.split(" | ").map(|cell| cell.trim_matches('`').to_owned());
        let (name, default) = (cells.next().unwrap(), cells.next().unwrap());
        assert_eq!(defaults.get(&name), Some(&default), "README.md about `{name}`");
        told.push(name);
    }
    for name in ["workspaces.idle_ms", "keep_versions", "audit.keep_days"] {
        assert!(told.iter().any(|told| told == name), "README.md lacks `{name}`");
    }
}
