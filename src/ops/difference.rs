//! [`unified`]: what changed in one file, as `git diff` writes it, so that it can be applied.
//!
//! A text on both sides, or on one, gives hunks. That a file can be executed, that it is new, or that it is gone, is told by
//! the extended headers of git where the hunks do not tell it (git-diff(1), "Generating patch text with -p"): with another
//! execute bit, and for empty files.

use std::fmt::Write;
use std::time::Instant;

use similar::{Algorithm, ChangeTag, TextDiff};
use storage::{Kind, Side, Sides};

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// The changed lines of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Text {
    /// As a unified diff, from the application's to the user's.
    Lines(String),
    /// A side has no text: it is a link, a directory that holds nothing, or bytes.
    None,
    /// They are too large to be compared, or the answer is.
    TooLarge,
}

impl Text {
    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Lines(text) => text.len(),
            Self::None | Self::TooLarge => 0,
        }
    }
}

/// Compares both sides of the file `path`; what is not done by `until` is told as a larger change than there is.
pub(super) fn unified(path: &str, sides: &Sides, until: Instant) -> Text {
    let files = [&sides.before, &sides.after];
    if files.into_iter().flatten().any(|side| side.content.is_none()) {
        return Text::TooLarge;
    }
    let is_leaf = |kind: Option<Kind>| !matches!(kind, None | Some(Kind::File | Kind::Directory));
    if files.iter().all(|side| side.is_none()) || is_leaf(sides.before_kind) || is_leaf(sides.after_kind) {
        return Text::None;
    }
    let (Some(old), Some(new)) = (text(sides.before.as_ref()), text(sides.after.as_ref())) else {
        return Text::None;
    };
    let mut patch = headers(path, sides);
    if old != new {
        let (from, to) = (name(sides.before.as_ref(), 'a', path), name(sides.after.as_ref(), 'b', path));
        let _infallible = write!(patch, "--- {from}\n+++ {to}\n");
        hunks(&mut patch, old, new, until);
    } else if !patch.is_empty() {
        // Else git takes the `---` of the next file for one of this.
        patch.push('\n');
    }
    Text::Lines(patch)
}

