//! Conditions and ranges of requests (RFC 9110, sections 13 and 14).

use axum::http::{HeaderMap, HeaderName, header};
use storage::{Condition, ETag, Unmet};

use crate::http::answer::problem::{Code, Problem};
use crate::ops::remote::UNTAGGED;

/// Tags in one header.
const TAGS_MAX: usize = 64;

/// A list of tags.
enum Tags {
    Any,
    These(Vec<ETag>),
}

/// Reads the tags of the header `name`. Weak ones are kept out: they never match strongly.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
    let mut tags = Vec::new();
    let mut seen = false;
    for value in headers.get_all(name) {
        seen = true;
        let wrong =
            || Problem::invalid(format!("`{name}` is `*` or a list of quoted tags, as `ETag` gave them"));
        let mut rest = value.to_str().map_err(|_| wrong())?.trim();
        if rest == "*" && headers.get_all(name).iter().nth(1).is_none() {
            return Ok(Some(Tags::Any));
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let (weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |rest| (true, rest));
            let (tag, after) =
                quoted.strip_prefix('"').and_then(|rest| rest.split_once('"')).ok_or_else(wrong)?;
            if tags.len() >= TAGS_MAX {
                return Err(Problem::invalid(format!("`{name}` has more than {TAGS_MAX} tags")));
            }
            if !weak {
                tags.push(ETag::from_opaque(tag));
            }
            rest = after.trim_start();
            match rest.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None if rest.is_empty() => {}
                None => return Err(wrong()),
            }
        }
    }
    Ok(seen.then_some(Tags::These(tags)))
}

/// Reads the condition of a change: `If-Match`, or `If-None-Match: *`.
pub(in crate::http) fn of_change(headers: &HeaderMap) -> Result<Condition, Problem> {
    match (tags(headers, &header::IF_MATCH)?, tags(headers, &header::IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Always),
        (Some(Tags::Any), None) => Ok(Condition::Exists),
        (Some(Tags::These(tags)), None) => Ok(Condition::Matches(tags)),
        (None, Some(Tags::Any)) => Ok(Condition::Missing),
        (None, Some(Tags::These(_))) => {
            Err(Problem::invalid("a change takes `If-None-Match: *` only; for a version use `If-Match`"))
        }
        (Some(_), Some(_)) => Err(never()),
    }
}

/// Reads one tag, as `ETag` gave it, of a file that is to be changed.
pub(in crate::http) fn one_tag(text: &str) -> Result<Condition, Problem> {
    let opaque = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match opaque.filter(|opaque| !opaque.contains('"')) {
        Some(opaque) => Ok(Condition::Matches(vec![ETag::from_opaque(opaque)])),
        None => Err(Problem::invalid(format!("`{text}` is no tag: send it in quotes, as `ETag` gave it"))),
    }
}

/// The state of a reader's copy.
pub(in crate::http) enum Fresh {
    /// Send it.
    Send,
    /// The reader has it (304).
    NotModified,
}

/// Checks the condition of a request that reads a file with this tag, if it has one.
///
/// Where it has none, nothing can be found out. No caller has got a tag then, so a tag that a reader has is none of this file.
pub(in crate::http) fn of_read(
    headers: &HeaderMap,
    etag: Option<&ETag>,
    path: &str,
) -> Result<Fresh, Problem> {
    let Some(etag) = etag else {
        return match (tags(headers, &header::IF_MATCH)?, tags(headers, &header::IF_NONE_MATCH)?) {
            (None, None | Some(Tags::These(_))) => Ok(Fresh::Send),
            _ => Err(Problem::new(Code::Unsupported, UNTAGGED)),
        };
    };
    if let Some(Tags::These(tags)) = tags(headers, &header::IF_MATCH)?
        && !tags.contains(etag)
    {
        let stale = storage::Error::Stale {
            path: path.to_owned(),
            unmet: Unmet::Changed,
            current: Some(etag.clone()),
        };
        return Err(stale.into());
    }
    match tags(headers, &header::IF_NONE_MATCH)? {
        Some(Tags::Any) => Ok(Fresh::NotModified),
        Some(Tags::These(tags)) if tags.contains(etag) => Ok(Fresh::NotModified),
        _ => Ok(Fresh::Send),
    }
}

/// The file, of `size` bytes, has none of those that are asked for.
pub(in crate::http) fn unsatisfiable(size: u64) -> Problem {
    Problem::new(Code::RangeNotSatisfiable, format!("the file has {size} bytes: ask for some of them"))
        .with("size", size)
        .with_header(header::CONTENT_RANGE, format!("bytes */{size}"))
}

/// No file is there and is not.
fn never() -> Problem {
    let message = "`If-Match` and `If-None-Match` never hold together for a change: send one of them";
    Problem::new(Code::Stale, message).with("current_etag", serde_json::Value::Null)
}

