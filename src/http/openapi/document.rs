//! The document as a whole, out of the files of this folder.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_yaml_ng::{Mapping, Value as Yaml};
use thiserror::Error;

use super::operation::{Place, Written};
use super::shorthand::{fields, schema};
use crate::http::problem::Code;

/// The version of OpenAPI.
const OPENAPI: &str = "3.1.1";
/// The groups of operations, in the order of the page.
const AREAS: [(&str, &str); 5] = [
    ("Service", include_str!("operations/service.yaml")),
    ("Skills", include_str!("operations/skills.yaml")),
    ("Reading", include_str!("operations/reading.yaml")),
    ("Changing", include_str!("operations/changing.yaml")),
    ("Running", include_str!("operations/running.yaml")),
];
const COMPONENTS: &str = include_str!("components.yaml");
const CODES: &str = include_str!("codes.yaml");
/// What `T/` stands for, and what the names of operations get behind them.
const TREES: [(&str, &str); 2] =
    [("/v1/skills/{u}/{a}/{s}/", "InSkill"), ("/v1/sandbox/{u}/{a}/", "InWorkspace")];

/// What is wrong with the files that the document is made of. Tests build it, so that no service meets this.
#[derive(Debug, Error)]
#[error("the description of {what} is wrong: {problem}")]
pub struct Wrong {
    what: String,
    problem: String,
}

impl Wrong {
    fn new(what: &str, problem: impl ToString) -> Self {
        Self { what: what.to_owned(), problem: problem.to_string() }
    }
}

/// A code as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// When it is sent.
    when: String,
    /// What stands beside the sentence.
    #[serde(default)]
    details: Map<String, Value>,
    /// `data`, and the details, of one.
    example: Map<String, Value>,
}

/// Puts the document together.
///
/// # Errors
/// [`Wrong`]: the files of this folder are not as they must be.
pub fn build() -> Result<Value, Wrong> {
    let mut components: Map<String, Value> = read("components", COMPONENTS)?;
    write_out(&mut components);
    add_failures(&mut components)?;
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
                where said, every failure `{\"status\": \"error\", \"data\": \"one sentence\", \"code\": …}`. Every `GET` \
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

fn read<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, Wrong> {
    let mut yaml: Yaml = serde_yaml_ng::from_str(text).map_err(|error| Wrong::new(what, error))?;
    yaml.apply_merge().map_err(|error| Wrong::new(what, error))?;
    serde_yaml_ng::from_value(yaml).map_err(|error| Wrong::new(what, error))
}

/// Adds an operation, one of both trees twice.
fn add(paths: &mut Map<String, Value>, tag: &str, heading: &str, written: &Written) -> Result<(), String> {
    let (method, path) = heading.split_once(' ').ok_or("a heading is a method and a path")?;
    let places: Vec<(String, &str)> = match path.strip_prefix("T/") {
        Some(name) => TREES.iter().map(|(tree, suffix)| (format!("{tree}{name}"), *suffix)).collect(),
        None => vec![(path.to_owned(), "")],
    };
    for (path, suffix) in places {
        let operation = written.at(&Place { method, path: &path, heading, tag, suffix })?;
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[method.to_lowercase()] = operation;
    }
    Ok(())
}

/// Writes out the schemas among the components.
fn write_out(components: &mut Map<String, Value>) {
    for (kind, elements) in components {
        for element in elements.as_object_mut().into_iter().flat_map(Map::values_mut) {
            if kind == "schemas" {
                *element = schema(element);
            } else if let Some(written) = element.get_mut("schema") {
                *written = schema(written);
            }
        }
    }
}

/// Adds a schema for the failure of each code.
fn add_failures(components: &mut Map<String, Value>) -> Result<(), Wrong> {
    let failures: std::collections::BTreeMap<String, Failure> = read("codes", CODES)?;
    let Some(Value::Object(schemas)) = components.get_mut("schemas") else {
        return Err(Wrong::new("components", "there are no schemas"));
    };
    for code in Code::ALL {
        let word = code.word();
        let failure = failures.get(word).ok_or_else(|| Wrong::new(word, "it is missing"))?;
        let (mut properties, mut required) = fields(&failure.details);
        properties.insert("status".to_owned(), json!({ "const": "error" }));
        properties.insert(
            "data".to_owned(),
            json!({ "type": "string", "description": "One sentence.", "minLength": 1 }),
        );
        properties.insert("code".to_owned(), json!({ "const": word }));
        properties.insert("request_id".to_owned(), json!({ "type": "string" }));
        required.extend(["status", "data", "code", "request_id"].map(Value::from));
        let mut example = failure.example.clone();
        example.extend([
            ("status".to_owned(), "error".into()),
            ("code".to_owned(), word.into()),
            ("request_id".to_owned(), "243b6b77-2".into()),
        ]);
        schemas.insert(
            word.to_owned(),
            json!({
                "type": "object",
                "description": failure.when,
                "properties": properties,
                "required": required,
                "examples": [example],
            }),
        );
    }
    match failures.keys().find(|word| Code::status_of(word).is_none()) {
        Some(word) => Err(Wrong::new(word, "the service has no such code")),
        None => Ok(()),
    }
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
