//! `Content-Disposition`: has a browser save what it gets, under the name that it has here.

use axum::http::HeaderValue;

/// Names a download in ASCII for old clients and in UTF-8 for all others (RFC 6266, RFC 8187).
///
/// `None` for a name that no header can hold; none that a tree can hold is like that.
pub(in crate::http) fn attachment(name: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(written(name)).ok()
}

fn written(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chinese_name_survives_and_a_quote_cannot_end_the_header() {
        assert_eq!(
            written("数据\"; x.zip"),
            "attachment; filename=\"____ x.zip\"; filename*=UTF-8''%E6%95%B0%E6%8D%AE%22%3B%20x.zip"
        );
    }
}
