//! Connections, by the thousand, of callers who have no token and send no request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::host::growth;
use crate::scene::Scene;

/// More than a service has places for, by default.
const CONNECTIONS: usize = 2_300;
/// How long others wait for their answers at most: alone they take some milliseconds, and the machine may be loaded.
const PATIENCE: Duration = Duration::from_secs(5);
/// The memory that the heads of all of them, and the connections themselves, may take; together they send 135 MiB.
const GROWTH_BYTES: u64 = 96 * 1024 * 1024;
const HEAD_BYTES: usize = 60 * 1024;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("keeping_others_out_by_idle_connections", |scene| flood(scene, |_| true))
        .everywhere()
        .alone(),
    Attack::driven("keeping_others_out_by_heads_without_an_end", |scene| {
        flood(scene, |stream| stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: ").is_ok())
    })
    .everywhere()
    .alone(),
    Attack::driven("keeping_others_out_by_connections_that_were_used_once", |scene| {
        flood(scene, |stream| {
            let is_sent = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok();
            is_sent && stream.read(&mut [0; 12]).is_ok_and(|read| read > 0)
        })
    })
    .everywhere()
    .alone(),
    Attack::driven("filling_the_memory_by_heads_without_an_end", large_heads).everywhere().alone(),
];

/// Lets this process have as many descriptors as the attack takes.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Tells whether a health check and another caller are served.
fn others_are_served(scene: &Scene<'_>) -> Result<(), String> {
    for route in ["/healthz", "/readyz", "/v1/info"] {
        let begun = Instant::now();
        let status = scene.client().get(route).status;
        if status != 200 || begun.elapsed() > PATIENCE {
            return Err(format!("`{route}` was answered {status} after {:?}", begun.elapsed()));
        }
    }
    Ok(())
}

/// Opens thousands of connections, does `with` each what makes it stay, and keeps them while others ask.
fn flood(scene: &Scene<'_>, with: impl Fn(&mut TcpStream) -> bool) -> Finding {
    raise_descriptors();
    assert_eq!(others_are_served(scene), Ok(()), "the control");
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = scene.client().connect();
        assert!(with(&mut stream), "connection {number} stays");
        held.push(stream);
        // Also so that no more come at once than wait to be accepted (listen(2)).
        if number % 100 == 99
            && let Err(told) = others_are_served(scene)
        {
            return Finding::Through(format!("with {number} connections {told}"));
        }
    }
    match others_are_served(scene) {
        Ok(()) => Finding::Stopped,
        Err(told) => Finding::Through(format!("with all {CONNECTIONS} connections {told}")),
    }
}

fn large_heads(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs the memory of the service's process".into());
    };
    raise_descriptors();
    let mut told = Ok(());
    let grown = growth(host.service(), || {
        let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: {}", "a".repeat(HEAD_BYTES));
        let mut held = Vec::new();
        for number in 0..CONNECTIONS {
            let mut stream = scene.client().connect();
            // One that gives way in the middle of it has sent enough.
            let _ = stream.write_all(head.as_bytes());
            held.push(stream);
            if number % 100 == 99 && told.is_ok() {
                told = others_are_served(scene);
            }
        }
        if told.is_ok() {
            told = others_are_served(scene);
        }
    });
    match told {
        Err(told) => Finding::Through(told),
        Ok(()) if grown > GROWTH_BYTES => Finding::Through(format!("the service grew by {grown} bytes")),
        Ok(()) => Finding::Stopped,
    }
}
