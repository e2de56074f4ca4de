//! Searching one tree: off the runtime, a few at once, until a deadline or until the caller leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use policy::UserId;
use storage::search::{GlobQuery, Globbed, GrepQuery, Grepped, Patience};

use super::Service;
use super::admission::holds::Mode;
use super::admission::permit_kind::PermitKind;
use super::admission::permits::{Permit, Permits};
use super::admission::{Job, Weight};
use super::error::Result;
use super::seen::Seen;

/// Searches at once, of one user and of all; further ones wait for a permit.
const SEARCHES_PER_USER: usize = 2;
const SEARCHES_MAX: usize = 4;
/// How long they wait.
const WAIT: Duration = Duration::from_secs(10);

/// One for the process, because it stands for the processors, which a search takes all of.
static PLACES: LazyLock<Permits> =
    LazyLock::new(|| Permits::with(PermitKind::SEARCHES, SEARCHES_MAX, SEARCHES_PER_USER, WAIT));

/// Waits for a permit to look through whole trees.
///
/// # Errors
/// [`Error::Full`](super::Error::Full).
pub(super) async fn permit(user: &UserId) -> Result<Permit> {
    PLACES.take(user).await
}

/// Tells a search that its caller has left.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service {
    /// Finds the files below a directory whose paths match.
    ///
    /// # Errors
    /// As [`storage::Files::glob`]; [`Error::Full`](super::Error::Full).
    pub async fn glob(&self, Seen { id, version }: Seen, query: GlobQuery) -> Result<Globbed> {
        let job = Job::on(&id, Weight::Scan, Mode::LongRead).giving_way_when_slow();
        let user = id.user().clone();
        let files = self.store.files(id).of_version(version);
        self.searching(&user, job, move |patience| Ok(files.glob(&query, patience)?)).await
    }

    /// Finds the lines that match, in all files below a directory or in one file.
    ///
    /// # Errors
    /// As [`storage::Files::grep`]; [`Error::Full`](super::Error::Full).
    pub async fn grep(&self, Seen { id, version }: Seen, query: GrepQuery) -> Result<Grepped> {
        let job = Job::on(&id, Weight::Scan, Mode::ShortRead).giving_way_when_slow();
        let user = id.user().clone();
        let files = self.store.files(id).of_version(version);
        self.searching(&user, job, move |patience| Ok(files.grep(&query, patience)?)).await
    }

    async fn searching<T: Send + 'static>(
        &self,
        user: &UserId,
        job: Job,
        search: impl FnOnce(&Patience) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let longest = Duration::from_millis(self.file_limits.search_ms);
        let permit = permit(user).await?;
        let abandoned = Arc::new(AtomicBool::new(false));
        let waiting = Waiting(Arc::clone(&abandoned));
        let patience = Patience { deadline: Instant::now() + longest, abandoned };
        let found = self.work(job, move || {
            // Held by the search itself, which may go on for a moment when the caller has gone.
            let _permit = permit;
            search(&patience)
        });
        let found = found.await;
        drop(waiting);
        found
    }
}
