//! The head of a server's answer as the caller gets it.
//!
//! The answer comes from the same origin as the interface of the service, and its author may be a stranger. So its headers
//! are listed, because many others speak for the origin or to a proxy in front of it (`Set-Cookie`, `Clear-Site-Data`,
//! `Strict-Transport-Security`, `Service-Worker-Allowed`, `X-Accel-Redirect`, …), and every page gets a sandbox of the browser's: an
//! origin of its own that is no other page's, so that it reads and stores nothing of the origin's.
//!
//! # References
//! `sandbox` in <https://www.w3.org/TR/CSP3/>; RFC 9110.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Headers that are passed on as they are.
const KEPT: [HeaderName; 18] = [
    header::ACCEPT_RANGES,
    header::AGE,
    header::ALLOW,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::RETRY_AFTER,
    header::VARY,
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("mcp-session-id"),
];
/// Headers with which a server takes a WebSocket (RFC 6455, section 4.2.2).
const UPGRADE: [HeaderName; 3] =
    [header::SEC_WEBSOCKET_ACCEPT, header::SEC_WEBSOCKET_EXTENSIONS, header::SEC_WEBSOCKET_PROTOCOL];

/// What a browser lets a page do. Never `allow-same-origin`: with it the page would be one of the service's own.
const SANDBOX: HeaderValue = HeaderValue::from_static(
    "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts",
);

/// The head of an answer.
///
/// * `prefix` stands before the server's own paths, at which its redirects are to lead;
/// * `host` is what the server was called;
/// * `is_open` says that pages of any origin may read the answer, as those of a link must, which have none.
pub(super) fn head(
    status: StatusCode,
    headers: &HeaderMap,
    prefix: &str,
    host: &str,
    is_open: bool,
) -> HeaderMap {
    let mut kept = HeaderMap::new();
    let is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in headers {
        if KEPT.contains(name) || (is_upgrade && UPGRADE.contains(name)) {
            kept.append(name.clone(), value.clone());
        }
    }
    if is_upgrade {
        kept.remove(header::CONTENT_LENGTH);
        kept.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        kept.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return kept;
    }
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let location = text(header::LOCATION).and_then(|location| inside(location, prefix, host));
    if let Some(location) = location.and_then(|location| HeaderValue::try_from(location).ok()) {
        kept.insert(header::LOCATION, location);
    }
    let caching = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    if let Ok(caching) = HeaderValue::try_from(private(caching)) {
        kept.insert(header::CACHE_CONTROL, caching);
    }
    // Beside the server's own: a browser keeps all of them.
    kept.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
    kept.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    kept.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // nginx would collect a stream before it passes it on.
    kept.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    if is_open {
        allow_pages(&mut kept);
    }
    kept
}

/// Lets pages of any origin read an answer and send what they like, but for cookies and tokens.
pub(super) fn allow_pages(headers: &mut HeaderMap) {
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ] {
        headers.insert(name, HeaderValue::from_static("*"));
    }
}

/// Where a redirect leads, when that is the server itself; a caller that follows any other one with its token in hand
/// would ask for what the server chooses.
fn inside(location: &str, prefix: &str, host: &str) -> Option<String> {
    if location.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
        return None;
    }
    let path = location.split(['?', '#']).next().unwrap_or_default();
    let climbs =
        |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    let own = location.strip_prefix("http://").and_then(|rest| rest.strip_prefix(host));
    match own {
        Some("") => return Some(format!("{prefix}/")),
        Some(own) if own.starts_with('/') && !own.split(['?', '#']).next()?.split('/').any(climbs) => {
            return Some(format!("{prefix}{own}"));
        }
        _ => {}
    }
    if path.split('/').any(climbs) || path.starts_with("//") {
        return None;
    }
    if path.starts_with('/') {
        return Some(format!("{prefix}{location}"));
    }
    // A scheme ends at the first colon (RFC 3986, section 3.1).
    (!path.split('/').next()?.contains(':')).then(|| location.to_owned())
}

/// `Cache-Control` for answers that are for their caller alone, also when the server allows shared caches.
fn private<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let words = values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| {
        let name = word.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        !name.is_empty() && !matches!(name.as_str(), "public" | "private" | "s-maxage")
    });
    std::iter::once("private").chain(words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(lines: &[(&str, &str)], is_open: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        head(StatusCode::OK, &headers, "/p", "localhost:8000", is_open)
    }

    #[test]
    fn no_header_of_a_server_speaks_for_the_origin_or_to_a_proxy() {
        let lines = [
            ("set-cookie", "session=evil; Path=/"),
            ("clear-site-data", "\"*\""),
            ("service-worker-allowed", "/"),
            ("strict-transport-security", "max-age=1"),
            ("access-control-allow-origin", "http://evil.example"),
            ("access-control-allow-credentials", "true"),
            ("www-authenticate", "Basic realm=\"the service\""),
            ("alt-svc", "h3=\":443\""),
            ("x-accel-redirect", "/etc/passwd"),
            ("x-sendfile", "/etc/passwd"),
            ("link", "</x>; rel=preload"),
            ("refresh", "0; url=http://evil.example"),
            ("x-request-id", "forged"),
            ("connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("report-to", "{}"),
            ("nel", "{}"),
            ("location", "http://evil.example/"),
        ];
        let kept = answered(&lines, false);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let own = ["cache-control", "content-security-policy", "referrer-policy"];
        assert_eq!(names, [own.as_slice(), &["x-accel-buffering", "x-content-type-options"]].concat());
        assert_eq!(kept["x-accel-buffering"], "no");
    }

    #[test]
    fn a_page_is_put_into_the_browsers_sandbox_whatever_it_says_itself() {
        let kept = answered(&[("content-security-policy", "sandbox allow-same-origin")], true);
        let policies: Vec<_> = kept
            .get_all(header::CONTENT_SECURITY_POLICY)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        assert_eq!(policies.len(), 2);
        assert!(policies[1].starts_with("sandbox ") && !policies[1].contains("same-origin"), "{policies:?}");
        assert_eq!(kept[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(kept[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(!kept.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
    }

    #[test]
    fn a_redirect_leads_to_the_server_or_nowhere() {
        for (location, expected) in [
            ("/login?next=/a", Some("/p/login?next=/a")),
            ("/", Some("/p/")),
            ("http://localhost:8000/x", Some("/p/x")),
            ("http://localhost:8000", Some("/p/")),
            ("next", Some("next")),
            ("a/b?u=http://x/../y", Some("a/b?u=http://x/../y")),
            ("?page=2", Some("?page=2")),
            ("", Some("")),
            ("http://evil.example/", None),
            ("https://localhost:8000/", None),
            ("http://localhost:80001/", None),
            ("http://localhost:8000@evil.example/", None),
            ("//evil.example/", None),
            ("/\\evil.example/", None),
            ("\\\\evil.example/", None),
            ("javascript:alert(1)", None),
            ("../exec", None),
            ("a/../../exec", None),
            ("/../../exec", None),
            ("/%2e%2E/exec", None),
            ("http://localhost:8000/../../exec", None),
            ("./../x", None),
            ("/a b", None),
        ] {
            assert_eq!(inside(location, "/p", "localhost:8000").as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn no_cache_of_several_callers_keeps_an_answer() {
        for (said, expected) in [
            (vec![], "private"),
            (vec!["public, max-age=60"], "private, max-age=60"),
            (vec!["no-store", "S-MaxAge = 9"], "private, no-store"),
        ] {
            assert_eq!(private(said.into_iter()), expected);
        }
    }
}
