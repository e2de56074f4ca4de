//! The OpenAPI document as it is served, and what the service itself says of the parameters that it knows.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::Digest;

use crate::support::{PROMISE, Reply, Service};

const UNKNOWN: &str = "no-such-name";

#[test]
fn the_document_that_answers_are_held_against_is_the_one_that_is_served() {
    let service = Service::start();
    let reply = service.client.get("/openapi.json");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json(), PROMISE.document);
    assert_eq!(reply.json()["openapi"], "3.1.1");
}

#[test]
fn the_page_may_look_as_its_own_style_says_and_nothing_else() {
    use base64::Engine;
    let service = Service::start();
    let reply = service.client.get("/docs");
    let page = String::from_utf8(reply.bytes(200).to_vec()).unwrap();
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let digest = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(style));
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with(&format!("default-src 'none'; style-src 'sha256-{digest}';")), "{policy}");
    assert!(page.contains("GET T/content") && !page.contains("<script") && !page.contains("href=\"http"));
}

/// A service in which every operation is switched on.
fn whole_service() -> Service {
    Service::configured("[devbox]\nenabled = true\n[mcp]\nenabled = true\n[shares]\nenabled = true\n")
}

/// Every operation: method, a path that names something, and what is promised.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = PROMISE.document["paths"].as_object().unwrap();
    let filled = |path: &str| {
        let names = [
            ("{u}", "u"),
            ("{a}", "a"),
            ("{s}", "s"),
            ("{exec_id}", "e"),
            ("{snapshot}", "019ab1c2d3e45f607182"),
            ("{runner}", "laptop"),
            ("{version}", "65f2a1b3c4d5e6f708192a3b"),
            ("{v}", "1"),
            ("{share}", "76ff019d022838e6"),
            ("{name}", "session-1"),
            ("{id}", "9f86d081884c7d65"),
            ("{port}", "8000"),
            ("{token}", "none"),
            ("{path}", "f"),
        ];
        names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
    };
    let each = |(path, item): (&String, &'static Value)| {
        let operations = item.as_object().unwrap().iter();
        let path = filled(path);
        operations
            .map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(each).collect()
}

/// The names that a refusal of [`UNKNOWN`] lists.
fn known(reply: &Reply) -> BTreeSet<String> {
    let told = match reply.json() {
        // The devbox dialect has another envelope.
        told if told["code"] == 400 => told["message"].as_str().unwrap().to_owned(),
        _ => reply.refused(400, "invalid")["data"].as_str().unwrap().to_owned(),
    };
    let (_, names) = told.split_once(&format!("`{UNKNOWN}`")).unwrap_or_else(|| panic!("{told}"));
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_parameters_that_are_promised_are_those_that_the_service_knows() {
    let service = whole_service();
    for (method, path, operation) in operations() {
        // Without an envelope in the answer to `HEAD` nothing can be told; a route that needs no token has no
        // parameters.
        if method == "HEAD" || operation["security"].is_array() {
            continue;
        }
        // A query of these is for the server at the port.
        if operation["x-heading"].as_str().unwrap().starts_with("ANY T/ports/") {
            assert!(!operation["parameters"].to_string().contains("\"query\""), "{method} {path}");
            continue;
        }
        let promised: BTreeSet<String> = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect();
        let mut request = service.client.request(&method, format!("{path}?{UNKNOWN}=1"));
        if method != "GET" {
            request = request.body("");
        }
        assert_eq!(known(&request.send()), promised, "{method} {path}");
    }
}

#[test]
fn the_fields_of_a_body_that_are_promised_are_those_that_the_service_knows() {
    let service = whole_service();
    let mut seen = 0;
    for (method, path, operation) in operations() {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        // One schema, or one of several, which have the same fields.
        let named = |choice: &Value| {
            let reference = choice["$ref"].as_str().unwrap().trim_start_matches('#').to_owned();
            PROMISE.document.pointer(&reference).unwrap().clone()
        };
        let choices: Vec<Value> = match schema["oneOf"].as_array() {
            Some(choices) => choices.iter().map(named).collect(),
            None => vec![schema.clone()],
        };
        let fields = choices.iter().filter_map(|choice| choice["properties"].as_object());
        let promised: BTreeSet<String> = fields.flat_map(|fields| fields.keys().cloned()).collect();
        // Adapters of the devbox dialect send what later versions of it have, which is left out.
        if promised.is_empty() || path.starts_with("/api/v1/devbox") {
            continue;
        }
        let body = format!("{{\"{UNKNOWN}\": 1}}");
        let reply = service.client.request(&method, &path).body(body).send();
        assert_eq!(known(&reply), promised, "{method} {path}");
        seen += 1;
    }
    assert!(seen >= 16, "{seen}");
}
