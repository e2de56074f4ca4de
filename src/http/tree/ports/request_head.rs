//! The head of a request as a server in a sandbox gets it.
//!
//! The server is a program of the user's, written by a stranger perhaps: nothing that proves who the caller is may reach
//! it. So what goes along is listed, and what a proxy in front of the service adds is left out with the rest.

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

/// Headers that go along as they are.
const KEPT: [&str; 30] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "depth",
    "dnt",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "pragma",
    "prefer",
    "range",
    "save-data",
    "upgrade-insecure-requests",
    "user-agent",
    "x-csrf-token",
    "x-requested-with",
    "x-xsrf-token",
];
/// The beginnings of headers that a page gives its own server: no proxy or platform says in one of these who a caller is.
/// Other `x-…` headers do not go along: in which of them a platform says that cannot be known (`x-consumer-username`,
/// `x-ssl-client-cert`, `x-api-key`, …).
const OWN: [&str; 2] = ["hx-", "x-app-"];
/// Headers of a WebSocket's beginning (RFC 6455, section 4.1).
const UPGRADE: [&str; 4] =
    ["sec-websocket-extensions", "sec-websocket-key", "sec-websocket-protocol", "sec-websocket-version"];

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADED: HeaderValue = HeaderValue::from_static("upgrade");

/// Whether a request asks for a WebSocket, the only protocol that a connection may become.
pub(super) fn asks_for_websocket(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET
        && has_word(headers, &header::UPGRADE, "websocket")
        && has_word(headers, &header::CONNECTION, "upgrade")
}

/// Whether a list in a header has a word.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// The head for the server at `port`. `prefix` is what stands before the server's own paths, where it may know that.
pub(super) fn head(
    method: Method,
    rest: PathAndQuery,
    headers: &HeaderMap,
    port: u16,
    prefix: Option<&str>,
) -> hyper::http::request::Parts {
    let is_websocket = asks_for_websocket(&method, headers);
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        if goes_along(name.as_str()) || (is_websocket && UPGRADE.contains(&name.as_str())) {
            kept.append(name.clone(), value.clone());
        }
    }
    // What `Connection` names is for the next reader alone (RFC 9110, section 7.6.1).
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|text| text.split(',')) {
        kept.remove(name.trim());
    }
    if is_websocket {
        kept.insert(header::CONNECTION, UPGRADED);
        kept.insert(header::UPGRADE, WEBSOCKET);
    }
    let mut set = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            kept.insert(name, value);
        }
    };
    let host = format!("localhost:{port}");
    if headers.contains_key(header::ORIGIN) {
        // A page is judged before it gets here; to the server, which knows no other name of itself, it is its own.
        set(header::ORIGIN, &format!("http://{host}"));
    }
    set(header::HOST, &host);
    if let Some(asked) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        set(FORWARDED_HOST, asked);
    }
    let is_secure = headers.get(&FORWARDED_PROTO).is_some_and(|value| value == "https");
    set(FORWARDED_PROTO, if is_secure { "https" } else { "http" });
    if let Some(prefix) = prefix {
        set(FORWARDED_PREFIX, prefix);
    }
    let (mut parts, ()) = hyper::Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, Uri::from(rest), kept);
    parts
}

fn goes_along(name: &str) -> bool {
    KEPT.contains(&name) || OWN.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn sent(lines: &[(&str, &str)], prefix: Option<&str>) -> Vec<(String, String)> {
        let parts = head(Method::GET, "/x?y".parse().unwrap(), &headers(lines), 8000, prefix);
        assert_eq!((parts.uri.to_string().as_str(), parts.uri.authority()), ("/x?y", None));
        let mut sent: Vec<_> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        sent.sort();
        sent
    }

    fn pairs(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut pairs: Vec<_> =
            lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        pairs.sort();
        pairs
    }

    const USUAL: [(&str, &str); 3] =
        [("host", "localhost:8000"), ("x-forwarded-host", "box.example"), ("x-forwarded-proto", "http")];

    #[test]
    fn nothing_that_proves_who_the_caller_is_reaches_the_server() {
        let secrets = [
            ("host", "box.example"),
            ("authorization", "Bearer secret"),
            ("cookie", "session=secret"),
            ("proxy-authorization", "Basic secret"),
            ("referer", "http://box.example/v1/ports/secret/"),
            ("x-forwarded-access-token", "secret"),
            ("x-forwarded-for", "10.1.2.3"),
            ("x-forwarded-prefix", "/secret"),
            ("x-forwarded-host", "secret"),
            ("x-auth-request-email", "secret"),
            ("x-amzn-oidc-data", "secret"),
            ("x-goog-iap-jwt-assertion", "secret"),
            ("x-ms-token-aad-id-token", "secret"),
            ("x-real-ip", "10.1.2.3"),
            ("x-request-id", "secret"),
            ("x-api-key", "secret"),
            ("x-consumer-username", "secret"),
            ("x-ssl-client-cert", "secret"),
            ("x-user", "secret"),
            ("x-app", "secret"),
            ("forwarded", "for=10.1.2.3"),
            ("cf-access-jwt-assertion", "secret"),
            ("traceparent", "00-secret"),
            ("an-invention-of-tomorrow", "secret"),
        ];
        assert_eq!(sent(&secrets, None), pairs(&USUAL));
    }

    #[test]
    fn what_a_server_needs_goes_along_and_what_is_for_the_next_reader_does_not() {
        let lines = [
            ("host", "box.example"),
            ("accept", "text/html"),
            ("range", "bytes=0-9"),
            ("x-app-key", "the page's own"),
            ("hx-request", "true"),
            ("x-app-hop", "for the next reader"),
            ("connection", "keep-alive, X-App-Hop, accept"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("expect", "100-continue"),
            ("upgrade", "h2c"),
            ("origin", "https://box.example"),
            ("x-forwarded-proto", "https"),
        ];
        let expected = [
            ("host", "localhost:8000"),
            ("range", "bytes=0-9"),
            ("x-app-key", "the page's own"),
            ("hx-request", "true"),
            ("origin", "http://localhost:8000"),
            ("x-forwarded-host", "box.example"),
            ("x-forwarded-prefix", "/v1/sandbox/u/a/ports/8000"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(sent(&lines, Some("/v1/sandbox/u/a/ports/8000")), pairs(&expected));
    }

    #[test]
    fn a_websocket_is_asked_for_with_its_own_headers_only() {
        let lines = [
            ("host", "box.example"),
            ("connection", "Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
        ];
        let mut expected = vec![
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
        ];
        expected.extend(USUAL);
        assert_eq!(sent(&lines, None), pairs(&expected));
        assert!(!asks_for_websocket(&Method::POST, &headers(&lines)));
        assert!(!asks_for_websocket(&Method::GET, &headers(&[("upgrade", "websocket")])));
    }
}
