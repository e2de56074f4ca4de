//! Work by the processor alone that a model, or a file, can make long.

use std::time::{Duration, Instant};

use super::Refusal;

/// How long one call may search text or match names.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Does `work` on a thread of its own, so that no other call waits for it.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Refusal::new("the tool failed"))
}

/// The files among `files` that the paths mean.
pub(super) async fn meant(
    files: Vec<(String, Option<u64>)>,
    is_meant: impl Fn(&str) -> bool + Send + 'static,
) -> Result<Vec<(String, Option<u64>)>, Refusal> {
    let matching = move || {
        let begin = Instant::now();
        let mut found = Vec::new();
        for file in files {
            if begin.elapsed() > PATIENCE {
                return Err(Refusal::new(
                    "matching takes too long: use fewer braces, or a directory further down",
                ));
            }
            if is_meant(&file.0) {
                found.push(file);
            }
        }
        Ok(found)
    };
    apart(matching).await?
}
