//! The files that may hold a match, found by grep(1) where that is certain to miss none.

use futures_util::future::join;
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use crate::tools::listing::{self, Descend, Listing};
use crate::tools::pattern::{self, FindArgs};
use crate::tools::{Context, Search};
use sandbox::{ExecSpec, Result, SandboxPath};

/// The most literals that are handed to grep(1).
const LITERALS_MAX: usize = 64;
/// The most bytes that they have together.
const LITERAL_BYTES_MAX: usize = 4096;
/// Larger files are not searched, in bytes: 1 MiB.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Lists regular files below `directory` that may hold a match of `pattern`, and all that are too large to be searched.
///
/// Every match begins, or every match ends, with one of the pattern's *literals*, where it has any; so `grep -F` in the locale of bytes finds
/// each file that has one, and some that have none. The caller decides about every other condition of a match.
pub(super) async fn candidates(
    context: &Context<'_>,
    directory: &SandboxPath,
    pattern: &Hir,
) -> Result<Listing> {
    if context.search == Search::Programs
        && let Some(literals) = literals(pattern)
        && let Some(listing) = by_program(context, directory, &literals).await
    {
        return Ok(listing);
    }
    let all = FindArgs::default();
    listing::list(context.sandbox, context.session.user(), directory, &all, Descend::Usual, context.search)
        .await
}

async fn by_program(context: &Context<'_>, directory: &SandboxPath, literals: &[String]) -> Option<Listing> {
    // grep(1) reads pipes and devices only when they are named, and follows no links on its way down.
    let mut grep: Vec<String> =
        ["-rlaZF", "--exclude-dir=.?*", "--exclude-dir=node_modules"].map(str::to_owned).to_vec();
    grep.extend(literals.iter().flat_map(|literal| ["-e".to_owned(), literal.clone()]));
    grep.extend(["--".to_owned(), ".".to_owned()]);
    let mut find: Vec<String> = vec![".".into()];
    find.extend(listing::pruned(Descend::Usual));
    find.extend(["-type", "f", "-size", "+2048", "-print0"].map(str::to_owned)); // blocks of 512 bytes: over 1 MiB
    let (sandbox, user) = (context.sandbox, context.session.user());
    let (matching, large) = join(
        listing::names(sandbox, user, directory, ExecSpec::argv("grep", grep), 1),
        listing::names(sandbox, user, directory, ExecSpec::argv("find", find), 0),
    )
    .await;
    let (matching, large) = (matching?, large?);
    let is_meant = |path: &String| {
        path.rsplit_once('/').is_none_or(|(above, _)| above.split('/').all(pattern::is_searched))
    };
    let mut files: Vec<(String, Option<u64>)> =
        large.into_iter().map(|path| (path, Some(FILE_BYTES_MAX + 1))).collect();
    files.extend(matching.into_iter().filter(is_meant).map(|path| (path, None)));
    // A large file that matches is named by both; its size stands first.
    files.sort_by(|one, two| one.0.cmp(&two.0).then(two.1.cmp(&one.1)));
    files.dedup_by(|later, earlier| later.0 == earlier.0);
    Some(Listing { files, is_cut: false })
}

/// Texts of which one begins every match, or else ends every match; none when there are no such texts.
fn literals(pattern: &Hir) -> Option<Vec<String>> {
    [ExtractKind::Prefix, ExtractKind::Suffix].into_iter().find_map(|kind| literals_at(pattern, kind))
}

fn literals_at(pattern: &Hir, kind: ExtractKind) -> Option<Vec<String>> {
    let mut extractor = Extractor::new();
    extractor.kind(kind).limit_total(LITERALS_MAX);
    let mut all = Vec::new();
    let mut bytes = 0;
    for literal in extractor.extract(pattern).literals()? {
        let literal = std::str::from_utf8(literal.as_bytes()).ok()?;
        // An empty one is everywhere. A newline is in no line, and parts patterns for grep(1).
        if literal.is_empty() || literal.contains(['\0', '\n', '\r']) {
            return None;
        }
        bytes += literal.len();
        all.push(literal.to_owned());
    }
    (!all.is_empty() && all.len() <= LITERALS_MAX && bytes <= LITERAL_BYTES_MAX).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str, ignore_case: bool) -> Option<Vec<String>> {
        let parser = &mut regex_syntax::ParserBuilder::new().case_insensitive(ignore_case).build();
        literals(&parser.parse(pattern).unwrap())
    }

    #[test]
    fn literals_are_what_every_match_begins_or_ends_with_or_none_at_all() {
        assert_eq!(of("TODO|FIXME", false).unwrap(), ["TODO", "FIXME"]);
        assert_eq!(of("中文\\d+", false).unwrap(), ["中文"]);
        assert_eq!(of("^func \\w+", false).unwrap(), ["func "]);
        assert_eq!(of("no", true).unwrap(), ["NO", "No", "nO", "no"]);
        assert_eq!(of("\\w+(Error|错误)$", false).unwrap(), ["Error", "错误"]);
        assert_eq!(of(".*a", false).unwrap(), ["a"]);
        for everywhere in ["\\d+", "x*", "x*|a", "", "a\\nb", "\\x00a\\n"] {
            assert_eq!(of(everywhere, false), None, "{everywhere}");
        }
    }
}
