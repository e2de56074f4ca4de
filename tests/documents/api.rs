//! `docs/API.md` against the source: the router's operations, and the table of codes and statuses.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;

use crate::read;

const SKILL: &str = "/v1/skills/{u}/{a}/{s}";
const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "patch"];

/// The operations of the router, as `GET /path`; a route of both trees as `GET T/path`.
fn routed() -> BTreeSet<String> {
    let source = read("src/http/mod.rs");
    let (_, source) = source.split_once("pub fn router(").unwrap();
    let (fixed, of_trees) = source.split_once("fn tree_routes(").unwrap();
    let (fixed, of_trees) = (squeezed(fixed), squeezed(of_trees));

    let mut operations = BTreeSet::new();
    for route in fixed.split(".route(").skip(1) {
        let (path, handlers) = first_argument(route);
        operations.extend(methods(handlers).map(|method| format!("{method} {}", path_of(path))));
    }
    // An entry of the array begins with its name: `("files",get(…))`.
    let array = of_trees.split_once("=[").and_then(|(_, rest)| rest.split_once("];")).unwrap().0;
    for entry in array.split("(\"").skip(1) {
        let (name, handlers) = entry.split_once("\",").unwrap();
        let name = name.replace("{*path}", "{path}");
        operations.extend(methods(handlers).map(|method| format!("{method} T/{name}")));
    }
    operations
}

fn squeezed(source: &str) -> String {
    source.chars().filter(|character| !character.is_whitespace()).collect()
}

/// Divides the arguments of a call after the first one.
fn first_argument(arguments: &str) -> (&str, &str) {
    let mut depth = 0;
    let comma = arguments.find(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    arguments.split_at(comma.unwrap_or_else(|| panic!("no second argument: {arguments}")))
}

fn path_of(argument: &str) -> String {
    let literal = argument.trim_start_matches("&format!(").trim_end_matches(')');
    match literal {
        "skill" => SKILL.to_owned(),
        literal => literal.trim_matches('"').replace("{skill}", SKILL),
    }
}

/// The methods that a chain such as `get(handler).put(other)` routes, up to the end of the call around it.
fn methods(chain: &str) -> impl Iterator<Item = String> {
    let mut depth = 0;
    let end = chain.find(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    let chain = chain[..end.unwrap_or(chain.len())].to_owned();
    let is_called = move |method: &&str| {
        chain.match_indices(&format!("{method}(")).any(|(at, _)| {
            let before = chain[..at].chars().next_back();
            before.is_none_or(|before| !before.is_alphanumeric() && !matches!(before, '_' | ':'))
        })
    };
    METHODS.into_iter().filter(is_called).map(str::to_uppercase)
}

/// The operations that the document describes: each has a heading of the third level, in backticks.
fn described() -> BTreeSet<String> {
    let document = read("docs/API.md");
    let headings = document.lines().filter_map(|line| line.strip_prefix("### "));
    let operations = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2).map(str::to_owned));
    operations.collect()
}

#[test]
fn the_api_document_and_the_router_list_the_same_operations() {
    let (routed, described) = (routed(), described());
    assert!(
        routed.len() >= 20 && routed.contains("GET T/raw/{path}"),
        "the router was not understood: {routed:?}"
    );
    let missing: Vec<_> = routed.difference(&described).collect();
    let invented: Vec<_> = described.difference(&routed).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "docs/API.md lacks {missing:?} and describes {invented:?}, which the router does not have"
    );
}

/// The codes of the source with their statuses.
fn codes() -> BTreeMap<String, u16> {
    let name = |status: StatusCode| Some(status.canonical_reason()?.to_uppercase().replace([' ', '-'], "_"));
    let statuses: BTreeMap<String, u16> = (400..600)
        .filter_map(|number| StatusCode::from_u16(number).ok())
        .filter_map(|status| Some((name(status)?, status.as_u16())))
        .collect();
    let source = squeezed(&read("src/http/problem.rs"));
    let rows = source.split("=>(\"").skip(1).filter_map(|row| row.split_once("\",StatusCode::"));
    let rows = rows.map(|(code, rest)| {
        let status: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        (code.to_owned(), *statuses.get(&status).unwrap_or_else(|| panic!("no status `{status}`")))
    });
    rows.collect()
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
