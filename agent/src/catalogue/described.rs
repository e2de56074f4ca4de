//! What makes a directory a skill, and what the skill says of itself: the service's own rules (`policy::skill_md`).

use policy::skill_md::{self, Metadata, NO_DESCRIPTION};

use super::{HEAD_BYTES_MAX, SKILL_FILE};
use crate::place::Directory;
use sandbox::{FileKind, Result};

/// Stands in a skill's directory while it is not whole.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// A skill in a directory.
pub(crate) struct Described {
    /// The file that describes it, by its name.
    pub(crate) file: String,
    /// Its name.
    pub(crate) name: String,
    /// Its purpose; may be empty.
    pub(crate) description: String,
}

/// The file of skills that have no `SKILL.md`, in this spelling only: a `readme.md` is about anything.
const README_FILE: &str = "README.md";

/// The files that describe the skill in a directory: `SKILL.md` in any case of letters, and `README.md`.
///
/// Both are absent of a directory that is being installed or removed.
async fn markers(directory: &Directory<'_>) -> Result<(Option<String>, Option<String>)> {
    let entries = directory.entries().await?;
    if entries.iter().any(|entry| entry.name == UNFINISHED) {
        return Ok((None, None));
    }
    let is_file = |kind: FileKind| matches!(kind, FileKind::File | FileKind::Symlink);
    let names = || entries.iter().filter(|entry| is_file(entry.kind)).map(|entry| entry.name.as_str());
    let readme = names().find(|name| *name == README_FILE);
    Ok((skill_md::marker(names()).skill_md.map(str::to_owned), readme.map(str::to_owned)))
}

/// The name of the file that describes the skill in `directory`; none when it is no skill.
pub(crate) async fn file(directory: &Directory<'_>) -> Result<Option<String>> {
    if directory.kind(SKILL_FILE).await? == Some(FileKind::File) {
        return Ok(Some(SKILL_FILE.to_owned()));
    }
    let (skill_md, readme) = markers(directory).await?;
    Ok(skill_md.or(readme))
}

/// The same, for what is to be published: a `README.md` does not do.
pub(crate) async fn skill_file(directory: &Directory<'_>) -> Result<Option<String>> {
    Ok(file(directory).await?.filter(|name| name.eq_ignore_ascii_case(SKILL_FILE)))
}

/// Reads what the skill in `directory` says of itself; none when it is no skill.
///
/// The name is that of its front matter, else `directory_name`. One file is read of most skills; the directory is listed where
/// there is no `SKILL.md`, or nothing in it that describes the skill.
pub(crate) async fn describe(directory: &Directory<'_>, directory_name: &str) -> Result<Option<Described>> {
    let head = directory.head(SKILL_FILE, HEAD_BYTES_MAX).await?;
    if let Some(head) = &head {
        let metadata = skill_md::parse(Some(head), None, directory_name);
        if metadata.description != NO_DESCRIPTION {
            return Ok(Some(described(SKILL_FILE.to_owned(), head, metadata, directory_name)));
        }
    }
    let (mut skill_md, readme) = markers(directory).await?;
    let mut head = head;
    match (&head, &skill_md) {
        // It may be a link, which is not listed as a file everywhere.
        (Some(_), _) => skill_md = Some(SKILL_FILE.to_owned()),
        (None, Some(name)) => head = directory.head(name, HEAD_BYTES_MAX).await?,
        (None, None) => {}
    }
    let Some(file) = skill_md.or_else(|| readme.clone()) else { return Ok(None) };
    let readme = match &readme {
        Some(name) => directory.head(name, HEAD_BYTES_MAX).await?,
        None => None,
    };
    if head.is_none() && readme.is_none() {
        return Ok(None);
    }
    let metadata = skill_md::parse(head.as_deref(), readme.as_deref(), directory_name);
    Ok(Some(described(file, head.as_deref().unwrap_or_default(), metadata, directory_name)))
}

fn described(file: String, head: &[u8], metadata: Metadata, directory_name: &str) -> Described {
    let is_named = skill_md::declared_name(head).is_some();
    let name = if is_named { metadata.name } else { directory_name.to_owned() };
    let mut description = metadata.description;
    if description == NO_DESCRIPTION {
        description.clear();
    }
    Described { file, name, description }
}
