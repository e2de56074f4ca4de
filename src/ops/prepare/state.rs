//! [`State`]: which scripts have succeeded in a sandbox. The user's own commands can write it, so nothing in it is trusted
//! further than that a script is not run.

use policy::VersionId;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Entries of the list that are read; a round has fewer.
const ENTRIES_MAX: usize = 10_000;

/// The scripts that have succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The hash of the sandbox's script.
    pub entrypoint: Option<String>,
    /// The versions whose script has succeeded, in the order in which they did.
    pub skills: Vec<String>,
}

impl State {
    /// Reads the founding form: `{"sandboxEntrypointHash": …, "skillEntrypoints": […]}`. What is none is the empty state; a
    /// field or an entry of another type is left out.
    #[must_use]
    pub fn founding(bytes: &[u8]) -> Self {
        let value = object(bytes);
        Self::of(value.get("sandboxEntrypointHash"), value.get("skillEntrypoints"))
    }

    /// Reads the later forms: `{"values": {"sandboxEntrypoint": …, "skillEntrypoints": […]}}`, or `{"hashes": …, "lists": …}`.
    #[must_use]
    pub fn later(bytes: &[u8]) -> Self {
        let value = object(bytes);
        let within = |group: &str, name: &str| value.get(group).and_then(|group| group.get(name)).cloned();
        let either = |name, group| within("values", name).or_else(|| within(group, name));
        Self::of(either("sandboxEntrypoint", "hashes").as_ref(), either("skillEntrypoints", "lists").as_ref())
    }

    fn of(entrypoint: Option<&Value>, skills: Option<&Value>) -> Self {
        let skills = skills.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut state =
            Self { entrypoint: entrypoint.and_then(Value::as_str).map(str::to_owned), skills: Vec::new() };
        for skill in skills.take(ENTRIES_MAX) {
            state.add(skill);
        }
        state
    }

    /// Notes that the script of a version has succeeded.
    pub fn add(&mut self, version: &str) {
        if !self.skills.iter().any(|known| known == version) {
            self.skills.push(version.to_owned());
        }
    }

    /// Whether the script of a version has succeeded.
    #[must_use]
    pub fn has(&self, version: &VersionId) -> bool {
        self.skills.iter().any(|known| known == version.as_str())
    }

    /// Leaves only versions that are selected. Tells whether any was removed.
    pub fn keep_only(&mut self, selected: &[VersionId]) -> bool {
        let before = self.skills.len();
        self.skills.retain(|known| selected.iter().any(|version| version.as_str() == known));
        self.skills.len() != before
    }

    /// The founding form, as it is written: indented, without what is empty.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        if let Some(hash) = &self.entrypoint {
            object.insert("sandboxEntrypointHash".to_owned(), Value::from(hash.clone()));
        }
        if !self.skills.is_empty() {
            object.insert("skillEntrypoints".to_owned(), Value::from(self.skills.clone()));
        }
        serde_json::to_string_pretty(&Value::Object(object)).unwrap_or_default()
    }
}

fn object(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).ok().filter(Value::is_object).unwrap_or_default()
}

/// The hash of a script, without white space around it: `sha256:` and 64 digits.
#[must_use]
pub fn hash(script: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(script.trim().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(entrypoint: Option<&str>, skills: &[&str]) -> State {
        State {
            entrypoint: entrypoint.map(str::to_owned),
            skills: skills.iter().map(|skill| (*skill).to_owned()).collect(),
        }
    }

    #[test]
    fn both_known_forms_are_read_and_what_is_none_is_empty() {
        let founding = br#"{"sandboxEntrypointHash":"sha256:a","skillEntrypoints":["v1","v1",7,"v2"],"x":1}"#;
        assert_eq!(State::founding(founding), state(Some("sha256:a"), &["v1", "v2"]));
        let later = br#"{"values":{"sandboxEntrypoint":"sha256:b","skillEntrypoints":["v3"]}}"#;
        assert_eq!(State::later(later), state(Some("sha256:b"), &["v3"]));
        let older = br#"{"hashes":{"sandboxEntrypoint":"sha256:c"},"lists":{"skillEntrypoints":["v4"]}}"#;
        assert_eq!(State::later(older), state(Some("sha256:c"), &["v4"]));
        for text in ["", "  ", "garbage", "[]", "null", "7", r#"{"skillEntrypoints":5}"#, r#"{"values":[]}"#]
        {
            assert_eq!(State::founding(text.as_bytes()), State::default(), "{text}");
            assert_eq!(State::later(text.as_bytes()), State::default(), "{text}");
        }
        assert_eq!(State::founding(b"\xff\x00"), State::default());
    }

    #[test]
    fn the_founding_form_is_written_indented_and_without_what_is_empty() {
        assert_eq!(State::default().to_json(), "{}");
        let written = state(Some("sha256:a"), &["v1"]).to_json();
        assert_eq!(
            written,
            "{\n  \"sandboxEntrypointHash\": \"sha256:a\",\n  \"skillEntrypoints\": [\n    \"v1\"\n  ]\n}"
        );
        assert_eq!(State::founding(written.as_bytes()), state(Some("sha256:a"), &["v1"]));
    }

    #[test]
    fn a_hash_is_of_the_trimmed_script() {
        assert_eq!(hash("echo 1"), hash("\n\t echo 1 \r\n"));
        assert_ne!(hash("echo 1"), hash("echo  1"));
        let of_nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash(" "), of_nothing);
    }
}
