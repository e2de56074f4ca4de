//! [`Session`]: what lasts between the calls of one conversation.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use super::Refusal;
use sandbox::{Sandbox, SandboxPath, SandboxPathError, UserId};

/// Variables that one session remembers.
const VARIABLES_MAX: usize = 64;
/// Longest value of one, in bytes.
const VARIABLE_BYTES_MAX: usize = 4096;

/// One conversation of one user: where its workspace is, which directory it is in, what it has exported.
///
/// The current directory is always the workspace or below it, by spelling.
#[derive(Debug)]
pub struct Session {
    user: UserId,
    workspace: SandboxPath,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    directory: SandboxPath,
    environment: BTreeMap<String, String>,
}

impl Session {
    /// A session that begins in the user's workspace.
    ///
    /// # Errors
    /// As [`Sandbox::workspace`].
    pub async fn open(sandbox: &dyn Sandbox, user: UserId) -> sandbox::Result<Self> {
        let workspace = sandbox.workspace(&user).await?;
        Ok(Self::new(user, workspace))
    }

    /// A session that begins in a workspace which is known already.
    #[must_use]
    pub fn new(user: UserId, workspace: SandboxPath) -> Self {
        let state = State { directory: workspace.clone(), environment: BTreeMap::new() };
        Self { user, workspace, state: Mutex::new(state) }
    }

    /// The user of the session.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// The user's own directory.
    #[must_use]
    pub fn workspace(&self) -> &SandboxPath {
        &self.workspace
    }

    /// Where relative paths begin.
    #[must_use]
    pub fn directory(&self) -> SandboxPath {
        self.state().directory.clone()
    }

    /// Makes `directory` the current one; `false`, and nothing changed, when it is not in the workspace.
    pub fn enter(&self, directory: SandboxPath) -> bool {
        if directory.below(&self.workspace).is_none() {
            return false;
        }
        self.state().directory = directory;
        true
    }

    /// Variables that commands of this session are given.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.state().environment.clone()
    }

    /// Remembers a variable; `false` when there are too many, or it is too long.
    pub fn export(&self, name: &str, value: &str) -> bool {
        let mut state = self.state();
        let is_new = !state.environment.contains_key(name);
        if value.len() > VARIABLE_BYTES_MAX
            || name.len() > VARIABLE_BYTES_MAX
            || (is_new && state.environment.len() >= VARIABLES_MAX)
        {
            return false;
        }
        state.environment.insert(name.to_owned(), value.to_owned());
        true
    }

    /// Forgets all variables.
    pub fn forget_exports(&self) {
        self.state().environment.clear();
    }

    /// The path that `text` means: from the current directory, or absolute in the workspace.
    ///
    /// # Errors
    /// It is no path, or not in the workspace.
    pub fn resolve(&self, text: &str) -> Result<SandboxPath, Refusal> {
        self.resolve_from(&self.directory(), text)
    }

    pub(super) fn resolve_from(&self, directory: &SandboxPath, text: &str) -> Result<SandboxPath, Refusal> {
        let path = match directory.join(text) {
            Ok(path) => Some(path),
            Err(SandboxPathError::AboveRoot(_)) => None,
            Err(error) => return Err(error.into()),
        };
        path.filter(|path| path.below(&self.workspace).is_some()).ok_or_else(|| {
            Refusal(format!("`{text}` is outside the workspace `{}`: use a path inside it", self.workspace))
        })
    }

    /// A path as it is shown: relative to the current directory where it is below it, else absolute.
    pub(super) fn shown(&self, path: &SandboxPath) -> String {
        match path.below(&self.directory()) {
            Some("") => ".".to_owned(),
            Some(rest) => rest.to_owned(),
            None => path.to_string(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_in_the_current_directory_and_stay_in_the_workspace() {
        let workspace = SandboxPath::parse("/home/u/.x/ws").unwrap();
        let session = Session::new(UserId::parse("小明").unwrap(), workspace.clone());
        assert!(session.enter(workspace.join("源").unwrap()));
        assert_eq!(session.resolve("a.txt").unwrap().as_str(), "/home/u/.x/ws/源/a.txt");
        assert_eq!(session.resolve("../b").unwrap().as_str(), "/home/u/.x/ws/b");
        assert_eq!(session.resolve("/home/u/.x/ws/../ws/b").unwrap().as_str(), "/home/u/.x/ws/b");
        for outside in ["../../x", "../../../../../..", "/etc/passwd", "/home/u/.x/ws-evil/s", "/"] {
            let refusal = session.resolve(outside).unwrap_err();
            assert!(refusal.0.contains("outside the workspace"), "{outside}: {refusal}");
        }
        assert!(!session.enter(SandboxPath::parse("/home/u/.x/ws-evil").unwrap()));
        assert_eq!(session.directory(), workspace.join("源").unwrap());
        assert_eq!(session.shown(&workspace.join("源/a").unwrap()), "a");
        assert_eq!(session.shown(&workspace.join("b").unwrap()), "/home/u/.x/ws/b");
    }

    #[test]
    fn variables_are_bounded_in_number_and_length() {
        let session = Session::new(UserId::parse("u").unwrap(), SandboxPath::parse("/w").unwrap());
        for number in 0..VARIABLES_MAX {
            assert!(session.export(&format!("V{number}"), "x"));
        }
        assert!(!session.export("ONE_MORE", "x"));
        assert!(session.export("V0", "y"));
        assert!(!session.export("V0", &"y".repeat(VARIABLE_BYTES_MAX + 1)));
        assert_eq!(session.environment().get("V0").map(String::as_str), Some("y"));
    }
}
