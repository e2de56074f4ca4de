//! The addresses that can be reached: spellings of addresses, names that change, names with several addresses, lists.

use std::io::{Read, Write};

use crate::support::{Proxy, Script, Server, echo, exchange, http};

/// The answer to each of a proxy that opens nothing. Every text is an inner address to some program.
#[test]
fn no_spelling_of_an_inner_address_gets_through() {
    let script = Script::new(&[
        ("localhost", &[&["127.0.0.1", "::1"]]),
        ("rebound.example", &[&["10.0.0.1"]]),
        ("v6.example", &[&["::ffff:127.0.0.1"]]),
        ("meta.example", &[&["169.254.169.254"]]),
        ("nat64.example", &[&["64:ff9b::a9fe:a9fe"]]),
    ]);
    let proxy = Proxy::with(&[80, 443], &script, |config| config.allow_private.clear());
    let pass = proxy.admit("spelling");
    let (spelling, closed, never) = ("403 spelling", "403 not_public", "403 never");
    for (host, verdict) in [
        ("127.0.0.1", closed),
        ("127.0.0.1.", closed),
        ("127.255.255.254", closed),
        ("localhost", closed),
        ("LOCALHOST.", closed),
        ("[::1]", closed),
        ("[0:0:0:0:0:0:0:1]", closed),
        ("[::ffff:127.0.0.1]", closed),
        ("[::FFFF:7f00:1]", closed),
        ("[::ffff:10.0.0.1]", closed),
        ("[64:ff9b::10.0.0.1]", never),
        ("[64:ff9b::169.254.169.254]", never),
        ("[64:ff9b:1::10.0.0.1]", never),
        ("[::127.0.0.1]", never),
        ("[::10.0.0.1]", never),
        ("[2002:7f00:0001::]", never),
        ("[2002:a9fe:a9fe::]", never),
        ("[2001:0:7f00:1::]", never),
        ("[fe80::1]", never),
        ("[fe80::a9fe:a9fe]", never),
        ("[fd00:ec2::254]", never),
        ("[fd20:ce::254]", never),
        ("[fc00::1]", closed),
        ("[fd12:3456::1]", closed),
        ("[fec0::1]", closed),
        ("[ff02::1]", never),
        ("[::]", never),
        ("[2001:db8::1]", closed),
        ("0.0.0.0", never),
        ("0.1.2.3", never),
        ("10.0.0.1", closed),
        ("172.16.0.1", closed),
        ("172.31.255.255", closed),
        ("192.168.1.1", closed),
        ("100.64.0.1", closed),
        ("100.100.100.200", never),
        ("168.63.129.16", never),
        ("169.254.169.254", never),
        ("169.254.169.254.", never),
        ("[::ffff:169.254.169.254]", never),
        ("[::ffff:a9fe:a9fe]", never),
        ("192.0.0.192", never),
        ("192.0.2.1", closed),
        ("198.18.0.1", closed),
        ("203.0.113.1", closed),
        ("224.0.0.1", never),
        ("240.0.0.1", closed),
        ("255.255.255.255", never),
        ("metadata", "403 metadata"),
        ("metadata.google.internal", "403 metadata"),
        ("Metadata.Google.Internal.", "403 metadata"),
        ("instance-data", "403 metadata"),
        ("rebound.example", closed),
        ("v6.example", closed),
        ("meta.example", never),
        ("nat64.example", never),
        ("nowhere.example", "502 no_such_name"),
        ("0x7f.1", spelling),
        ("0x7f000001", spelling),
        ("0X7F.0.0.1", spelling),
        ("2130706433", spelling),
        ("017700000001", spelling),
        ("0177.0.0.1", spelling),
        ("127.1", spelling),
        ("127.0.1", spelling),
        ("127.0.0.0x1", spelling),
        ("127.000.000.001", spelling),
        ("127.0.0.1..", spelling),
        ("0", spelling),
        ("2852039166", spelling),
        ("0xa9fea9fe", spelling),
        ("[::1%lo]", spelling),
        ("[::1%25lo]", spelling),
        ("[fe80::1%eth0]", spelling),
        ("[127.0.0.1]", spelling),
        ("[::ffff:0x7f.1]", spelling),
        ("[::1", "400 malformed"),
        ("::1", "400 malformed"),
        ("127.0.0.1%20", spelling),
        ("127.0.0.1%00.example.com", spelling),
        ("127.0.0.1\\.example.com", spelling),
        ("example..com", spelling),
        ("*.example.com", spelling),
        ("", spelling),
        ("user@127.0.0.1", "400 malformed"),
        ("example.com:80@127.0.0.1", "400 malformed"),
    ] {
        assert_eq!(proxy.verdict(&pass, &format!("{host}:80")), verdict, "CONNECT {host}");
        let answer = exchange(&proxy, &pass, &format!("GET http://{host}/ HTTP/1.1\r\n{{auth}}\r\n\r\n"));
        let line = answer.lines().next().unwrap_or_default();
        // A plain request may also be no request at all with such a host.
        assert!(
            line.starts_with("HTTP/1.1 403")
                || line.starts_with(&format!("HTTP/1.1 {}", &verdict[..3]))
                || line.starts_with("HTTP/1.1 400"),
            "GET {host}: {line}"
        );
    }
    // Raw bytes and other letters, which are not even text to the parser or no name to us.
    for host in ["127。0。0。1", "１２７.0.0.1", "①②⑦.⓪.⓪.①", "ⓛocalhost", "127.0.0.1\0", "127.0.0.1\t"]
    {
        let verdict = proxy.verdict(&pass, &format!("{host}:80"));
        assert!(["403 spelling", "400 malformed"].contains(&verdict.as_str()), "{host:?}: {verdict}");
    }
}

