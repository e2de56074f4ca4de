//! [`Standing`]: whether an address is public, and if not, whether an operator may open it.
//!
//! The tables follow the special-purpose registries of IANA (RFC 6890 and its updates), read strictly: what is not
//! known to be globally reachable is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Globally reachable.
    Public,
    /// Not public, of the kind named; `commands.proxy.allow_private` may open it.
    Closed(&'static str),
    /// Of the kind named, and nothing opens it.
    Never(&'static str),
}

const METADATA: &str = "metadata";

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(first: [u16; 4], bits: u8) -> Ipv6Net {
    let [a, b, c, d] = first;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), bits)
}

/// The ranges of IPv4 that are not public; the first row that contains an address decides.
const V4: [(Ipv4Net, Standing); 19] = [
    // Azure's wire server, Oracle's old metadata address, Alibaba's.
    (v4(168, 63, 129, 16, 32), Standing::Never(METADATA)),
    (v4(192, 0, 0, 192, 32), Standing::Never(METADATA)),
    (v4(100, 100, 100, 200, 32), Standing::Never(METADATA)),
    // Linux connects 0.0.0.0 to itself.
    (v4(0, 0, 0, 0, 8), Standing::Never("unspecified")),
    (v4(169, 254, 0, 0, 16), Standing::Never("link-local")),
    (v4(224, 0, 0, 0, 4), Standing::Never("multicast")),
    (v4(255, 255, 255, 255, 32), Standing::Never("broadcast")),
    (v4(127, 0, 0, 0, 8), Standing::Closed("loopback")),
    (v4(10, 0, 0, 0, 8), Standing::Closed("private")),
    (v4(172, 16, 0, 0, 12), Standing::Closed("private")),
    (v4(192, 168, 0, 0, 16), Standing::Closed("private")),
    (v4(100, 64, 0, 0, 10), Standing::Closed("shared (carrier-grade NAT)")),
    (v4(192, 0, 0, 0, 24), Standing::Closed("reserved")),
    (v4(192, 0, 2, 0, 24), Standing::Closed("documentation")),
    (v4(198, 51, 100, 0, 24), Standing::Closed("documentation")),
    (v4(203, 0, 113, 0, 24), Standing::Closed("documentation")),
    (v4(192, 88, 99, 0, 24), Standing::Closed("reserved")),
    (v4(198, 18, 0, 0, 15), Standing::Closed("benchmark")),
    (v4(240, 0, 0, 0, 4), Standing::Closed("reserved")),
];

/// Metadata addresses of IPv6, which are unique-local otherwise: two of AWS (instances, pods), one of Google.
const V6_METADATA: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// IPv4 addresses in IPv6 clothes that a gateway on the way may take off. Never public and never opened, because an
/// operator who opens them would open the addresses inside, too: compatible (RFC 4291), Teredo (4380), 6to4 (7526), and
/// NAT64 of local prefixes (8215).
const V6_TRANSITION: [Ipv6Net; 4] = [
    v6([0, 0, 0, 0], 96),
    v6([0x2001, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0], 16),
    v6([0x0064, 0xff9b, 1, 0], 48),
];

/// The prefix under which DNS64 gives a name without IPv6 an address (RFC 6052).
const NAT64: Ipv6Net = v6([0x0064, 0xff9b, 0, 0], 96);

/// The ranges of IPv6 that are not public; the first row that contains an address decides.
const V6: [(Ipv6Net, Standing); 7] = [
    (v6([0xfe80, 0, 0, 0], 10), Standing::Never("link-local")),
    (v6([0xff00, 0, 0, 0], 8), Standing::Never("multicast")),
    (v6([0xfc00, 0, 0, 0], 7), Standing::Closed("private")),
    (v6([0xfec0, 0, 0, 0], 10), Standing::Closed("private")),
    // The rest of the block of protocol assignments, ORCHID and benchmarking among them.
    (v6([0x2001, 0, 0, 0], 23), Standing::Closed("reserved")),
    (v6([0x2001, 0x0db8, 0, 0], 32), Standing::Closed("documentation")),
    (v6([0x3fff, 0, 0, 0], 20), Standing::Closed("documentation")),
];

