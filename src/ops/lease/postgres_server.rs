//! A PostgreSQL of a test's own: Debian's programs, a directory that goes with it, and a socket in that. Never root: it refuses.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The user that the server runs as where the test is root: `nobody`.
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is stopped when dropped.
pub(crate) struct PostgresServer {
    child: Child,
    dir: tempfile::TempDir,
}

impl PostgresServer {
    /// `None` where the programs are not installed, unless `FILESECBOX_REQUIRE` names `postgresql`.
    pub(crate) fn start() -> Option<Self> {
        let Some(initdb) = program("initdb") else {
            let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
            let is_required = required.split(',').any(|name| name.trim() == "postgresql");
            assert!(
                !is_required,
                "`postgresql` is required, and has no `initdb` in /usr/lib/postgresql/*/bin"
            );
            eprintln!("SKIPPED: leases in PostgreSQL: there is no `initdb` in /usr/lib/postgresql/*/bin");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let args = ["-U", "filesecbox", "--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale", "-D"];
        let made = as_nobody(&initdb, dir.path()).args(args).arg(dir.path().join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let child = serve(dir.path());
        Some(Self { child, dir })
    }

    /// The directory of its socket, `.s.PGSQL.5432`.
    pub(crate) fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its address, by the socket in `dir`.
    pub(crate) fn url(dir: &Path) -> String {
        format!("postgres:///postgres?host={}&user=filesecbox&password=s3cret", dir.to_str().unwrap())
    }

    /// Stops it as a crash does.
    pub(crate) fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // SIGQUIT: at once, and with all that it has started.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _reaped = self.child.wait();
    }

    /// Starts it again on the same data.
    pub(crate) fn restart(&mut self) {
        self.child = serve(self.dir.path());
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program of the newest version that is installed.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop()
}

fn as_nobody(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn serve(dir: &Path) -> Child {
    let settings = ["listen_addresses=", "fsync=off", "shared_buffers=8MB", "max_connections=50"];
    let mut command = as_nobody(&program("postgres").unwrap(), dir);
    command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    // The eighth line of its file says when it takes connections.
    let is_ready = || {
        let told = std::fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
        told.lines().nth(7).is_some_and(|line| line.trim() == "ready")
            && told.lines().next() == Some(child.id().to_string().as_str())
    };
    while !is_ready() {
        assert!(since.elapsed() < PATIENCE, "the server does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(child.try_wait().unwrap().is_none(), "the server has ended");
    child
}
