//! Quoting for a shell.

/// `text` as it is written between single quotes: each single quote becomes `'\''`.
#[must_use]
pub fn shell_escape(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// `text` as one word of a shell.
#[must_use]
pub fn shell_quote(text: &str) -> String {
    format!("'{}'", shell_escape(text))
}
