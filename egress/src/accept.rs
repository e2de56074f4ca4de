//! Accepting connections of commands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::pass::Account;
use super::proxy::Egress;

/// Pause after a failed `accept`, which fails for as long as descriptors are short (accept(2)).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After so many connections in a row, each of which has pushed out another of its user, the next waits for the pause.
const CROWD: u32 = 16;
const CROWD_PAUSE: Duration = Duration::from_millis(5);

impl Egress {
    /// Serves one connection of a command of `account`, which has come on another way than through a listener, to its end
    /// or until `stop`.
    ///
    /// # Errors
    /// `stream` cannot be waited for (epoll(7)).
    pub async fn serve_connection(
        self: &Arc<Self>,
        stream: std::net::TcpStream,
        account: Account,
        stop: CancellationToken,
    ) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let arrival = self.pending.arrive(Some(&account.user));
        let stream = TcpStream::from_std(stream)?;
        let connection = Connection::new(Arc::clone(self), Some(Arc::new(account)), stream);
        tokio::select! {
            () = connection.serve(arrival) => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    }

    /// Accepts connections until `stop`, then ends those that are open.
    ///
    /// `listener` listens on [`super::ADDRESS`], in the network namespace of the commands of `account`, whose tokens alone
    /// are good there; without an account, the tokens of all users are. Several may be served at once.
    ///
    /// # Errors
    /// `listener` cannot be waited for (epoll(7)).
    pub async fn serve(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        account: Option<Account>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let open = TaskTracker::new();
        let account = account.map(Arc::new);
        let user = account.as_ref().map(|account| account.user.clone());
        let mut crowded: u32 = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = Connection::new(Arc::clone(self), account.clone(), stream);
                    let (arrival, stop) = (self.pending.arrive(user.as_ref()), stop.clone());
                    crowded = if arrival.is_crowded() { crowded + 1 } else { 0 };
                    open.spawn(async move {
                        tokio::select! {
                            () = connection.serve(arrival) => {}
                            () = stop.cancelled() => {}
                        }
                    });
                    if crowded >= CROWD {
                        // A run that floods the proxy fills the queue of its own network meanwhile, and takes no
                        // processor.
                        crowded = 0;
                        tokio::time::sleep(CROWD_PAUSE).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the egress proxy failed to accept a connection: it tries again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        open.close();
        open.wait().await;
        Ok(())
    }
}
