//! [`Proxies`]: HTTP proxies as the environment names them, for encrypted connections.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::http::Uri;

use super::{Address, ConnectError};

/// The longest head of a proxy's answer, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// What `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    proxy: Option<String>,
    exceptions: Vec<String>,
}

/// A proxy to go through.
#[derive(PartialEq, Eq)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    authorization: Option<String>,
}

/// Shows no password.
impl std::fmt::Debug for Proxies {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Proxies").field("exceptions", &self.exceptions).finish_non_exhaustive()
    }
}

impl Proxies {
    /// Reads the variables; those in lower case come first, as in most programs.
    #[must_use]
    pub(crate) fn from(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&str; 4]| {
            names.iter().find_map(|name| variable(name).filter(|value| !value.trim().is_empty()))
        };
        let exceptions = first(["no_proxy", "NO_PROXY", "", ""]).unwrap_or_default();
        Self {
            proxy: first(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: exceptions.split(',').map(|host| host.trim().to_ascii_lowercase()).collect(),
        }
    }

    /// The proxy before `address`, if any.
    pub(super) fn before(&self, address: &Address) -> Result<Option<Proxy>, ConnectError> {
        match &self.proxy {
            Some(proxy) if address.is_encrypted && !self.is_exception(address) => {
                Proxy::read(proxy).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether `NO_PROXY` names the host: itself, a domain above it, all hosts (`*`), or the host with its port.
    fn is_exception(&self, address: &Address) -> bool {
        let host = address.host.to_ascii_lowercase();
        self.exceptions.iter().filter(|exception| !exception.is_empty()).any(|exception| {
            let exception = match exception.rsplit_once(':') {
                Some((name, port)) if !name.contains(':') && port == address.port.to_string() => name,
                _ => exception,
            };
            let domain = exception.trim_start_matches('*').trim_start_matches('.');
            let is_all = exception == "*";
            is_all || host == domain || !domain.is_empty() && host.ends_with(&format!(".{domain}"))
        })
    }
}

impl Proxy {
    fn read(text: &str) -> Result<Self, ConnectError> {
        let refused =
            || ConnectError::Proxy("of the environment must be http://[USER:PASSWORD@]HOST:PORT".to_owned());
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| refused())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(refused)?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        let authorization = user.map(|user| STANDARD.encode(percent_decode_str(user).collect::<Vec<u8>>()));
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let has_port = !authority.as_str().ends_with(authority.host());
        let port = if has_port { authority.port_u16() } else { Some(80) };
        let port = port.filter(|port| *port > 0).ok_or_else(refused)?;
        Ok(Self { host, port, authorization })
    }

    /// Connects to `address` through the proxy (RFC 9110, section 9.3.6).
    pub(super) async fn reach(&self, address: &Address) -> Result<TcpStream, ConnectError> {
        let failed = |error: std::io::Error| ConnectError::Proxy(format!("cannot be reached: {error}"));
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        let authority = address.authority();
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: Basic {authorization}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // Byte by byte: what follows the head is of the service.
            head.push(stream.read_u8().await.map_err(failed)?);
            if head.len() > HEAD_BYTES_MAX {
                return Err(ConnectError::Proxy("answers no HTTP".to_owned()));
            }
        }
        let head = String::from_utf8_lossy(&head);
        match head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()) {
            Some(200..=299) if head.starts_with("HTTP/1.") => Ok(stream),
            Some(status) => {
                Err(ConnectError::Proxy(format!("refuses the way to the service (HTTP {status})")))
            }
            None => Err(ConnectError::Proxy("answers no HTTP".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Proxies::from(find)
    }

    fn goes_through(variables: &[(&str, &str)], url: &str) -> Option<(String, u16)> {
        let proxy = proxies(variables).before(&url.parse().unwrap()).unwrap();
        proxy.map(|proxy| (proxy.host, proxy.port))
    }

    #[test]
    fn the_environment_decides_whether_a_proxy_is_gone_through() {
        let of = ("HTTPS_PROXY", "http://p:3128");
        let p = || Some(("p".to_owned(), 3128));
        assert_eq!(goes_through(&[], "wss://h/ws/u"), None);
        assert_eq!(goes_through(&[of], "wss://h/ws/u"), p());
        assert_eq!(goes_through(&[of], "ws://h/ws/u"), None);
        assert_eq!(goes_through(&[("ALL_PROXY", "p:3128")], "wss://h/ws/u"), p());
        assert_eq!(goes_through(&[("ALL_PROXY", "q:1"), of], "wss://h/ws/u"), p());
        assert_eq!(goes_through(&[("https_proxy", " "), of], "wss://h/ws/u"), p());
        for (exceptions, host, is_exception) in [
            ("h", "h", true),
            ("h", "xh", false),
            ("a, .h.example", "x.h.example", true),
            ("h.example", "x.h.example", true),
            ("*.h.example", "x.h.example", true),
            ("*", "h", true),
            ("H:443", "h", true),
            ("h:80", "h", false),
            (",", "h", false),
            ("::1", "[::1]", true),
            ("10.0.0.1", "10.0.0.1", true),
        ] {
            let went = goes_through(&[of, ("NO_PROXY", exceptions)], &format!("wss://{host}/ws/u"));
            assert_eq!(went.is_none(), is_exception, "{exceptions} {host}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_told_without_its_password() {
        for text in ["socks5://u:secret@p:1", "https://u:secret@p:1", "http://", "http://u:secret@p:99999x"] {
            let error = proxies(&[("HTTPS_PROXY", text)]).before(&"wss://h/ws/u".parse().unwrap());
            let told = error.map(|_| ()).unwrap_err().to_string();
            assert!(told.contains("must be http://") && !told.contains("secret"), "{told}");
        }
        let proxy = Proxy::read("http://u:p%40ss@[::1]:1").map_err(|_| ()).unwrap();
        assert_eq!((&*proxy.host, proxy.authorization), ("::1", Some(STANDARD.encode("u:p@ss"))));
    }
}
