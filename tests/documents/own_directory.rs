//! `docs/SECURITY.md` says of everything in the service's own directory which processes can write it, and what proves
//! it.

use std::collections::BTreeSet;

use crate::read;

/// The names in `.filesecbox` that the source knows: directories and files of the store, and those beside it.
fn known() -> BTreeSet<String> {
    let place = read("storage/src/layout.rs");
    let code = place.split("#[cfg(test)]").next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut names: BTreeSet<String> = code
        .split('"')
        .filter_map(|text| text.strip_prefix(".filesecbox/"))
        .map(|name| name.split('/').next().unwrap().to_owned())
        .collect();
    let files = code.split_once("pub(crate) const FILES").unwrap().1.split_once("];").unwrap().0;
    names.extend(files.split('"').skip(1).step_by(2).map(str::to_owned));
    for constant in ["SALT", "RECORD_KEY"] {
        assert!(files.contains(constant), "{files}");
        let value = code.split_once(&format!("const {constant}: &str = \"")).unwrap().1;
        names.insert(value.split('"').next().unwrap().to_owned());
    }
    for (file, call) in
        [("src/serve.rs", "service_directory(\""), ("src/registry/sync.rs", "const DIRECTORY: &str = \"")]
    {
        let text = read(file);
        let named = text.split(call).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        names.extend(named);
    }
    names
}

#[test]
fn everything_in_the_services_own_directory_has_a_row_that_says_what_proves_it() {
    let document = read("docs/SECURITY.md");
    let section = document.split_once("## What the service reads from its own directory").unwrap().1;
    let section = section.split_once("\n## ").unwrap().0;
    let told: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .flat_map(|row| row.split(" | ").next().unwrap().split("`, `"))
        .map(|name| name.trim_end_matches('`').to_owned())
        .collect();
    assert_eq!(told, known());
}
