//! Keeps web pages out of a service that needs no token.
//!
//! A page of any site can send requests to `127.0.0.1` from its visitor's browser, and a name that resolves to
//! `127.0.0.1` can even read the answers (DNS rebinding). A browser cannot help saying so in `Origin` and `Host`.

use axum::http::{HeaderMap, header};

use super::App;
use super::problem::{Code, Problem};

/// Refuses a request that a foreign page may have sent.
pub(super) fn same_origin(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    // With tokens, a page that has none gets nowhere.
    if app.access.is_closed() { Ok(()) } else { check(headers, app.is_guarded) }
}

fn check(headers: &HeaderMap, any_name: bool) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST);
    if let Some(origin) = text(header::ORIGIN) {
        let same = origin.split_once("://").is_some_and(|(_, origin_host)| Some(origin_host) == host);
        if !same {
            let message =
                "requests from web pages of other sites are refused while the service needs no token";
            return Err(Problem::new(Code::Denied, message));
        }
    }
    if any_name || host.is_none_or(is_address_or_local) {
        return Ok(());
    }
    Err(Problem::new(Code::Denied, "while the service needs no token, call it by address or as `localhost`"))
}

/// Tells whether a `Host` is an address or `localhost`, which nobody can make resolve elsewhere.
fn is_address_or_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_foreign_page_and_a_rebound_name_are_refused() {
        let headers = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            headers
        };
        assert!(check(&headers("127.0.0.1:8003", None), false).is_ok());
        assert!(check(&headers("localhost", None), false).is_ok());
        assert!(check(&headers("[::1]:8003", None), false).is_ok());
        assert!(check(&headers("127.0.0.1:8003", Some("http://127.0.0.1:8003")), false).is_ok());
        assert!(check(&headers("127.0.0.1:8003", Some("http://evil.example")), false).is_err());
        assert!(check(&headers("127.0.0.1:8003", Some("null")), false).is_err());
        assert!(check(&headers("evil.example:8003", None), false).is_err());
        assert!(check(&headers("filesecbox:8003", None), true).is_ok());
    }
}
