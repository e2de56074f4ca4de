//! [`Confined`]: what is said of the walls around a run.

use std::borrow::Cow;

use exec::Enforcement;
use serde::{Deserialize, Serialize};

/// The walls around a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Confined {
    /// This service did, and says how.
    Here(Box<Enforcement>),
    /// A remote backend ran the command; the service knows nothing of its walls.
    Remote(RemoteWalls),
}

/// The statement about a run that another backend made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteWalls {
    tier: NoTier,
    /// The name of the backend.
    pub backend: String,
    /// The missing promises, in words.
    pub notes: Vec<Cow<'static, str>>,
}

/// The word that stands where the tier of a run of this service does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NoTier {
    #[serde(rename = "elsewhere")]
    Remote,
}

impl Confined {
    /// The statement about a run that `backend` made.
    #[must_use]
    pub fn remote(backend: &str) -> Self {
        let note = "another backend ran the command: this service says nothing of its walls";
        Self::Remote(RemoteWalls {
            tier: NoTier::Remote,
            backend: backend.to_owned(),
            notes: vec![note.into()],
        })
    }

    /// Its word for figures.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Here(enforcement) => enforcement.tier.to_string(),
            Self::Remote(_) => "elsewhere".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_as_json_is_read_as_what_it_was() {
        let remote = Confined::remote("docker");
        let json = serde_json::to_value(&remote).unwrap();
        assert_eq!((&json["tier"], &json["backend"]), (&"elsewhere".into(), &"docker".into()));
        assert_eq!(serde_json::from_value::<Confined>(json).unwrap(), remote);
    }
}
