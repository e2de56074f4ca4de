//! Registration: the first frame of a connection, and its answer.

use serde::{Deserialize, Serialize};

use super::frame::{Frame, write};

/// The type of the first frame.
pub const REGISTER: &str = "register";
/// The type of the answer to a runner that is taken. The first runners do not know it: they answer it with an `error` without id.
pub const REGISTER_OK: &str = "register_ok";
/// The type of the frame with which a runner leaves.
pub const DISCONNECT: &str = "disconnect";

/// More than founding runners can, agreed upon at registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Files and output byte for byte, in pieces, with kinds, times and signals; calls that are given up end.
    Exact,
    /// [Commands in which a caller takes part](super::live), which go on while the connection is lost. Comes with [`Feature::Exact`].
    Live,
    /// The rest of a large file over HTTP, by [`Transfer`](super::Transfer); only together with [`Feature::Exact`].
    Transfers,
    /// Files have [versions](crate::Version), and a write can be bound to one; only together with [`Feature::Exact`].
    Swap,
    /// A feature of a later version.
    #[serde(other)]
    Unknown,
}

/// The body of the first frame.
///
/// Its `Debug` shows no token.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Register {
    /// The user whose machine it is; the same as in the path of the connection.
    pub user_id: String,
    /// The right to be that user's runner.
    pub auth_token: String,
    /// The absolute path of the user's directory on that machine.
    pub workspace: String,
    /// The shell for scripts there; founding runners tell none and have `/bin/sh`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shell: String,
    /// The name of this runner among those of the user; `default` where none is told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What this runner can beyond founding ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<Feature>,
    /// Names the process of the runner, anew at each start: commands of [`Feature::Live`] end with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// What holds commands there, for people to read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub isolation: String,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Register");
        shown.field("user_id", &self.user_id).field("workspace", &self.workspace).field("shell", &self.shell);
        shown.field("name", &self.name).field("features", &self.features).finish_non_exhaustive()
    }
}

/// The body of the answer to a runner that is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// `ok`.
    pub status: String,
    /// Those features of the runner that the service has as well; founding services name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<Feature>,
}

impl Register {
    /// The frame.
    #[must_use]
    pub fn to_text(&self) -> String {
        write(None, REGISTER, Some(&self.user_id), Some(self))
    }

    /// Reads a first frame.
    ///
    /// # Errors
    /// The sentence for the runner.
    pub fn read(frame: &Frame<'_>) -> Result<Self, String> {
        if frame.kind != REGISTER {
            return Err("the first frame must be `register`".to_owned());
        }
        frame.body()
    }
}

impl Registered {
    /// The answer that agrees on `features`.
    #[must_use]
    pub fn new(features: Vec<Feature>) -> Self {
        Self { status: "ok".to_owned(), features }
    }

    /// The frame.
    #[must_use]
    pub fn to_text(&self) -> String {
        write(None, REGISTER_OK, None, Some(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_what_founding_runners_send() {
        let recorded = r#"{"type":"register","user_id":"u1","body":{"user_id":"u1","auth_token":"tok","workspace":"/w"}}"#;
        let read = Register::read(&Frame::parse(recorded).unwrap()).unwrap();
        assert_eq!((&*read.user_id, &*read.auth_token, &*read.workspace), ("u1", "tok", "/w"));
        assert_eq!(read.to_text(), recorded);
        assert!(!format!("{read:?}").contains("tok"));
        let flat = r#"{"type":"register","user_id":"u1","auth_token":"tok","workspace":"/w"}"#;
        assert_eq!(Register::read(&Frame::parse(flat).unwrap()).unwrap(), read);
    }

    #[test]
    fn features_of_later_versions_are_passed_over() {
        let later = r#"{"type":"register","body":{"features":["exact","telepathy"],"llm_model":"m"}}"#;
        let read = Register::read(&Frame::parse(later).unwrap()).unwrap();
        assert_eq!(read.features, [Feature::Exact, Feature::Unknown]);
        let answer = Registered::new(vec![Feature::Exact]).to_text();
        assert_eq!(answer, r#"{"type":"register_ok","body":{"status":"ok","features":["exact"]}}"#);
        assert_eq!(Registered::new(Vec::new()).to_text(), r#"{"type":"register_ok","body":{"status":"ok"}}"#);
    }
}
