//! [`Answer`]: what the service answers to one request, as messages for the client.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::events::Events;

/// The codes of JSON-RPC that the bridge itself answers with.
pub(super) const PARSE_ERROR: i32 = -32_700;
pub(super) const INVALID_REQUEST: i32 = -32_600;
pub(super) const INTERNAL: i32 = -32_603;

/// The most bytes of one message: those of the largest resource, of which each may take six in JSON, and some more.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// How long the stream may bring nothing: the service sends a comment every fifteen seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Characters of an answer that is none of the service's that are told.
const FOREIGN_CHARACTERS: usize = 300;

/// The answer to the request of one id.
pub(super) struct Answer {
    id: String,
    body: Incoming,
    is_stream: bool,
    events: Events,
    ready: std::vec::IntoIter<Vec<u8>>,
    is_done: bool,
    status: u16,
}

impl Answer {
    /// The answer `response` to the request `id` (JSON).
    pub(super) fn new(id: String, response: Response<Incoming>) -> Self {
        let status = response.status().as_u16();
        let media = response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok());
        let is_stream = media.is_some_and(|media| media.starts_with("text/event-stream"));
        let body = response.into_body();
        let (events, ready) = (Events::default(), Vec::new().into_iter());
        Self { id, body, is_stream, events, ready, is_done: false, status }
    }

    /// The next message, without an end of line. The last one is the answer: there always is one.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_done {
            return None;
        }
        let message = match self.is_stream {
            true => self.next_event().await,
            false => self.whole().await,
        };
        let message = message.unwrap_or_else(|text| failure(&self.id, INTERNAL, "disconnected", text));
        self.is_done = is_answer(&message);
        Some(message)
    }

    async fn next_event(&mut self) -> Result<Vec<u8>, &'static str> {
        loop {
            if let Some(data) = self.ready.next() {
                return Ok(one_line(data));
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame()).await;
            let piece = match frame {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(_) => {
                    return Err("the service broke off before its answer: look at what the call has done");
                }
                Err(_) => return Err("the service fell silent: look at what the call has done"),
            };
            let events = self.events.take(&piece, MESSAGE_BYTES_MAX);
            self.ready =
                events.map_err(|_| "the answer of the service is larger than a message may be")?.into_iter();
        }
    }

    /// The only message of a body that is no stream.
    async fn whole(&mut self) -> Result<Vec<u8>, &'static str> {
        let body = Limited::new(&mut self.body, MESSAGE_BYTES_MAX).collect();
        let Ok(Ok(body)) = tokio::time::timeout(SILENCE, body).await else {
            return Err("the service broke off its answer");
        };
        Ok(told(&self.id, self.status, &body.to_bytes()))
    }
}

/// A body as the answer to the request `id`: a message as it is, a refusal of the service as an error with its code.
fn told(id: &str, status: u16, body: &Bytes) -> Vec<u8> {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    if let Some(mut message) = parsed.as_ref().filter(|body| body.get("jsonrpc").is_some()).cloned() {
        // One that was refused before its id was read.
        let has_id = message.get("id").is_some_and(|id| !id.is_null());
        if let Some(message) = message.as_object_mut().filter(|_| !has_id) {
            message.insert("id".to_owned(), serde_json::from_str(id).unwrap_or_default());
        }
        return message.to_string().into_bytes();
    }
    let text = |field: &str| parsed.as_ref().and_then(|body| body.get(field)).and_then(Value::as_str);
    if let (Some(code), Some(sentence)) = (text("code"), text("data")) {
        return failure(id, INTERNAL, code, sentence);
    }
    let said: String = String::from_utf8_lossy(body).chars().take(FOREIGN_CHARACTERS).collect();
    failure(
        id,
        INTERNAL,
        "internal",
        &format!("an answer with status {status} is none of a filesecbox: {said}"),
    )
}

/// An error as the answer to the request `id` (JSON).
pub(super) fn failure(id: &str, code: i32, word: &str, text: &str) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    let error = json!({ "code": code, "message": text, "data": { "code": word } });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}

/// A message in one line. Ends of lines in JSON stand between its tokens only.
fn one_line(mut message: Vec<u8>) -> Vec<u8> {
    message.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    message
}

/// Tells whether a message is the answer, after which no other comes. What is no message ends it as well.
fn is_answer(message: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Method {
        method: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Method>(message).map_or(true, |message| message.method.is_none())
}

/// The revision that the answer to `initialize` settles on.
pub(super) fn settled_version(message: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(message).ok()?;
    Some(message.get("result")?.get("protocolVersion")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_service_is_an_error_of_the_same_id_with_its_code() {
        for (body, code, word, text) in [
            (r#"{"status":"error","data":"no","code":"not_found"}"#, INTERNAL, Some("not_found"), "no"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#, -32_600, None, "m"),
            (r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32022,"message":"v"}}"#, -32_022, None, "v"),
            (
                "<html>\n",
                INTERNAL,
                Some("internal"),
                "an answer with status 502 is none of a filesecbox: <html>\n",
            ),
        ] {
            let message = told("\"a\"", 502, &Bytes::from_static(body.as_bytes()));
            assert!(!message.contains(&b'\n'));
            let message: Value = serde_json::from_slice(&message).unwrap();
            assert_eq!(message["id"], "a");
            assert_eq!(
                (&message["error"]["code"], &message["error"]["message"]),
                (&json!(code), &json!(text))
            );
            assert_eq!(message["error"]["data"]["code"].as_str(), word);
        }
    }

    #[test]
    fn a_notification_is_not_the_answer() {
        assert!(!is_answer(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#));
        assert!(is_answer(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#) && is_answer(b"no"));
        assert_eq!(one_line(b"{\r\n\"a\\n\": 1\n}".to_vec()), b"{  \"a\\n\": 1 }");
    }
}
