//! `filesecbox health`: asks a running service whether it serves, for a container's health check or a script.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use super::Outcome;
use super::client::{Client, ClientError};

/// How long the answer may take as a whole. A health check that hangs is useless.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks `GET /healthz`, which needs no token, of `url` or else of where the configuration listens.
///
/// Exits with 0 when the service answers that it serves; what else comes back, or nothing, is an error.
pub(super) fn run(listen: SocketAddr, url: Option<&str>) -> Outcome {
    let url = url.map_or_else(|| format!("http://{}", reachable(listen)), str::to_owned);
    let client = Client::within(&url, PATIENCE)?;
    let said: String = client.data(client.get(&client.url(&["healthz"], &[]))?)?;
    if said != "ok" {
        return Err(ClientError::Foreign { server: client.server }.into());
    }
    say(&format!("{} serves", client.server));
    Ok(ExitCode::SUCCESS)
}

/// Where a service that listens on `listen` can be asked from this machine: `0.0.0.0` and `::` mean every address of
/// it and are none to connect to.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[expect(clippy::print_stdout, reason = "the command line speaks to a person")]
fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_on_every_address_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8003", "127.0.0.1:8003"),
            ("[::]:8003", "[::1]:8003"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("192.0.2.7:80", "192.0.2.7:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
