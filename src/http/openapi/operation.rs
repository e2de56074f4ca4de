//! One operation: as the files in `operations/` write it, and as OpenAPI has it.

#![expect(clippy::indexing_slicing, reason = "fields are added to JSON objects that are made right above")]

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::components::answer;
use super::dialect;
use super::failure::failure;
use super::passed_on::{self, PassesOn};
use super::shorthand::{fields, optional, schema};
use crate::http::answer::status;

/// The beginning of the paths of operations that another backend may answer for.
const WORKSPACE: &str = "/v1/sandbox/{u}/{a}/";

/// The beginning of the paths of operations on one skill.
const SKILL: &str = "/v1/skills/{u}/{a}/{s}/";

/// An operation as it is written. Schemas are in the [shorthand](super::shorthand).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    /// Its name for generated clients; a route of both trees has one for each.
    id: String,
    /// One line.
    summary: String,
    description: Option<String>,
    #[serde(default)]
    access: Access,
    /// The envelope of its answers.
    #[serde(default)]
    dialect: Dialect,
    /// Whether it reads although its method says otherwise.
    #[serde(default)]
    reads: bool,
    /// Whether it changes something although its method says otherwise.
    #[serde(default)]
    changes: bool,
    /// How a caller reaches the server that answers, when another one than the service does.
    passes_on: Option<PassesOn>,
    /// Names in `components.yaml` of parameters of the path that have another one there.
    #[serde(default)]
    in_path: BTreeMap<String, String>,
    /// Parameters of the query, in order; `name?` may be left out.
    #[serde(default)]
    query: serde_yaml_ng::Mapping,
    /// Header parameters, by their names in `components.yaml`.
    #[serde(default)]
    headers: Vec<String>,
    /// The schema of a JSON body.
    json: Option<Value>,
    /// The same for the route of a skill, where it differs.
    json_in_skill: Option<Value>,
    /// An example of it.
    send: Option<Value>,
    /// A body of another kind, as OpenAPI has it.
    body: Option<Value>,
    /// The schema of `data` in a success.
    data: Option<Value>,
    /// The fields beside it.
    #[serde(default)]
    beside: Map<String, Value>,
    /// A whole answer.
    example: Option<Value>,
    /// The media type of an answer without envelope.
    bytes: Option<String>,
    /// Others, for callers whose `Accept` or parameters name them.
    #[serde(default)]
    bytes_when_asked: Vec<String>,
    /// The schema of what is streamed to who asks for a stream.
    streams: Option<Value>,
    /// The status of a success.
    #[serde(default = "ok")]
    status: u16,
    /// When a success has status 201 instead.
    created: Option<String>,
    /// Headers of a success, by their names in `components.yaml`.
    #[serde(default)]
    answer_headers: Vec<String>,
    /// Other answers that are no failures, by status.
    #[serde(default)]
    also: BTreeMap<u16, Also>,
    /// Codes of failures besides those that [`Written::codes`] adds.
    #[serde(default)]
    codes: Vec<String>,
}

fn ok() -> u16 {
    200
}

/// Who may ask.
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    /// Who has a token.
    #[default]
    Token,
    /// Every caller, without a token.
    Anybody,
}

/// The envelope of answers.
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Dialect {
    /// The service's own.
    #[default]
    Service,
    /// That of devboxes.
    Devbox,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Also {
    description: String,
    #[serde(default)]
    headers: Vec<String>,
    bytes: Option<String>,
}

/// Where an operation is.
pub(super) struct Location<'a> {
    /// In upper case.
    pub(super) method: &'a str,
    /// As the router has it.
    pub(super) path: &'a str,
    /// The heading in `docs/API.md`, such as `GET T/content`.
    pub(super) heading: &'a str,
    /// The group on the page.
    pub(super) tag: &'a str,
    /// The beginning of the operation's name, for one of several methods, and its ending.
    pub(super) prefix: &'a str,
    pub(super) suffix: &'a str,
}

impl Written {
    /// Writes the operation out.
    ///
    /// # Errors
    /// A code that does not exist.
    pub(super) fn at(&self, place: &Location<'_>) -> Result<Value, String> {
        let mut operation = json!({
            "operationId": format!("{}{}{}", place.prefix, self.id, place.suffix),
            "tags": [place.tag],
            "summary": self.summary,
            "parameters": self.parameters(place.path),
            "responses": self.responses(place)?,
            "x-heading": place.heading,
        });
        if let Some(description) = &self.description {
            operation["description"] = description.as_str().into();
        }
        if self.access == Access::Anybody {
            operation["security"] = json!([]);
        }
        if let Some(body) = self.request_body(place) {
            operation["requestBody"] = body;
        }
        Ok(operation)
    }

    fn parameters(&self, path: &str) -> Vec<Value> {
        let shared = |name: &str| json!({ "$ref": format!("#/components/parameters/{name}") });
        let in_path = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let in_path = in_path.map(|name| shared(self.in_path.get(name).map_or(name, String::as_str)));
        let in_query = self.query.iter().filter_map(|(name, written)| {
            let (name, is_required) = optional(name.as_str()?);
            let mut schema = schema(&serde_json::to_value(written).ok()?);
            let description = schema.as_object_mut().and_then(|keywords| keywords.remove("description"));
            let mut parameter =
                json!({ "name": name, "in": "query", "required": is_required, "schema": schema });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            Some(parameter)
        });
        in_path.chain(in_query).chain(self.headers.iter().map(|name| shared(name))).collect()
    }