#[test]
fn dns_rebinding_meets_a_name_that_is_resolved_once_and_connected_as_judged() {
    let server = Server::start(echo);
    // The first answer is open, the next ones are not: a proxy that resolves twice is deceived.
    let script = Script::new(&[("rebind.example", &[&["127.0.0.1"], &["127.0.0.2"], &["10.0.0.1"]])]);
    let proxy = Proxy::with(&[server.port()], &script, |config| {
        config.allow_private = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let pass = proxy.admit("rebind");
    let target = format!("rebind.example:{}", server.port());
    let mut tunnel = proxy.tunnel(&pass, &target);
    assert_eq!(script.asked(), ["rebind.example"], "resolved once");
    tunnel.write_all(b"x").unwrap();
    tunnel.read_exact(&mut [0]).unwrap();
    assert_eq!(proxy.verdict(&pass, &target), "403 not_public");
    assert_eq!(proxy.verdict(&pass, &target), "403 not_public");
    assert_eq!(script.asked().len(), 3);
}

#[test]
fn one_bad_address_refuses_the_whole_name() {
    let server = Server::start(echo);
    let script = Script::new(&[
        ("mixed.example", &[&["127.0.0.1", "10.0.0.1"]]),
        ("late.example", &[&["127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "fe80::1"]]),
        ("good.example", &[&["::1", "127.0.0.1"]]),
    ]);
    let proxy = Proxy::start(&[server.port()], &script);
    let pass = proxy.admit("mixed");
    let verdict = |name: &str| proxy.verdict(&pass, &format!("{name}:{}", server.port()));
    assert_eq!(verdict("mixed.example"), "403 not_public");
    assert_eq!(verdict("late.example"), "403 never");
    // The first address does not listen; the second does.
    drop(proxy.tunnel(&pass, &format!("good.example:{}", server.port())));
}

#[test]
fn with_a_list_of_open_hosts_not_even_the_resolver_hears_of_others() {
    let server = Server::start(http);
    let script = Script::new(&[
        ("api.example", &[&["127.0.0.1"]]),
        ("a.api.example", &[&["127.0.0.1"]]),
        ("evil.example", &[&["127.0.0.1"]]),
    ]);
    let proxy = Proxy::with(&[server.port()], &script, |config| {
        config.allow = vec!["api.example".parse().unwrap(), "*.api.example".parse().unwrap()];
        config.deny = vec!["b.api.example".parse().unwrap()];
    });
    let pass = proxy.admit("lists");
    let verdict = |name: &str| proxy.verdict(&pass, &format!("{name}:{}", server.port()));
    assert_eq!(verdict("secret-words.evil.example"), "403 not_allowed");
    assert_eq!(verdict("b.api.example"), "403 denied");
    assert_eq!(verdict("127.0.0.1"), "403 not_allowed");
    assert_eq!(script.asked(), Vec::<String>::new());
    assert_eq!(verdict("API.example"), "200 ");
    assert_eq!(verdict("a.api.example."), "200 ");
    assert_eq!(script.asked(), ["api.example", "a.api.example"]);
}

#[test]
fn the_service_itself_is_never_reached_whatever_is_opened() {
    let service = Server::start(http);
    let script = Script::new(&[("me.example", &[&["127.0.0.1"]])]);
    let proxy = Proxy::with(&[service.port()], &script, |config| {
        config.own = vec![service.address];
        config.allow_private = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    });
    let pass = proxy.admit("own");
    for host in ["127.0.0.1", "me.example", "[::ffff:127.0.0.1]"] {
        assert_eq!(proxy.verdict(&pass, &format!("{host}:{}", service.port())), "403 service", "{host}");
    }
    // Listening on every address makes every address of this machine the service.
    let proxy = Proxy::start(&[service.port()], &Script::default());
    let pass = proxy.admit("own");
    assert_eq!(proxy.verdict(&pass, &format!("127.0.0.1:{}", service.port())), "200 ");
    proxy.egress.protect(format!("0.0.0.0:{}", service.port()).parse().unwrap());
    assert_eq!(proxy.verdict(&pass, &format!("127.0.0.1:{}", service.port())), "403 service");
    assert_eq!(proxy.verdict(&pass, &format!("127.7.7.7:{}", service.port())), "403 service");
}

#[test]
fn an_address_of_ipv6_is_reached_like_any_other() {
    let Ok(probe) = std::net::TcpListener::bind("[::1]:0") else {
        eprintln!("SKIPPED: this host has no IPv6");
        return;
    };
    drop(probe);
    let server = Server::at("[::1]:0", echo);
    let proxy = Proxy::start(&[server.port()], &Script::default());
    let pass = proxy.admit("v6");
    let mut tunnel = proxy.tunnel(&pass, &format!("[::1]:{}", server.port()));
    tunnel.write_all(b"six").unwrap();
    let mut back = [0; 3];
    tunnel.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"six");
}

#[test]
fn only_listed_ports_are_open() {
    let server = Server::start(echo);
    let proxy = Proxy::start(&[80], &Script::default());
    let pass = proxy.admit("ports");
    assert_eq!(proxy.verdict(&pass, &format!("127.0.0.1:{}", server.port())), "403 port");
    for wrong in ["0", "65536", "+80", "080", "80x", ""] {
        assert_eq!(proxy.verdict(&pass, &format!("127.0.0.1:{wrong}")), "400 malformed", "{wrong}");
    }
}
