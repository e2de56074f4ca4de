//! Input files of a round: below `user_files`, each under a name that is one segment.
//!
//! Calls about files look for no fence. So where another process may write the workspace, files are written to a directory of the
//! round's own, and one command behind the fence gives them their names: a file that comes late replaces nothing.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandbox::ErrorKind;

use super::site::{Site, quote};
use super::steps::{Outcome, Steps};
use super::temporary::{TEMPORARY, temporary_name};
use crate::ops::error::{Error, Result};

/// Where input files go.
const DIRECTORY: &str = "user_files";
/// What the directory is called after in which files of one round wait for their names.
const WAITING: &str = "files";
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Files that one command names: names of 255 quotes each must not make a longer argument than the kernel takes (128 KiB).
const NAMED_AT_ONCE: usize = 20;
/// The exit code of the command that names files where a directory has one of the names.
const IS_DIRECTORY: i32 = 3;

/// A file that a caller sends along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Any text: the last part of a path in it becomes the name.
    pub name: String,
    /// The content.
    pub bytes: Bytes,
}

/// The files of a round under the names that they get.
pub(super) struct Named<'a>(Vec<(String, &'a InputFile)>);

impl<'a> Named<'a> {
    /// Names the files; nothing is written yet.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a name is too long.
    pub(super) fn new(files: &'a [InputFile]) -> Result<Self> {
        let names = names(files.iter().map(|file| file.name.as_str()));
        if let Some(name) = names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
            let beginning: String = name.chars().take(40).collect();
            return Err(Error::Invalid(format!(
                "the name `{beginning}…` of a file has more than {NAME_BYTES_MAX} bytes: choose a shorter one"
            )));
        }
        Ok(Self(names.into_iter().zip(files).collect()))
    }

    /// Writes the files, when there are any.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) async fn inject(self, site: &Site, steps: &mut Steps) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let begun = steps.begin("files");
        site.make_dir(DIRECTORY).await?;
        if !site.is_shared() || !self.inject_aside(site).await? {
            for (name, file) in &self.0 {
                site.confirm().await;
                write(site, &format!("{DIRECTORY}/{name}"), file).await?;
            }
        }
        let log: Vec<String> = self.0.iter().map(|(name, _)| format!("{DIRECTORY}/{name}")).collect();
        steps.end(begun, Outcome::Done, &log.join("\n"));
        Ok(())
    }

    /// Writes the files aside and gives them their names behind the fence. Tells whether that was possible: where no commands run,
    /// no later holder of the lease leaves a mark either.
    async fn inject_aside(&self, site: &Site) -> Result<bool> {
        let aside = format!("{DIRECTORY}/{}", temporary_name(WAITING));
        let named = self.write_and_name(site, &aside).await;
        if matches!(named, Ok(true)) {
            return Ok(true);
        }
        if let Err(error) = site.remove_all(&aside).await {
            tracing::warn!(%error, "failed to remove input files that have no name yet: the next round removes them");
        }
        named
    }

    async fn write_and_name(&self, site: &Site, aside: &str) -> Result<bool> {
        site.make_dir(aside).await?;
        for (number, (_, file)) in self.0.iter().enumerate() {
            write(site, &format!("{aside}/{number}"), file).await?;
        }
        let moves: Vec<(String, String)> = self
            .0
            .iter()
            .enumerate()
            .map(|(number, (name, _))| (format!("{aside}/{number}"), format!("{DIRECTORY}/{name}")))
            .collect();
        for some in moves.chunks(NAMED_AT_ONCE) {
            if !name_files(site, some).await? {
                return Ok(false);
            }
        }
        // With what rounds have left that were ended before this: only one is under way.
        let left = format!("{DIRECTORY}/{TEMPORARY}{WAITING}-*");
        let sweep = format!(r#"for d in {left}; do [ -L "$d" ] || [ ! -d "$d" ] || rm -rf "$d"; done"#);
        if let Err(error) = site.name_fenced(&sweep).await {
            tracing::warn!(%error, "failed to remove what earlier rounds left of input files: the next round tries again");
        }
        Ok(true)
    }
}

/// Moves each file to its name by one command. Tells whether commands run there at all.
async fn name_files(site: &Site, moves: &[(String, String)]) -> Result<bool> {
    // One word tells where the script stops.
    let lines = moves.iter().enumerate().map(|(number, (from, to))| {
        let (from, to) = (quote(from), quote(to));
        format!("[ ! -d {to} ] || {{ echo {number}; exit {IS_DIRECTORY}; }}\nmv -f {from} {to} || exit 1\n")
    });
    let named = match site.name_fenced(&lines.collect::<String>()).await {
        Err(Error::Remote { kind: ErrorKind::Unsupported, .. }) => return Ok(false),
        named => named?,
    };
    let at = named.stdout_text().trim().parse::<usize>().ok().and_then(|number| moves.get(number));
    match (named.exit_code, named.timed_out, at) {
        (0, false, _) => Ok(true),
        (IS_DIRECTORY, false, Some((_, to))) => Err(storage::Error::IsDirectory(to.clone()).into()),
        _ => Err(Error::RunFailed(format!(
            "input files could not get their names in `{DIRECTORY}`: look whether commands run in the workspace"
        ))),
    }
}

async fn write(site: &Site, path: &str, file: &InputFile) -> Result<()> {
    let bytes = file.bytes.clone();
    site.write(path, stream::once(async { Ok(bytes) }).boxed(), None).await
}

/// The names that files get, all different.
fn names<'a>(asked: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut names = Vec::new();
    for (index, text) in asked.enumerate() {
        let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
        let clean: String = last.chars().filter(|character| !character.is_control()).collect();
        let name = match clean.as_str() {
            "" | "." | ".." => format!("file-{index}"),
            _ => clean,
        };
        let (stem, end) = name.find('.').map_or((name.as_str(), ""), |dot| name.split_at(dot));
        let others = (1..).map(|number| format!("{stem}-{number}{end}"));
        let free = std::iter::once(name.clone()).chain(others).find(|name| !taken.contains(name));
        let name = free.unwrap_or(name);
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_the_last_part_is_the_name_and_what_is_no_name_gets_one() {
        let named = names(["../../x", "..", "", "a\\b", "a\u{0}\nb", "/", "报告 1.pdf"].into_iter());
        assert_eq!(named, ["x", "file-1", "file-2", "b", "ab", "file-5", "报告 1.pdf"]);
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number_before_its_first_dot() {
        let named =
            names(["a.tar.gz", "a.tar.gz", "a-1.tar.gz", "a.tar.gz", "x", "x", ".env", ".env"].into_iter());
        let expected = ["a.tar.gz", "a-1.tar.gz", "a-1-1.tar.gz", "a-2.tar.gz", "x", "x-1", ".env", "-1.env"];
        assert_eq!(named, expected);
    }
}
