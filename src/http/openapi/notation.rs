//! A schema as it stands on the page: the shape of a value, each field with what is said of it.

use serde_json::{Map, Value};

/// Writes a schema as HTML for a preformatted text, its further lines `indent` levels in.
pub(super) fn shape(schema: &Value, indent: usize) -> String {
    let Some(keywords) = schema.as_object() else { return "anything".to_owned() };
    let text = |name: &str| keywords.get(name).and_then(Value::as_str);
    if let Some(reference) = text("$ref") {
        let name = escaped(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    if let Some(only) = keywords.get("const") {
        return escaped(&only.to_string());
    }
    if let Some(Value::Array(values)) = keywords.get("enum") {
        return values.iter().map(|value| escaped(&value.to_string())).collect::<Vec<_>>().join(" | ");
    }
    if let Some(Value::Array(choices)) = keywords.get("oneOf").or_else(|| keywords.get("anyOf")) {
        return choices.iter().map(|choice| shape(choice, indent)).collect::<Vec<_>>().join(" | ");
    }
    match keywords.get("type") {
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .map(|kind| of_kind(kind, keywords, indent))
            .collect::<Vec<_>>()
            .join(" | "),
        Some(Value::String(kind)) => of_kind(kind, keywords, indent),
        _ => "anything".to_owned(),
    }
}

fn of_kind(kind: &str, keywords: &Map<String, Value>, indent: usize) -> String {
    let within =
        |name: &str| keywords.get(name).map_or_else(|| "anything".to_owned(), |of| shape(of, indent));
    match (kind, keywords.get("properties")) {
        ("array", _) => format!("[{}, …]", within("items")),
        ("object", Some(Value::Object(properties))) => object(properties, keywords.get("required"), indent),
        ("object", _) => format!("{{name: {}, …}}", within("additionalProperties")),
        ("null", _) => "null".to_owned(),
        (kind, _) => format!("{kind}{}", bounds(keywords)),
    }
}

fn object(properties: &Map<String, Value>, required: Option<&Value>, indent: usize) -> String {
    let is_required = |name: &str| {
        required.and_then(Value::as_array).is_some_and(|names| names.iter().any(|other| other == name))
    };
    let margin = "  ".repeat(indent + 1);
    let lines = properties.iter().map(|(name, schema)| {
        let mark = if is_required(name) { "" } else { "?" };
        let said = schema["description"]
            .as_str()
            .map(|said| format!("  <i>{}</i>", escaped(said)))
            .unwrap_or_default();
        format!("{margin}{}{mark}: {}{said}\n", escaped(name), shape(schema, indent + 1))
    });
    format!("{{\n{}{}}}", lines.collect::<String>(), "  ".repeat(indent))
}

/// The bounds of a number or text, in brackets.
pub(super) fn bounds(keywords: &Map<String, Value>) -> String {
    let of = |name: &str| keywords.get(name).map(Value::to_string);
    let range = match (of("minimum").or_else(|| of("minLength")), of("maximum").or_else(|| of("maxLength"))) {
        (Some(least), Some(most)) => format!(" ({least} to {most})"),
        (Some(least), None) if least != "0" => format!(" ({least} or more)"),
        (None, Some(most)) => format!(" (at most {most})"),
        _ => String::new(),
    };
    let default = of("default").map(|value| format!(" = {}", escaped(&value))).unwrap_or_default();
    format!("{range}{default}")
}

/// A text in HTML: what could open or end a tag or an attribute is spelled out.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shape_is_read_at_a_glance() {
        let schema = json!({
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": { "type": ["integer", "null"], "minimum": 1, "description": "<one>" },
                "b": { "type": "array", "items": { "$ref": "#/components/schemas/Run" } },
                "c": { "enum": ["x", null] },
            },
        });
        let expected = "{\n  a: integer (1 or more) | null  <i>&lt;one&gt;</i>\n  \
                        b?: [<a href=\"#schema-Run\">Run</a>, …]\n  c?: &quot;x&quot; | null\n}";
        assert_eq!(shape(&schema, 0), expected);
    }
}
