//! [`Confined`]: what is said of the walls around a run.

use std::borrow::Cow;

use exec::Enforcement;
use serde::{Deserialize, Serialize};

/// What confined a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Confined {
    /// This service did, and says how.
    Here(Box<Enforcement>),
    /// Another backend ran the command; of its walls nothing is known.
    Elsewhere(Elsewhere),
}

/// What is said of a run that another backend made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    tier: NoTier,
    /// The name of the backend.
    pub backend: String,
    /// What is not promised, in words.
    pub notes: Vec<Cow<'static, str>>,
}

/// The word that stands where the tier of a run of this service does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NoTier {
    Elsewhere,
}

impl Confined {
    /// What is said of a run that `backend` made.
    #[must_use]
    pub fn elsewhere(backend: &str) -> Self {
        let note = "another backend ran the command: this service says nothing of its walls";
        Self::Elsewhere(Elsewhere {
            tier: NoTier::Elsewhere,
            backend: backend.to_owned(),
            notes: vec![note.into()],
        })
    }

    /// Its word for figures.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Here(enforcement) => enforcement.tier.to_string(),
            Self::Elsewhere(_) => "elsewhere".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_as_json_is_read_as_what_it_was() {
        let elsewhere = Confined::elsewhere("docker");
        let json = serde_json::to_value(&elsewhere).unwrap();
        assert_eq!((&json["tier"], &json["backend"]), (&"elsewhere".into(), &"docker".into()));
        assert_eq!(serde_json::from_value::<Confined>(json).unwrap(), elsewhere);
    }
}
