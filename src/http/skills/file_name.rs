//! The file name of a part of a form, however its sender encodes it.
//!
//! Browsers send UTF-8 between quotes; mail libraries encode words (`=?UTF-8?B?…?=`), and HTTP libraries add
//! `filename*=UTF-8''…`, with a `filename` beside it that has `_` for every other character.
//!
//! # References
//! RFC 7578 section 4.2, RFC 8187 (`filename*`), RFC 2047 (encoded words).

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, GB18030, UTF_8};
use percent_encoding::percent_decode;

/// Longest header and longest name that are read, in bytes.
const BYTES_MAX: usize = 4096;

/// The name in the `Content-Disposition` of a part; `filename*` before `filename`.
pub(in crate::http) fn of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_DISPOSITION)?.as_bytes();
    let parameters = parameters(value.get(..BYTES_MAX).unwrap_or(value));
    let named = |wanted: &str| {
        parameters
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()))
            .map(|(_, value)| value)
    };
    let name = named("filename*").and_then(|value| extended(value));
    let name = name.or_else(|| named("filename").map(|value| words(&text(value))))?;
    (!name.is_empty()).then_some(name)
}

/// The parameters of a header, quotes removed.
fn parameters(header: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = header;
    while let Some(at) = rest.iter().position(|byte| *byte == b';') {
        rest = rest.get(at + 1..).unwrap_or_default();
        let Some(equals) = rest.iter().position(|byte| matches!(byte, b'=' | b';')) else { break };
        if rest.get(equals) == Some(&b';') {
            continue;
        }
        let name = rest.get(..equals).unwrap_or_default().trim_ascii().to_vec();
        rest = rest.get(equals + 1..).unwrap_or_default().trim_ascii_start();
        let value = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let (value, length) = unquoted(quoted);
                rest = quoted.get(length..).unwrap_or_default();
                value
            }
            None => {
                let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
                rest.get(..end).unwrap_or_default().trim_ascii().to_vec()
            }
        };
        found.push((name, value));
    }
    found
}

/// The text up to the closing quote, and the bytes that it took. A backslash escapes a quote only: some programs send
/// paths of Windows.
fn unquoted(quoted: &[u8]) -> (Vec<u8>, usize) {
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return (value, at + 1),
            b'\\' if bytes.peek().is_some_and(|(_, next)| **next == b'"') => {
                value.push(b'"');
                bytes.next();
            }
            other => value.push(*other),
        }
    }
    (value, quoted.len())
}

/// UTF-8, else GB18030.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => GB18030.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

/// Reads `charset'language'percent-encoded`; `None` when it is not, or the charset is unknown.
fn extended(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let encoding = Encoding::for_label(parts.next()?)?;
    let (_language, encoded) = (parts.next()?, parts.next()?);
    let bytes: Vec<u8> = percent_decode(encoded).collect();
    encoding.decode_without_bom_handling_and_without_replacement(&bytes).map(std::borrow::Cow::into_owned)
}

/// Decodes the encoded words in `text`; what is none stays as it is. Space between two of them means nothing.
fn words(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text;
    let mut is_after_word = false;
    while let Some(at) = rest.find("=?") {
        let (before, from) = rest.split_at(at);
        let Some((word, length)) = word(from) else {
            decoded.push_str(before);
            decoded.push_str("=?");
            rest = from.get(2..).unwrap_or_default();
            is_after_word = false;
            continue;
        };
        if !(is_after_word && before.trim().is_empty()) {
            decoded.push_str(before);
        }
        decoded.push_str(&word);
        rest = from.get(length..).unwrap_or_default();
        is_after_word = true;
    }
    decoded.push_str(rest);
    decoded
}

/// Reads `=?charset?B?…?=` or `=?charset?Q?…?=` at the beginning of `text`, and tells its length.
fn word(text: &str) -> Option<(String, usize)> {
    let mut parts = text.strip_prefix("=?")?.splitn(4, '?');
    let (charset, method, encoded, _) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let length = "=?".len() + charset.len() + 1 + method.len() + 1 + encoded.len() + "?=".len();
    text.get(..length)?.strip_suffix("?=")?;
    // RFC 2231 lets a language follow the charset.
    let label = charset.split('*').next().unwrap_or(charset);
    let encoding = Encoding::for_label(label.as_bytes()).unwrap_or(UTF_8);
    let bytes = match method {
        "B" | "b" => STANDARD.decode(encoded).ok()?,
        "Q" | "q" => {
            percent_decode(encoded.replace('%', "%25").replace('_', " ").replace('=', "%").as_bytes())
                .collect()
        }
        _ => return None,
    };
    Some((encoding.decode_without_bom_handling(&bytes).0.into_owned(), length))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(value: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_bytes(value).unwrap());
        of(&headers)
    }

    #[test]
    fn names_are_read_in_every_encoding_that_programs_send() {
        for (value, expected) in [
            (r#"form-data; name="file"; filename="数据.zip""#, "数据.zip"),
            (r#"form-data; name="file"; filename="=?UTF-8?B?5pWw5o2uLnppcA==?=""#, "数据.zip"),
            (r#"form-data; name="file"; filename="=?utf-8?Q?=E6=95=B0=E6=8D=AE_1.zip?=""#, "数据 1.zip"),
            (r#"form-data; name="file"; filename="=?GB2312?B?yv2+3S56aXA=?=""#, "数据.zip"),
            (r#"form-data; filename="=?UTF-8?B?5pWw?= =?UTF-8?B?5o2u?=.zip""#, "数据.zip"),
            (r#"form-data; filename="__.zip"; filename*=UTF-8''%E6%95%B0%E6%8D%AE.zip"#, "数据.zip"),
            (r#"form-data; filename*=UTF-8''%E6%95%B0%E6%8D%AE.zip; filename="__.zip""#, "数据.zip"),
            (r#"form-data; filename*=nonsense; filename="a.zip""#, "a.zip"),
            (r#"form-data; filename="C:\up\a \"b\".zip""#, r#"C:\up\a "b".zip"#),
            (r#"form-data; name="a;filename=evil"; filename=a.zip"#, "a.zip"),
            (r#"form-data; filename="100%=?x?=.zip""#, "100%=?x?=.zip"),
        ] {
            assert_eq!(read(value.as_bytes()).as_deref(), Some(expected), "{value}");
        }
        let gbk = [br#"form-data; filename=""#.as_slice(), b"\xCA\xFD\xBE\xDD.zip\""].concat();
        assert_eq!(read(&gbk).as_deref(), Some("数据.zip"));
        assert_eq!(read(b"form-data; name=\"file\""), None);
        assert_eq!(read(b"form-data; filename=\"\""), None);
    }
}
