//! [`peers`]: the services that a user would pick instead, as far as they install from a registry and answer over HTTP.
//!
//! Each runs as its makers ship it, on a fresh directory, and does the same work: the same bytes written and read, the same
//! command run to its end. None of them has walls around commands, layers, an audit log, or writes that are whole or not
//! there; what they do besides is their own. `scripts/bench --peers` installs them.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::client::{self, Connection};
use crate::error::{Failure, Result};
use crate::execution::execute;
use crate::fixture;
use crate::load::{self, Slice};
use crate::report::{Figure, Layout, Row, Unit};
use crate::service::resident_below;
use crate::sides::{Bench, Side, Tree};
use crate::workloads::figure;

/// The services.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["workspace", "bare axum", "Open Terminal", "SWE-ReX"],
    ratios: &[("workspace ÷ Open Terminal", 0, 2), ("workspace ÷ SWE-ReX", 0, 3)],
};

/// How long a peer may take to answer for the first time.
const START: Duration = Duration::from_secs(120);
/// What callers of peers show.
const TOKEN: &str = "bench";
/// Clients that run commands at once, and those that read.
const RUNNING: usize = 8;
const READING: usize = 32;

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `open-terminal` of PyPI.
    OpenTerminal,
    /// `swe-rex` of PyPI.
    SweRex,
}

/// The work that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Write,
    Read,
    Echo,
}

/// A running peer.
struct Peer {
    kind: Kind,
    child: Child,
    address: SocketAddr,
    first_answer: Duration,
    root: TempDir,
}

/// One column.
enum Contender<'a> {
    Service(Side),
    Peer(&'a Peer),
}

