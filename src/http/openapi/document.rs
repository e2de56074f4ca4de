//! The document as a whole, out of the files of this folder.

use serde_json::{Map, Value, json};
use serde_yaml_ng::Mapping;

use super::components::Components;
use super::failure;
use super::operation::{Location, Written};
use super::passed_on::METHODS;
use super::source::{Wrong, read};

/// The version of OpenAPI.
const OPENAPI: &str = "3.1.1";
/// The groups of operations, in the order of the page.
const AREAS: [(&str, &str); 11] = [
    ("Service", include_str!("operations/service.yaml")),
    ("Users", include_str!("operations/users.yaml")),
    ("Skills", include_str!("operations/skills.yaml")),
    ("Reading", include_str!("operations/reading.yaml")),
    ("Changing", include_str!("operations/changing.yaml")),
    ("Workspaces", include_str!("operations/workspaces.yaml")),
    ("Running", include_str!("operations/running.yaml")),
    ("Ports", include_str!("operations/ports.yaml")),
    ("Runners", include_str!("operations/runners.yaml")),
    ("Devboxes", include_str!("operations/devbox.yaml")),
    ("MCP", include_str!("operations/mcp.yaml")),
];
const COMPONENTS: &str = include_str!("components.yaml");
/// The paths that `T/` stands for, and the endings of their operations' names.
const TREES: [(&str, &str); 2] =
    [("/v1/skills/{u}/{a}/{s}/", "InSkill"), ("/v1/sandbox/{u}/{a}/", "InWorkspace")];

/// Puts the document together.
///
/// # Errors
/// [`Wrong`]: the files of this folder are not as they must be.
pub fn build() -> Result<Value, Wrong> {
    let mut components: Components = read("components", COMPONENTS)?;
    components.write_out();
    failure::add(&mut components)?;
    let mut paths = Map::new();
    for (area, text) in AREAS {
        let operations: Mapping = read(area, text)?;
        for (heading, written) in operations {
            let heading = heading.as_str().ok_or_else(|| Wrong::new(area, "a heading is no text"))?;
            let written: Written =
                serde_yaml_ng::from_value(written).map_err(|error| Wrong::new(heading, error))?;
            add(&mut paths, area, heading, &written).map_err(|problem| Wrong::new(heading, problem))?;
        }
    }
    let tags: Vec<Value> = AREAS.iter().map(|(area, _)| json!({ "name": area })).collect();
    Ok(json!({
        "openapi": OPENAPI,
        "info": {
            "title": "filesecbox",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Layered skills and private workspaces for AI agents, with isolated command execution",
            "description": "Every success is `{\"status\": \"success\", \"data\": …}` with further fields beside `data` \
                where said, every failure `{\"status\": \"error\", \"data\": \"one sentence\", \"code\": …}`; those of devboxes and \
                MCP have another envelope. Every `GET` \
                answers `HEAD`, too. A method that a route does not have is `method_not_allowed`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, {}],
        "tags": tags,
        "paths": paths,
        "components": components,
    }))
}

/// Adds an operation, one of both trees twice, and one of `ANY` method for each method.
fn add(paths: &mut Map<String, Value>, tag: &str, heading: &str, written: &Written) -> Result<(), String> {
    let (method, path) = heading.split_once(' ').ok_or("a heading is a method and a path")?;
    let places: Vec<(String, &str)> = match path.strip_prefix("T/") {
        Some(name) => TREES.iter().map(|(tree, suffix)| (format!("{tree}{name}"), *suffix)).collect(),
        None => vec![(path.to_owned(), "")],
    };
    let (methods, is_any) = if method == "ANY" { (&METHODS[..], true) } else { (&[method][..], false) };
    for (path, suffix) in places {
        let item = paths.entry(path.clone()).or_insert_with(|| json!({}));
        let others = item.as_object_mut().ok_or("a path is no object")?;
        for method in methods {
            let in_document = method.to_lowercase();
            let prefix = if is_any { in_document.as_str() } else { "" };
            let operation = written.at(&Location { method, path: &path, heading, tag, prefix, suffix })?;
            if others.insert(in_document, operation).is_some() {
                return Err("it is there twice".to_owned());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_can_be_built_and_refers_to_nothing_that_is_missing() {
        let document = build().unwrap();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "there is no {pointer}");
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let document = build().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(seen.insert(id.to_owned()), "{id}");
            }
        }
        assert!(seen.len() >= 60, "{seen:?}");
    }
}
