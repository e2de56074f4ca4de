//! [`Pattern`]: an entry of the lists of hosts.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

use super::target::Host;

/// Which hosts an entry means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The name itself (`example.com`).
    Name(String),
    /// Every name below it and not the name itself (`*.example.com`); holds `.example.com`.
    Below(String),
    /// Addresses (`10.1.2.0/24`, `2001:db8::1`).
    Range(IpNet),
}

/// Why an entry means no host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no host: write `example.com`, `*.example.com`, an address, or a range such as `10.1.2.0/24`; names in \
     other scripts as punycode"
)]
pub struct PatternError(String);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Range(net.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Range(IpNet::from(address.to_canonical())));
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        match (Host::parse(name), below) {
            (Ok(Host::Name(name)), false) => Ok(Self::Name(name)),
            (Ok(Host::Name(name)), true) => Ok(Self::Below(format!(".{name}"))),
            (Ok(Host::Address(address)), false) => Ok(Self::Range(IpNet::from(address))),
            (Ok(Host::Address(_)) | Err(_), _) => Err(PatternError(text.to_owned())),
        }
    }
}

impl Pattern {
    /// Tells whether the entry means `host` as it was asked for: a range means literal addresses only.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Range(_), Host::Address(address)) => self.has_address(*address),
            _ => self.is_name_of(host),
        }
    }

    /// Tells whether the entry is a range with `address`.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Range(net) if net.contains(&address))
    }

    /// Tells whether the entry means the name `host`.
    pub(super) fn is_name_of(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Name(own), Host::Name(name)) => own == name,
            // A label before the dot is certain, because no name begins with one.
            (Self::Below(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            (Self::Range(_), _) | (_, Host::Address(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(&Host::parse(host).unwrap())
    }

    #[test]
    fn a_name_means_itself_and_a_star_what_is_below() {
        assert!(matches("example.com", "EXAMPLE.com."));
        assert!(matches("Example.COM.", "example.com"));
        assert!(!matches("example.com", "www.example.com"));
        assert!(matches("*.example.com", "www.example.com") && matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com") && !matches("*.example.com", "evilexample.com"));
        assert!(!matches("*.example.com", "www.example.com.evil.example"));
        assert!(matches("10.0.0.0/8", "10.1.2.3") && !matches("10.0.0.0/8", "11.0.0.0"));
        assert!(matches("2001:db8::1", "[2001:db8::1]") && matches("[2001:db8::1]", "[2001:db8::1]"));
        assert!(matches("::ffff:10.0.0.1", "[::ffff:10.0.0.1]"));
    }

    #[test]
    fn an_entry_that_means_nothing_is_refused_in_words() {
        for text in
            ["", "*", "*.", "*example.com", "a.*.com", "http://example.com", "example.com:80", "*.1.2.3.4"]
        {
            let error = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains("is no host: write"), "{error}");
        }
    }
}
