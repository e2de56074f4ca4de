//! A name and a description out of Markdown prose.

/// Beginnings of blocks that are no prose: lists, tables, images, badges, markup, rules, indented code.
const NOT_PROSE: [&str; 12] = ["- ", "* ", "+ ", "|", "![", "[![", "<", "---", "***", "===", "    ", "\t"];

/// The text of the first `#` heading outside code fences.
pub(super) fn heading(body: &str) -> Option<String> {
    unfenced(body).find_map(|line| level_one(line?))
}

fn level_one(line: &str) -> Option<String> {
    let text = line.strip_prefix('#')?;
    // `#tag` and `##` are no headings of the first level (CommonMark 4.2).
    let text = text.strip_prefix([' ', '\t'])?;
    let text = text.trim().trim_end_matches('#').trim();
    let text = text.trim_matches(|character| matches!(character, '*' | '_' | '`')).trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The first paragraph of prose, its lines joined by spaces.
pub(super) fn paragraph(body: &str) -> Option<String> {
    let mut found = String::new();
    let mut is_skipping = false;
    for line in unfenced(body) {
        let prose = line.map(|line| line.trim_end()).filter(|line| !line.trim().is_empty());
        let Some(line) = prose else {
            if !found.is_empty() {
                break;
            }
            is_skipping = false;
            continue;
        };
        if line.starts_with('#') {
            if !found.is_empty() {
                break;
            }
            is_skipping = false;
            continue;
        }
        // A list or table goes on to the next blank line.
        is_skipping |= found.is_empty() && NOT_PROSE.iter().any(|beginning| line.starts_with(beginning));
        if is_skipping {
            continue;
        }
        if !found.is_empty() {
            found.push(' ');
        }
        found.push_str(line.trim_start_matches('>').trim());
    }
    let found = found.trim();
    (!found.is_empty()).then(|| found.to_owned())
}

/// The lines outside code fences; `None` for each line of a fenced block, which breaks paragraphs.
fn unfenced(body: &str) -> impl Iterator<Item = Option<&str>> {
    let mut fence: Option<&str> = None;
    body.lines().map(move |line| {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                None
            }
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                None
            }
            (Some(_), _) => None,
            (None, None) => Some(line),
        }
    })
}
