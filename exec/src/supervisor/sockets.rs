//! What a run asks for with its sockets: the kind of the socket, or of the address, says who does it.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::Supervisor;
use super::accounts::Accounts;
use super::call::Peer;
use super::slot::{Asked, Outcome};
use super::target::{Address, Kind, Target};
use crate::sys::Notification;

impl Supervisor {
    /// Connects a socket of the caller: to the egress proxy, to a server of the user's and agent's runs, or to a socket of the
    /// run's own directories.
    pub(super) fn connect(&mut self, notification: &Notification, peer: Peer) -> rustix::io::Result<Outcome> {
        let (listener, call) = (self.listener.as_fd(), notification.id);
        let target = Target::open(listener, notification)?;
        let address = target.address(peer.address, peer.length)?;
        let asked = Asked { target: &target, grounds: &self.grounds, listener, call };
        match address {
            Address::Internet(address) => {
                let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
                if let (SocketAddr::V4(address), Some(connector)) = (canonical, &mut self.connector)
                    && connector.is_at(address)
                {
                    connector.connect(&target, peer.socket, listener, call)?;
                    return Ok(Outcome::Made);
                }
                let Some(loopback) = &mut self.loopback else { return Err(Errno::ACCESS) };
                loopback.connect(&asked, address, peer.socket)
            }
            Address::Path(path) if Accounts::is_at(&path) => {
                let Some(accounts) = &mut self.accounts else { return Err(Errno::ACCESS) };
                accounts.connect(&asked, peer.socket)
            }
            Address::Path(path) => {
                let Some(local) = &mut self.local else { return Err(Errno::ACCESS) };
                local.connect(&asked, &path, peer.socket)
            }
            // What listens there may be a program of the host.
            Address::Abstract => Err(Errno::CONNREFUSED),
        }
    }

    /// Gives a socket of the caller a path or an address.
    pub(super) fn bind(&mut self, notification: &Notification, peer: Peer) -> rustix::io::Result<()> {
        let (listener, call) = (self.listener.as_fd(), notification.id);
        let target = Target::open(listener, notification)?;
        let address = target.address(peer.address, peer.length)?;
        let asked = Asked { target: &target, grounds: &self.grounds, listener, call };
        match (address, &mut self.local, &mut self.loopback) {
            (Address::Path(path), Some(local), _) => local.bind(&asked, &path, peer.socket),
            (Address::Internet(address), _, Some(loopback)) => loopback.bind(&asked, address, peer.socket),
            _ => Err(Errno::ACCESS),
        }
    }

    /// Has a socket of the caller listen.
    pub(super) fn listen(
        &mut self,
        notification: &Notification,
        socket: i32,
        backlog: i32,
    ) -> rustix::io::Result<()> {
        let (listener, call) = (self.listener.as_fd(), notification.id);
        let target = Target::open(listener, notification)?;
        let asked = Asked { target: &target, grounds: &self.grounds, listener, call };
        match (target.kind(socket)?, &mut self.local, &mut self.loopback) {
            (Kind::Unix, Some(local), _) => local.listen(&target, socket, backlog),
            (Kind::Tcp { is_ipv6 }, _, Some(loopback)) => loopback.listen(&asked, socket, is_ipv6, backlog),
            _ => Err(Errno::ACCESS),
        }
    }
}
