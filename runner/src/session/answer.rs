//! [`Answers`]: frames on their way to the service.

use sandbox::ErrorKind;
use sandbox::wire::response::Failed;
use sandbox::wire::{FRAME_BYTES_MAX, Response};
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;

use super::calls::Slot;
use crate::outcomes::Outcomes;

/// The way out. A frame that is larger than a frame may be becomes an error.
#[derive(Debug)]
pub(super) struct Answers {
    outgoing: mpsc::Sender<String>,
    /// Where it is noted how changes went.
    outcomes: Outcomes,
}

impl Answers {
    pub(super) fn new(outgoing: mpsc::Sender<String>, outcomes: Outcomes) -> Self {
        Self { outgoing, outcomes }
    }

    /// Waits for room and puts the frame there. When the connection is gone, so is the answer.
    pub(super) async fn say(&self, id: Option<&str>, response: &Response) {
        if let Some(id) = id {
            self.outcomes.note(id, response);
        }
        let _gone = self.outgoing.send(frame(id, response)).await;
    }

    /// The answer that ends a request. Its id may be used again as soon as the answer is there.
    pub(super) async fn end(&self, slot: Slot, response: &Response) {
        if let Some(id) = slot.id() {
            self.outcomes.note(id, response);
        }
        if let Some(room) = self.room().await {
            let text = frame(slot.id(), response);
            drop(slot);
            room.send(text);
        }
    }

    /// The way out itself.
    pub(super) fn outgoing(&self) -> mpsc::Sender<String> {
        self.outgoing.clone()
    }

    /// Room for one frame; `None` when the connection is gone.
    pub(super) async fn room(&self) -> Option<OwnedPermit<String>> {
        self.outgoing.clone().reserve_owned().await.ok()
    }
}

/// The text of an answer, of at most [`FRAME_BYTES_MAX`].
pub(super) fn frame(id: Option<&str>, response: &Response) -> String {
    let text = response.to_text(id);
    if text.len() <= FRAME_BYTES_MAX {
        return text;
    }
    let message = format!("the answer has {} bytes: at most {FRAME_BYTES_MAX} fit a frame", text.len());
    Response::Error(Failed::new(ErrorKind::TooLarge, message)).to_text(id)
}
