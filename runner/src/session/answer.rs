//! [`Answers`]: frames on their way to the service.

use sandbox::ErrorKind;
use sandbox::wire::response::Failed;
use sandbox::wire::{FRAME_BYTES_MAX, Response};
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;

/// The way out. A frame that is larger than a frame may be becomes an error.
#[derive(Debug)]
pub(super) struct Answers(mpsc::Sender<String>);

impl Answers {
    pub(super) fn new(outgoing: mpsc::Sender<String>) -> Self {
        Self(outgoing)
    }

    /// Waits for room and puts the frame there. When the connection is gone, so is the answer.
    pub(super) async fn say(&self, id: Option<&str>, response: &Response) {
        let _gone = self.0.send(frame(id, response)).await;
    }

    /// The way out itself.
    pub(super) fn outgoing(&self) -> mpsc::Sender<String> {
        self.0.clone()
    }

    /// Room for one frame; `None` when the connection is gone.
    pub(super) async fn room(&self) -> Option<OwnedPermit<String>> {
        self.0.clone().reserve_owned().await.ok()
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
