//! [`Sent`]: one line of the client, and the headers that a message has over HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{INVALID_REQUEST, PARSE_ERROR, failure};
use crate::mcp::message::{Refused, VALUES_MAX, check};

/// The headers of the current protocol.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// One line of the client.
#[derive(Debug)]
pub(super) enum Sent {
    /// A request, to be passed on.
    Request(Request),
    /// The request of this id is to be ended.
    Cancelled(String),
    /// A notification or an answer: there is no session for which it could mean something.
    Other,
    /// No message. This is the answer.
    Refused(Vec<u8>),
}

/// A request to be passed on.
#[derive(Debug)]
pub(super) struct Request {
    /// Its id: a number or a text, as JSON.
    pub(super) id: String,
    /// Whether it begins the life of a client of an older revision.
    pub(super) is_initialize: bool,
    /// The headers that follow from the message; none for a message of an older revision.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The message.
    pub(super) body: Bytes,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// What headers say once more.
#[derive(Default, Deserialize)]
struct Params {
    #[serde(rename = "_meta", default)]
    meta: Option<Meta>,
    #[serde(default)]
    name: Option<Text>,
    #[serde(default)]
    uri: Option<Text>,
    #[serde(rename = "requestId", default)]
    request_id: Option<Value>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", default)]
    version: Option<Text>,
}

/// A text; any other value is none of ours to judge.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Is(String),
    Other(serde::de::IgnoredAny),
}

impl Text {
    fn into_string(self) -> Option<String> {
        match self {
            Self::Is(text) => Some(text),
            Self::Other(_) => None,
        }
    }
}

impl Sent {
    /// Reads a line.
    pub(super) fn read(line: Vec<u8>) -> Self {
        match check(&line) {
            Ok(()) => {}
            Err(Refused::Batch) => {
                let text = "lists of messages are not taken: send each message in a line of its own";
                return Self::Refused(failure("null", INVALID_REQUEST, "invalid", text));
            }
            Err(Refused::Values) => {
                let text =
                    format!("the message has more than {VALUES_MAX} values: send fewer and longer ones");
                return Self::Refused(failure("null", INVALID_REQUEST, "too_large", &text));
            }
        }
        let message = match serde_json::from_slice::<Message<'_>>(&line) {
            Ok(message) => message,
            Err(error) => {
                let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
                let text = "the line is no message of JSON-RPC: send one in each line";
                return Self::Refused(failure("null", code, "invalid", text));
            }
        };
        let Some(method) = message.method else { return Self::Other };
        // What has other parameters is for the service to refuse.
        let params = message.params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
        let params = params.unwrap_or_default();
        let Some(id) = message.id else {
            return match params.request_id.as_ref().and_then(id_of) {
                Some(id) if method == "notifications/cancelled" => Self::Cancelled(id),
                _ => Self::Other,
            };
        };
        let Some(id) = serde_json::from_str(id.get()).ok().as_ref().and_then(id_of) else {
            let text = "the `id` of a request is a number or a text";
            return Self::Refused(failure("null", INVALID_REQUEST, "invalid", text));
        };
        let is_initialize = method == "initialize";
        let headers = headers(&method, params);
        Self::Request(Request { id, is_initialize, headers, body: line.into() })
    }
}

/// An id as JSON, when it can be one.
fn id_of(id: &Value) -> Option<String> {
    matches!(id, Value::Number(_) | Value::String(_)).then(|| id.to_string())
}

/// The headers of a message that names its revision, which those of the current one do.
fn headers(method: &str, params: Params) -> Vec<(HeaderName, HeaderValue)> {
    let version = params.meta.and_then(|meta| meta.version).and_then(Text::into_string);
    let Some(version) = version else { return Vec::new() };
    let name = match method {
        "tools/call" | "prompts/get" => params.name,
        "resources/read" => params.uri,
        _ => None,
    };
    let name = name.and_then(Text::into_string).map(|name| encoded(&name));
    let headers = [(VERSION, Some(version)), (METHOD, Some(method.to_owned())), (NAME, name)];
    // A value that no header can have is left out: the service tells what is missing.
    let header = |(name, value): (_, Option<String>)| Some((name, HeaderValue::try_from(value?).ok()?));
    headers.into_iter().filter_map(header).collect()
}

/// A text as the value of a header: in base64 where it has other characters than such a value, or blanks at its ends.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

/// The header that a client of an older revision sends after its first message.
pub(super) fn version_header(version: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((VERSION, HeaderValue::try_from(version).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        match Sent::read(line.into()) {
            Sent::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_that_names_its_revision_has_headers_and_one_of_an_older_has_none() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"Read","arguments":{"name":"x"},
            "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let given = request(line).headers;
        let told: Vec<_> =
            given.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(
            told,
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "Read")]
        );
        let older =
            request(r#"{"id":"a","method":"tools/call","params":{"name":"R","_meta":{"progressToken":1}}}"#);
        assert!(older.headers.is_empty() && older.id == "\"a\"");
        assert!(request(r#"{"id":1,"method":"initialize"}"#).is_initialize);
    }

    #[test]
    fn a_name_that_no_header_can_have_is_encoded() {
        for (name, expected) in [
            ("Read", "Read"),
            ("a b", "a b"),
            (" a", "=?base64?IGE=?="),
            ("读", "=?base64?6K+7?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encoded(name), expected);
        }
    }

    #[test]
    fn what_is_no_request_is_not_passed_on() {
        for other in [
            r#"{"method":"notifications/initialized"}"#,
            r#"{"id":1,"result":{}}"#,
            "{}",
            r#"{"id":null,"method":"ping"}"#,
            r#"{"method":"notifications/cancelled","params":{"requestId":null}}"#,
        ] {
            assert!(matches!(Sent::read(other.into()), Sent::Other), "{other}");
        }
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":"7","reason":"x"}}"#;
        assert!(matches!(Sent::read(cancelled.into()), Sent::Cancelled(id) if id == "\"7\""));
        let many = format!(r#"{{"id":1,"method":"ping","params":[{}0]}}"#, "0,".repeat(VALUES_MAX));
        let deep = format!(r#"{{"id":1,"method":"ping","params":{}"#, "[".repeat(10_000));
        for refused in ["[]", "no", "1", r#"{"id":[],"method":"x"}"#, &many, &deep] {
            let Sent::Refused(answer) = Sent::read(refused.into()) else { panic!("{refused}") };
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert!(
                answer["id"].is_null() && answer["error"]["code"].as_i64().unwrap() < -32_000,
                "{answer}"
            );
        }
    }
}
