//! Keeps web pages of other sites out.
//!
//! A page of any site can send requests to `127.0.0.1` from its visitor's browser, and a name that resolves to
//! `127.0.0.1` can even read the answers (DNS rebinding). A browser cannot help saying so in `Origin`, `Sec-Fetch-Site`
//! (<https://www.w3.org/TR/fetch-metadata/>) and `Host`. The first two are judged with tokens, too: a page may have got one, or
//! have its visitor's proxy add it.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};

use crate::http::App;
use crate::http::answer::problem::{Code, Problem};
use crate::http::middleware::host::Host;

/// Where a browser says that a page is (`same-origin`, `same-site`, `cross-site`), or that no page asked (`none`).
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Read by people, who may come from a page that links there; they are the same for all callers.
const PAGES: [&str; 2] = ["/", "/docs"];

/// The beginning of the paths of links to ports.
const LINKS: &str = "/v1/ports/";

/// Refuses a request that a foreign page may have sent, or that is for no proper host.
pub(in crate::http) fn same_origin(app: &App, request: &Request) -> Result<(), Problem> {
    let host = Host::of(request)?;
    // A page of a sandbox is of no origin, and what it may reach is what the link in the path says: an attacker who has
    // the link needs no visitor's help.
    if !request.uri().path().starts_with(LINKS) {
        check_page(request.headers(), request.uri().path(), host, &app.allowed_origins)?;
    }
    // With tokens, a page that rebinds a name has none.
    if app.access.is_closed() || app.is_guarded || host.is_none_or(|host| host.is_address_or_local()) {
        return Ok(());
    }
    Err(Problem::new(Code::Denied, "while the service needs no token, call it by address or as `localhost`"))
}

/// Checks what a browser says of the page that asks.
fn check_page(
    headers: &HeaderMap,
    path: &str,
    host: Option<Host<'_>>,
    allowed: &[String],
) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let denied = || {
        let message = "requests from web pages of other sites are refused: the operator names the sites that may \
                       ask in `access.allowed_origins`";
        Err(Problem::new(Code::Denied, message))
    };
    if let Some(origin) = text(header::ORIGIN) {
        if allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return Ok(());
        }
        let of_origin = origin.split_once("://").map(|(_, of_origin)| of_origin);
        if of_origin.zip(host).is_none_or(|(of_origin, host)| !of_origin.eq_ignore_ascii_case(host.text)) {
            return denied();
        }
    }
    match text(SITE) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if PAGES.contains(&path) => Ok(()),
        Some(_) => denied(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_foreign_page_is_refused_and_one_of_this_host_or_a_configured_one_is_not() {
        let allowed = ["https://ide.example".to_owned()];
        let is_let_in = |host: &str, origin: Option<&str>, site: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::ORIGIN, origin), (SITE, site)] {
                headers.extend(value.map(|value| (name, HeaderValue::from_str(value).unwrap())));
            }
            check_page(&headers, "/v1/info", Host::parse(host), &allowed).is_ok()
        };
        for (host, origin, site, expected) in [
            ("127.0.0.1:8003", None, None, true),
            ("127.0.0.1:8003", Some("http://127.0.0.1:8003"), None, true),
            ("box.example", Some("https://BOX.example"), Some("same-origin"), true),
            ("127.0.0.1:8003", None, Some("none"), true),
            ("127.0.0.1:8003", Some("http://evil.example"), None, false),
            ("127.0.0.1:8003", Some("http://127.0.0.1:80"), None, false),
            ("127.0.0.1:8003", Some("null"), None, false),
            ("127.0.0.1:8003", None, Some("cross-site"), false),
            ("127.0.0.1:8003", None, Some("same-site"), false),
            ("127.0.0.1:8003", None, Some("?"), false),
            ("127.0.0.1:8003", Some("http://127.0.0.1:8003"), Some("same-site"), false),
            ("127.0.0.1:8003", Some("https://ide.example"), Some("cross-site"), true),
            ("127.0.0.1:8003", Some("http://ide.example"), Some("cross-site"), false),
        ] {
            assert_eq!(is_let_in(host, origin, site), expected, "{host} {origin:?} {site:?}");
        }
        // HTTP/1.0 without `Host`: no page is the same as nothing.
        let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static("http://a"))]);
        assert!(check_page(&headers, "/v1/info", None, &[]).is_err());
    }
}
