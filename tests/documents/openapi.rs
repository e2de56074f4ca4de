//! The OpenAPI document against the source, against `docs/API.md`, and against itself.

use std::collections::{BTreeMap, BTreeSet};

use filesecbox::http;
use serde_json::Value;

use crate::api::{codes, described};
use crate::promise::PROMISE;

/// The methods that OpenAPI has.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// Every operation: its path in the document as a pointer, and the operation.
fn operations() -> impl Iterator<Item = (String, &'static Value)> {
    let paths = PROMISE.document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let at = format!("/paths/{}", path.replace('/', "~1"));
        let operations = item.as_object().unwrap().iter();
        operations.map(move |(method, operation)| (format!("{at}/{method}"), operation))
    })
}

#[test]
fn the_openapi_document_the_router_and_the_api_document_list_the_same_operations() {
    let promised: BTreeSet<String> =
        operations().map(|(_, operation)| operation["x-heading"].as_str().unwrap().to_owned()).collect();
    // Other vendors promise the answers of their doors, and the forms of installers those of share links.
    let is_promised = |operation: &String| {
        let elsewhere = ["ANY /compat/", "ANY /s/{share}/", "ANY /catalog/{a}/"];
        !elsewhere.iter().any(|beginning| operation.starts_with(beginning))
    };
    let routed: BTreeSet<String> = http::operations().into_iter().filter(is_promised).collect();
    let missing: Vec<_> = routed.difference(&promised).collect();
    let invented: Vec<_> = promised.difference(&routed).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "src/http/openapi lacks {missing:?} and has {invented:?}, which the router does not have"
    );
    assert_eq!(promised, described().into_iter().filter(is_promised).collect());
}

#[test]
fn an_operation_of_trees_is_promised_for_both() {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    operations()
        .for_each(|(_, operation)| *places.entry(operation["x-heading"].as_str().unwrap()).or_default() += 1);
    for (heading, count) in places {
        let trees = if heading.contains(" T/") { 2 } else { 1 };
        let methods = if heading.starts_with("ANY ") { METHODS.len() } else { 1 };
        assert_eq!(count, trees * methods, "{heading}");
    }
}

#[test]
fn every_code_is_promised_under_its_status_and_described() {
    let codes = codes();
    for (code, status) in &codes {
        let schema = &PROMISE.document["components"]["schemas"][code];
        assert_eq!(schema["properties"]["code"]["const"], *code, "{code} {status}");
    }
    for (at, operation) in operations() {
        for (status, response) in operation["responses"].as_object().unwrap() {
            // By the schema of each code, or by an answer that is named like its code.
            let text = response.to_string();
            for code in text.split("#/components/").skip(1).filter_map(|rest| rest.split(['"', '/']).nth(1)) {
                if let Some(expected) = codes.get(code) {
                    assert_eq!(*status, expected.to_string(), "{at}: {code}");
                }
            }
        }
    }
}

#[test]
fn every_example_is_what_its_schema_says() {
    let mut seen = 0;
    let mut check = |schema: &str, example: &Value| {
        let complaints = PROMISE.complaints(schema, example);
        assert!(complaints.is_empty(), "the example at {schema}: {complaints:#?} {example}");
        seen += 1;
    };
    for (at, operation) in operations() {
        let bodies = operation["requestBody"]["content"].as_object();
        let bodies = bodies
            .into_iter()
            .flatten()
            .map(|(kind, media)| (format!("requestBody/content/{}", kind.replace('/', "~1")), media));
        let answers = operation["responses"].as_object().unwrap().iter().flat_map(|(status, response)| {
            let content = response["content"].as_object().into_iter().flatten();
            content.map(move |(kind, media)| {
                (format!("responses/{status}/content/{}", kind.replace('/', "~1")), media)
            })
        });
        for (part, media) in bodies.chain(answers) {
            if let Some(example) = media.get("example") {
                check(&format!("{at}/{part}/schema"), example);
            }
        }
    }
    for kind in ["schemas", "parameters"] {
        for (name, part) in PROMISE.document["components"][kind].as_object().unwrap() {
            let (at, schema) = match kind {
                "schemas" => (format!("/components/schemas/{name}"), part),
                _ => (format!("/components/parameters/{name}/schema"), &part["schema"]),
            };
            schema["examples"].as_array().into_iter().flatten().for_each(|example| check(&at, example));
            part.get("example").into_iter().for_each(|example| check(&at, example));
        }
    }
    assert!(seen > 60, "{seen} examples");
}

#[test]
fn an_operation_that_takes_or_gives_json_shows_how() {
    for (at, operation) in operations() {
        let answer = operation["responses"]["200"]["content"]["application/json"].as_object();
        let body = operation["requestBody"]["content"]["application/json"].as_object();
        for (what, media) in [("body", body), ("answer", answer)] {
            // The result of a run is too long to be read as an example.
            let is_long = media.is_some_and(|media| {
                let text = media.get("schema").map(Value::to_string).unwrap_or_default();
                text.contains("/ExecResult") || text.contains("/Enforcement")
            });
            assert!(
                is_long
                    || media
                        .is_none_or(|media| media.contains_key("example") || !media.contains_key("schema")),
                "{at}: its {what} has no example"
            );
        }
    }
}

#[test]
fn a_route_to_a_server_tells_the_servers_answers_from_the_services_own_failures() {
    let mut seen = 0;
    for (path, item) in PROMISE.document["paths"].as_object().unwrap() {
        let is_link = path.starts_with("/v1/ports/{token}/");
        if !is_link && !path.contains("/ports/{port}/") {
            continue;
        }
        for method in METHODS {
            let (operation, at) = (&item[method], format!("{method} {path}"));
            let responses = &operation["responses"];
            let of_server = &responses["default"];
            for header in ["Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"] {
                assert!(of_server["headers"].get(header).is_some(), "{at}: {header}");
            }
            assert!(of_server["description"].as_str().unwrap().contains("sandbox"), "{at}");
            assert_eq!(responses.get("101").is_some(), method == "get", "{at}");
            assert_eq!(responses.get("204").is_some(), is_link && method == "options", "{at}");
            assert_eq!(operation["security"].is_array(), is_link, "{at}");
            for (status, code) in [
                ("401", "unauthenticated"),
                ("403", "denied"),
                ("404", "not_found"),
                ("429", "busy"),
                ("501", "unsupported"),
                ("503", "disconnected"),
                ("504", "timeout"),
            ] {
                // A server answers with the same status, in any form.
                let content = &responses[status]["content"];
                let own = content["*/*"]["x-failure-schema"].to_string();
                assert_eq!(own.contains(&format!("/{code}\"")), method != "head", "{at}: {status} {own}");
            }
            let takes_body = ["put", "post", "delete", "patch"].contains(&method);
            assert_eq!(operation.get("requestBody").is_some(), takes_body, "{at}");
            seen += 1;
        }
    }
    assert_eq!(seen, 48);
}