/// The text of a side: nothing for one that is not there, and `None` for bytes.
fn text(side: Option<&Side>) -> Option<&str> {
    let bytes = side.and_then(|side| side.content.as_deref()).unwrap_or_default();
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The extended headers, where the hunks alone do not tell all.
fn headers(path: &str, sides: &Sides) -> String {
    let mode = |side: &Side| if side.is_executable { "100755" } else { "100644" };
    let has_lines = |side: &Side| side.bytes > 0;
    let told = match (&sides.before, &sides.after) {
        (None, Some(new)) if new.is_executable || !has_lines(new) => format!("new file mode {}\n", mode(new)),
        (Some(old), None) if !has_lines(old) => format!("deleted file mode {}\n", mode(old)),
        (Some(old), Some(new)) if old.is_executable != new.is_executable => {
            format!("old mode {}\nnew mode {}\n", mode(old), mode(new))
        }
        _ => return String::new(),
    };
    format!("diff --git {} {}\n{told}", quoted(&format!("a/{path}")), quoted(&format!("b/{path}")))
}

/// The name of a side in `---` or `+++`. A tab ends one that has blanks, as programs that read dates there expect it.
fn name(side: Option<&Side>, letter: char, path: &str) -> String {
    if side.is_none() {
        return "/dev/null".to_owned();
    }
    let name = quoted(&format!("{letter}/{path}"));
    if name.contains(' ') && !name.starts_with('"') { format!("{name}\t") } else { name }
}

/// A name as git writes it: in the quotes of C when it has a quote or a backslash. Other characters that would need them
/// are in no path.
fn quoted(name: &str) -> String {
    if !name.contains(['"', '\\']) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Lines end with `\n` and nothing else: a lone `\r` belongs to its line.
fn hunks(patch: &mut String, old: &str, new: &str, until: Instant) {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).deadline(until).diff_slices(&old, &new);
    for group in diff.grouped_ops(CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_lines = first.old_range().start..last.old_range().end;
        let new_lines = first.new_range().start..last.new_range().end;
        let _infallible = writeln!(patch, "@@ -{} +{} @@", range(&old_lines), range(&new_lines));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            patch.push(match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            });
            patch.push_str(change.value());
            if !change.value().ends_with('\n') {
                patch.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}

/// Where lines are and how many: one is not counted, and none are after the line before.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        many => format!("{},{many}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(2);

    fn side(text: &[u8]) -> Side {
        let bytes = u64::try_from(text.len()).unwrap();
        Side { bytes, is_executable: false, content: Some(text.to_vec()) }
    }

    fn compare(path: &str, before: Option<Side>, after: Option<Side>) -> Text {
        let kind = |side: &Option<Side>| side.as_ref().map(|_| Kind::File);
        let sides = Sides { before_kind: kind(&before), after_kind: kind(&after), before, after };
        unified(path, &sides, Instant::now() + SOON)
    }

    fn lines(text: &str) -> Text {
        Text::Lines(text.to_owned())
    }

    #[test]
    fn a_difference_is_a_patch() {
        let (one, two) = (side("一\n二\n".as_bytes()), side("一\n三".as_bytes()));
        let expected = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n 一\n-二\n+三\n\\ No newline at end of file\n";
        assert_eq!(compare("f", Some(one.clone()), Some(two)), lines(expected));
        let made = "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+一\n+二\n";
        assert_eq!(compare("f", None, Some(one.clone())), lines(made));
        let gone = "--- a/表 格\t\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-一\n-二\n";
        assert_eq!(compare("表 格", Some(one), None), lines(gone));
    }

    #[test]
    fn a_lone_carriage_return_belongs_to_its_line() {
        let (one, two) = (side(b"a\rb\r\nc\n"), side(b"a\rB\r\nc\r"));
        let expected =
            "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\rb\r\n-c\n+a\rB\r\n+c\r\n\\ No newline at end of file\n";
        assert_eq!(compare("f", Some(one), Some(two)), lines(expected));
    }

    #[test]
    fn execute_bits_and_empty_files_are_told_by_headers() {
        let runs = |text: &[u8]| Side { is_executable: true, ..side(text) };
        let both = |told: &str| lines(&format!("diff --git a/f b/f\n{told}"));
        assert_eq!(compare("f", None, Some(side(b""))), both("new file mode 100644\n\n"));
        assert_eq!(compare("f", Some(runs(b"")), None), both("deleted file mode 100755\n\n"));
        let modes = "old mode 100755\nnew mode 100644\n";
        assert_eq!(compare("f", Some(runs(b"1\n")), Some(side(b"1\n"))), both(&format!("{modes}\n")));
        let changed = format!("{modes}--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n");
        assert_eq!(compare("f", Some(runs(b"1\n")), Some(side(b"2\n"))), both(&changed));
        let made = "new file mode 100755\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+1\n";
        assert_eq!(compare("f", None, Some(runs(b"1\n"))), both(made));
        let quoted = "diff --git \"a/\\\"\\\\\" \"b/\\\"\\\\\"\nnew file mode 100644\n\n";
        assert_eq!(compare("\"\\", None, Some(side(b""))), lines(quoted));
    }

    #[test]
    fn bytes_and_links_are_not_shown_and_what_is_too_large_is_told() {
        assert_eq!(compare("f", Some(side(b"\xff\0")), None), Text::None);
        assert_eq!(compare("f", None, None), Text::None);
        let large = Side { bytes: 1 << 40, is_executable: false, content: None };
        assert_eq!(compare("f", Some(large), Some(side(b"\xff"))), Text::TooLarge);
        let sides = Sides {
            before: Some(side(b"1")),
            before_kind: Some(Kind::File),
            after: None,
            after_kind: Some(Kind::Symlink),
        };
        assert_eq!(unified("f", &sides, Instant::now() + SOON), Text::None);
        // A directory takes its place: the file itself goes.
        let sides = Sides { after_kind: Some(Kind::Directory), ..sides };
        assert!(matches!(unified("f", &sides, Instant::now() + SOON), Text::Lines(_)));
    }

    #[test]
    fn the_dearest_files_are_compared_within_the_time_allowed() {
        let lines = |factor: u32| {
            let text: String =
                (0..150_000_u32).map(|line| format!("{}\n", line.wrapping_mul(factor) % 9_973)).collect();
            side(text.as_bytes())
        };
        let began = Instant::now();
        let sides = Sides { before: Some(lines(7)), after: Some(lines(31)), ..Sides::default() };
        assert!(matches!(unified("f", &sides, began + Duration::from_millis(200)), Text::Lines(_)));
        // Generous: the machine may be busy.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
