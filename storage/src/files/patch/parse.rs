//! Reading a patch. Strict: what is no patch is refused with its line, and every line that a hunk announces is there.

use std::collections::HashSet;

use policy::{PathError, RelPath};

use super::quoted::{NO_FILE, both_halves, name, without_prefixes};
use super::{Action, FilePatch, Hunk, Line, Side};
use crate::error::{Error, Result};

/// Longest patch, in bytes. It takes many times as much memory when it is read, if its lines are short.
pub const PATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Files in one patch: each keeps two open while it is made.
pub const FILES_MAX: usize = 100;

/// Reads the files of a patch; `resolve` reads a path as callers write it.
///
/// Lines before the first file, and between the files, may be anything that begins neither a file nor a hunk line, as in
/// mails and in the output of other version control systems.
///
/// # Errors
/// [`Error::TooLarge`]; [`Error::Patch`] with the line; [`Error::Path`] for a name that is no path of the tree.
pub fn parse(text: &str, resolve: &dyn Fn(&str) -> Result<RelPath, PathError>) -> Result<Vec<FilePatch>> {
    if text.len() > PATCH_BYTES_MAX {
        let limit = u64::try_from(PATCH_BYTES_MAX).unwrap_or(u64::MAX);
        return Err(Error::TooLarge { what: "the patch".to_owned(), limit });
    }
    let mut reader = Reader { lines: text.split('\n').collect(), at: 0, resolve };
    if reader.lines.last() == Some(&"") {
        reader.lines.pop();
    }
    let mut files: Vec<FilePatch> = Vec::new();
    let mut may_follow = true;
    while let Some(line) = reader.peek() {
        let file = if line.starts_with("diff --git ") {
            reader.git_file()?
        } else if line.starts_with("--- ")
            && reader.lines.get(reader.at + 1).is_some_and(|next| next.starts_with("+++ "))
        {
            reader.plain_file()?
        } else if !files.is_empty() && may_follow && reader.is_hunk_line(line) {
            return Err(reader.wrong("the hunk above it has more lines than its `@@` announces"));
        } else if line.starts_with("@@") {
            return Err(reader.wrong("a hunk without a file: `--- a/NAME` and `+++ b/NAME` come first"));
        } else {
            // The signature that ends a mail; what follows it is no part of a hunk.
            may_follow &= line.trim_end() != "--";
            reader.at += 1;
            continue;
        };
        may_follow = true;
        if files.len() >= FILES_MAX {
            return Err(reader.wrong(format!("the patch has more than {FILES_MAX} files: send it in parts")));
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(Error::Patch {
            line: 1,
            reason: "there is no file in it: `--- a/NAME` and `+++ b/NAME` begin one".to_owned(),
        });
    }
    check_names(&files)?;
    Ok(files)
}

/// Refuses a patch that touches a path twice: what it means would depend on the order.
fn check_names(files: &[FilePatch]) -> Result<()> {
    let mut seen = HashSet::new();
    for file in files {
        let reads = (file.action != Action::Copied && file.from != file.to).then_some(&file.from);
        for path in std::iter::once(&file.to).chain(reads) {
            if !seen.insert(path) {
                let reason = format!("`{path}` is in the patch twice: put its hunks together");
                return Err(Error::Patch { line: file.line, reason });
            }
        }
    }
    Ok(())
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    /// The next line, from 0.
    at: usize,
    resolve: &'a dyn Fn(&str) -> Result<RelPath, PathError>,
}

/// The head of a file.
#[derive(Default)]
struct Head {
    /// From `diff --git`.
    both: Option<String>,
    old: Option<String>,
    new: Option<String>,
    is_new: bool,
    is_deleted: bool,
    /// `rename` or `copy`.
    from: Option<String>,
    to: Option<String>,
    is_copy: bool,
    mode: Option<u32>,
}

impl<'a> Reader<'a> {
    /// The next line as a header: a `\r` at its end is none of it.
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).map(|line| line.strip_suffix('\r').unwrap_or(line))
    }

    fn number(&self) -> u64 {
        u64::try_from(self.at).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Patch { line: self.number(), reason: reason.into() }
    }

    fn is_hunk_line(&self, line: &str) -> bool {
        line.starts_with([' ', '+']) || (line.starts_with('-') && line.trim_end() != "--")
    }

    fn plain_file(&mut self) -> Result<FilePatch> {
        let line = self.number();
        let mut head = Head::default();
        self.names(&mut head)?;
        self.file(line, head)
    }

    fn git_file(&mut self) -> Result<FilePatch> {
        let line = self.number();
        let mut head = Head::default();
        while let Some(text) = self.peek() {
            if let Some(names) = text.strip_prefix("diff --git ") {
                if head.both.is_some() || self.number() != line {
                    break;
                }
                head.both = both_halves(names);
            } else if let Some(mode) = text.strip_prefix("new file mode ") {
                head.is_new = true;
                head.mode = Some(self.mode(mode)?);
            } else if let Some(mode) = text.strip_prefix("deleted file mode ") {
                head.is_deleted = true;
                self.mode(mode)?;
            } else if let Some(mode) = text.strip_prefix("old mode ") {
                self.mode(mode)?;
            } else if let Some(mode) = text.strip_prefix("new mode ") {
                head.mode = Some(self.mode(mode)?);
            } else if let Some(from) = text.strip_prefix("rename from ") {
                head.from = Some(self.plain_name(from)?);
            } else if let Some(to) = text.strip_prefix("rename to ") {
                head.to = Some(self.plain_name(to)?);
            } else if let Some(from) = text.strip_prefix("copy from ") {
                head.is_copy = true;
                head.from = Some(self.plain_name(from)?);
            } else if let Some(to) = text.strip_prefix("copy to ") {
                head.to = Some(self.plain_name(to)?);
            } else if text.starts_with("--- ") {
                self.names(&mut head)?;
                break;
            } else if text.starts_with("GIT binary patch") || text.starts_with("Binary files ") {
                return Err(self.wrong("it changes a file that is no text: write that with `raw`"));
            } else if !["index ", "similarity index ", "dissimilarity index "]
                .iter()
                .any(|known| text.starts_with(known))
            {
                break;
            }
            self.at += 1;
        }
        self.file(line, head)
    }

    fn mode(&self, text: &str) -> Result<u32> {
        match text {
            "100644" => Ok(0o644),
            "100755" => Ok(0o755),
            "120000" | "160000" => Err(self.wrong("links and submodules are not patched")),
            _ => Err(self.wrong(format!("`{text}` is no mode of a file: 100644 or 100755"))),
        }
    }

    fn plain_name(&self, text: &str) -> Result<String> {
        let name = name(text).ok_or_else(|| self.wrong("the name cannot be read"))?;
        Ok(name.0)
    }

    /// Reads `---` and `+++`.
    fn names(&mut self, head: &mut Head) -> Result<()> {
        for (prefix, to) in [("--- ", &mut head.old), ("+++ ", &mut head.new)] {
            let text = self.peek().and_then(|line| line.strip_prefix(prefix));
            let text = text.ok_or_else(|| self.wrong(format!("`{prefix}NAME` is missing")))?;
            *to = Some(self.plain_name(text)?);
            self.at += 1;
        }
        Ok(())
    }

    /// Reads the hunks and puts the file together.
    fn file(&mut self, line: u64, head: Head) -> Result<FilePatch> {
        let mut hunks = Vec::new();
        while self.peek().is_some_and(|line| line.starts_with("@@")) {
            hunks.push(self.hunk()?);
        }
        let wrong = |reason: &str| Error::Patch { line, reason: reason.to_owned() };
        let (old, new) = match (&head.old, &head.new) {
            (Some(old), Some(new)) => without_prefixes(old, new),
            _ => {
                let both = head.both.as_deref().or(head.to.as_deref());
                let both = both.ok_or_else(|| {
                    wrong("the names in its head differ: `rename from` and `rename to` say so")
                })?;
                (both, both)
            }
        };
        let (action, from, to) = match (head.from.as_deref(), head.to.as_deref()) {
            (Some(from), Some(to)) if head.is_copy => (Action::Copied, from, to),
            (Some(from), Some(to)) => (Action::Renamed, from, to),
            (None, None) if head.is_new || old == NO_FILE => (Action::Created, new, new),
            (None, None) if head.is_deleted || new == NO_FILE => (Action::Deleted, old, old),
            (None, None) if old == new => (Action::Modified, old, new),
            (None, None) => {
                return Err(wrong(
                    "its two names differ: a file is moved with `rename from` and `rename to`",
                ));
            }
            _ => return Err(wrong("`from` and `to` come together")),
        };
        if from == NO_FILE || to == NO_FILE {
            return Err(wrong("it has no file on either side"));
        }
        if hunks.is_empty() && action == Action::Modified && head.mode.is_none() {
            return Err(wrong("it has no hunks: each begins with `@@ -LINE,COUNT +LINE,COUNT @@`"));
        }
        let (from, to) = ((self.resolve)(from)?, (self.resolve)(to)?);
        if let Some(root) = [&from, &to].into_iter().find(|path| path.is_root()) {
            return Err(wrong(&format!("`{root}` is the tree itself")));
        }
        Ok(FilePatch { line, action, from, to, mode: head.mode, hunks })
    }

    fn hunk(&mut self) -> Result<Hunk> {
        let line = self.number();
        let header = self.peek().and_then(header);
        let (old_start, mut old, mut new) =
            header.ok_or_else(|| self.wrong("it is no hunk: `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
        self.at += 1;
        let mut lines: Vec<Line> = Vec::new();
        while old > 0 || new > 0 {
            let Some(text) = self.lines.get(self.at).copied() else {
                return Err(
                    self.wrong("the patch ends in the middle of a hunk: its `@@` announces more lines")
                );
            };
            let (side, text) = match text.split_at_checked(1) {
                Some((" ", text)) => (Side::Context, text),
                Some(("-", text)) => (Side::Removed, text),
                Some(("+", text)) => (Side::Added, text),
                // Editors and mail programs take the blank away from a blank line.
                None => (Side::Context, ""),
                Some(("\r", "")) => (Side::Context, text),
                _ if self.is_open_mark() => {
                    self.open_mark(&mut lines);
                    continue;
                }
                _ => {
                    return Err(self.wrong("the hunk has fewer lines than its `@@` announces"));
                }
            };
            let counts = |count: &mut u64, has: bool| match count.checked_sub(u64::from(has)) {
                Some(left) => {
                    *count = left;
                    true
                }
                None => false,
            };
            if !counts(&mut old, side != Side::Added) || !counts(&mut new, side != Side::Removed) {
                return Err(self.wrong("the hunk has other lines than its `@@` announces: count them again"));
            }
            lines.push(Line { side, text: text.to_owned(), is_open: false });
            self.at += 1;
        }
        if self.is_open_mark() {
            self.open_mark(&mut lines);
        }
        Ok(Hunk { line, old_start, lines })
    }

    /// Tells whether the next line says that the former has no line end.
    fn is_open_mark(&self) -> bool {
        self.peek().is_some_and(|line| line.starts_with("\\ "))
    }

    fn open_mark(&mut self, lines: &mut [Line]) {
        if let Some(line) = lines.last_mut() {
            line.is_open = true;
        }
        self.at += 1;
    }
}

/// Reads `@@ -LINE,COUNT +LINE,COUNT @@`: where it begins, and the counts of both sides.
fn header(line: &str) -> Option<(u64, u64, u64)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((number(start)?, number(count)?)),
        None => Some((number(text)?, 1)),
    };
    let ((old_start, old), (_, new)) = (range(old)?, range(new)?);
    Some((old_start, old, new)).filter(|_| old > 0 || new > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<FilePatch>> {
        parse(text, &RelPath::parse)
    }

    fn shown(text: &str) -> Vec<(Action, String, String, Option<u32>, usize)> {
        let files = read(text).unwrap().into_iter();
        files
            .map(|file| (file.action, file.from.into(), file.to.into(), file.mode, file.hunks.len()))
            .collect()
    }

    #[test]
    fn the_forms_that_git_and_diff_write_are_read() {
        let patch = concat!(
            "From 1234 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] x\n\n---\n a.txt | 2 +-\n\n",
            "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@ fn\n-a\n+b\n c\n@@ -9 +9 @@\n-a\n+b\n",
            "diff --git \"a/\\346\\225\\260.md\" \"b/\\346\\225\\260.md\"\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ \"b/\\346\\225\\260.md\"\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n",
            "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
            "diff --git a/old name b/new name\nsimilarity index 100%\nrename from old name\nrename to new name\n",
            "diff --git a/c1 b/c2\nsimilarity index 90%\ncopy from c1\ncopy to c2\n--- a/c1\n+++ b/c2\n@@ -1 +1 @@\n-x\n+y\n",
            "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n",
            "diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n",
            "-- \n2.40.0\n\n",
            "Index: x\n=====\n--- x.py\t2024-01-01 00:00:00.0 +0000\n+++ x.py\t2024-01-01\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n",
        );
        assert_eq!(
            shown(patch),
            [
                (Action::Modified, "a.txt".into(), "a.txt".into(), None, 2),
                (Action::Created, "数.md".into(), "数.md".into(), Some(0o755), 1),
                (Action::Deleted, "gone".into(), "gone".into(), None, 1),
                (Action::Renamed, "old name".into(), "new name".into(), None, 0),
                (Action::Copied, "c1".into(), "c2".into(), None, 1),
                (Action::Modified, "run".into(), "run".into(), Some(0o755), 0),
                (Action::Created, "empty".into(), "empty".into(), Some(0o644), 0),
                (Action::Modified, "x.py".into(), "x.py".into(), None, 1),
            ]
        );
        assert_eq!(shown(&patch.replace('\n', "\r\n")).len(), 8);
    }

    #[test]
    fn what_is_no_patch_is_refused_with_its_line() {
        let head = "--- a/x\n+++ b/x\n";
        for (body, line) in [
            ("", 1),
            ("nonsense\n", 1),
            ("--- a/x\n+++ b/x\n", 1),
            ("@@ -1 +1 @@\n-a\n+b\n", 1),
            (&format!("{head}@@ -1,2 +1,2 @@\n-a\n+b\n"), 6),
            (&format!("{head}@@ -1,2 +1,2 @@\n-a\n+b\nx\n"), 6),
            (&format!("{head}@@ -1 +1 @@\n-a\n+b\n+c\n"), 6),
            (&format!("{head}@@ -1 +1 @@\n a\n+b\n"), 5),
            (&format!("{head}@@ -1,1 +1,-1 @@\n-a\n"), 3),
            (&format!("{head}@@ -1,99999999999999999999 +1 @@\n-a\n"), 3),
            (&format!("{head}@@ -0,0 +0,0 @@\n"), 3),
            (&format!("{head}@@@ -1 -1 +1 @@@\n"), 3),
            ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", 1),
            ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 1),
            ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", 2),
            ("diff --git a/x b/x\nnew file mode 120000\n", 2),
            ("diff --git a/x b/x\nnew file mode 100777\n", 2),
            ("diff --git a/x b/y\n", 1),
            ("diff --git a/x b/y\nrename from x\n", 1),
        ] {
            match read(body) {
                Err(Error::Patch { line: named, .. }) => assert_eq!(named, line, "{body}"),
                other => panic!("{body}: {other:?}"),
            }
        }
        let twice = format!("{head}@@ -1 +1 @@\n-a\n+b\n{head}@@ -1 +1 @@\n-a\n+b\n");
        assert!(matches!(read(&twice), Err(Error::Patch { line: 6, .. })));
        let escape = "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n";
        assert!(matches!(read(escape), Err(Error::Path(PathError::Parent(_)))));
        let many: String =
            (0..=FILES_MAX).map(|n| format!("--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-a\n+b\n")).collect();
        assert!(matches!(read(&many), Err(Error::Patch { .. })));
    }
}
