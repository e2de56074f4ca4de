//! A skill's way between one user and all: differences, versions, promotion, pulling.

use std::time::{Duration, Instant};

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use similar::{Algorithm, TextDiff};
use storage::{Change, Changed, KeptVersion, Prefer, Published, Pulled, Shelf, Side, SkillStatus, Version};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::Result;

/// Largest side of a file that is compared by lines, in bytes.
const SIDE_BYTES_MAX: u64 = 1024 * 1024;
/// Text of one answer, in bytes; files beyond are named without.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for all comparisons of one answer. What is not done by then is told as larger changes than there are.
const COMPARING_MAX: Duration = Duration::from_secs(2);
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// What a user changed in one file of a skill.
#[derive(Debug)]
pub struct FileDifference {
    /// Path from the skill's root.
    pub path: String,
    /// What became of it.
    pub change: Change,
    /// Its size in the current version of the application, in bytes; `None` when it has no such file.
    pub before_bytes: Option<u64>,
    /// Its size as the user sees it.
    pub after_bytes: Option<u64>,
    /// The changed lines, or why there are none.
    pub text: Text,
}

/// The changed lines of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Text {
    /// As a unified diff, from the application's to the user's.
    Lines(String),
    /// Neither side has text: a directory, a link, or bytes.
    None,
    /// They are too large to be compared, or the answer is.
    TooLarge,
}

impl Service {
    /// How a user's view of a skill stands to the application's.
    ///
    /// # Errors
    /// As [`storage::Store::status`]; [`storage::Error::NotFound`] when the user has no such skill.
    pub async fn status(&self, id: TreeId) -> Result<SkillStatus> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::LongRead));
        self.work(job, move || {
            store.files(id.clone()).stat(&RelPath::root())?;
            Ok(store.status(&id)?)
        })
        .await
    }

    /// What a user changed in the files `changed` of a skill, line by line.
    ///
    /// # Errors
    /// As [`storage::Store::sides`].
    pub async fn differences(&self, id: TreeId, changed: Vec<Changed>) -> Result<Vec<FileDifference>> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::ShortRead));
        self.work(job, move || {
            let until = Instant::now() + COMPARING_MAX;
            let mut room = TEXT_BYTES_MAX;
            let compared = changed.into_iter().map(|changed| {
                // A path that is not UTF-8 is shown, but names nothing.
                let sides = match RelPath::parse(&changed.path) {
                    Ok(path) => store.sides(&id, &path, SIDE_BYTES_MAX)?,
                    Err(_) => storage::Sides::default(),
                };
                let text = compare(&changed.path, sides.before.as_ref(), sides.after.as_ref(), until);
                let text = match text {
                    Text::Lines(text) if text.len() > room => Text::TooLarge,
                    text => text,
                };
                if let Text::Lines(text) = &text {
                    room = room.saturating_sub(text.len());
                }
                Ok(FileDifference {
                    path: changed.path,
                    change: changed.change,
                    before_bytes: sides.before.map(|side| side.bytes),
                    after_bytes: sides.after.map(|side| side.bytes),
                    text,
                })
            });
            compared.collect()
        })
        .await
    }

    /// The kept versions of an application's skill, the current one first; `user` asks.
    ///
    /// # Errors
    /// As [`storage::Store::versions`].
    pub async fn versions(&self, user: &UserId, agent: AgentId, skill: SkillId) -> Result<Vec<KeptVersion>> {
        let (store, job) = (self.store.clone(), Job::of(user, Weight::Light));
        self.work(job, move || Ok(store.versions(&agent, &skill)?)).await
    }

    /// Makes a former version of an application's skill the current one.
    ///
    /// # Errors
    /// As [`storage::Store::rollback`].
    pub async fn rollback(
        &self,
        user: UserId,
        agent: AgentId,
        skill: SkillId,
        version: Version,
    ) -> Result<Option<Published>> {
        let store = self.store.clone();
        let job = Job::of(&user, Weight::Long);
        let publication = self.publishing(job, move |shelves| {
            shelves.push(Shelf { agent: agent.clone(), skill: skill.clone(), user: None });
            Ok(store.rollback(&user, &agent, &skill, &version)?)
        });
        Ok(first(publication.await?))
    }

    /// Publishes what a user sees of a skill for all users.
    ///
    /// # Errors
    /// As [`storage::Store::promote`].
    pub async fn promote(&self, id: TreeId, force: bool) -> Result<Option<Published>> {
        let store = self.store.clone();
        let job = Job::on(&id, Weight::Long, Mode::LongRead);
        let publication = self.publishing(job, move |shelves| {
            // The user's own goes when it is everybody's.
            shelves.extend(Shelf::of(&id));
            shelves.extend(Shelf::below(&id));
            Ok(store.promote(&id, force)?)
        });
        Ok(first(publication.await?))
    }

    /// Carries a user's changes over to the application's current version.
    ///
    /// # Errors
    /// As [`storage::Store::pull`].
    pub async fn pull(&self, id: TreeId, prefer: Prefer) -> Result<Pulled> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongChange));
        self.work(job, move || Ok(store.pull(&id, prefer)?)).await
    }
}

