//! [`Target`]: the host and port that a command asks for, spelled in one way only.
//!
//! Programs read addresses in many spellings (`0x7f.1`, `2130706433`, `127.1`, `[::1%lo]`), and where two of them
//! read one text differently, a check of the one says nothing about the other. So only the plain spelling is taken.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::refusal::Refusal;

/// Longest name, in bytes, without a trailing dot (RFC 1035, section 3.1).
const NAME_BYTES_MAX: usize = 253;
/// Longest label of a name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// A host: a name or an address, never a text that could be either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// Letters, digits, `-` and `_` in labels of 1 to 63 bytes; lower case, no trailing dot, at most 253 bytes. The
    /// last label is no number, so that no resolver takes the name for an address. Other scripts come as punycode.
    Name(String),
    /// An address; never an IPv4 address mapped into IPv6.
    Address(IpAddr),
}

/// A host and a port other than 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Where to.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

impl Host {
    /// Reads a host as it stands in an authority: a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// [`Refusal::Spelling`].
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(Refusal::Spelling("a bracket is missing"))?;
            let address: Ipv6Addr =
                inner.parse().map_err(|_| Refusal::Spelling("no IPv6 address in the brackets"))?;
            return Ok(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(Refusal::Spelling("a name has 1 to 253 bytes"));
        }
        if !text.split('.').all(is_label) {
            return Err(Refusal::Spelling("a name has letters, digits, `-` and `_` between single dots"));
        }
        if text.rsplit('.').next().is_some_and(is_number) {
            return Err(Refusal::Spelling("a number where a name or a full address is expected"));
        }
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

fn is_label(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_plain)
}

/// Tells whether `inet_aton(3)` and browsers may take a last label for a part of an address.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl Target {
    /// Reads `host:port`, or `host` where there is a default port.
    ///
    /// # Errors
    /// [`Refusal::Spelling`], [`Refusal::Malformed`].
    pub fn parse(authority: &str, default_port: Option<u16>) -> Result<Self, Refusal> {
        if authority.contains('@') {
            return Err(Refusal::Malformed(
                "a user name in the address: send it in an `Authorization` field",
            ));
        }
        // A colon belongs to the address until its bracket is closed.
        let after_brackets = authority.rfind(']').unwrap_or(0);
        let colon = authority.get(after_brackets..).and_then(|rest| rest.find(':'));
        let (host, port) = match colon {
            Some(at) => {
                let (host, port) = authority.split_at(after_brackets + at);
                (host, Some(parse_port(port.trim_start_matches(':'), port)?))
            }
            None => (authority, default_port),
        };
        let port = port.ok_or(Refusal::Malformed("the port is missing"))?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

/// Reads the digits of a port; `with_colon` is the same with what divides it from the host.
fn parse_port(digits: &str, with_colon: &str) -> Result<u16, Refusal> {
    let wrong = Refusal::Malformed("a port is a number from 1 to 65535");
    let is_plain = with_colon.len() == digits.len() + 1
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { digits.parse().map_err(|_| wrong) } else { Err(wrong) }
}

/// As an authority has it: IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_spellings_are_taken_and_made_one() {
        for (text, expected) in [
            ("example.com:443", "example.com:443"),
            ("EXAMPLE.com.:443", "example.com:443"),
            ("xn--bcher-kva.example:80", "xn--bcher-kva.example:80"),
            ("_dmarc.example.com:80", "_dmarc.example.com:80"),
            ("1.example:80", "1.example:80"),
            ("1.2.3.4:80", "1.2.3.4:80"),
            ("1.2.3.4.:80", "1.2.3.4:80"),
            ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
            ("[::ffff:7f00:1]:80", "127.0.0.1:80"),
            ("localhost:65535", "localhost:65535"),
        ] {
            assert_eq!(
                Target::parse(text, None).map(|target| target.to_string()),
                Ok(expected.into()),
                "{text}"
            );
        }
        assert_eq!(Target::parse("example.com", Some(80)).map(|target| target.port), Ok(80));
    }

    /// Every text here is an address, or a name, to some program or other.
    #[test]
    fn odd_spellings_of_hosts_are_refused() {
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = vec!["a"; 130].join(".");
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0X7F000001",
            "0x7f.1",
            "0x7f.0x0.0x0.0x1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.1..",
            "0",
            "00",
            "0x",
            "0.0",
            "00.00.00.00",
            "256.1.1.1",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.0x4",
            "1.2.3.4294967295",
            "example.0x7f",
            "example.1",
            "127.0.0.1%00",
            "127。0。0。1",
            "①②⑦.⓪.⓪.①",
            "１２７.0.0.1",
            "ｌocalhost",
            "bücher.example",
            "[::1",
            "::1]",
            "[::1]x",
            "[]",
            "[::1%lo]",
            "[::1%25lo]",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "[::ffff:0x7f.1]",
            "[::1].",
            "[[::1]]",
            "::1",
            "fe80::1",
            "a b",
            "a\tb",
            "a\0b",
            "a\\b",
            "a%2eb",
            "%31%32%37.0.0.1",
            "a,b",
            "a;b",
            "a'b",
            "a!b",
            "a*b",
            "*",
            "*.example.com",
            "a/b",
            "a?b",
            "a#b",
            "<a>",
            "\"a\"",
            "+127.0.0.1",
            "-1.2.3.4",
            "1.2.3.4/32",
            "1_2.3.4.5",
            "~",
            "$HOME",
            "a|b",
            "a=b",
            "(a)",
            long_label.as_str(),
            long_name.as_str(),
        ] {
            let parsed = Host::parse(text);
            assert!(matches!(parsed, Err(Refusal::Spelling(_))), "{text:?} became {parsed:?}");
        }
    }

    #[test]
    fn odd_authorities_are_refused() {
        for text in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:080",
            "example.com:+80",
            "example.com:-1",
            "example.com:65536",
            "example.com:4294967376",
            "example.com:80:80",
            "example.com::80",
            "example.com:80 ",
            "example.com: 80",
            "example.com:٨٠",
            "example.com:0x50",
            "example.com:80/",
            "[::1]",
            "[::1]:",
            "[::1]80",
            "::1:80",
            ":80",
            "@:80",
            "a@b:80",
            "user:secret@example.com:80",
            "example.com:80@evil.example:80",
            "example.com:80#@evil.example",
            "[::1]:80]:80",
            "[a]:80",
            "127.0.0.1:80\n",
            "\r\nexample.com:80",
        ] {
            let parsed = Target::parse(text, None);
            assert!(parsed.is_err(), "{text:?} became {parsed:?}");
        }
    }
}
