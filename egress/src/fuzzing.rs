//! What the fuzz targets see of reading requests (`fuzz/`); built for them alone.

use std::time::Duration;

use crate::head::{self, HeadError, values};
use crate::refusal::Refusal;
use crate::request::Request;

/// Reads `bytes` as the head of a request to the proxy.
///
/// # Panics
/// When what would be sent to the server can be read differently from what was judged.
pub async fn request(mut bytes: &[u8]) {
    let Ok(raw) = head::read(&mut bytes, Duration::from_secs(5)).await else { return };
    let Ok((head, _)) = raw.into_request() else { return };
    let Ok(Request::Plain(plain)) = Request::new(head) else { return };
    let written = plain.head();
    let again = head::read(&mut written.as_slice(), Duration::from_secs(5)).await;
    // The proxy's own fields may make it larger than what the proxy itself takes.
    let again = match again.map(head::RawHead::into_request) {
        Err(HeadError::TooLarge) | Ok(Err(Refusal::HeadTooLarge(_))) => return,
        again => again.expect("a whole head"),
    };
    let (again, rest) = again.expect("a head that can be read");
    assert!(rest.is_empty(), "the head that was written holds another");
    let host = plain.target.host.to_string();
    let host = if plain.target.port == 80 { host } else { plain.target.to_string() };
    assert_eq!(values(&again.fields, "host").collect::<Vec<_>>(), [host.as_bytes()]);
    let lengths = values(&again.fields, "content-length").count();
    let codings = values(&again.fields, "transfer-encoding").count();
    assert!(lengths + codings <= 1, "{lengths} lengths and {codings} codings");
    assert!(again.target.starts_with('/') || again.target == "*", "{}", again.target);
}
