//! [`tunnel`]: bytes both ways between a command and a host, until both ends, silence, or the bound of the run.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::meter::Meter;

/// Bytes in flight in one direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// How an exchange ended that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides had said all.
    Complete,
    /// One side broke off.
    Broken,
    /// Nothing moved for too long.
    Idle,
    /// The run has moved all it may.
    Spent,
}

impl End {
    /// One word for the log.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Broken => "broken",
            Self::Idle => "idle",
            Self::Spent => "bytes_per_run",
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    /// From the command.
    Sent,
    /// To the command.
    Received,
}

/// Passes everything on until the end of `from`, which `to` is told.
///
/// # Errors
/// How it ended otherwise.
pub(super) async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    direction: Direction,
    meter: &Meter,
) -> Result<(), End> {
    let broken = |_: io::Error| End::Broken;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await.map_err(broken)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
            // The other direction may go on: a half-closed connection is an ordinary one.
            return to.shutdown().await.map_err(broken);
        };
        match direction {
            Direction::Sent => meter.sent(count),
            Direction::Received => meter.received(count),
        }
        .map_err(|_| End::Spent)?;
        to.write_all(piece).await.map_err(broken)?;
    }
}

/// Passes bytes both ways; `early` came from the client before the tunnel was there.
pub(super) async fn tunnel(
    client: &mut TcpStream,
    early: &[u8],
    server: &mut TcpStream,
    late: &[u8],
    meter: &Meter,
) -> End {
    let (client_reads, mut client_writes) = client.split();
    let (server_reads, mut server_writes) = server.split();
    let (mut outward, mut inward) = (early.chain(client_reads), late.chain(server_reads));
    let both = async {
        tokio::try_join!(
            pump(&mut outward, &mut server_writes, Direction::Sent, meter),
            pump(&mut inward, &mut client_writes, Direction::Received, meter),
        )
    };
    tokio::select! {
        ended = both => ended.map_or_else(|end| end, |_| End::Complete),
        _ = meter.idle() => End::Idle,
    }
}