/// All of IPv6 that has been given out as global unicast.
const V6_GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Judges an address by itself.
#[must_use]
pub(super) fn standing(address: IpAddr) -> Standing {
    match address.to_canonical() {
        IpAddr::V4(address) => standing_v4(address),
        IpAddr::V6(address) => standing_v6(address),
    }
}

fn standing_v4(address: Ipv4Addr) -> Standing {
    let row = V4.iter().find(|(net, _)| net.contains(&address));
    row.map_or(Standing::Public, |(_, standing)| *standing)
}

fn standing_v6(address: Ipv6Addr) -> Standing {
    if V6_METADATA.contains(&address) {
        return Standing::Never(METADATA);
    }
    if address == Ipv6Addr::LOCALHOST {
        return Standing::Closed("loopback");
    }
    if address == Ipv6Addr::UNSPECIFIED {
        return Standing::Never("unspecified");
    }
    if NAT64.contains(&address) {
        let [.., a, b, c, d] = address.octets();
        return match standing_v4(Ipv4Addr::new(a, b, c, d)) {
            // A range that opens the prefix says nothing about the addresses inside.
            Standing::Closed(kind) => Standing::Never(kind),
            other => other,
        };
    }
    if V6_TRANSITION.iter().any(|net| net.contains(&address)) {
        return Standing::Never("transition");
    }
    let row = V6.iter().find(|(net, _)| net.contains(&address)).map(|(_, standing)| *standing);
    row.unwrap_or(if V6_GLOBAL.contains(&address) { Standing::Public } else { Standing::Closed("reserved") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Standing {
        standing(text.parse().unwrap_or_else(|_| panic!("{text}")))
    }

    #[test]
    fn what_nothing_may_open_stands_as_never() {
        for (text, kind) in [
            ("0.0.0.0", "unspecified"),
            ("0.255.255.255", "unspecified"),
            ("169.254.0.1", "link-local"),
            ("169.254.169.254", "link-local"),
            ("169.254.170.2", "link-local"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("168.63.129.16", "metadata"),
            ("100.100.100.200", "metadata"),
            ("192.0.0.192", "metadata"),
            ("fd00:ec2::254", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("::", "unspecified"),
            ("fe80::1", "link-local"),
            ("febf:ffff::1", "link-local"),
            ("ff02::1", "multicast"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::ffff:0.0.0.0", "unspecified"),
            ("::169.254.169.254", "transition"),
            ("::127.0.0.1", "transition"),
            ("::8.8.8.8", "transition"),
            ("2002:7f00:1::", "transition"),
            ("2002:a9fe:a9fe::1", "transition"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "transition"),
            ("64:ff9b::127.0.0.1", "loopback"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b::168.63.129.16", "metadata"),
            ("64:ff9b:1::a9fe:a9fe", "transition"),
        ] {
            assert_eq!(of(text), Standing::Never(kind), "{text}");
        }
    }

    #[test]
    fn what_an_operator_may_open_stands_as_closed() {
        for (text, kind) in [
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("10.0.0.0", "private"),
            ("10.255.255.255", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.0.1", "private"),
            ("100.64.0.1", "shared (carrier-grade NAT)"),
            ("100.127.255.255", "shared (carrier-grade NAT)"),
            ("192.0.0.8", "reserved"),
            ("192.0.2.1", "documentation"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.80", "documentation"),
            ("192.88.99.1", "reserved"),
            ("198.18.0.1", "benchmark"),
            ("198.19.255.255", "benchmark"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.254", "reserved"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("fc00::1", "private"),
            ("fdff::1", "private"),
            ("fec0::1", "private"),
            ("2001:db8::1", "documentation"),
            ("3fff:fff::1", "documentation"),
            ("2001:2::1", "reserved"),
            ("2001:10::1", "reserved"),
            ("2001:20::1", "reserved"),
            ("100::1", "reserved"),
            ("5f00::1", "reserved"),
            ("4000::1", "reserved"),
            ("1::1", "reserved"),
            ("::1:0:0:1", "reserved"),
        ] {
            assert_eq!(of(text), Standing::Closed(kind), "{text}");
        }
    }

    #[test]
    fn neighbours_of_what_is_closed_are_public() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(of(text), Standing::Public, "{text}");
        }
    }
}
