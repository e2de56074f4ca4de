//! The source files that documents name are there.

use std::collections::BTreeSet;
use std::path::Path;

use crate::read;

/// The documents.
const DOCUMENTS: [&str; 6] = [
    "docs/ARCHITECTURE.md",
    "docs/GLOSSARY.md",
    "docs/SECURITY.md",
    "CONTRIBUTING.md",
    "README.md",
    "README.zh-CN.md",
];
/// Where source lies.
const ROOTS: [&str; 11] =
    ["src", "policy", "dirfd", "storage", "exec", "egress", "sandbox", "agent", "runner", "bench", "tests"];

/// The paths of all source files, from the root of the workspace.
fn sources() -> BTreeSet<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = ROOTS.iter().flat_map(|root| walkdir::WalkDir::new(workspace.join(root))).flatten();
    let paths = entries.map(walkdir::DirEntry::into_path);
    let sources = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources.map(|path| path.strip_prefix(workspace).unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_source_file_that_a_document_names_is_there() {
    let sources = sources();
    for document in DOCUMENTS {
        let text = read(document);
        let named: Vec<&str> = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.ends_with(".rs") && !word.contains(' '))
            .collect();
        assert!(!named.is_empty(), "{document} names no source");
        for name in named {
            // The beginning of a path may be left out.
            let end = format!("/{name}");
            let is_there = sources.iter().any(|source| source == name || source.ends_with(&end));
            assert!(is_there, "{document}: there is no `{name}`");
        }
    }
}
