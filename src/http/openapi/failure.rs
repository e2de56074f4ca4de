//! Failures: for each code a schema, out of `codes.yaml`, and an answer.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::components::{Components, answer};
use super::shorthand::fields;
use super::source::{Wrong, read};
use crate::http::answer::problem::Code;
use crate::http::answer::status;

const CODES: &str = include_str!("codes.yaml");

/// A code as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// When it is sent.
    when: String,
    /// The fields beside the sentence.
    #[serde(default)]
    details: Map<String, Value>,
    /// `data`, and the details, of one.
    example: Map<String, Value>,
}

impl Written {
    /// The schema of the failure whose code is `word`.
    fn schema(&self, word: &str) -> Value {
        let (mut properties, mut required) = fields(&self.details);
        properties.extend([
            ("status".to_owned(), json!({ "type": "string", "const": "error" })),
            ("data".to_owned(), json!({ "type": "string", "description": "One sentence.", "minLength": 1 })),
            ("code".to_owned(), json!({ "type": "string", "const": word })),
            ("request_id".to_owned(), json!({ "type": "string" })),
        ]);
        required.extend(["status", "data", "code", "request_id"].map(Value::from));
        let mut example = self.example.clone();
        example.extend([
            ("status".to_owned(), "error".into()),
            ("code".to_owned(), word.into()),
            ("request_id".to_owned(), "243b6b77-2".into()),
        ]);
        json!({
            "type": "object",
            "description": self.when,
            "properties": properties,
            "required": required,
            "examples": [example],
        })
    }
}

/// Adds what operations refer to: for each code its schema, and the answer that has this code alone.
pub(super) fn add(components: &mut Components) -> Result<(), Wrong> {
    let written: BTreeMap<String, Written> = read("codes", CODES)?;
    for code in Code::ALL {
        let (word, status) = (code.word(), status::of(code));
        let of_code = written.get(word).ok_or_else(|| Wrong::new(word, "it is missing"))?;
        components.schemas.insert(word.to_owned(), of_code.schema(word));
        components.responses.insert(word.to_owned(), failure(status, &[word].into(), false));
    }
    match written.keys().find(|word| Code::parse(word).is_none()) {
        Some(word) => Err(Wrong::new(word, "the service has no such code")),
        None => Ok(()),
    }
}

/// The answer of a status with one of `codes`; to `HEAD` without the body that would say which.
pub(super) fn failure(status: StatusCode, codes: &BTreeSet<&str>, is_head: bool) -> Value {
    let headers: &[&str] = match status {
        StatusCode::UNAUTHORIZED => &["WWW-Authenticate"],
        StatusCode::METHOD_NOT_ALLOWED => &["Allow"],
        StatusCode::RANGE_NOT_SATISFIABLE => &["Content-Range"],
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => &["Retry-After"],
        _ => &[],
    };
    let words = codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
    let mut response = answer(&words, headers);
    if let Some(fields) = response.as_object_mut().filter(|_| !is_head) {
        fields.insert("content".to_owned(), json!({ "application/json": { "schema": one_of(codes) } }));
    }
    response
}

/// The schema of a failure with one of `codes`.
pub(super) fn one_of(codes: &BTreeSet<&str>) -> Value {
    let mut each: Vec<Value> =
        codes.iter().map(|code| json!({ "$ref": format!("#/components/schemas/{code}") })).collect();
    if each.len() == 1 {
        return each.pop().unwrap_or_default();
    }
    json!({ "oneOf": each, "discriminator": { "propertyName": "code" } })
}
