//! The page at `GET /docs`: the document for people, whole in one answer, without a script, and without anything from
//! elsewhere.

#![expect(clippy::indexing_slicing, reason = "reading what a JSON value lacks gives null")]

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::notation::{bounds, escaped, shape};

const STYLE: &str = include_str!("page.css");
/// Where the examples ask.
const ADDRESS: &str = "http://127.0.0.1:8003";

/// An operation on the page; one of both trees is shown once.
struct Shown<'a> {
    heading: &'a str,
    method: &'a str,
    paths: Vec<&'a str>,
    operation: &'a Value,
}

/// The rights of the page: its own style, and nothing else.
pub(super) fn security_policy() -> String {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Writes the page.
pub(super) fn html(document: &Value) -> String {
    let info = &document["info"];
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>filesecbox</title><style>{STYLE}</style></head><body>\n\
         <h1>filesecbox {}</h1>\n<p>{}</p>\n<p>{}</p>\n<p>The same for programs: <a href=\"/openapi.json\">/openapi.json</a>.</p>\n",
        said(&info["version"]),
        said(&info["summary"]),
        said(&info["description"]),
    );
    let shown = shown(document);
    let areas: Vec<&str> = list(&document["tags"]).filter_map(|tag| tag["name"].as_str()).collect();
    page.push_str("<nav>\n");
    for area in &areas {
        let _ = write!(page, "<h2>{area}</h2>\n<ul>\n");
        for Shown { heading, operation, .. } in
            shown.iter().filter(|shown| shown.operation["tags"][0] == **area)
        {
            let id = said(&operation["operationId"]);
            let _ = writeln!(page, "<li><a href=\"#{id}\"><code>{}</code></a></li>", escaped(heading));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</nav>\n");
    for area in &areas {
        let _ = writeln!(page, "<h2>{area}</h2>");
        shown
            .iter()
            .filter(|shown| shown.operation["tags"][0] == **area)
            .for_each(|shown| section(&mut page, document, shown));
    }
    page.push_str("<h2>Schemas</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let _ = write!(
            page,
            "<h3 id=\"schema-{name}\"><code>{name}</code></h3>\n<p>{}</p>\n<pre>{}</pre>\n",
            said(&schema["description"]),
            shape(schema, 0)
        );
    }
    page.push_str("</body></html>\n");
    page
}

/// The operations of the document, those of one heading together.
fn shown(document: &Value) -> Vec<Shown<'_>> {
    let mut shown: Vec<Shown<'_>> = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let heading = operation["x-heading"].as_str().unwrap_or_default();
            // The methods of such an operation are alike.
            if heading.starts_with("ANY ") && method != "get" {
                continue;
            }
            match shown.iter_mut().find(|shown| shown.heading == heading) {
                Some(shown) => shown.paths.push(path),
                None => shown.push(Shown { heading, method, paths: vec![path], operation }),
            }
        }
    }
    shown
}

fn section(page: &mut String, document: &Value, shown: &Shown<'_>) {
    let Shown { heading, operation, paths, .. } = shown;
    let id = said(&operation["operationId"]);
    let _ = writeln!(page, "<h3 id=\"{id}\"><code>{}</code></h3>", escaped(heading));
    let paths: Vec<String> = paths.iter().map(|path| format!("<code>{}</code>", escaped(path))).collect();
    let _ = writeln!(page, "<p class=\"paths\">{}</p>", paths.join("<br>"));
    let _ = writeln!(page, "<p>{}.</p>", said(&operation["summary"]));
    if operation.get("description").is_some() {
        let _ = writeln!(page, "<p>{}</p>", said(&operation["description"]));
    }
    parameters(page, document, operation);
    for (kind, media) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        let _ = writeln!(
            page,
            "<p>Body, <code>{}</code>:</p>\n<pre>{}</pre>",
            escaped(kind),
            shape(&media["schema"], 0)
        );
    }
    let _ = writeln!(page, "<pre>{}</pre>", escaped(&curl(document, shown)));
    answers(page, document, operation);
}

fn parameters(page: &mut String, document: &Value, operation: &Value) {
    let named: Vec<&Value> =
        list(&operation["parameters"]).map(|parameter| resolved(document, parameter)).collect();
    // Users, agents and skills are the same everywhere.
    let rows = named.iter().filter(|parameter| !matches!(parameter["name"].as_str(), Some("u" | "a" | "s")));
    let rows: Vec<String> = rows
        .map(|parameter| {
            let mark = if parameter["required"] == true { "" } else { "?" };
            let schema = &parameter["schema"];
            let of = schema
                .as_object()
                .filter(|schema| schema.contains_key("enum"))
                .map(bounds)
                .unwrap_or_default();
            format!(
                "<tr><td><code>{}{mark}</code></td><td>{}</td><td><code>{}{of}</code></td><td>{}</td></tr>\n",
                said(&parameter["name"]),
                said(&parameter["in"]),
                shape(schema, 0),
                said(&parameter["description"]),
            )
        })
        .collect();
    if !rows.is_empty() {
        let _ = writeln!(
            page,
            "<table>\n<tr><th>Parameter</th><th>In</th><th>Kind</th><th></th></tr>\n{}</table>",
            rows.concat()
        );
    }
}

