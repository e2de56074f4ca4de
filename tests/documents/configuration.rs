//! `docs/CONFIGURATION.md` and `docs/filesecbox.example.toml` against the configuration itself.

use std::collections::BTreeMap;

use filesecbox::config::Config;

use crate::read;

const EXAMPLE: &str = "docs/filesecbox.example.toml";
/// The tables of a configuration; the first is the file itself.
const TABLES: [&str; 17] = [
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
    "limits.connections",
    "workspaces",
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

fn example_values() -> BTreeMap<String, String> {
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
            assert!(is_there || name == "tokens", "{EXAMPLE} lacks `{name}`");
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
