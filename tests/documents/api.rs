//! `docs/API.md` against the source: the router's operations, and the table of codes and statuses.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use filesecbox::http;

use crate::read;

/// The operations that the document describes: each has a heading of the third level, in backticks.
pub(crate) fn described() -> BTreeSet<String> {
    let document = read("docs/API.md");
    let headings = document.lines().filter_map(|line| line.strip_prefix("### "));
    let operations = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2).map(str::to_owned));
    operations.collect()
}

#[test]
fn the_api_document_and_the_router_list_the_same_operations() {
    let (routed, described) = (http::operations(), described());
    let missing: Vec<_> = routed.difference(&described).collect();
    let invented: Vec<_> = described.difference(&routed).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "docs/API.md lacks {missing:?} and describes {invented:?}, which the router does not have"
    );
}

/// The codes of the source with their statuses.
pub(crate) fn codes() -> BTreeMap<String, u16> {
    let name = |status: StatusCode| Some(status.canonical_reason()?.to_uppercase().replace([' ', '-'], "_"));
    let statuses: BTreeMap<String, u16> = (400..600)
        .filter_map(|number| StatusCode::from_u16(number).ok())
        .filter_map(|status| Some((name(status)?, status.as_u16())))
        .collect();
    let source = read("src/http/answer/status.rs");
    let source: String = source.chars().filter(|character| !character.is_whitespace()).collect();
    let rows = sandbox::Code::ALL.map(|code| {
        let row = source.split_once(&format!("Code::{code:?}=>StatusCode::"));
        let (_, rest) = row.unwrap_or_else(|| panic!("no status of {code:?}"));
        let status: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        (code.word().to_owned(), *statuses.get(&status).unwrap_or_else(|| panic!("no status `{status}`")))
    });
    rows.into()
}

#[test]
fn the_table_of_codes_in_the_api_document_is_the_one_of_the_source() {
    let document = read("docs/API.md");
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`'));
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
    });
    let documented: BTreeMap<String, u16> = rows.collect();
    let codes = codes();
    assert!(codes.len() >= 20, "the codes were not understood: {codes:?}");
    assert_eq!(documented, codes);
}
