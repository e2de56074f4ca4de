//! Input files of a round: below `user_files`, each under a name that is one segment.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::site::Site;
use super::steps::{Outcome, Steps};
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

/// Writes the files.
///
/// # Errors
/// A name is too long, or a file cannot be written.
pub(super) async fn inject(site: &Site, files: &[InputFile], steps: &mut Steps) -> Result<()> {
    let begun = steps.begin("files");
    let names = names(files.iter().map(|file| file.name.as_str()));
    if let Some(name) = names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        let beginning: String = name.chars().take(40).collect();
        return Err(Error::Invalid(format!(
            "the name `{beginning}…` of a file has more than {NAME_BYTES_MAX} bytes: choose a shorter one"
        )));
    }
    site.make_dir(DIRECTORY).await?;
    for (name, file) in names.iter().zip(files) {
        let bytes = file.bytes.clone();
        let body = stream::once(async { Ok(bytes) }).boxed();
        site.write(&format!("{DIRECTORY}/{name}"), body, None).await?;
    }
    let written: Vec<String> = names.iter().map(|name| format!("{DIRECTORY}/{name}")).collect();
    steps.end(begun, Outcome::Done, &written.join("\n"));
    Ok(())
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
