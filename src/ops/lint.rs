//! What other programs do not take of a skill as it is.

use std::io::Read;

use policy::RelPath;
use policy::skill_md::{self, Finding, HEADER_BYTES_MAX};
use storage::{Files, Kind};

use super::Service;
use super::admission::Job;
use super::error::Result;
use super::seen::Seen;

impl Service {
    /// Looks through the `SKILL.md` of a skill, whose directory has the name `directory_name`.
    ///
    /// # Errors
    /// As [`storage::Files::open`].
    pub async fn lint(&self, seen: impl Into<Seen>, directory_name: String) -> Result<Vec<Finding>> {
        let seen = seen.into();
        let job = Job::read(&seen.id);
        let files = self.store.files(seen.id).of_version(seen.version);
        self.work(job, move || Ok(skill_md::lint(skill_md(&files)?.as_deref(), &directory_name))).await
    }
}

/// The beginning of the file that describes a skill, in any spelling of its name; `None` without one.
fn skill_md(files: &Files) -> storage::Result<Option<Vec<u8>>> {
    let children = files.children(&RelPath::root())?;
    let names = children.iter().filter(|child| child.kind == Kind::File).map(|child| child.name.as_os_str());
    let name = skill_md::marker(names).skill_md.and_then(|name| name.to_str());
    let Some(path) = name.and_then(|name| RelPath::parse(name).ok()) else { return Ok(None) };
    let file = files.open(&path)?.file;
    let mut head = Vec::new();
    let read = file.take(HEADER_BYTES_MAX as u64).read_to_end(&mut head);
    read.map_err(|error| storage::Error::from_io("read", path.as_str(), error))?;
    Ok(Some(head))
}
