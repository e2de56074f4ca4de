//! [`Rules`]: which hosts, ports and addresses commands may reach. Pure, but for asking which machine this is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use parking_lot::RwLock;

use super::address::{Standing, standing};
use super::hosts::Hosts;
use super::refusal::Refusal;
use super::settings::EgressConfig;
use super::target::{Host, Target};

/// Names of metadata services. Most resolve to addresses that are refused anyway; behind an upstream proxy only that
/// proxy knows the address.
const METADATA_NAMES: [&str; 10] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
    "rancher-metadata",
];

/// Domains that are private wherever they resolve: RFC 6761, 6762 (Kubernetes' `cluster.local` too), 8375, what
/// ICANN reserved for private use, and what routers and clusters use besides.
const PRIVATE_DOMAINS: [&str; 8] =
    [".localhost", ".localdomain", ".local", ".internal", ".home.arpa", ".lan", ".svc", ".test"];

pub(super) struct Rules {
    config: EgressConfig,
    /// Where the service listens.
    own: RwLock<Vec<SocketAddr>>,
}

impl Rules {
    pub(super) fn new(config: EgressConfig) -> Self {
        let own = RwLock::new(config.own.clone());
        Self { config, own }
    }

    /// Adds an address at which the service listens.
    pub(super) fn protect(&self, address: SocketAddr) {
        self.own.write().push(address);
    }

    /// Judges a target by what is asked for alone, before anything is resolved: with a list of open hosts, not even
    /// the resolver hears of others.
    ///
    /// # Errors
    /// [`Refusal::Metadata`], [`Refusal::Denied`], [`Refusal::NotAllowed`], [`Refusal::PrivateName`],
    /// [`Refusal::Port`].
    pub(super) fn check_target(&self, target: &Target, hosts: &Hosts) -> Result<(), Refusal> {
        let (config, host) = (&self.config, &target.host);
        if let Host::Name(name) = host
            && METADATA_NAMES.contains(&name.as_str())
        {
            return Err(Refusal::Metadata(name.clone()));
        }
        if config.deny.iter().any(|pattern| pattern.matches(host)) || hosts.denies(host) {
            return Err(Refusal::Denied(host.to_string()));
        }
        let allowed = hosts.allowed(&config.allow);
        if !allowed.is_empty() && !allowed.iter().any(|pattern| pattern.matches(host)) {
            return Err(Refusal::NotAllowed(host.to_string()));
        }
        if let Host::Name(name) = host
            && config.upstream.is_some()
            && is_private_name(name)
            && !config.names(host)
        {
            return Err(Refusal::PrivateName(name.clone()));
        }
        if config.ports.contains(&target.port) { Ok(()) } else { Err(Refusal::Port(target.port)) }
    }

    /// Judges an address of the target, in the form that [`IpAddr::to_canonical`] gives.
    ///
    /// # Errors
    /// [`Refusal::Never`], [`Refusal::Denied`], [`Refusal::NotPublic`], [`Refusal::Service`],
    /// [`Refusal::Machine`].
    pub(super) fn check_address(
        &self,
        target: &Target,
        address: IpAddr,
        hosts: &Hosts,
    ) -> Result<(), Refusal> {
        let host = || target.host.to_string();
        let is_denied = self.config.deny.iter().any(|pattern| pattern.has_address(address));
        if is_denied || hosts.denies_address(address) {
            return Err(Refusal::Denied(host()));
        }
        let is_opened = self.config.opens(address);
        match standing(address) {
            Standing::Never(kind) => return Err(Refusal::Never { host: host(), kind }),
            Standing::Closed(kind) if !is_opened => return Err(Refusal::NotPublic { host: host(), kind }),
            Standing::Closed(_) | Standing::Public => {}
        }
        let is_here = is_this_machine(address);
        let is_own = |own: &SocketAddr| {
            let same_address = own.ip().to_canonical() == address;
            own.port() == target.port && (same_address || (own.ip().is_unspecified() && is_here))
        };
        if self.own.read().iter().any(is_own) {
            return Err(Refusal::Service(host()));
        }
        // A server on this machine may trust its neighbours, under any name of its address.
        if is_here && !is_opened { Err(Refusal::Machine(host())) } else { Ok(()) }
    }
}

fn is_private_name(name: &str) -> bool {
    !name.contains('.') || PRIVATE_DOMAINS.iter().any(|domain| name.ends_with(domain))
}

