//! [`Refusal`]: why the proxy does not do what a command asked, as a status, a rule and a sentence.
//!
//! All statuses of the proxy are in this file. The rule stands in the reason phrase too, because most clients show
//! nothing else of a refused `CONNECT`.

use std::time::Duration;

use thiserror::Error;

/// Why a request is refused. Messages go to the command, so they hold only what it sent, and say what helps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No token, or one that no living run has.
    #[error(
        "the proxy needs the user name of its address: use `HTTP_PROXY` and `HTTPS_PROXY` as they are set"
    )]
    Unauthenticated,
    /// The bytes sent are no request that a proxy can answer.
    #[error("the request is not understood: {0}")]
    Malformed(&'static str),
    /// A head longer than [`super::head::HEAD_BYTES_MAX`], or with too many lines.
    #[error("the head of the request is too large: at most {0} bytes and 100 fields are read")]
    HeadTooLarge(usize),
    /// The head did not arrive in time.
    #[error("the head of the request took longer than {} seconds", .0.as_secs_f32())]
    HeadTimeout(Duration),
    /// A host that is no plain name and no plain address.
    #[error("the host is not written plainly ({0}): use a name, four decimal numbers, or IPv6 in brackets")]
    Spelling(&'static str),
    /// A port off the list.
    #[error("port {0} is not open: ask the operator to add it to `commands.proxy.ports`")]
    Port(u16),
    /// A host on the deny list.
    #[error("`{0}` is closed by `commands.proxy.deny`: do without it, or ask the operator")]
    Denied(String),
    /// A host that is not on the allow list.
    #[error("`{0}` is not among the open hosts: ask the operator to add it to `commands.proxy.allow`")]
    NotAllowed(String),
    /// A name or address at which a cloud hands out credentials.
    #[error("`{0}` is a metadata service of a cloud: no setting opens it")]
    Metadata(String),
    /// A name that only means something inside a network, and that only the upstream proxy could resolve.
    #[error("`{0}` is a private name: ask the operator to name it in `commands.proxy.allow`")]
    PrivateName(String),
    /// An address that is not public, but can be opened.
    #[error(
        "`{host}` is at a {kind} address: ask the operator to open its range in `commands.proxy.allow_private`"
    )]
    NotPublic {
        /// As the command wrote it.
        host: String,
        /// Which kind of address.
        kind: &'static str,
    },
    /// An address that is never connected to.
    #[error("`{host}` is at a {kind} address: no setting opens it")]
    Never {
        /// As the command wrote it.
        host: String,
        /// Which kind of address.
        kind: &'static str,
    },
    /// The service itself.
    #[error("`{0}` is this service itself: no setting opens it")]
    Service(String),
    /// Another port of the machine that the service is on.
    #[error(
        "`{0}` is the service's own machine: ask the operator to open it in `commands.proxy.allow_private`"
    )]
    Machine(String),
    /// The run has moved as many bytes as it may.
    #[error(
        "this run has moved {0} bytes, which is all it may: ask the operator for `commands.proxy.bytes_per_run`"
    )]
    Bytes(u64),
    /// The run has as many connections as it may.
    #[error("this run has {0} connections open, which is all it may: close some and try again")]
    RunConnections(usize),
    /// All runs of the user have as many connections as they may.
    #[error(
        "the runs of this user have {0} connections open, which is all they may: close some and try again"
    )]
    UserConnections(usize),
    /// All runs together have as many connections as they may.
    #[error("the proxy has no connection left: try again in a few seconds")]
    Connections,
    /// The name has no address.
    #[error("`{0}` cannot be resolved: check its spelling")]
    NoSuchName(String),
    /// Resolving took too long.
    #[error("resolving `{0}` took too long: try again")]
    NameTimeout(String),
    /// No address of the host could be connected to.
    #[error("`{0}` cannot be connected to: check host and port, or try again")]
    Unreachable(String),
    /// Connecting took too long.
    #[error("connecting to `{0}` took too long: check host and port, or try again")]
    ConnectTimeout(String),
    /// The operator's own proxy said no.
    #[error("the proxy behind this one refused `{host}` with status {status}: ask the operator")]
    Upstream {
        /// As the command wrote it.
        host: String,
        /// Its answer.
        status: u16,
    },
    /// The other side's answer is no HTTP, or ended in its head.
    #[error("the answer of the other side is not understood: {0}")]
    BadAnswer(&'static str),
    /// Nothing came for too long before the answer began.
    #[error("nothing was sent or received for {} seconds", .0.as_secs_f32())]
    Idle(Duration),
}