/// A part of a file: first byte and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct ByteRange {
    pub(in crate::http) first: u64,
    pub(in crate::http) length: u64,
}

/// Reads the range asked for of a file of `size` bytes with this tag, if it has one; `None` means all of it.
///
/// Several ranges, other units, and a range of an older version (`If-Range`) mean all of it, as the RFC allows.
pub(in crate::http) fn range(
    headers: &HeaderMap,
    size: u64,
    etag: Option<&ETag>,
) -> Result<Option<ByteRange>, Problem> {
    let Some(value) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Ok(None);
    };
    let if_range = headers.get(header::IF_RANGE).map(|value| value.as_bytes());
    let etag = etag.map(ETag::to_string);
    if if_range.is_some_and(|tag| etag.as_deref().map(str::as_bytes) != Some(tag)) {
        return Ok(None);
    }
    let Some(spec) = value.strip_prefix("bytes=").filter(|spec| !spec.contains(',')) else {
        return Ok(None);
    };
    let malformed = || Problem::invalid("`Range` is `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`");
    let (first, last) = spec.trim().split_once('-').ok_or_else(malformed)?;
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().map_err(|_| malformed()),
        false => Err(malformed()),
    };
    let (first, end) = match (first, last) {
        ("", length) => (size.saturating_sub(number(length)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(malformed());
            }
            (first, last.saturating_add(1).min(size))
        }
    };
    if first >= end {
        return Err(unsatisfiable(size));
    }
    Ok(Some(ByteRange { first, length: end - first }))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn conditions_are_read_as_the_rfc_says() {
        let change = |name, value| of_change(&with(name, value));
        assert_eq!(change(header::IF_MATCH, "*").unwrap(), Condition::Exists);
        let two = Condition::Matches(vec![ETag::from_opaque("a"), ETag::from_opaque("b,c")]);
        assert_eq!(change(header::IF_MATCH, "\"a\" , W/\"w\", \"b,c\"").unwrap(), two);
        assert_eq!(change(header::IF_NONE_MATCH, "*").unwrap(), Condition::Missing);
        for (name, value) in [
            (header::IF_MATCH, "a"),
            (header::IF_MATCH, ""),
            (header::IF_MATCH, "\"a"),
            (header::IF_MATCH, "\"a\" \"b\""),
            (header::IF_NONE_MATCH, "\"a\""),
        ] {
            assert!(change(name, value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_condition_that_nobody_can_check_is_refused_where_there_are_no_tags() {
        let read = |name, value| of_read(&with(name, value), None, "f");
        assert!(matches!(read(header::IF_NONE_MATCH, "\"a\""), Ok(Fresh::Send)));
        assert!(read(header::IF_NONE_MATCH, "*").is_err() && read(header::IF_MATCH, "\"a\"").is_err());
    }

    #[test]
    fn a_reader_gets_a_file_whose_tag_it_does_not_have() {
        let tag = ETag::from_opaque("a");
        let read = |name, value| of_read(&with(name, value), Some(&tag), "f");
        for (name, value, is_new) in [
            (header::IF_NONE_MATCH, "\"a\"", false),
            (header::IF_NONE_MATCH, "*", false),
            (header::IF_NONE_MATCH, "\"b\", W/\"a\"", true),
            (header::IF_MATCH, "\"b\", \"a\"", true),
        ] {
            assert_eq!(matches!(read(name, value).unwrap(), Fresh::Send), is_new, "{value}");
        }
        assert!(read(header::IF_MATCH, "\"b\"").is_err());
    }

    #[test]
    fn ranges_are_clamped_and_impossible_ones_are_refused() {
        let tag = ETag::from_opaque("now");
        let read = |value: &str| range(&with(header::RANGE, value), 10, Some(&tag));
        let part = |first, length| Some(ByteRange { first, length });
        assert_eq!(read("bytes=2-4").unwrap(), part(2, 3));
        assert_eq!(read("bytes=8-").unwrap(), part(8, 2));
        assert_eq!(read("bytes=-3").unwrap(), part(7, 3));
        assert_eq!(read("bytes=5-999").unwrap(), part(5, 5));
        assert_eq!(read("bytes=0-1,3-4").unwrap(), None);
        assert_eq!(read("lines=0-1").unwrap(), None);
        let mut older = with(header::RANGE, "bytes=2-4");
        for (tag, expected) in [("\"now\"", part(2, 3)), ("\"old\"", None)] {
            older.insert(header::IF_RANGE, HeaderValue::from_static(tag));
            assert_eq!(range(&older, 10, Some(&ETag::from_opaque("now"))).unwrap(), expected);
            assert_eq!(range(&older, 10, None).unwrap(), None);
        }
        for wrong in ["bytes=10-", "bytes=-0", "bytes=4-2", "bytes=a-b", "bytes=5", "bytes=+1-2", "bytes=-"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
