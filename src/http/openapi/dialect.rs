//! Answers of operations of the devbox dialect, which has an envelope of its own.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::components::answer;
use crate::http::answer::problem::Code;
use crate::http::devbox::dialect::statuses;

/// The schema of a success whose `data` has this schema.
pub(super) fn success(data: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "integer", "const": 200 },
            "message": { "type": "string", "const": "ok" },
            "data": data,
        },
        "required": ["code", "message", "data"],
    })
}

/// The statuses under which the codes come, with the codes of each.
pub(super) fn by_status<'a>(
    codes: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<StatusCode, BTreeSet<&'a str>>, String> {
    let mut by_status: BTreeMap<StatusCode, BTreeSet<&str>> = BTreeMap::new();
    for word in codes {
        let code = Code::parse(word);
        for status in statuses(code.ok_or_else(|| format!("there is no code `{word}`"))?) {
            by_status.entry(status).or_default().insert(word);
        }
    }
    Ok(by_status)
}

/// The answer of a status.
pub(super) fn failure(status: StatusCode, codes: &BTreeSet<&str>) -> Value {
    let headers: &[&str] = match status {
        StatusCode::UNAUTHORIZED => &["WWW-Authenticate"],
        StatusCode::RANGE_NOT_SATISFIABLE => &["Content-Range"],
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => &["Retry-After"],
        _ => &[],
    };
    let words = codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
    let of_dialect = json!({
        "type": "object",
        "properties": {
            "code": { "type": "integer", "const": status.as_u16() },
            "message": { "type": "string", "description": "One sentence.", "minLength": 1 },
            "data": { "type": "null" },
        },
        "required": ["code", "message", "data"],
    });
    // Where the dialect is switched off, its routes are none; a connection that is one too many has none yet.
    let own = match status {
        StatusCode::NOT_FOUND => Some("not_found"),
        StatusCode::TOO_MANY_REQUESTS => Some("busy"),
        _ => None,
    };
    let schema = match own {
        Some(word) => json!({ "oneOf": [of_dialect, { "$ref": format!("#/components/schemas/{word}") }] }),
        None => of_dialect,
    };
    let mut response = answer(&words, headers);
    if let Some(fields) = response.as_object_mut() {
        fields.insert("content".to_owned(), json!({ "application/json": { "schema": schema } }));
    }
    response
}
