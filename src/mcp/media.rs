//! The media types of files, by what their names end with.

/// Endings and their types, of what is in workspaces often.
const TYPES: [(&str, &str); 24] = [
    ("c", "text/x-c"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("go", "text/x-go"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// The type of the file at `path`, as far as its ending tells.
pub(super) fn of_path(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next()?;
    let (_, ending) = name.rsplit_once('.')?;
    TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending)).map(|(_, media)| *media)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_told_by_the_last_ending_of_the_name() {
        for (path, expected) in [
            ("a.md", Some("text/markdown")),
            ("d.png/a.JSON", Some("application/json")),
            ("a.tar.gz", None),
            ("Makefile", None),
            ("d.md/Makefile", None),
            ("a.", None),
        ] {
            assert_eq!(of_path(path), expected, "{path}");
        }
        assert!(TYPES.is_sorted());
    }
}