/// A refusal as the client and the log get it.
struct Row {
    status: u16,
    reason: &'static str,
    rule: &'static str,
    /// Error type of RFC 9209, section 2.3.
    proxy_status: &'static str,
}

impl Refusal {
    /// The rule that refused, one word for logs and clients.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.row().rule
    }

    /// The status code of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.row().status
    }

    fn row(&self) -> Row {
        let row = |status, reason, rule, proxy_status| Row { status, reason, rule, proxy_status };
        let forbidden = |rule, proxy_status| row(403, "Forbidden", rule, proxy_status);
        match self {
            Self::Unauthenticated => {
                row(407, "Proxy Authentication Required", "unauthenticated", "http_request_denied")
            }
            Self::Malformed(_) => row(400, "Bad Request", "malformed", "http_request_error"),
            Self::HeadTooLarge(_) => {
                row(431, "Request Header Fields Too Large", "head_too_large", "http_request_error")
            }
            Self::HeadTimeout(_) => row(408, "Request Timeout", "head_timeout", "http_request_error"),
            Self::Spelling(_) => forbidden("spelling", "http_request_denied"),
            Self::Port(_) => forbidden("port", "http_request_denied"),
            Self::Denied(_) => forbidden("denied", "http_request_denied"),
            Self::NotAllowed(_) => forbidden("not_allowed", "http_request_denied"),
            Self::Metadata(_) => forbidden("metadata", "destination_ip_prohibited"),
            Self::PrivateName(_) => forbidden("private_name", "http_request_denied"),
            Self::NotPublic { .. } => forbidden("not_public", "destination_ip_prohibited"),
            Self::Never { .. } => forbidden("never", "destination_ip_prohibited"),
            Self::Service(_) => forbidden("service", "destination_ip_prohibited"),
            Self::Machine(_) => forbidden("machine", "destination_ip_prohibited"),
            Self::Bytes(_) => forbidden("bytes_per_run", "http_request_denied"),
            Self::RunConnections(_) => {
                row(429, "Too Many Requests", "connections_per_run", "connection_limit_reached")
            }
            Self::UserConnections(_) => {
                row(429, "Too Many Requests", "connections_per_user", "connection_limit_reached")
            }
            Self::Connections => row(503, "Service Unavailable", "connections", "connection_limit_reached"),
            Self::NoSuchName(_) => row(502, "Bad Gateway", "no_such_name", "dns_error"),
            Self::NameTimeout(_) => row(504, "Gateway Timeout", "name_timeout", "dns_timeout"),
            Self::Unreachable(_) => row(502, "Bad Gateway", "unreachable", "destination_unavailable"),
            Self::ConnectTimeout(_) => row(504, "Gateway Timeout", "connect_timeout", "connection_timeout"),
            Self::Upstream { .. } => row(502, "Bad Gateway", "upstream", "destination_unavailable"),
            Self::BadAnswer(_) => row(502, "Bad Gateway", "bad_answer", "http_protocol_error"),
            Self::Idle(_) => row(504, "Gateway Timeout", "idle", "connection_read_timeout"),
        }
    }

    /// The whole answer: a head that ends the connection, and one line of text.
    pub(super) fn answer(&self) -> String {
        let Row { status, reason, rule, proxy_status } = self.row();
        let body = format!("filesecbox: {self} (rule `{rule}`)\n");
        // RFC 9110, section 11.7.1: a 407 names the scheme.
        let challenge = match self {
            Self::Unauthenticated => "Proxy-Authenticate: Basic realm=\"filesecbox\"\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {status} {reason} ({rule})\r\n\
             {challenge}Proxy-Status: filesecbox; error={proxy_status}\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_rule_and_only_a_407_asks_for_a_token() {
        let answer = Refusal::Port(22).answer();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden (port)\r\n"), "{answer}");
        assert!(answer.ends_with("add it to `commands.proxy.ports` (rule `port`)\n"), "{answer}");
        assert!(!answer.contains("Proxy-Authenticate"));
        let answer = Refusal::Unauthenticated.answer();
        assert!(answer.contains("\r\nProxy-Authenticate: Basic realm=\"filesecbox\"\r\n"), "{answer}");
    }
}
