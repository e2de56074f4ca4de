//! Holds an answer against the promise: its status, headers, media type and body.

use serde_json::Value;

use super::promise::{Promise, is_for_here};

/// An answer as it is held against the promise.
pub(crate) struct Answered<'a> {
    pub(crate) method: &'a str,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl Promise {
    /// The faults of an answer; none when the document promises it.
    pub(crate) fn broken_by(&self, answered: &Answered<'_>) -> Vec<String> {
        let Answered { method, target, status, headers, body } = answered;
        let header =
            |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        if matches!(status, 400 | 414 | 431) && body.is_empty() && header("x-request-id").is_none() {
            // It could not be read as a request.
            return Vec::new();
        }
        if is_for_others(target) {
            return Vec::new();
        }
        let Some((pointer, is_asked)) = self.operation(method, target) else {
            return self.failure(&["method_not_allowed", "not_found", "invalid", "denied", "busy"], body);
        };
        // A server in a sandbox answers with any status; every answer of a server is in the browser's sandbox.
        let is_servers = header("content-security-policy").is_some_and(|policy| policy.contains("sandbox "))
            && self.document.pointer(&format!("{pointer}/responses/default")).is_some();
        let answer = if is_servers { "default".to_owned() } else { status.to_string() };
        let Some(response) = self.document.pointer(&format!("{pointer}/responses/{answer}")) else {
            return vec![format!("{status} is no declared status")];
        };
        let (response, responses) = self.resolved(response, format!("{pointer}/responses/{answer}"));
        let mut complaints = Vec::new();
        for (name, declared) in response["headers"].as_object().into_iter().flatten() {
            let (declared, at) = self.resolved(declared, format!("{responses}/headers/{name}"));
            match header(&name.to_lowercase()) {
                Some(value) => {
                    let number =
                        value.parse::<u64>().ok().filter(|_| declared["schema"]["type"] == "integer");
                    let value = number.map_or_else(|| Value::from(value), Value::from);
                    complaints.extend(self.complaints(&format!("{at}/schema"), &value));
                }
                None if declared["required"] == true || is_for_here(declared) => {
                    complaints.push(format!("no header `{name}`"))
                }
                None => {}
            }
        }
        if !is_asked || *method == "HEAD" || response.get("content").is_none() {
            if !body.is_empty() {
                complaints.push("a body that is not declared".to_owned());
            }
            return complaints;
        }
        if is_servers {
            return complaints;
        }
        let kind = header("content-type").unwrap_or_default();
        // The service's own failure, where a server may answer with the same status in any form.
        let own = format!("{responses}/content/*~1*/x-failure-schema");
        let is_own = kind == "application/json" && self.document.pointer(&own).is_some();
        let content = format!("{responses}/content/{}", escaped(kind));
        let schema = if is_own { own } else { format!("{content}/schema") };
        if !is_own && self.document.pointer(&content).is_none() {
            complaints.push(format!("`{kind}` is no declared media type of {status}"));
        } else if kind == "application/json" && self.document.pointer(&schema).is_some() {
            complaints.extend(match serde_json::from_slice(body) {
                Ok(value) => self.complaints(&schema, &value),
                Err(error) => vec![format!("no JSON: {error}")],
            });
        }
        complaints
    }

    /// A failure that belongs to no operation.
    fn failure(&self, codes: &[&str], body: &[u8]) -> Vec<String> {
        if body.is_empty() {
            return Vec::new();
        }
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return vec!["no JSON".to_owned()] };
        let code = value["code"].as_str().unwrap_or_default();
        if !codes.contains(&code) {
            return vec![format!("`{code}` from what is no operation")];
        }
        self.complaints(&format!("/components/schemas/{code}"), &value)
    }

    /// Where the operation of a request is, and whether its method was meant; a `GET` answers `HEAD`, too.
    fn operation(&self, method: &str, target: &str) -> Option<(String, bool)> {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').collect();
        let paths = self.document["paths"].as_object().unwrap();
        // The most literal template is the one that the router takes.
        let matching = paths.keys().filter(|template| matches(template, &segments));
        let template = matching.min_by_key(|template| template.matches('{').count())?;
        let item = &paths[template];
        let method = method.to_lowercase();
        let (method, is_asked) = match item.get(&method) {
            Some(_) => (method, true),
            None if method == "head" && item.get("get").is_some() => ("get".to_owned(), false),
            // A route that passes everything on passes methods on that OpenAPI does not have.
            None if item.get("trace").is_some() => ("post".to_owned(), true),
            None => return None,
        };
        Some((format!("/paths/{}/{method}", escaped(template)), is_asked))
    }

    fn resolved<'a>(&'a self, value: &'a Value, at: String) -> (&'a Value, String) {
        match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => (self.document.pointer(pointer).unwrap(), pointer.to_owned()),
            None => (value, at),
        }
    }
}

/// Whether the document leaves a target out: other vendors promise the answers of their doors, and the forms of installers those
/// of share links.
fn is_for_others(target: &str) -> bool {
    let segments: Vec<&str> =
        target.split(['?', '#']).next().unwrap_or_default().split('/').skip(1).collect();
    matches!(segments.as_slice(), ["compat", _, _, ..] | ["s" | "catalog", _, ..])
}

fn matches(template: &str, segments: &[&str]) -> bool {
    let wanted: Vec<&str> = template.split('/').collect();
    let (wanted, segments) = match wanted.split_last() {
        // Any text may follow, be it a good path or not.
        Some((&"{path}", before)) if segments.len() > before.len() => (before, &segments[..before.len()]),
        _ => (wanted.as_slice(), segments),
    };
    let is_same = |(wanted, segment): (&&str, &&str)| {
        if wanted.starts_with('{') { !segment.is_empty() } else { wanted == segment }
    };
    wanted.len() == segments.len() && wanted.iter().zip(segments).all(is_same)
}

/// A name in a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