fn answers(page: &mut String, document: &Value, operation: &Value) {
    let mut codes = String::new();
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let response = resolved(document, response);
        if status != "default" && status.as_str() >= "400" {
            let _ = writeln!(codes, "<tr><td>{status}</td><td>{}</td></tr>", said(&response["description"]));
            continue;
        }
        let _ = writeln!(page, "<p>{status}: {}</p>", said(&response["description"]));
        for (kind, media) in response["content"].as_object().into_iter().flatten() {
            let schema = media.get("x-item-schema").or_else(|| media.get("schema"));
            let each = if media.get("x-item-schema").is_some() { ", each" } else { "" };
            let shape = schema.map(|schema| format!("<pre>{}</pre>", shape(schema, 0))).unwrap_or_default();
            let _ = writeln!(page, "<p><code>{}</code>{each}</p>\n{shape}", escaped(kind));
            if let Some(example) = media.get("example") {
                let _ = writeln!(page, "<pre>{}</pre>", escaped(&format!("{example:#}")));
            }
        }
    }
    let _ = writeln!(page, "<table>\n<tr><th>Failure</th><th></th></tr>\n{codes}</table>");
}

/// The operation as a line for a shell, with the examples of what it needs.
fn curl(document: &Value, shown: &Shown<'_>) -> String {
    let mut path = shown.paths.first().copied().unwrap_or_default().to_owned();
    let mut query = Vec::new();
    for parameter in list(&shown.operation["parameters"]).map(|parameter| resolved(document, parameter)) {
        let name = parameter["name"].as_str().unwrap_or_default();
        let schema = resolved(document, &parameter["schema"]);
        let example = parameter.get("example").or_else(|| schema["examples"].get(0));
        let example = match example {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => "x".to_owned(),
        };
        if parameter["in"] == "path" {
            path = path.replace(&format!("{{{name}}}"), &example);
        } else if parameter["in"] == "query" && parameter["required"] == true {
            query.push(format!("{name}={}", example.replace('*', "%2A")));
        }
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let method = match shown.method {
        "get" => String::new(),
        "head" => "--head ".to_owned(),
        method => format!("-X {} ", method.to_uppercase()),
    };
    let token =
        if shown.operation.get("security").is_some() { "" } else { " -H \"Authorization: Bearer $TOKEN\"" };
    let body =
        shown.operation["requestBody"]["content"].as_object().and_then(|content| content.iter().next());
    let body = body.map(|(kind, media)| match (kind.as_str(), media.get("example")) {
        ("multipart/form-data", _) => " -F file=@skill.zip".to_owned(),
        (_, Some(Value::String(text))) => format!(" --data-binary $'{}'", text.replace('\n', "\\n")),
        (_, Some(example)) => format!(" --json '{}'", example.to_string().replace('\'', "'\\''")),
        _ => " --data-binary @file".to_owned(),
    });
    format!("curl {method}'{ADDRESS}{path}{query}'{token}{}", body.unwrap_or_default())
}

/// The value that a reference refers to, or the value itself.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|reference| document.pointer(reference.strip_prefix('#')?));
    target.unwrap_or(value)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A sentence in HTML; what stands in backticks is code.
fn said(text: &Value) -> String {
    let mut html = String::new();
    for (number, part) in text.as_str().unwrap_or_default().split('`').enumerate() {
        let part = escaped(part);
        if number % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(&part);
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi::build;

    #[test]
    fn the_page_has_every_operation_and_nothing_that_its_policy_would_stop() {
        let document = build().unwrap();
        let page = html(&document);
        for shown in shown(&document) {
            assert!(
                page.contains(&format!("<code>{}</code></h3>", escaped(shown.heading))),
                "{}",
                shown.heading
            );
        }
        for forbidden in ["<script", "style=", "src=", "<link", "@import", "url(", "onclick"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(security_policy().contains("sha256-"));
    }

    #[test]
    fn an_example_can_be_pasted_into_a_shell() {
        let document = build().unwrap();
        let shown = shown(&document);
        let of =
            |heading: &str| curl(&document, shown.iter().find(|shown| shown.heading == heading).unwrap());
        assert_eq!(of("GET /healthz"), "curl 'http://127.0.0.1:8003/healthz'");
        assert_eq!(
            of("GET T/content"),
            "curl 'http://127.0.0.1:8003/v1/sandbox/alice/demo/content?path=scripts/count.py' \
             -H \"Authorization: Bearer $TOKEN\""
        );
        assert_eq!(
            of("POST T/exec/{exec_id}/signal"),
            "curl -X POST 'http://127.0.0.1:8003/v1/sandbox/alice/demo/exec/build-7/signal' \
             -H \"Authorization: Bearer $TOKEN\" --json '{\"signal\":\"INT\"}'"
        );
        assert_eq!(
            of("ANY T/ports/{port}/{path}"),
            "curl 'http://127.0.0.1:8003/v1/sandbox/alice/demo/ports/8000/index.html' \
             -H \"Authorization: Bearer $TOKEN\""
        );
    }
}
