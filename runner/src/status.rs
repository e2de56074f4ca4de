//! [`Figures`]: what a running runner tells of itself, on a socket that its own user alone can reach (`--status`).
//!
//! Never the token, no paths of requests and no contents. A socket whose runner was killed is taken over by the next of the same name.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tracing::debug;

/// The directory of the sockets, below `XDG_RUNTIME_DIR`.
const DIRECTORY: &str = "filesecbox-runner";
/// How long telling may take, and asking.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest that a runner tells, in bytes.
const TOLD_BYTES_MAX: u64 = 16 << 10;
/// The runners that are asked, at most.
const RUNNERS_MAX: usize = 64;

/// Tells how many requests are under way.
type UnderWay = Box<dyn Fn() -> usize + Send + Sync>;

/// What is known of a running runner.
#[derive(Default)]
pub(crate) struct Figures {
    /// Bytes of all connections to the service, as the network has them.
    received: AtomicU64,
    sent: AtomicU64,
    connection: Mutex<Option<(SystemTime, UnderWay)>>,
    last_error: Mutex<Option<(SystemTime, String)>>,
}

impl std::fmt::Debug for Figures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Figures").finish_non_exhaustive()
    }
}

impl Figures {
    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that the service has taken this runner.
    pub(crate) fn connected(&self, under_way: impl Fn() -> usize + Send + Sync + 'static) {
        *self.connection.lock() = Some((SystemTime::now(), Box::new(under_way)));
    }

    /// Notes that the connection is lost, or did not come about.
    pub(crate) fn lost(&self, why: &str) {
        *self.connection.lock() = None;
        *self.last_error.lock() = Some((SystemTime::now(), why.to_owned()));
    }

    fn told(&self, of: &About) -> Value {
        let connection = self.connection.lock();
        let error = self.last_error.lock();
        json!({
            "pid": std::process::id(),
            "server": of.server,
            "user": of.user,
            "name": of.name,
            "workspace": of.workspace,
            "connected_since": connection.as_ref().map(|(since, _)| moment(*since)),
            "requests": connection.as_ref().map_or(0, |(_, under_way)| under_way()),
            "received_bytes": self.received.load(Ordering::Relaxed),
            "sent_bytes": self.sent.load(Ordering::Relaxed),
            "last_error": error.as_ref().map(|(_, why)| why),
            "last_error_at": error.as_ref().map(|(at, _)| moment(*at)),
        })
    }
}

fn moment(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

/// What does not change while a runner runs.
pub(crate) struct About {
    pub(crate) server: String,
    pub(crate) user: String,
    pub(crate) name: String,
    pub(crate) workspace: String,
}

/// The socket of a runner, removed when this is dropped.
pub(crate) struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// The directory of the sockets.
pub(crate) fn directory(runtime: Option<PathBuf>) -> Option<PathBuf> {
    runtime.filter(|runtime| runtime.is_absolute()).map(|runtime| runtime.join(DIRECTORY))
}

/// Tells on a socket in `directory`, from now on until the socket is dropped.
///
/// # Errors
/// Why there is no socket; another runner of the same user and name has it.
pub(crate) fn tell(directory: &Path, about: About, figures: std::sync::Arc<Figures>) -> io::Result<Socket> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(format!("{}@{}.sock", file_name(&about.name), file_name(&about.user)));
    if UnixStream::connect(&path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another runner of this user and name tells there",
        ));
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    let socket = Socket(path);
    std::fs::set_permissions(&socket.0, std::fs::Permissions::from_mode(0o600))?;
    tokio::spawn(async move {
        // One after the other: each takes a moment.
        while let Ok((mut asking, _)) = listener.accept().await {
            let told = figures.told(&about).to_string();
            let telling = async {
                asking.write_all(told.as_bytes()).await?;
                asking.shutdown().await
            };
            if !matches!(tokio::time::timeout(PATIENCE, telling).await, Ok(Ok(()))) {
                debug!("a status was not read");
            }
        }
    });
    Ok(socket)
}

/// A name as a file may have it.
fn file_name(name: &str) -> String {
    name.chars()
        .map(|one| if one.is_alphanumeric() || "-_.".contains(one) { one } else { '_' })
        .take(40)
        .collect()
}

/// Asks every runner that tells in `directory`; gives lines for a person, none when no runner runs.
pub(crate) fn ask(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .take(RUNNERS_MAX)
        .collect();
    paths.sort();
    paths.iter().filter_map(|path| one(path).ok()).flat_map(|told| lines(&told)).collect()
}

fn one(path: &Path) -> io::Result<Value> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut told = String::new();
    stream.take(TOLD_BYTES_MAX).read_to_string(&mut told)?;
    Ok(serde_json::from_str(&told)?)
}

/// The lines for one runner.
fn lines(told: &Value) -> Vec<String> {
    // Of one's own runner; still no control character gets to the terminal.
    let text = |name: &str| {
        let text = told[name].as_str().unwrap_or_default();
        text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect::<String>()
    };
    let state = match told["connected_since"].as_str() {
        Some(_) => format!("connected since {}", text("connected_since")),
        None => "not connected".to_owned(),
    };
    let mut lines = vec![
        format!("{} of {}: {state} (process {})", text("name"), text("user"), told["pid"]),
        format!("  server {}", text("server")),
        format!("  workspace {}", text("workspace")),
        format!(
            "  requests under way {}, bytes received {}, sent {}",
            told["requests"], told["received_bytes"], told["sent_bytes"]
        ),
    ];
    if !told["last_error"].is_null() {
        lines.push(format!("  last error, at {}: {}", text("last_error_at"), text("last_error")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn about() -> About {
        let text = |text: &str| text.to_owned();
        About {
            server: text("wss://h/ws/a"),
            user: text("alice"),
            name: text("a/../b"),
            workspace: text("/w\u{1b}[2J"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_running_runner_tells_of_itself_to_its_own_user_until_it_ends() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(Some(place.path().to_owned())).unwrap();
        assert!(ask(&directory).is_empty());
        let figures = Arc::new(Figures::default());
        let socket = tell(&directory, about(), Arc::clone(&figures)).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(&socket.0).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(socket.0.parent().unwrap(), directory);
        assert!(tell(&directory, about(), Arc::clone(&figures)).is_err(), "there are two of one name");
        figures.lost("no connection");
        figures.connected(|| 3);
        figures.count_sent(10);
        figures.count_received(20);
        let told = ask(&directory).join("\n");
        assert!(told.contains("connected since 2"), "{told}");
        assert!(told.contains("requests under way 3, bytes received 20, sent 10"), "{told}");
        assert!(told.contains("no connection") && !told.contains('\u{1b}'), "{told}");
        figures.lost("gone");
        assert!(ask(&directory).join("\n").contains(": not connected"));
        // A runner that was killed leaves its socket.
        std::mem::forget(socket);
        drop(figures);
        let left = directory.join("left@alice.sock");
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        let taken = About { name: "left".to_owned(), ..about() };
        assert!(tell(&directory, taken, Arc::default()).is_ok());
    }
}
