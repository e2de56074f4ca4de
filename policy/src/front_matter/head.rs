//! [`Head`]: what the head of a Markdown file says, also where it is not YAML.

use serde_yaml_ng::{Mapping, Value};

use super::{by_line, fields, property, scalar, split};

/// The fields that say what an agent may do.
const RIGHTS: [&str; 2] = ["tools", "capabilities"];

/// The head of a Markdown file that describes an agent or a skill, and the text after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `name`.
    pub name: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// All fields, where the head is YAML.
    pub fields: Option<Mapping>,
    /// Whether the head is not YAML and names tools or capabilities, which then cannot be read.
    pub has_unread_rights: bool,
    /// The text after the head; all of it where there is none.
    pub body: String,
}

/// Reads the head of a Markdown file.
///
/// It is YAML within the bounds of [`front_matter`](super); where it is not, as with a description that holds `: `, the
/// lines `name:` and `description:` are taken as they are. Keys count in any case of letters.
#[must_use]
pub fn head(text: &str) -> Head {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    let Some((yaml, body)) = split(text) else {
        return Head { body: text.to_owned(), ..Head::default() };
    };
    let fields = fields(yaml).ok();
    let lines = by_line(yaml);
    let field = |key: &str| {
        let value = fields.as_ref().and_then(|fields| property(fields, key)).and_then(scalar);
        let value = value.filter(|value| !value.is_empty()).or_else(|| lines.get(key).cloned());
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let has_unread_rights = fields.is_none() && yaml.lines().any(names_rights);
    let (name, description) = (field("name"), field("description"));
    Head { name, description, body: body.to_owned(), fields, has_unread_rights }
}

/// Whether a line looks as if it said what an agent may do.
fn names_rights(line: &str) -> bool {
    let line = line.trim_start_matches(|character: char| !character.is_alphanumeric()).to_lowercase();
    RIGHTS.iter().any(|key| line.starts_with(key))
}

impl Head {
    /// The value of a key, in any case of letters; `None` where the head has no such key, or is not YAML.
    ///
    /// # Errors
    /// The key is there more than once, in different cases: readers differ in which counts.
    pub fn right(&self, key: &str) -> Result<Option<&Value>, String> {
        let Some(fields) = &self.fields else { return Ok(None) };
        let is_key = |other: &&Value| other.as_str().is_some_and(|other| other.eq_ignore_ascii_case(key));
        if fields.keys().filter(is_key).count() > 1 {
            return Err(format!("its front matter has `{key}` more than once"));
        }
        Ok(property(fields, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_yaml_and_else_by_lines() {
        let read = |text: &str| {
            let head = head(text);
            (head.name.unwrap_or_default(), head.description.unwrap_or_default(), head.body)
        };
        let expected = |name: &str, description: &str, body: &str| {
            (name.to_owned(), description.to_owned(), body.to_owned())
        };
        assert_eq!(read("---\nname: 写作\ndescription: >\n  a\n  b\n---\nx"), expected("写作", "a b", "x"));
        assert_eq!(read("\u{feff}---\r\nname: \"a\"\r\n---\r\nx"), expected("a", "", "x"));
        assert_eq!(read("---\nname: a\ndescription: use: when b\n---\n"), expected("a", "use: when b", ""));
        assert_eq!(read("---\nname: 7\n---\n"), expected("7", "", ""));
        assert_eq!(read("# no head\n"), expected("", "", "# no head\n"));
        assert_eq!(read("---\nname: never closed\n"), expected("", "", "---\nname: never closed\n"));
    }

    #[test]
    fn aliases_that_multiply_are_not_followed() {
        let mut bomb = "---\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..12 {
            bomb.push_str(&format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{}", level - 1); 9].join(",")
            ));
        }
        bomb.push_str("name: bomb\n---\n");
        assert_eq!(head(&bomb).name.as_deref(), Some("bomb"));
    }
}
