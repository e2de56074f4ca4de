//! [`Step`]: what one step of a preparation came to, and [`Steps`]: all of them, told as they happen.

use std::time::Instant;

use serde::Serialize;
use tokio::sync::mpsc;

/// Characters of a log that are kept; more end in `...`.
pub const LOG_CHARACTERS: usize = 4000;

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// There was nothing to do, or it was done in an earlier round; the log says which.
    Skipped,
    /// It failed, and the preparation went on.
    Failed,
    /// Its time was over, and the preparation went on.
    TimedOut,
}

/// A step that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `bootstrap:<name>`, `deploy`, `files`, `entrypoint`, `skill:<version>` or `scan`.
    pub name: String,
    /// Its end.
    pub outcome: Outcome,
    /// How long it took.
    pub duration_ms: u64,
    /// What it has to say: a script's output, warnings, or why it was skipped. At most [`LOG_CHARACTERS`] characters and `...`.
    pub log: String,
}

/// What is told of a preparation under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step begins.
    Started(String),
    /// A step goes on: so many of its parts are done.
    Advanced {
        /// The name of the step.
        name: String,
        /// Parts that are done.
        done: usize,
        /// All its parts.
        of: usize,
    },
    /// A step has ended.
    Ended(Step),
}

/// The steps of a preparation.
#[derive(Default)]
pub(super) struct Steps {
    ended: Vec<Step>,
    /// Their number is bounded, so nothing waits for a listener.
    listener: Option<mpsc::UnboundedSender<Progress>>,
}

/// A step under way.
pub(super) struct Begun {
    name: String,
    at: Instant,
}

impl Steps {
    pub(super) fn new(listener: Option<mpsc::UnboundedSender<Progress>>) -> Self {
        Self { ended: Vec::new(), listener }
    }

    /// Begins a step.
    pub(super) fn begin(&self, name: impl Into<String>) -> Begun {
        let name = name.into();
        self.tell(Progress::Started(name.clone()));
        Begun { name, at: Instant::now() }
    }

    /// Tells that so many parts of a step are done.
    pub(super) fn advance(&self, begun: &Begun, done: usize, of: usize) {
        self.tell(Progress::Advanced { name: begun.name.clone(), done, of });
    }

    /// Ends a step.
    pub(super) fn end(&mut self, begun: Begun, outcome: Outcome, log: &str) {
        let duration_ms = u64::try_from(begun.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let step = Step { name: begun.name, outcome, duration_ms, log: truncated(log) };
        if matches!(outcome, Outcome::Failed | Outcome::TimedOut) {
            // Without what it said: a script writes what it likes, secrets among it. The caller has it.
            tracing::warn!(step = step.name, "a step of a preparation failed: the rest goes on");
        }
        self.tell(Progress::Ended(step.clone()));
        self.ended.push(step);
    }

    /// Notes a step that is not done.
    pub(super) fn skip(&mut self, name: impl Into<String>, why: &str) {
        let begun = self.begin(name);
        self.end(begun, Outcome::Skipped, why);
    }

    /// All steps, in order.
    pub(super) fn into_ended(self) -> Vec<Step> {
        self.ended
    }

    fn tell(&self, progress: Progress) {
        if let Some(listener) = &self.listener {
            // A listener that has left needs nothing.
            let _ = listener.send(progress);
        }
    }
}

/// The beginning of a log.
pub(super) fn truncated(log: &str) -> String {
    match log.char_indices().nth(LOG_CHARACTERS) {
        None => log.to_owned(),
        Some((end, _)) => format!("{}...", log.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_4000_characters_at_most_and_says_when_it_had_more() {
        let text = "字".repeat(LOG_CHARACTERS);
        assert_eq!(truncated(&text), text);
        assert_eq!(truncated(&format!("{text}x")), format!("{text}..."));
    }
}