    fn request_body(&self, place: &Location<'_>) -> Option<Value> {
        if self.passes_on.is_some() {
            return passed_on::body(place.method);
        }
        let of_skill = self.json_in_skill.as_ref().filter(|_| place.path.starts_with(SKILL));
        let Some(json) = of_skill.or(self.json.as_ref()) else { return self.body.clone() };
        let mut media = json!({ "schema": schema(json) });
        if let Some(example) = &self.send {
            media["example"] = example.clone();
        }
        Some(json!({ "required": true, "content": { "application/json": media } }))
    }

    fn responses(&self, place: &Location<'_>) -> Result<Map<String, Value>, String> {
        let mut responses = match self.passes_on {
            Some(passes_on) => passes_on.responses(place.method, &self.codes(place)?),
            None => self.own_responses(place)?,
        };
        for status in ["414", "431"] {
            responses.insert(status.to_owned(), shared(status));
        }
        Ok(responses)
    }

    /// The answers of the service itself.
    fn own_responses(&self, place: &Location<'_>) -> Result<Map<String, Value>, String> {
        let is_head = place.method == "HEAD";
        let mut responses = Map::new();
        for (status, description) in [(self.status, Some("Success.")), (201, self.created.as_deref())] {
            if let Some(description) = description {
                let mut response = answer(description, &self.answer_headers);
                let content = self.success_content();
                if !is_head && !content.is_empty() {
                    response["content"] = content.into();
                }
                responses.insert(status.to_string(), response);
            }
        }
        for (status, also) in &self.also {
            let mut response = answer(&also.description, &also.headers);
            if let Some(kind) = &also.bytes {
                response["content"] = json!({ kind: of_bytes(kind) });
            }
            responses.insert(status.to_string(), response);
        }
        // What an operation answers with 101 only.
        if self.data.is_none() && self.bytes.is_none() && self.streams.is_none() {
            responses.remove("200");
        }
        for (status, codes) in self.codes(place)? {
            let failure = match codes.first() {
                _ if self.dialect == Dialect::Devbox => dialect::failure(status, &codes),
                Some(code) if codes.len() == 1 && !is_head => shared(code),
                _ => failure(status, &codes, is_head),
            };
            responses.insert(status.as_u16().to_string(), failure);
        }
        Ok(responses)
    }

    fn success_content(&self) -> Map<String, Value> {
        let mut content = Map::new();
        if let Some(data) = &self.data {
            let (mut properties, mut required) = fields(&self.beside);
            properties.insert("status".to_owned(), json!({ "type": "string", "const": "success" }));
            properties.insert("data".to_owned(), schema(data));
            required.extend(["status".into(), "data".into()]);
            let envelope = match self.dialect {
                Dialect::Service => {
                    json!({ "type": "object", "properties": properties, "required": required })
                }
                Dialect::Devbox => dialect::success(&schema(data)),
            };
            let mut media = json!({ "schema": envelope });
            if let Some(example) = &self.example {
                media["example"] = example.clone();
            }
            content.insert("application/json".to_owned(), media);
        }
        for kind in self.bytes.iter().chain(&self.bytes_when_asked) {
            content.insert(kind.clone(), of_bytes(kind));
        }
        if let Some(element) = &self.streams {
            // `itemSchema` is OpenAPI 3.2's; for 3.1 an extension says the same.
            for kind in ["application/x-ndjson", "text/event-stream"] {
                content.insert(
                    kind.to_owned(),
                    json!({ "schema": { "type": "string" }, "x-item-schema": schema(element) }),
                );
            }
        }
        content
    }

    /// The codes that the operation may fail with, by status: its own, and those of everything that is like it.
    fn codes(&self, place: &Location<'_>) -> Result<BTreeMap<StatusCode, BTreeSet<&str>>, String> {
        let mut words: BTreeSet<&str> = self.codes.iter().map(String::as_str).collect();
        words.extend(["invalid", "denied", "busy", "internal", "unsupported", "unsupported_media"]);
        if self.access == Access::Token {
            words.extend(["unauthenticated", "disconnected"]);
        }
        if place.path.contains("{u}") {
            words.insert("not_found");
        }
        if place.path.starts_with(WORKSPACE) {
            words.extend(["disconnected", "timeout"]);
        }
        if self.changes || !(self.reads || matches!(place.method, "GET" | "HEAD")) {
            words.extend(["quota", "disconnected"]);
        }
        if self.json.is_some() || self.body.is_some() {
            words.extend(["too_slow", "too_large"]);
        }
        if self.dialect == Dialect::Devbox {
            return dialect::by_status(words);
        }
        let mut by_status: BTreeMap<StatusCode, BTreeSet<&str>> = BTreeMap::new();
        for word in words {
            let status = status::of_word(word).ok_or_else(|| format!("there is no code `{word}`"))?;
            by_status.entry(status).or_default().insert(word);
        }
        Ok(by_status)
    }
}

/// The media type of an answer without envelope, with what generated clients take it for.
fn of_bytes(kind: &str) -> Value {
    match kind {
        "application/json" => json!({}),
        "application/octet-stream" | "application/zip" => {
            json!({ "schema": { "type": "string", "format": "binary" } })
        }
        _ => json!({ "schema": { "type": "string" } }),
    }
}

/// An answer that many operations share, by its name in the document.
fn shared(name: &str) -> Value {
    json!({ "$ref": format!("#/components/responses/{name}") })
}
