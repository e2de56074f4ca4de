//! [`Frame`]: the envelope of everything that is said.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

/// One message, its body not read yet.
///
/// * `id` names a request; its answers have the same. Notices have none.
/// * `user_id` is there in requests, and means nothing to a runner of one user.
/// * The body is an object of its own in `body`, or, in the flat form of the founding document, the rest of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Names the request; at most [`ID_BYTES_MAX`] bytes.
    pub id: Option<Cow<'a, str>>,
    /// What it is, such as `read_file`.
    pub kind: Cow<'a, str>,
    /// The JSON of the body.
    body: &'a str,
}

/// The longest name of a request, in bytes.
pub const ID_BYTES_MAX: usize = 64;

/// A frame that is none: such frames are ignored, and the connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the frame is no JSON object with a `type`")]
pub struct Malformed;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Outgoing<'a, B> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<B>,
}

impl<'a> Frame<'a> {
    /// Reads the envelope.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let envelope: Envelope<'a> = serde_json::from_str(text).map_err(|_| Malformed)?;
        if envelope.id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err(Malformed);
        }
        let body = envelope.body.map(RawValue::get).filter(|body| *body != "null").unwrap_or(text);
        // An empty name is none: some peers send one in notices.
        let id = envelope.id.filter(|id| !id.is_empty());
        Ok(Self { id, kind: envelope.kind, body })
    }

    /// Reads the body; unknown fields are ignored.
    ///
    /// # Errors
    /// What is wrong, in one line, without the values of the frame.
    pub fn body<B: DeserializeOwned>(&self) -> Result<B, String> {
        serde_json::from_str(self.body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                let told = error.to_string();
                // `invalid type: string "…"` would repeat what the peer sent.
                match told.split_once(": ") {
                    Some(("invalid type" | "invalid value", _)) => {
                        "a field has another type than it must".to_owned()
                    }
                    _ => told.split(" at line ").next().unwrap_or_default().to_owned(),
                }
            }
            _ => "the body is no JSON object".to_owned(),
        })
    }
}

/// Writes a frame with the body nested.
///
/// # Errors
/// None: what is sent has no keys but text.
pub(crate) fn write<B: Serialize>(
    id: Option<&str>,
    kind: &str,
    user_id: Option<&str>,
    body: Option<B>,
) -> String {
    serde_json::to_string(&Outgoing { id, kind, user_id, body }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_body_is_nested_or_flat() {
        let nested = r#"{"id":"a","type":"stat","user_id":"u","body":{"path":"x"},"more":1}"#;
        let flat = r#"{"id":"a","type":"stat","path":"x","user_id":"u"}"#;
        for text in [nested, flat] {
            let frame = Frame::parse(text).unwrap();
            assert_eq!((frame.id.as_deref(), &*frame.kind), (Some("a"), "stat"));
            assert_eq!(frame.body::<Value>().unwrap()["path"], "x");
        }
    }

    #[test]
    fn what_is_no_frame_is_malformed() {
        let long = format!(r#"{{"id":"{}","type":"stat"}}"#, "x".repeat(ID_BYTES_MAX + 1));
        for text in ["", "not json", "[]", "{}", r#"{"type":1}"#, r#"{"id":7,"type":"stat"}"#, &long] {
            assert_eq!(Frame::parse(text), Err(Malformed), "{text}");
        }
        assert_eq!(Frame::parse(r#"{"id":"","type":"t"}"#).unwrap().id, None);
        assert_eq!(Frame::parse(r#"{"id":null,"type":"t","body":null}"#).unwrap().id, None);
    }

    #[test]
    fn what_is_wrong_is_told_without_what_was_sent() {
        #[derive(Debug, Deserialize)]
        struct Body {
            #[expect(dead_code, reason = "only its type matters")]
            path: String,
        }
        let told = |text| Frame::parse(text).unwrap().body::<Body>().unwrap_err();
        assert_eq!(told(r#"{"type":"t","body":{}}"#), "missing field `path`");
        assert!(!told(r#"{"type":"t","body":"secret"}"#).contains("secret"));
        assert!(!told(r#"{"type":"t","body":{"path":["secret"]}}"#).contains("secret"));
    }
}
