//! The router's own list of operations, out of its source: what documents and tables are compared with.

use std::collections::BTreeSet;

const SKILL: &str = "/v1/skills/{u}/{a}/{s}";
/// `any` is a route that takes every method, because what is sent there is for another server.
const METHODS: [&str; 7] = ["get", "head", "put", "post", "delete", "patch", "any"];

/// The operations of the router whose source this is, as `GET /path`; a route of both trees as `GET T/path`.
pub(crate) fn routed(source: &str) -> BTreeSet<String> {
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

pub(crate) fn squeezed(source: &str) -> String {
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
        literal => {
            let path = literal.trim_matches('"').replace("{skill}", SKILL).replace("{*path}", "{path}");
            path.replace("{{", "{").replace("}}", "}")
        }
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
