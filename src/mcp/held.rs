//! [`Held`]: what a message holds until its answer has left: a place among the calls of its user, and room in memory.

use std::any::Any;
use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;

use super::wire::Answer;

/// Things that are given back together, when both the work on a message and its answer are gone.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

impl Held {
    /// Holds one thing more.
    pub(super) fn hold(&self, thing: impl Any + Send) {
        self.0.lock().push(Box::new(thing));
    }

    /// The same answer, which holds all of it as long as it is on its way: a caller who takes its answers slowly has few.
    pub(super) fn until_taken(self, answer: Answer) -> Answer {
        answer.map(|body| {
            let holding = move |frame| {
                let _held = &self;
                frame
            };
            body.map_frame(holding).boxed()
        })
    }
}
