//! [`Compressed`]: a document that never changes, as it is and in gzip.
//!
//! Only what is the same for every caller is compressed: the size of an answer that holds something of a caller's own beside something of
//! another's would tell of it.
//!
//! # References
//! RFC 9110, section 12.5.3.

use std::io::Write;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Values of `Accept-Encoding` that are looked at.
const VALUES_MAX: usize = 64;

/// A document in both forms.
pub(super) struct Compressed {
    plain: Bytes,
    gzip: Option<Bytes>,
    media: HeaderValue,
}

impl Compressed {
    /// Compresses `text` once and for all.
    pub(super) fn new(text: String, media: &'static str) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).ok().map(Bytes::from);
        Self { plain: text.into(), gzip, media: HeaderValue::from_static(media) }
    }

    /// The answer to a request with `headers`.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| takes_gzip(headers));
        let mut response = gzip.unwrap_or(&self.plain).clone().into_response();
        let own = response.headers_mut();
        own.insert(header::CONTENT_TYPE, self.media.clone());
        own.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if gzip.is_some() {
            own.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Tells whether a caller takes gzip; one who does not say takes the document as it is.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in values.flat_map(|value| value.split(',')).take(VALUES_MAX) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let is_taken =
            quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|quality| quality > 0.0));
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return is_taken;
        }
        any |= name == "*" && is_taken;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for (values, expected) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["GZIP;q=0.5"], true),
            (&["deflate, gzip;q=1.0, *;q=0.5"], true),
            (&["br", "x-gzip"], true),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["*, gzip;q=0"], false),
            (&["gzip; q=0.000"], false),
            (&["gzip;q=no"], false),
            (&["identity"], false),
            (&["gzipped"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(takes_gzip(&headers), expected, "{values:?}");
        }
    }
}
