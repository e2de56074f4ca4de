//! [`Reached`]: what one run has asked of the proxy, host by host.

use serde::{Deserialize, Serialize};

/// Hosts, each with a port and an outcome, that are told of one run.
const HOSTS_MAX: usize = 64;

/// What a run has asked of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The hosts, in the order in which they were first asked for: at most 64.
    pub hosts: Vec<ReachedHost>,
    /// Requests for further hosts, of which nothing more is told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u64,
}

/// The requests of a run for one port of one host that came to the same end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedHost {
    /// The name or address, as the run wrote it; empty for a request that named none.
    pub host: String,
    /// The port; 0 for a request that named none.
    pub port: u16,
    /// `complete`, `broken`, `idle`, `revoked`, or the [rule](super::Refusal::rule) that refused it.
    pub outcome: String,
    /// How many requests.
    pub requests: u64,
    /// Bytes from the run.
    pub bytes_out: u64,
    /// Bytes to the run.
    pub bytes_in: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's `skip_serializing_if` passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Reached {
    /// Counts one request.
    pub(super) fn add(&mut self, host: &str, port: u16, outcome: &str, (bytes_out, bytes_in): (u64, u64)) {
        let is_same =
            |known: &&mut ReachedHost| known.host == host && known.port == port && known.outcome == outcome;
        if let Some(known) = self.hosts.iter_mut().find(is_same) {
            known.requests += 1;
            known.bytes_out = known.bytes_out.saturating_add(bytes_out);
            known.bytes_in = known.bytes_in.saturating_add(bytes_in);
        } else if self.hosts.len() < HOSTS_MAX {
            let (host, outcome) = (host.to_owned(), outcome.to_owned());
            self.hosts.push(ReachedHost { host, port, outcome, requests: 1, bytes_out, bytes_in });
        } else {
            self.unnamed += 1;
        }
    }

    /// Tells whether the run asked for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_end_are_one_line_and_lines_are_bounded() {
        let mut reached = Reached::default();
        assert!(reached.is_empty());
        reached.add("a.example", 443, "complete", (1, 2));
        reached.add("a.example", 443, "complete", (10, 20));
        reached.add("a.example", 443, "not_allowed", (0, 0));
        let line = |outcome: &str, requests, bytes_out, bytes_in| ReachedHost {
            host: "a.example".to_owned(),
            port: 443,
            outcome: outcome.to_owned(),
            requests,
            bytes_out,
            bytes_in,
        };
        assert_eq!(reached.hosts, [line("complete", 2, 11, 22), line("not_allowed", 1, 0, 0)]);
        for number in 0..100 {
            reached.add(&format!("{number}.example"), 443, "complete", (1, 1));
        }
        assert_eq!((reached.hosts.len(), reached.unnamed), (HOSTS_MAX, 38));
    }
}
