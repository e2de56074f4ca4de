//! A session over a directory of this host, and a service that speaks JSON with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runner::{Runs, Session};
use sandbox::wire::Feature;
use sandbox::{NoneOptions, NoneSandbox, Root, Sandbox, SandboxPath, UserId};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// How long an answer may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine whose connections come and go.
pub(crate) struct Machine {
    pub(crate) around: TempDir,
    runs: Runs,
    workspace: SandboxPath,
}

impl Machine {
    pub(crate) async fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        let sandbox = NoneSandbox::open(NoneOptions::new(Root::Shared(around.path().join("w")))).unwrap();
        let user: UserId = UserId::parse("u").unwrap();
        let workspace = sandbox.workspace(&user).await.unwrap();
        Self { around, runs: Runs::new(Arc::new(sandbox), user), workspace }
    }

    pub(crate) fn session(&self, features: &[Feature], outgoing: mpsc::Sender<String>) -> Session {
        Session::new(self.runs.clone(), self.workspace.clone(), features, outgoing)
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        Path::new(self.workspace.as_str()).join(below)
    }
}

pub(crate) struct Peer {
    pub(crate) session: Session,
    pub(crate) answers: mpsc::Receiver<String>,
    /// The workspace, as the runner tells it.
    pub(crate) workspace: String,
    pub(crate) around: TempDir,
}

impl Peer {
    /// A service of a founding generation.
    pub(crate) async fn founding() -> Self {
        Self::new(&[]).await
    }

    /// A service of this project.
    pub(crate) async fn exact() -> Self {
        Self::new(&[Feature::Exact]).await
    }

    /// A service that binds writes to versions.
    pub(crate) async fn swapping() -> Self {
        Self::new(&[Feature::Exact, Feature::Swap]).await
    }

    async fn new(features: &[Feature]) -> Self {
        let machine = Machine::new().await;
        let (outgoing, answers) = mpsc::channel(16);
        let session = machine.session(features, outgoing);
        Self { session, answers, workspace: machine.workspace.to_string(), around: machine.around }
    }

    /// A directory beside the workspace.
    pub(crate) fn around(&self) -> &Path {
        self.around.path()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        Path::new(&self.workspace).join(below)
    }

    pub(crate) async fn send(&self, id: &str, kind: &str, body: Value) {
        let frame = json!({"id": id, "type": kind, "user_id": "u", "body": body});
        self.session.receive(&frame.to_string()).await;
    }

    /// The next frame that the session sends.
    pub(crate) async fn next(&mut self) -> Value {
        let text = tokio::time::timeout(PATIENCE, self.answers.recv()).await.expect("an answer in time");
        serde_json::from_str(&text.expect("an open session")).unwrap()
    }

    /// Asks and awaits the one answer.
    pub(crate) async fn ask(&mut self, kind: &str, body: Value) -> Value {
        self.send("q", kind, body).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], "q");
        answer
    }

    /// Nothing more is said.
    pub(crate) async fn is_silent(&mut self) {
        let more = tokio::time::timeout(Duration::from_millis(150), self.answers.recv()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

/// The code of an `error`.
pub(crate) fn code(answer: &Value) -> &str {
    assert_eq!(answer["type"], "error", "{answer}");
    answer["body"]["code"].as_str().unwrap()
}
