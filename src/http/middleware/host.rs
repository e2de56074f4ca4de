//! [`Host`]: the host that a request names (RFC 9112, section 3.2), spelled as a URI spells it.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{Version, header};

use crate::http::answer::problem::Problem;

/// The host that a request is for: a name, an IPv4 address, or an IPv6 address in brackets; perhaps with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Host<'a> {
    /// All of it.
    pub(in crate::http) text: &'a str,
    /// The name or address, without brackets.
    name: &'a str,
}

impl<'a> Host<'a> {
    /// Reads `name`, `name:port`, `[address]` or `[address]:port`; a name has letters, digits and `-._~` only.
    pub(in crate::http) fn parse(text: &'a str) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']')?;
                address.parse::<Ipv6Addr>().ok()?;
                (address, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
            }
            None => {
                let (name, port) = match text.split_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (text, None),
                };
                let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                (Some(name).filter(|name| !name.is_empty() && name.bytes().all(is_of_names))?, port)
            }
        };
        // A port may be empty (RFC 3986, section 3.2.3).
        let is_port = |port: &str| {
            port.is_empty() || (port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok())
        };
        port.is_none_or(is_port).then_some(Self { text, name })
    }

    /// The host of a request, which one of HTTP/1.0 need not have.
    ///
    /// # Errors
    /// `invalid` for none, several, one that is no host, and one that is not the host of an absolute target.
    pub(in crate::http) fn of(request: &'a Request) -> Result<Option<Self>, Problem> {
        let mut named = request.headers().get_all(header::HOST).iter();
        let host = match (named.next(), named.next()) {
            (Some(host), None) => {
                let host = host.to_str().ok().and_then(Self::parse);
                Some(host.ok_or_else(|| {
                    Problem::invalid(
                        "`Host` is a name or an address, an IPv6 address in brackets, and a port if need be",
                    )
                })?)
            }
            (None, _) if request.version() < Version::HTTP_11 => None,
            (None, _) => return Err(Problem::invalid("the request names no host: send the header `Host`")),
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("the request names several hosts: send `Host` once"));
            }
        };
        // A client that sends both sends the same (RFC 9112, section 3.2.2).
        match (request.uri().authority(), host) {
            (Some(target), Some(host)) if !target.as_str().eq_ignore_ascii_case(host.text) => {
                Err(Problem::invalid("the target of the request and `Host` name different hosts"))
            }
            (Some(_), None) => {
                Err(Problem::invalid("the target of the request names a host and `Host` none"))
            }
            _ => Ok(host),
        }
    }

    /// Whether no name server can lead it elsewhere: an address, or `localhost`.
    pub(in crate::http) fn is_address_or_local(&self) -> bool {
        self.name.eq_ignore_ascii_case("localhost") || self.name.parse::<IpAddr>().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_behind_it() {
        for (text, is_local) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8003", true),
            ("LocalHost:80", true),
            ("localhost:", true),
            ("[::1]", true),
            ("[::1]:65535", true),
            ("box.example:8003", false),
            ("file_box-1~x", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
        ] {
            let host = Host::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((host.text, host.is_address_or_local()), (text, is_local), "{text}");
        }
        for wrong in [
            "",
            ":80",
            "::1",
            "[::1",
            "[]",
            "[::1].evil.example",
            "[::1]8003",
            "[::1]:x",
            "[127.0.0.1]",
            "[::1%25lo]",
            "127.0.0.1:evil.example",
            "127.0.0.1:+80",
            "127.0.0.1:65536",
            "a:1:2",
            "u@localhost",
            "localhost/x",
            "a b",
            "a,b",
            "例.example",
        ] {
            assert_eq!(Host::parse(wrong), None, "{wrong}");
        }
    }
}
