//! Ports: what listens in the networks of a user and agent, and connections to it.

use std::net::IpAddr;
use std::time::Duration;

use exec::{ListeningSocket, Network, NetworkOwner, Protocol};
use policy::{AgentId, TreeId, UserId};
use tokio::net::TcpStream;

use super::Service;
use super::admission::permits::Permit;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::run::id::ExecId;

/// How long a server may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A socket that listens in a network of a user and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The number.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The address that it listens on.
    pub address: IpAddr,
    /// The network mode of the runs that reach it.
    pub network: Network,
    /// The program, as it calls itself, where the service may see that.
    pub program: Option<String>,
    /// The run and its tree, where the run has a name and the service may see whose the socket is.
    pub run: Option<(ExecId, TreeId)>,
}

/// A connection to a server in a network of a user and agent.
pub struct Reached {
    /// The connection.
    pub stream: TcpStream,
    /// The right to have it, to be held as long as it is open.
    pub permit: Permit,
}

impl Service {
    /// What listens in the networks of the user and agent of `tree`, by port.
    ///
    /// # Errors
    /// [`Error::Exec`]: commands have no network of their own here; [`Error::Full`].
    pub async fn ports(&self, tree: &TreeId) -> Result<Vec<Port>> {
        let owner = owner_of(tree.user(), tree.agent());
        let launcher = std::sync::Arc::clone(&self.launcher);
        let runs = self.table.running_of(tree.user(), tree.agent());
        let job = Job::about(Some(tree.user()), Weight::Light);
        self.work(job, move || {
            let sockets = launcher.listening(&owner)?;
            if sockets.is_empty() {
                return Ok(Vec::new());
            }
            let runs: Vec<_> =
                runs.iter().map(|run| (run.numbers(), (run.id.clone(), run.tree.clone()))).collect();
            let run_of =
                |number| runs.iter().find(|(own, _)| own.contains(&number)).map(|(_, run)| run.clone());
            let told = |socket: ListeningSocket| Port {
                port: socket.port,
                protocol: socket.protocol,
                address: socket.address,
                network: socket.network,
                run: socket.holder.as_ref().and_then(|holder| run_of(holder.run)),
                program: socket.holder.map(|holder| holder.program),
            };
            Ok(sockets.into_iter().map(told).collect())
        })
        .await
    }

    /// Connects to the server at a port of a user and agent.
    ///
    /// # Errors
    /// [`Error::Exec`]: nothing listens there, or commands have no network of their own here; [`Error::PortSilent`];
    /// [`Error::Full`]: the user has too many connections.
    pub async fn reach(&self, user: &UserId, agent: &AgentId, port: u16) -> Result<Reached> {
        let permit = self.port_permits.take(user).await?;
        let owner = owner_of(user, agent);
        let stream = match tokio::time::timeout(CONNECT, self.launcher.connect(&owner, port)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(Error::PortSilent { port, seconds: CONNECT.as_secs() }),
        };
        // What is passed on comes in pieces of the sender's making (Nagle's algorithm, tcp(7)).
        let _ = stream.set_nodelay(true);
        Ok(Reached { stream, permit })
    }
}

fn owner_of(user: &UserId, agent: &AgentId) -> NetworkOwner {
    NetworkOwner { user: user.clone(), agent: agent.clone() }
}
