//! The shorthand in which the files of this folder write JSON Schema (2020-12).
//!
//! | Written | Means |
//! | --- | --- |
//! | `text`, `flag`, `count` | a string, a boolean, an integer from 0 on |
//! | `time`, `base64` | a string with a time (RFC 3339) or bytes (RFC 4648) |
//! | `Name` | the schema `Name` of `components.yaml` |
//! | `X or null` | X, or null |
//! | `[X]` | an array of X |
//! | `{is: X, …}` | X, with further keywords such as `description` |
//! | `{fields: {a: X, b?: Y}}` | an object with `a` and perhaps `b`; later versions may add others |
//! | `{only: {a: X, b?: Y}}` | the same, and no other field is allowed |
//!
//! Anything else is JSON Schema as it stands, in which these forms may stand for schemas.

use serde_json::{Map, Value, json};

/// Keywords whose value is a schema, or a list of them.
const OF_SCHEMAS: [&str; 5] = ["items", "oneOf", "anyOf", "allOf", "additionalProperties"];

/// Writes a schema out.
pub(super) fn schema(written: &Value) -> Value {
    match written {
        Value::String(word) => {
            word.strip_suffix(" or null").map_or_else(|| named(word), |word| or_null(named(word)))
        }
        Value::Array(of) => json!({ "type": "array", "items": of.first().map_or(Value::Bool(true), schema) }),
        Value::Object(keywords) => object(keywords),
        other => other.clone(),
    }
}

/// Writes out fields, as `(properties, required)`.
pub(super) fn fields(written: &Map<String, Value>) -> (Map<String, Value>, Vec<Value>) {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, written) in written {
        let (name, is_required) = optional(name);
        properties.insert(name.to_owned(), schema(written));
        if is_required {
            required.push(Value::from(name));
        }
    }
    (properties, required)
}

/// Reads a name and whether it must be there.
pub(super) fn optional(name: &str) -> (&str, bool) {
    name.strip_suffix('?').map_or((name, true), |name| (name, false))
}

fn named(word: &str) -> Value {
    match word {
        "text" => json!({ "type": "string" }),
        "flag" => json!({ "type": "boolean" }),
        "count" => json!({ "type": "integer", "minimum": 0 }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "base64" => json!({ "type": "string", "contentEncoding": "base64" }),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

fn or_null(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(kind) => {
            *kind = json!([kind.take(), "null"]);
            schema
        }
        None => json!({ "oneOf": [schema, { "type": "null" }] }),
    }
}

fn object(keywords: &Map<String, Value>) -> Value {
    let mut written_out = Map::new();
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("is", value) => {
                if let Value::Object(of) = schema(value) {
                    written_out.extend(of);
                }
            }
            ("fields" | "only", Value::Object(of)) => {
                let (properties, required) = fields(of);
                written_out.insert("type".to_owned(), "object".into());
                written_out.insert("properties".to_owned(), properties.into());
                written_out.insert("required".to_owned(), required.into());
                if keyword == "only" {
                    written_out.insert("additionalProperties".to_owned(), false.into());
                }
            }
            ("properties", Value::Object(of)) => {
                let properties: Map<String, Value> =
                    of.iter().map(|(name, written)| (name.clone(), schema(written))).collect();
                written_out.insert("properties".to_owned(), properties.into());
            }
            (keyword, Value::Array(list)) if OF_SCHEMAS.contains(&keyword) => {
                let list: Vec<Value> = list.iter().map(schema).collect();
                written_out.insert(keyword.to_owned(), list.into());
            }
            (keyword, value) if OF_SCHEMAS.contains(&keyword) => {
                written_out.insert(keyword.to_owned(), schema(value));
            }
            (keyword, value) => drop(written_out.insert(keyword.to_owned(), value.clone())),
        }
    }
    written_out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_written_out() {
        for (written, expected) in [
            (json!("text"), json!({ "type": "string" })),
            (json!("count or null"), json!({ "type": ["integer", "null"], "minimum": 0 })),
            (
                json!("Run or null"),
                json!({ "oneOf": [{ "$ref": "#/components/schemas/Run" }, { "type": "null" }] }),
            ),
            (json!(["flag"]), json!({ "type": "array", "items": { "type": "boolean" } })),
            (
                json!({ "is": "text", "description": "words" }),
                json!({ "type": "string", "description": "words" }),
            ),
            (
                json!({ "fields": { "a": "text", "b?": ["Run"] } }),
                json!({ "type": "object", "required": ["a"], "properties": {
                    "a": { "type": "string" },
                    "b": { "type": "array", "items": { "$ref": "#/components/schemas/Run" } },
                } }),
            ),
            (
                json!({ "only": { "a?": "text" } }),
                json!({ "type": "object", "required": [], "additionalProperties": false,
                    "properties": { "a": { "type": "string" } } }),
            ),
            (
                json!({ "type": "array", "maxItems": 2, "items": "text" }),
                json!({ "type": "array", "maxItems": 2, "items": { "type": "string" } }),
            ),
        ] {
            assert_eq!(schema(&written), expected, "{written}");
        }
    }
}
