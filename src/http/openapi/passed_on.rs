//! The answers of an operation that passes requests on to a server in a sandbox: the server's own, and the service's failures.
//!
//! A server may answer with every status and media type, so that its answer is the `default` one. Where the service fails with a status,
//! the extension `x-failure-schema` has the schema of the failure: OpenAPI cannot say that one of two parties answers.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::components::answer;
use super::failure::one_of;

/// The methods that OpenAPI has.
pub(super) const METHODS: [&str; 8] = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"];

const OF_SERVER: &str = "The answer of the server at the port. It is in the browser's sandbox: its `Content-Security-Policy` has \
                         `sandbox` without `allow-same-origin`, which no failure of the service has.";
const UPGRADED: &str = "The server has taken the WebSocket: from here on its bytes are passed on.";
const PREFLIGHT: &str =
    "A request with `Access-Control-Request-Method` is answered by the service: any page may ask.";

/// How a caller reaches a server.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PassesOn {
    /// With a token that may run commands in the tree.
    Token,
    /// By a link, which pages of any origin may use.
    Link,
}

impl PassesOn {
    /// The answers to a request, where `failures` are the codes of the service by status.
    pub(super) fn responses(
        self,
        method: &str,
        failures: &BTreeMap<StatusCode, BTreeSet<&str>>,
    ) -> Map<String, Value> {
        let mut headers = vec!["Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"];
        if self == Self::Link {
            headers.push("Access-Control-Allow-Origin");
        }
        let mut of_server = answer(OF_SERVER, headers);
        add(&mut of_server, method, json!({ "schema": {} }));
        let mut responses = Map::new();
        responses.insert("default".to_owned(), of_server);
        if method == "GET" {
            responses.insert("101".to_owned(), answer(UPGRADED, [""; 0]));
        }
        if method == "OPTIONS" && self == Self::Link {
            responses.insert("204".to_owned(), answer(PREFLIGHT, ["Access-Control-Allow-Origin"]));
        }
        for (status, codes) in failures {
            let words = codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
            let mut own = answer(&format!("{words}; or the answer of the server."), [""; 0]);
            add(&mut own, method, json!({ "schema": {}, "x-failure-schema": one_of(codes) }));
            responses.insert(status.as_u16().to_string(), own);
        }
        responses
    }
}

/// The body of a request, where its method has one.
pub(super) fn body(method: &str) -> Option<Value> {
    let has_body = matches!(method, "PUT" | "POST" | "DELETE" | "PATCH");
    has_body.then(|| json!({ "required": false, "content": { "*/*": { "schema": {} } } }))
}

/// Adds the content of an answer, which `HEAD` has not.
fn add(response: &mut Value, method: &str, media: Value) {
    if let Some(fields) = response.as_object_mut().filter(|_| method != "HEAD") {
        fields.insert("content".to_owned(), json!({ "*/*": media }));
    }
}