/// All rows, with the programs of peers in the directory `programs`.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn peers(bench: &Bench, programs: &Path) -> Result<Vec<Row>> {
    let started = [Kind::OpenTerminal, Kind::SweRex].map(|kind| Peer::start(kind, programs, bench.fresh()?));
    let [open_terminal, swe_rex] = started;
    let (open_terminal, swe_rex) = (open_terminal?, swe_rex?);
    let [_, workspace, _] = bench.relaxed.sides("tiny");
    let bare = Side::new(&bench.relaxed.bare, Tree::Workspace);
    let contenders = || {
        let services = [workspace.clone(), bare.clone()].map(Contender::Service);
        let [ours, bare] = services;
        [ours, bare, Contender::Peer(&open_terminal), Contender::Peer(&swe_rex)]
    };
    for contender in contenders() {
        contender.check()?;
    }
    let slice = bench.effort.slice;
    let mut rows = Vec::new();
    let mut row = |name: String, unit, figures: [Figure; 4]| {
        rows.push(Row { name, unit, figures: figures.map(Some).to_vec(), goal: "ahead of every peer" });
    };
    for (work, name) in [(Work::Read, "read 4 KiB"), (Work::Write, "write 4 KiB"), (Work::Echo, "`echo`")] {
        let figures = bench.compare(contenders(), |contender| {
            let request = contender.request(work);
            let mut connection = Connection::open(contender.address())?;
            Ok(figure(&load::serial(&mut connection, slice, &mut || request.clone())?))
        })?;
        row(format!("{name}, one client, p50"), Unit::Micros, figures);
    }
    for (work, name, clients) in [(Work::Read, "read 4 KiB", READING), (Work::Echo, "`echo`", RUNNING)] {
        let figures = bench.compare(contenders(), |contender| {
            let slice = Slice { calls: usize::MAX, ..slice };
            let sample = load::parallel(contender.address(), clients, slice, &contender.request(work))?;
            Ok(sample.per_second.into())
        })?;
        row(format!("{name}, {clients} clients"), Unit::PerSecond, figures);
    }
    let (ours, bare) = (&bench.relaxed.filesecbox, &bench.relaxed.bare);
    let millis = |time: Duration| Figure::from(time.as_secs_f64() * 1e3);
    let peers = [&open_terminal, &swe_rex];
    let [first, second] = peers.map(|peer| millis(peer.first_answer));
    row(
        "start to first answer".to_owned(),
        Unit::Millis,
        [millis(ours.first_answer), millis(bare.first_answer), first, second],
    );
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let megabytes = |bytes: u64| Figure::from(bytes as f64 / 1e6);
    let [first, second] = peers.map(|peer| megabytes(resident_below(peer.child.id())));
    row(
        "memory after all of this".to_owned(),
        Unit::Megabytes,
        [megabytes(ours.resident_bytes()), megabytes(bare.resident_bytes()), first, second],
    );
    Ok(rows)
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Self::OpenTerminal => "open-terminal",
            Self::SweRex => "swerex-remote",
        }
    }

    fn arguments(self, root: &Path, port: u16) -> Vec<String> {
        let port = port.to_string();
        let root = root.to_string_lossy();
        let words: Vec<&str> = match self {
            Self::OpenTerminal => {
                vec!["run", "--host", "127.0.0.1", "--port", &port, "--cwd", &root, "--api-key", TOKEN]
            }
            Self::SweRex => vec!["--host", "127.0.0.1", "--port", &port, "--auth-token", TOKEN],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Peer {
    /// Starts a peer on `root` and waits for its first answer.
    fn start(kind: Kind, programs: &Path, root: TempDir) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = port.map_err(Failure::io("find a free port"))?;
        let program: PathBuf = programs.join(kind.program());
        let log = tempfile::tempfile_in(root.path().parent().unwrap_or(root.path()));
        let log = log.map_err(Failure::io("make a log"))?;
        fs::write(root.path().join("small.txt"), fixture::small()).map_err(Failure::io("write"))?;
        let began = Instant::now();
        let child = Command::new(&program)
            .args(kind.arguments(root.path(), address.port()))
            .current_dir(root.path())
            .env("HOME", root.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(Failure::io("make a log"))?)
            .stderr(log)
            .spawn()
            .map_err(Failure::io(format!("start `{}`", program.display())))?;
        let mut peer = Self { kind, child, address, first_answer: Duration::ZERO, root };
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > START || peer.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(Failure::NotReady(kind.program().to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Connection::open(address)?.call(&peer.request(Work::Read))?;
        peer.first_answer = began.elapsed();
        Ok(peer)
    }

    fn request(&self, work: Work) -> Vec<u8> {
        let path = |name: &str| self.root.path().join(name).to_string_lossy().into_owned();
        let text = String::from_utf8_lossy(&fixture::small()).into_owned();
        let (method, target, body) = match (self.kind, work) {
            (Kind::OpenTerminal, Work::Read) => {
                ("GET", format!("/files/read?path={}", path("small.txt")), None)
            }
            (Kind::OpenTerminal, Work::Write) => (
                "POST",
                "/files/write".to_owned(),
                Some(json!({"path": path("written.txt"), "content": text})),
            ),
            (Kind::OpenTerminal, Work::Echo) => {
                ("POST", "/execute?wait=60".to_owned(), Some(json!({"command": "echo hi"})))
            }
            (Kind::SweRex, Work::Read) => {
                ("POST", "/read_file".to_owned(), Some(json!({"path": path("small.txt")})))
            }
            (Kind::SweRex, Work::Write) => (
                "POST",
                "/write_file".to_owned(),
                Some(json!({"path": path("written.txt"), "content": text})),
            ),
            (Kind::SweRex, Work::Echo) => {
                ("POST", "/execute".to_owned(), Some(json!({"command": ["echo", "hi"], "timeout": 60})))
            }
        };
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let length = body.len();
        format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nX-API-Key: {TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Contender<'_> {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Service(side) => side.address,
            Self::Peer(peer) => peer.address,
        }
    }

    fn request(&self, work: Work) -> Vec<u8> {
        match (self, work) {
            (Self::Peer(peer), work) => peer.request(work),
            (Self::Service(side), Work::Read) => client::get(&side.target("raw/small.txt")),
            (Self::Service(side), Work::Write) => {
                let target = side.target("raw/written.txt?parents=true");
                client::with_body("PUT", &target, "application/octet-stream", &fixture::small())
            }
            (Self::Service(side), Work::Echo) => execute(side, &["echo", "hi"]),
        }
    }

    /// Makes sure that all of the work is done.
    ///
    /// # Errors
    /// [`Failure::Answer`] for an answer without what was asked for.
    fn check(&self) -> Result<()> {
        let mut connection = Connection::open(self.address())?;
        let first: Vec<u8> = fixture::small().into_iter().take_while(|byte| *byte != b'\n').collect();
        // One has a terminal for every command, which ends lines by two bytes.
        for (work, wanted) in [(Work::Write, &b""[..]), (Work::Read, &first), (Work::Echo, b"hi\\")] {
            let body = connection.call(&self.request(work))?;
            if !body.windows(wanted.len().max(1)).any(|part| part.starts_with(wanted)) {
                let body = String::from_utf8_lossy(body.get(..body.len().min(300)).unwrap_or_default());
                let (request, body) = (format!("{work:?}"), body.into_owned());
                return Err(Failure::Answer { request, status: 200, body });
            }
        }
        Ok(())
    }
}
