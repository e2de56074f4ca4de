//! A scripted service, and the runner as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The token of the tests.
pub(crate) const TOKEN: &str = "token-that-stays-secret";

/// Directories around a runner: its workspace `w`, a home, and what is neither.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["w", "home/.ssh", "w-evil", "tmp"] {
            std::fs::create_dir_all(place.path(name)).unwrap();
        }
        std::fs::write(place.path("home/.ssh/id"), "secret-key").unwrap();
        std::fs::write(place.path("w-evil/s"), "secret-sibling").unwrap();
        place
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(below)
    }

    /// The runner, which begins to connect to `server`; the token is in its environment.
    pub(crate) fn runner(&self, server: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox-runner"));
        command.args(["--server", server, "--workspace"]).arg(self.path("w")).args(arguments);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("FILESECBOX_RUNNER_TOKEN", TOKEN)
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"));
        command.env("SECRET_OF_THE_RUNNER", "secret-variable");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

/// The service.
pub(crate) struct Service {
    pub(crate) listener: TcpListener,
}

impl Service {
    pub(crate) async fn listen() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/ws/alice", self.port())
    }

    /// Awaits a runner, and its first frame.
    pub(crate) async fn accept(&self) -> (Connection<TcpStream>, Value) {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await.expect("a runner");
        Connection::accept(accepted.unwrap().0).await
    }

    /// Awaits a runner, and takes it.
    pub(crate) async fn take(&self) -> Connection<TcpStream> {
        let (mut connection, _) = self.accept().await;
        connection.say(json!({"type": "register_ok", "body": {"status": "ok", "features": ["exact"]}})).await;
        connection
    }
}

/// The service's end of a connection.
pub(crate) struct Connection<S>(WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) async fn accept(stream: S) -> (Self, Value) {
        let config = WebSocketConfig::default();
        let socket = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await.unwrap();
        let mut connection = Self(socket);
        let first = connection.next().await.expect("a registration");
        (connection, first)
    }

    pub(crate) async fn say(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Sends a frame that the runner may cut off.
    pub(crate) async fn say_in_vain(&mut self, frame: Value) {
        let _cut = self.0.send(Message::text(frame.to_string())).await;
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            match tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a frame in time") {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    pub(crate) async fn ask(&mut self, kind: &str, body: Value) -> Value {
        self.say(json!({"id": "q", "type": kind, "user_id": "alice", "body": body})).await;
        self.next().await.expect("an answer")
    }

    /// Runs a script: exit code, standard output and standard error.
    pub(crate) async fn run(&mut self, script: &str) -> (i64, String, String) {
        let answer = self.ask("exec", json!({"command": script, "shell": true})).await;
        let body = &answer["body"];
        let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (body["exit_code"].as_i64().unwrap(), text("stdout"), text("stderr"))
    }
}

/// Awaits the end of a runner: its exit code and its log.
pub(crate) async fn end(mut runner: Child) -> (Option<i32>, String) {
    let mut log = String::new();
    let mut pipe = runner.stderr.take().unwrap();
    let ended = async {
        pipe.read_to_string(&mut log).await.unwrap();
        runner.wait().await.unwrap().code()
    };
    let code = tokio::time::timeout(PATIENCE, ended).await.expect("an end");
    (code, log)
}

/// Sends a signal to a runner.
pub(crate) fn signal(runner: &Child, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(runner.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

/// Whether there is the program `path`.
pub(crate) fn program(path: &str) -> bool {
    let is_there = Path::new(path).is_file();
    if !is_there {
        println!("SKIPPED: there is no {path}");
    }
    is_there
}
