//! Input files of a round: below `user_files`, each under a name that is one segment.

use std::collections::HashSet;

use bytes::Bytes;

use super::place::{Placed, place};
use super::site::Site;
use super::steps::{Outcome, Steps};
use super::temporary::TEMPORARY;
use crate::ops::error::{Error, Result};

/// Where input files go.
const DIRECTORY: &str = "user_files";
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
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
        let files: Vec<Placed> = self
            .0
            .into_iter()
            .map(|(name, file)| Placed { path: format!("{DIRECTORY}/{name}"), bytes: file.bytes.clone() })
            .collect();
        place(site, &format!("{DIRECTORY}/{TEMPORARY}files"), &files).await?;
        let log: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        steps.end(begun, Outcome::Done, &log.join("\n"));
        Ok(())
    }
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
