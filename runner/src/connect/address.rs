//! [`Address`]: the URL of the service.

use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio_tungstenite::tungstenite::http::Uri;

/// Where the service is: `ws://` or `wss://`, a host, and a path whose last segment is the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The whole.
    pub(crate) url: String,
    /// Whether TLS is spoken.
    pub(crate) is_encrypted: bool,
    /// Name or number, without the brackets of IPv6.
    pub(crate) host: String,
    /// 80 or 443 unless told.
    pub(crate) port: u16,
    /// The last segment of the path.
    pub(crate) user: Option<String>,
}

/// Why a text is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the URL of the service must be ws://HOST/ws/USER or wss://HOST/ws/USER, without user and password before the host"
)]
pub(crate) struct AddressError;

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let uri: Uri = text.parse().map_err(|_| AddressError)?;
        let is_encrypted = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            _ => return Err(AddressError),
        };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(AddressError)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            None if !has_port => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
            _ => return Err(AddressError),
        };
        if host.is_empty() {
            return Err(AddressError);
        }
        let segment = uri.path().rsplit('/').find(|segment| !segment.is_empty());
        let user = segment.and_then(|text| percent_encoding::percent_decode_str(text).decode_utf8().ok());
        let user = user.map(std::borrow::Cow::into_owned);
        Ok(Self { url: text.to_owned(), is_encrypted, host: host.to_owned(), port, user })
    }
}

impl Address {
    /// The name that the certificate must have.
    pub(super) fn server_name(&self) -> std::io::Result<ServerName<'static>> {
        ServerName::try_from(self.host.clone()).map_err(std::io::Error::other)
    }

    /// Whether the host is this machine.
    #[must_use]
    pub(crate) fn is_local(&self) -> bool {
        self.host == "localhost"
            || self.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }

    /// The path of `below` on the same service: a proxy may have it below another path.
    pub(crate) fn path_of(&self, below: &str) -> String {
        let path = self.url.parse::<Uri>().map(|uri| uri.path().to_owned()).unwrap_or_default();
        let above = path.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _user)| above);
        format!("{}{below}", above.strip_suffix("/ws").unwrap_or_default())
    }

    /// Host and port as they stand in a request.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_whole_or_refused() {
        let address: Address = "wss://box.example/ws/al%69ce".parse().unwrap();
        assert_eq!((address.is_encrypted, &*address.host, address.port), (true, "box.example", 443));
        assert_eq!(address.user.as_deref(), Some("alice"));
        let address: Address = "ws://[::1]:8003/ws/u/?name=x".parse().unwrap();
        assert_eq!((&*address.host, address.port, &*address.authority()), ("::1", 8003, "[::1]:8003"));
        assert_eq!((address.user.as_deref(), address.is_local()), (Some("u"), true));
        for (url, path) in [
            ("wss://h/ws/u", "/v1/x"),
            ("wss://h/ws/u/?q=/a/ws/b", "/v1/x"),
            ("wss://h/box/ws/u", "/box/v1/x"),
            ("wss://h", "/v1/x"),
            ("wss://h/elsewhere/u", "/v1/x"),
        ] {
            assert_eq!(url.parse::<Address>().unwrap().path_of("/v1/x"), path, "{url}");
        }
        for text in [
            "",
            "box",
            "/ws",
            "http://h/ws",
            "wss://",
            "wss:///ws",
            "wss://u:p@h/ws",
            "wss://h:0/ws",
            "wss://h:99999/",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
