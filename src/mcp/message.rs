//! What is refused before a message is read: many messages in one, and one of many small values.

use serde_json::{Value, json};

/// Values that a message may have. Each takes two bytes on the way and some hundred in memory.
pub const VALUES_MAX: usize = 20_000;

/// Why a message is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is a list of messages, which one revision of the protocol alone had.
    Batch,
    /// It has more than [`VALUES_MAX`] values.
    Values,
}

/// Looks over the bytes of a message, without reading it: what is no JSON is told by who reads it.
///
/// # Errors
/// [`Refused`].
pub fn check(bytes: &[u8]) -> Result<(), Refused> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Refused::Batch);
    }
    // Each value but the first stands behind one of these.
    let (mut values, mut is_text, mut is_escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    if values > VALUES_MAX { Err(Refused::Values) } else { Ok(()) }
}

/// The answer to a list of messages.
#[must_use]
pub fn refused_batch() -> Value {
    let message = "lists of messages are not taken: send each message in a request of its own";
    json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_one_value_and_many_values_are_refused() {
        let text = format!(r#"{{"a":"{}\\\"{}"}}"#, "[,{:".repeat(VALUES_MAX), "[[".repeat(VALUES_MAX));
        assert_eq!(check(text.as_bytes()), Ok(()));
        for open in ["[", "{\"a\":", "[0,"] {
            let many = format!("{{\"a\":{}", open.repeat(VALUES_MAX));
            assert_eq!(check(many.as_bytes()), Err(Refused::Values), "{open}");
        }
        let list = format!("{{\"a\":[{}0]}}", "0,".repeat(VALUES_MAX));
        assert_eq!(check(list.as_bytes()), Err(Refused::Values));
    }

    #[test]
    fn a_list_of_messages_is_refused() {
        for list in ["[]", " \r\n\t[{}]", "["] {
            assert_eq!(check(list.as_bytes()), Err(Refused::Batch), "{list}");
        }
        for other in ["", "{}", " {\"a\":[]}", "no"] {
            assert_eq!(check(other.as_bytes()), Ok(()), "{other}");
        }
    }
}
