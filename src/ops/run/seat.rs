//! [`Seat`]: a caller's place before a terminal. The shell waits a while for the next one.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::record::{Purpose, Recorded};
use crate::ops::{Error, Result, Service};

/// A caller's place before a terminal. When it is dropped and no other caller has taken the terminal by the end of the time
/// that the configuration gives, the shell is killed.
pub struct Seat {
    /// The run of the terminal.
    pub recorded: Arc<Recorded>,
    number: u64,
    taken: watch::Receiver<u64>,
    patience: Duration,
    stop: CancellationToken,
}

impl Service {
    /// Takes a terminal, from the caller who has it.
    ///
    /// # Errors
    /// [`Error::NotNow`]: the run has no terminal that a caller sits before.
    pub fn sit(&self, recorded: &Arc<Recorded>) -> Result<Seat> {
        if !matches!(recorded.purpose, Purpose::Terminal(_)) {
            return Err(Error::NotNow("the run is no terminal: follow it with `GET exec/{exec_id}`"));
        }
        let mut number = 0;
        recorded.seats.send_modify(|seats| {
            *seats += 1;
            number = *seats;
        });
        Ok(Seat {
            recorded: Arc::clone(recorded),
            number,
            taken: recorded.seats.subscribe(),
            patience: Duration::from_millis(self.table.limits().terminal_resume_ms),
            stop: self.stop.clone(),
        })
    }
}

impl Seat {
    /// Returns when another caller has taken the terminal.
    pub async fn taken(&mut self) {
        let number = self.number;
        // The run is held, and the sender with it.
        let _ = self.taken.wait_for(|seats| *seats > number).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if *self.taken.borrow() > self.number || self.recorded.exit().is_some() {
            return;
        }
        let (recorded, patience, number) = (Arc::clone(&self.recorded), self.patience, self.number);
        let (mut taken, stop) = (self.taken.clone(), self.stop.clone());
        let Ok(runtime) = Handle::try_current().map_err(|_| recorded.kill()) else { return };
        if patience.is_zero() {
            recorded.kill();
            return;
        }
        runtime.spawn(async move {
            tokio::select! {
                _ = taken.wait_for(|seats| *seats > number) => {}
                _ = recorded.outcome() => {}
                () = stop.cancelled() => {}
                () = tokio::time::sleep(patience) => recorded.kill(),
            }
        });
    }
}
