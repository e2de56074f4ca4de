//! [`Request`]: what a client of a proxy may ask for: a tunnel, or one plain request in absolute form.

use super::body::Framing;
use super::head::{Field, RequestHead, passed_on, write_fields};
use super::refusal::Refusal;
use super::target::Target;

/// A request that makes sense; nothing of it has been judged.
#[derive(Debug)]
pub(super) enum Request {
    /// `CONNECT host:port` (RFC 9110, section 9.3.6).
    Connect(Target),
    /// `GET http://host/path`, or another method (RFC 9112, section 3.2.2).
    Plain(Plain),
}

/// A plain request, as it will be written anew.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) target: Target,
    pub(super) framing: Framing,
    method: String,
    /// Path and query; begins with `/`, or is `*`.
    path: String,
    is_1_1: bool,
    fields: Vec<Field>,
    /// Whether the request line names the host too, because another proxy reads it.
    pub(super) is_for_proxy: bool,
}

impl Request {
    /// Reads a head as a request to a proxy.
    ///
    /// # Errors
    /// [`Refusal::Malformed`], [`Refusal::Spelling`].
    pub(super) fn new(head: RequestHead) -> Result<Self, Refusal> {
        let framing = Framing::of(&head.fields, head.is_1_1)?;
        if head.method == "CONNECT" {
            // A length would make the first bytes of the tunnel a body to some, and not to others.
            if framing != Framing::None {
                return Err(Refusal::Malformed("`CONNECT` has no body"));
            }
            return Ok(Self::Connect(Target::parse(&head.target, None)?));
        }
        let (target, path) = split_absolute(&head)?;
        let RequestHead { method, is_1_1, fields, .. } = head;
        Ok(Self::Plain(Plain { target, framing, method, path, is_1_1, fields, is_for_proxy: false }))
    }

    pub(super) fn target(&self) -> &Target {
        match self {
            Self::Connect(target) => target,
            Self::Plain(plain) => &plain.target,
        }
    }
}

fn split_absolute(head: &RequestHead) -> Result<(Target, String), Refusal> {
    if head.target.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        return Err(Refusal::Malformed("the address has characters that belong percent-encoded"));
    }
    let scheme_and_rest = head.target.split_once("://");
    let (scheme, rest) = scheme_and_rest.ok_or(Refusal::Malformed(
        "this is a proxy: it takes `CONNECT host:port` and `GET http://host/path`",
    ))?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Refusal::Malformed("only `http://` goes without `CONNECT`"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let target = Target::parse(authority, Some(80))?;
    let path = match (path, head.method.as_str()) {
        // RFC 9112, section 3.2.4.
        ("", "OPTIONS") => "*".to_owned(),
        (path, _) if path.starts_with('/') => path.to_owned(),
        (query, _) => format!("/{query}"),
    };
    Ok((target, path))
}

impl Plain {
    /// The head that is sent: `Host` and framing are the proxy's, so that no server reads another host or length.
    pub(super) fn head(&self) -> Vec<u8> {
        let Self { target, method, path, .. } = self;
        let host = if target.port == 80 { target.host.to_string() } else { target.to_string() };
        let path = match (self.is_for_proxy, path.as_str()) {
            (false, path) => path.to_owned(),
            (true, "*") => format!("http://{host}"),
            (true, path) => format!("http://{host}{path}"),
        };
        let version = if self.is_1_1 { "1.1" } else { "1.0" };
        let framing = self.framing.line();
        let mut head = format!("{method} {path} HTTP/{version}\r\nhost: {host}\r\n").into_bytes();
        write_fields(passed_on(&self.fields), &mut head);
        head.extend_from_slice(framing.as_bytes());
        head.extend_from_slice(b"via: 1.1 filesecbox\r\nconnection: close\r\n\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::head;
    use super::*;

    async fn request(text: &str) -> Result<Request, Refusal> {
        let raw = head::read(&mut text.as_bytes(), Duration::from_secs(5)).await.unwrap();
        raw.into_request().and_then(|(head, _)| Request::new(head))
    }

    async fn rewritten(text: &str, is_for_proxy: bool) -> String {
        let Request::Plain(plain) = request(text).await.unwrap() else { panic!("{text}") };
        String::from_utf8(Plain { is_for_proxy, ..plain }.head()).unwrap()
    }

    #[tokio::test]
    async fn a_plain_request_is_written_anew_with_the_host_that_was_judged() {
        let text = "GET HTTP://Good.example:8080/a?b HTTP/1.1\r\nHost: evil.example\r\nConnection: content-length\r\n\
                    Content-Length: 3\r\nX-A: 1\r\nProxy-Authorization: Basic eA==\r\n\r\n";
        let own = "x-a: 1\r\ncontent-length: 3\r\nvia: 1.1 filesecbox\r\nconnection: close\r\n\r\n";
        assert_eq!(
            rewritten(text, false).await,
            format!("GET /a?b HTTP/1.1\r\nhost: good.example:8080\r\n{own}")
        );
        assert_eq!(
            rewritten(text, true).await,
            format!("GET http://good.example:8080/a?b HTTP/1.1\r\nhost: good.example:8080\r\n{own}")
        );
        assert!(
            rewritten("GET http://a.example HTTP/1.0\r\n\r\n", false).await.starts_with("GET / HTTP/1.0\r\n")
        );
        assert!(
            rewritten("GET http://a.example?q HTTP/1.1\r\n\r\n", false)
                .await
                .starts_with("GET /?q HTTP/1.1\r\n")
        );
        assert!(
            rewritten("OPTIONS http://a.example HTTP/1.1\r\n\r\n", false).await.starts_with("OPTIONS * HTTP")
        );
    }

    #[tokio::test]
    async fn what_no_proxy_is_asked_for_is_refused() {
        for line in [
            "GET / HTTP/1.1",
            "GET a.example/ HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET https://a.example/ HTTP/1.1",
            "GET ftp://a.example/ HTTP/1.1",
            "GET file:///a HTTP/1.1",
            "GET http:///a HTTP/1.1",
            "GET http:/a.example/ HTTP/1.1",
            "GET http://user@a.example/ HTTP/1.1",
            "GET http://a.example\\@b.example/ HTTP/1.1",
            "GET http://a.example#@b.example/ HTTP/1.1",
            "GET http://a.example/#b HTTP/1.1",
            "GET http://a.example:/ HTTP/1.1",
            "GET http://a.example:99999/ HTTP/1.1",
            "GET http://[::1/ HTTP/1.1",
            "GET http://[::1%25lo]/ HTTP/1.1",
            "CONNECT a.example HTTP/1.1",
            "CONNECT http://a.example:443 HTTP/1.1",
            "CONNECT a.example:443/ HTTP/1.1",
            "CONNECT user@a.example:443 HTTP/1.1",
            "CONNECT :443 HTTP/1.1",
            "CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 1",
            "CONNECT a.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked",
        ] {
            let refused = request(&format!("{line}\r\n\r\n")).await;
            assert!(refused.is_err(), "{line} became {refused:?}");
        }
    }
}
