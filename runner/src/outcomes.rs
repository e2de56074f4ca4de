//! [`Outcomes`]: how changes went whose answers may have been lost with a connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::wire::Response;
use sandbox::wire::response::{Failed, Outcome};
use tokio::sync::watch;

/// How many requests are remembered: the oldest is forgotten for a new one.
const REMEMBERED: usize = 1024;
/// How long a question waits for a change that is under way.
const WAIT: Duration = Duration::from_secs(8);

/// The latest requests that change something, by their ids, and how they went. A clone has the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes(Arc<Mutex<Table>>);

/// How a request went: the version of the file that it wrote, if it tells one.
type Ended = Result<Option<String>, Failed>;

#[derive(Debug, Default)]
struct Table {
    outcomes: HashMap<String, watch::Sender<Option<Ended>>>,
    order: VecDeque<String>,
}

impl Outcomes {
    /// Notes that a request has come.
    pub(crate) fn begin(&self, id: &str) {
        let mut table = self.0.lock();
        if table.outcomes.insert(id.to_owned(), watch::Sender::new(None)).is_none() {
            table.order.push_back(id.to_owned());
        }
        if table.order.len() > REMEMBERED
            && let Some(oldest) = table.order.pop_front()
        {
            table.outcomes.remove(&oldest);
        }
    }

    /// Notes the answer to a request, if it is one that is remembered.
    pub(crate) fn note(&self, id: &str, response: &Response) {
        let outcome = match response {
            Response::Ok => Ok(None),
            Response::Written(written) => Ok(written.version.clone()),
            Response::Error(failed) => Err(failed.clone()),
            _ => return,
        };
        if let Some(there) = self.0.lock().outcomes.get(id) {
            there.send_replace(Some(outcome));
        }
    }

    /// Tells how a request went. Waits a while for one that is under way; `None` when that does not end.
    pub(crate) async fn tell(&self, id: &str) -> Option<Outcome> {
        let there = self.0.lock().outcomes.get(id).map(watch::Sender::subscribe);
        let Some(mut there) = there else { return Some(Outcome::default()) };
        let ended = tokio::time::timeout(WAIT, there.wait_for(Option::is_some)).await.ok()?.ok()?;
        Some(match ended.clone()? {
            Ok(version) => Outcome { is_known: true, error: None, version },
            Err(error) => Outcome { is_known: true, error: Some(error), version: None },
        })
    }
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;
    use sandbox::wire::response::Written;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_as_it_went_and_the_oldest_is_forgotten() {
        let outcomes = Outcomes::default();
        outcomes.begin("done");
        outcomes.begin("failed");
        outcomes.begin("under way");
        outcomes.note("done", &Response::Ok);
        let failed = Failed::new(ErrorKind::NotFound, "nothing is there");
        outcomes.note("failed", &Response::Error(failed.clone()));
        outcomes.note("never came", &Response::Ok);
        outcomes.begin("written");
        let version = Some("v1".to_owned());
        outcomes.note("written", &Response::Written(Written { version: version.clone() }));
        assert_eq!(outcomes.tell("written").await, Some(Outcome { is_known: true, error: None, version }));
        let told = |is_known, error| Some(Outcome { is_known, error, version: None });
        assert_eq!(outcomes.tell("done").await, told(true, None));
        assert_eq!(outcomes.tell("failed").await, told(true, Some(failed)));
        assert_eq!(outcomes.tell("never came").await, told(false, None));
        assert_eq!(outcomes.tell("under way").await, None);
        (0..REMEMBERED).for_each(|number| outcomes.begin(&number.to_string()));
        assert_eq!(outcomes.tell("done").await, told(false, None));
        assert_eq!(outcomes.0.lock().outcomes.len(), REMEMBERED);
    }
}
