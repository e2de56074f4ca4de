//! [`Message`]: what the thread that keeps the registry is told and asked.

use storage::Shelf;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Question, Result, Row};

/// There while nothing is owed and no service keeps the registry.
pub(super) const SETTLED: &str = "settled";

/// Rows for a question.
#[derive(Debug)]
pub struct Answer {
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether nothing is owed: every publication that was answered is in them.
    pub is_complete: bool,
}

/// A message to the thread.
pub(super) enum Message {
    Changed(Vec<Shelf>, oneshot::Sender<()>),
    Ask(Question, oneshot::Sender<Result<Answer>>, OwnedSemaphorePermit),
    Rebuild(oneshot::Sender<Result<usize>>, OwnedSemaphorePermit),
    Close,
}