/// The one skill of a publication; what was replaced is removed while the answer is on its way.
fn first(publication: storage::Publication) -> Option<Published> {
    let storage::Publication { mut skills, leftovers } = publication;
    tokio::task::spawn_blocking(move || drop(leftovers));
    skills.pop()
}

fn compare(path: &str, before: Option<&Side>, after: Option<&Side>, until: Instant) -> Text {
    let sides = [before, after];
    if sides.iter().flatten().any(|side| side.content.is_none()) {
        return Text::TooLarge;
    }
    if sides.iter().all(Option::is_none) {
        return Text::None;
    }
    let text = |side: Option<&Side>| {
        let bytes = side.and_then(|side| side.content.as_deref()).unwrap_or_default();
        std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map(str::to_owned)
    };
    let (Some(old), Some(new)) = (text(before), text(after)) else { return Text::None };
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).deadline(until).diff_lines(&old, &new);
    // As git names them, so that the answer can be applied as a patch.
    let name = |side: Option<&Side>, letter: char| match side {
        Some(_) => format!("{letter}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (from, to) = (name(before, 'a'), name(after, 'b'));
    Text::Lines(diff.unified_diff().context_radius(CONTEXT_LINES).header(&from, &to).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(text: &[u8]) -> Side {
        Side { bytes: u64::try_from(text.len()).unwrap(), content: Some(text.to_vec()) }
    }

    #[test]
    fn a_difference_is_a_patch() {
        let soon = Instant::now() + COMPARING_MAX;
        let (one, two) = (side("一\n二\n".as_bytes()), side("一\n三".as_bytes()));
        let expected = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n 一\n-二\n+三\n\\ No newline at end of file\n";
        assert_eq!(compare("f", Some(&one), Some(&two), soon), Text::Lines(expected.to_owned()));
        let made = "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+一\n+二\n";
        assert_eq!(compare("f", None, Some(&one), soon), Text::Lines(made.to_owned()));
    }

    #[test]
    fn bytes_are_not_shown_and_what_is_too_large_is_told() {
        let soon = Instant::now() + COMPARING_MAX;
        let bytes = side(b"\xff\0");
        assert_eq!(compare("f", Some(&bytes), None, soon), Text::None);
        assert_eq!(compare("f", None, None, soon), Text::None);
        let large = Side { bytes: SIDE_BYTES_MAX + 1, content: None };
        assert_eq!(compare("f", Some(&large), Some(&bytes), soon), Text::TooLarge);
    }

    #[test]
    fn the_dearest_files_are_compared_within_the_time_allowed() {
        let lines = |factor: u32| {
            let text: String =
                (0..150_000_u32).map(|line| format!("{}\n", line.wrapping_mul(factor) % 9_973)).collect();
            side(text.as_bytes())
        };
        let began = Instant::now();
        let soon = began + Duration::from_millis(200);
        assert!(matches!(compare("f", Some(&lines(7)), Some(&lines(31)), soon), Text::Lines(_)));
        // Generous: the machine may be busy.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
