//! [`RunControl`]: signals and sizes for a command that runs, here or in a remote workspace.

use exec::{Control, RunNumber, Signal, WindowSize};
use sandbox::live::{self, Order};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::ops::{Error, Result};

/// A handle on a command that runs.
pub(super) enum RunControl {
    /// Of this service's launcher.
    Here(Control),
    /// Of a backend.
    Remote(mpsc::Sender<Order>),
}

impl RunControl {
    /// Sends a signal. Tells whether a process was there to get it, as far as that is known.
    ///
    /// # Errors
    /// [`Error::Exec`]; [`Error::Busy`]: earlier ones have not been passed on.
    pub(super) fn signal(&self, signal: Signal) -> Result<bool> {
        match self {
            Self::Here(control) => Ok(control.signal(signal)?),
            Self::Remote(orders) => order(orders, Order::Signal(signal)),
        }
    }

    /// Gives its terminal another size.
    ///
    /// # Errors
    /// As for [`RunControl::signal`].
    pub(super) fn resize(&self, size: WindowSize) -> Result<()> {
        match self {
            Self::Here(control) => Ok(control.resize(size)?),
            Self::Remote(orders) => {
                let size = live::WindowSize { rows: size.rows, cols: size.cols };
                order(orders, Order::Resize(size)).map(drop)
            }
        }
    }

    /// The numbers that the processes of the command may have, as far as the service may see them.
    pub(super) fn numbers(&self) -> Vec<RunNumber> {
        match self {
            Self::Here(control) => control.numbers(),
            Self::Remote(_) => Vec::new(),
        }
    }
}

fn order(orders: &mpsc::Sender<Order>, order: Order) -> Result<bool> {
    match orders.try_send(order) {
        Ok(()) => Ok(true),
        Err(TrySendError::Closed(_)) => Ok(false),
        Err(TrySendError::Full(_)) => {
            let what = "earlier signals have not come to the command: its machine may be away";
            Err(Error::Busy { what, retry_after_seconds: 5 })
        }
    }
}
