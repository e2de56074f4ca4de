//! The way from the runtime to work that blocks.

use crate::{Error, ErrorKind, Result};

/// Does `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_cancelled() => {
            Err(Error::new(ErrorKind::Disconnected, operation, "the runtime is stopping"))
        }
        Err(error) => Err(Error::new(ErrorKind::Internal, operation, "the backend panicked").because(error)),
    }
}
