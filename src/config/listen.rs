//! The address that the service listens on, as people write it.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer};

/// Reads an address and a port, such as `127.0.0.1:8003` or `[::1]:8003`. `localhost` is `127.0.0.1`, and no resolver is asked.
///
/// # Errors
/// A sentence for anything else, other names included: where they lead may change.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok()) {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        format!(
            "`{text}` is no address with a port: write `127.0.0.1:8003`, `[::1]:8003` or `localhost:8003`"
        )
    })
}

pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    listen_address(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_a_loopback_address_and_no_other_name_is_one() {
        assert_eq!(listen_address("localhost:8003").unwrap().to_string(), "127.0.0.1:8003");
        for text in ["127.0.0.1:0", "[::1]:8003", "0.0.0.0:80"] {
            assert_eq!(listen_address(text).unwrap().to_string(), text);
        }
        for text in ["", "localhost", "localhost:", "localhost:70000", "host.example:80", "8003", ":8003"] {
            assert!(listen_address(text).unwrap_err().contains("`localhost:8003`"), "{text}");
        }
    }
}
