//! `GET T/ports` and `POST T/ports`: what listens in a sandbox, and links to it for browsers.
//!
//! | Module | Holds |
//! | --- | --- |
//! | this one | the list, and making links |
//! | [`pass`] | one request on its way to a server in a sandbox, and the answer on its way back |
//! | [`target`] | the port and the path that a request names |
//! | [`request_head`], [`answer_head`] | which headers go with them |
//! | [`paced`], [`relay`] | how long a server may be silent |

mod answer_head;
mod paced;
pub(in crate::http) mod pass;
mod relay;
mod request_head;
mod target;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::access::now;
use crate::access::port_link::PortLink;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::{ChangingRequest, JsonBody, JsonLimit, Local, NoParams, TreeRequest, bearer};
use crate::http::{App, request_log};
use crate::ops::ports::Port;

/// How long a link counts when the request does not say, in seconds.
const SECONDS_DEFAULT: u64 = 3600;

/// A socket that listens.
#[derive(Serialize)]
struct Listed {
    port: u16,
    /// `tcp` or `udp`.
    protocol: exec::Protocol,
    address: String,
    /// The network mode of the runs that reach it.
    network: exec::Network,
    program: Option<String>,
    exec_id: Option<String>,
    /// The tree of the run, as commands name it.
    tree: Option<String>,
}

impl From<Port> for Listed {
    fn from(found: Port) -> Self {
        let Port { port, protocol, address, network, program, run } = found;
        let (exec_id, tree) = run.map(|(id, tree)| (id.to_string(), tree.sandbox_path())).unzip();
        Self { port, protocol, address: address.to_string(), network, program, exec_id, tree }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Local(request): Local<TreeRequest>,
    _: NoParams,
) -> Answer {
    let ports = app.service.ports(request.tree.local()?).await?;
    success(ports.into_iter().map(Listed::from).collect::<Vec<_>>())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    port: u16,
    ttl_seconds: Option<u64>,
}

impl JsonLimit for Wanted {}

#[derive(Serialize)]
struct Beside {
    /// Names the link in logs.
    id: String,
    expires_at: String,
}

pub(in crate::http) async fn link(
    State(app): State<App>,
    Local(ChangingRequest { tree }): Local<ChangingRequest>,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(wanted): JsonBody<Wanted>,
) -> Answer {
    let most = app.service.port_limits().link_seconds_max;
    let seconds = wanted.ttl_seconds.unwrap_or(SECONDS_DEFAULT.min(most));
    if !(1..=most).contains(&seconds) {
        return Err(Problem::invalid(format!("`ttl_seconds` is {seconds}: send 1 to {most}")));
    }
    if wanted.port == 0 {
        return Err(Problem::invalid("`port` is 0: send 1 to 65535"));
    }
    app.service.launcher().require_ports().map_err(crate::ops::Error::from)?;
    let id = tree.local()?;
    let issued = app.access.revocations().issued_at(id.user(), now());
    let expires = issued.saturating_add(seconds);
    // A link lets its bearer do no more, and for no longer, than the token that asked for it.
    let expires = app.access.expiry(bearer(&headers)).map_or(expires, |own| own.min(expires));
    let (user, agent) = (id.user().clone(), id.agent().clone());
    let link = PortLink::new(user, agent, wanted.port, [issued, expires]);
    let link = link.map_err(|error| Problem::internal(&error))?;
    let asked_by = app.access.caller(bearer(&headers))?;
    let link = link.asked_by(asked_by.signed_id());
    request_log::issued(&link.user, &link.id);
    let token = app.access.issue_link(&link).ok_or_else(|| {
        Problem::new(
            Code::Unsupported,
            "the service has no key to sign with: the operator sets `access.key_file`",
        )
    })?;
    let expires_at = rfc3339(i128::from(link.expires) * 1_000_000_000);
    success_with(format!("/v1/ports/{token}/"), Beside { id: link.id, expires_at })
}