/// Tells whether `address` is one of this machine's.
///
/// To reach itself the kernel takes the very address as the source, or one of loopback. Connecting a datagram socket asks for the
/// route and sends nothing (udp(7), ip(7)). Without a route there is nothing to reach either.
fn is_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address || source.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::settings::ProxySettings;
    use super::*;

    fn rules(change: impl FnOnce(&mut ProxySettings)) -> Rules {
        let mut settings = ProxySettings::default();
        change(&mut settings);
        Rules::new(EgressConfig::new(&settings, Vec::new()).unwrap())
    }

    fn target(text: &str) -> Target {
        Target::parse(text, Some(443)).unwrap()
    }

    fn rule(rules: &Rules, text: &str) -> &'static str {
        rules.check_target(&target(text), &Hosts::default()).err().map_or("ok", |refusal| refusal.rule())
    }

    fn address_rule(rules: &Rules, port: u16, address: &str) -> &'static str {
        let target = Target { host: Host::Name("x".into()), port };
        rules
            .check_address(&target, address.parse().unwrap(), &Hosts::default())
            .err()
            .map_or("ok", |refusal| refusal.rule())
    }

    #[test]
    fn deny_wins_over_allow_and_an_empty_allow_means_everything() {
        let open = rules(|_| ());
        assert_eq!(rule(&open, "example.com"), "ok");
        assert_eq!(rule(&open, "example.com:22"), "port");
        let listed = rules(|settings| {
            settings.allow = vec!["*.example.com".into(), "1.1.1.1".into()];
            settings.deny = vec!["evil.example.com".into()];
        });
        assert_eq!(rule(&listed, "www.example.com"), "ok");
        assert_eq!(rule(&listed, "1.1.1.1"), "ok");
        assert_eq!(rule(&listed, "example.com"), "not_allowed");
        assert_eq!(rule(&listed, "1.1.1.2"), "not_allowed");
        assert_eq!(rule(&listed, "EVIL.example.com."), "denied");
    }

    #[test]
    fn the_hosts_of_an_agent_stand_in_for_those_of_all_and_open_nothing_that_is_closed() {
        let listed = rules(|settings| {
            settings.allow = vec!["*.example.com".into()];
            settings.deny = vec!["evil.example.com".into(), "1.1.1.0/24".into()];
        });
        let own = |allow: Option<&[&str]>, deny: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            Hosts::new(allow.map(texts).as_deref(), &texts(deny)).unwrap()
        };
        let rule = |hosts: &Hosts, text: &str| {
            listed.check_target(&target(text), hosts).err().map_or("ok", |refusal| refusal.rule())
        };
        let narrower = own(None, &["www.example.com"]);
        assert_eq!(rule(&narrower, "www.example.com"), "denied");
        assert_eq!(rule(&narrower, "api.example.com"), "ok");
        let other = own(Some(&["other.org", "evil.example.com", "metadata.google.internal"]), &[]);
        assert_eq!(rule(&other, "other.org"), "ok");
        assert_eq!(rule(&other, "www.example.com"), "not_allowed");
        assert_eq!(rule(&other, "evil.example.com"), "denied");
        assert_eq!(rule(&other, "metadata.google.internal"), "metadata");
        assert_eq!(rule(&other, "other.org:22"), "port");
        let all = own(Some(&[]), &[]);
        assert_eq!(rule(&all, "anything.org"), "ok");
        let named = own(Some(&["10.0.0.0/8", "169.254.169.254", "x"]), &["9.9.9.0/24"]);
        let address = |hosts: &Hosts, address: &str| {
            let target = Target { host: Host::Name("x".into()), port: 443 };
            let judged = listed.check_address(&target, address.parse().unwrap(), hosts);
            judged.err().map_or("ok", |refusal| refusal.rule())
        };
        assert_eq!(address(&named, "10.1.2.3"), address(&Hosts::default(), "10.1.2.3"));
        assert_ne!(address(&named, "10.1.2.3"), "ok");
        assert_ne!(address(&named, "169.254.169.254"), "ok");
        assert_eq!(address(&named, "1.1.1.1"), "denied");
        assert_eq!(address(&named, "9.9.9.9"), "denied");
        assert_eq!(address(&Hosts::default(), "9.9.9.9"), "ok");
    }

    #[test]
    fn names_of_metadata_services_are_refused_even_when_allowed() {
        let rules = rules(|settings| settings.allow = METADATA_NAMES.map(str::to_owned).to_vec());
        for name in METADATA_NAMES {
            assert_eq!(rule(&rules, name), "metadata", "{name}");
        }
        assert_eq!(rule(&rules, "METADATA.google.internal."), "metadata");
    }

    #[test]
    fn behind_an_upstream_proxy_a_private_name_must_be_named() {
        let behind = rules(|settings| settings.upstream = "http://proxy:1".into());
        for name in ["localhost", "intranet", "a.internal", "x.svc", "a.b.svc.cluster.local", "printer.local"]
        {
            assert_eq!(rule(&behind, name), "private_name", "{name}");
        }
        assert_eq!(rule(&behind, "example.com"), "ok");
        let named = rules(|settings| {
            settings.upstream = "http://proxy:1".into();
            settings.allow = vec!["pypi.internal".into()];
        });
        assert_eq!(rule(&named, "pypi.internal"), "ok");
    }

    #[test]
    fn a_denied_range_holds_for_what_names_resolve_to() {
        let rules = rules(|settings| settings.deny = vec!["1.1.1.0/24".into()]);
        assert_eq!(address_rule(&rules, 443, "1.1.1.1"), "denied");
        assert_eq!(address_rule(&rules, 443, "1.1.2.1"), "ok");
    }

    #[test]
    fn opening_everything_opens_neither_link_local_nor_metadata_nor_the_service() {
        let rules = rules(|settings| settings.allow_private = vec!["0.0.0.0/0".into(), "::/0".into()]);
        rules.protect("0.0.0.0:8003".parse().unwrap());
        rules.protect("[::1]:8004".parse().unwrap());
        for address in
            ["169.254.169.254", "fe80::1", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "0.0.0.0"]
        {
            assert_eq!(address_rule(&rules, 443, address), "never", "{address}");
        }
        assert_eq!(address_rule(&rules, 443, "10.0.0.1"), "ok");
        assert_eq!(address_rule(&rules, 443, "127.0.0.1"), "ok");
        assert_eq!(address_rule(&rules, 8003, "127.0.0.1"), "service");
        assert_eq!(address_rule(&rules, 8003, "127.1.2.3"), "service");
        assert_eq!(address_rule(&rules, 8003, "10.0.0.1"), "ok");
        assert_eq!(address_rule(&rules, 8004, "::1"), "service");
    }

    #[test]
    fn loopback_is_this_machine_and_a_foreign_address_is_not() {
        assert!(is_this_machine("127.0.0.1".parse().unwrap()));
        assert!(is_this_machine("127.9.9.9".parse().unwrap()));
        assert!(!is_this_machine("1.1.1.1".parse().unwrap()));
    }
}
