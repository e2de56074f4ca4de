//! An operator whose own way out is a proxy: every request goes there, and the rules that need no address still hold.

use std::io::{Read, Write};

use egress::{Pass, Target};

use crate::support::{Proxy, Script, Server, exchange, http, status_of};

/// A proxy that opens nothing by itself, in front of `server`, which stands for the operator's.
fn before(server: &Server) -> (Proxy, Pass) {
    let upstream = Target::parse(&server.address.to_string(), None).unwrap();
    let proxy = Proxy::with(&[80, 443], &Script::default(), |config| {
        config.allow_private.clear();
        config.upstream = Some(upstream);
    });
    let pass = proxy.admit("before");
    (proxy, pass)
}

#[test]
fn plain_requests_go_in_the_form_for_proxies_and_tunnels_are_asked_for() {
    let server = Server::start(http);
    let (proxy, pass) = before(&server);
    let answer = exchange(&proxy, &pass, "GET http://public.example/a HTTP/1.1\r\n{auth}\r\n\r\n");
    assert_eq!(status_of(&answer), 200, "{answer}");
    assert_eq!(proxy.verdict(&pass, "public.example:443"), "200 ");
    let mut heard = server.heard(2);
    heard.sort();
    assert_eq!(
        heard,
        [
            "CONNECT public.example:443 HTTP/1.1\r\nhost: public.example:443\r\n\r\n",
            "GET http://public.example/a HTTP/1.1\r\nhost: public.example\r\nvia: 1.1 filesecbox\r\nconnection: close\r\n\r\n",
        ]
    );
}

#[test]
fn what_can_be_judged_without_resolving_is_judged_and_the_upstream_never_hears_of_it() {
    let server = Server::start(http);
    let (proxy, pass) = before(&server);
    for (target, verdict) in [
        ("169.254.169.254:80", "403 never"),
        ("metadata.google.internal:80", "403 metadata"),
        ("10.0.0.1:443", "403 not_public"),
        ("localhost:80", "403 private_name"),
        ("intranet:80", "403 private_name"),
        ("db.internal:443", "403 private_name"),
        ("public.example:22", "403 port"),
        ("0x7f.1:80", "403 spelling"),
    ] {
        assert_eq!(proxy.verdict(&pass, target), verdict, "{target}");
    }
    assert_eq!(server.heard(0), Vec::<String>::new());
}

#[test]
fn a_refusal_of_the_upstream_is_passed_on_as_such() {
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        Vec::new()
    });
    let (proxy, pass) = before(&server);
    assert_eq!(proxy.verdict(&pass, "public.example:443"), "502 upstream");
}
