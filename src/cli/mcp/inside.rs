//! [`Inside`]: a service that the bridge starts for itself, and that stops with it.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// What the service says when it is ready, before its address.
const READY: &str = "filesecbox listening on ";
/// The longest line that it may say instead, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// How long the bridge waits for its end. It stops by itself as well when the bridge is gone.
const FAREWELL: Duration = Duration::from_secs(5);

/// A service in a process of its own, on a free port of this host, with a token that only this program knows.
pub(super) struct Inside {
    /// Its address.
    pub(super) url: String,
    /// The token, with the role admin.
    pub(super) token: String,
    child: Child,
    /// The service stops when this is closed, also by the end of this process.
    lives: Option<ChildStdin>,
}

impl Inside {
    /// Starts a service with the data directory `root`, and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started; why is what it has written to standard error.
    #[expect(clippy::disallowed_methods, reason = "this very program, as a service of its own")]
    pub(super) fn start(root: &Path, config: Option<&Path>) -> io::Result<Self> {
        let token = token()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--root"]).arg(root);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command
            .env_remove("FILESECBOX_TOKEN_FILE")
            .env("FILESECBOX_TOKEN", &token)
            .env("FILESECBOX_MCP__ENABLED", "true")
            .env("FILESECBOX_STOP_WITH_STDIN", "true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lives = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout.take(LINE_BYTES_MAX)).read_line(&mut line)?;
        }
        let url = line.trim_end().strip_prefix(READY).map(str::to_owned);
        let started = Self { url: url.clone().unwrap_or_default(), token, child, lives };
        match url {
            Some(_) => Ok(started),
            None => Err(io::Error::other("the service did not start: the lines above tell why")),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        drop(self.lives.take());
        let begin = Instant::now();
        while let Ok(None) = self.child.try_wait()
            && begin.elapsed() < FAREWELL
        {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// 32 random bytes in hexadecimal digits.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex::encode(bytes))
}
