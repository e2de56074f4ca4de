//! A machine that is lent: what a request costs that goes on to a runner, against the service's own workspace and against the bare wire.
//!
//! The runner is a process beside the service, with commands that are not confined, so that the wire is measured and not its walls.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::client::{get, with_body};
use crate::error::{Failure, Result};
use crate::execution::execute;
use crate::fixture;
use crate::load::{self, Slice};
use crate::report::{Figure, Layout, Row, Unit};
use crate::service::{self, Service};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure};

/// A lent machine, the service's own workspace, and the floors.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["lent machine", "own workspace", "WebSocket echo", "bare axum"],
    ratios: &[("lent ÷ own", 0, 1), ("lent ÷ echo", 0, 2), ("lent ÷ bare axum", 0, 3)],
};

/// How long a runner may take to register.
const REGISTERING: Duration = Duration::from_secs(20);
/// How long it is looked how much processor time is taken at rest.
const AT_REST: Duration = Duration::from_secs(5);
/// Bytes of a body that are sent at once.
const PIECE_BYTES: usize = 1 << 20;
/// Ticks of the clock in a second, by which Linux tells processor time (proc_pid_stat(5)).
const TICKS: f64 = 100.0;

/// A runner, killed when this is dropped.
struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Who is asked.
enum Asked<'a> {
    Tree(&'a Side),
    Echo,
}

/// All rows.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn lending(bench: &Bench) -> Result<Vec<Row>> {
    let service = &bench.relaxed.filesecbox;
    let machine = bench.fresh()?;
    let runner = lend(service, machine.path())?;
    let own = Side::new(service, Tree::Workspace);
    let lent = own.of("lender".to_owned());
    let bare = Side::new(&bench.relaxed.bare, Tree::Workspace);
    let mut rows = small(bench, [&lent, &own, &bare])?;
    rows.extend(large(bench, &runner, [&lent, &own, &bare])?);
    drop(runner);
    rows.extend(many(bench)?);
    Ok(rows)
}

/// Starts a runner of the user `lender`, and waits until it has registered.
fn lend(service: &Service, workspace: &Path) -> Result<Runner> {
    let missing = || Failure::NotReady("filesecbox-runner (build it first: scripts/bench does)".to_owned());
    let program = service::beside("filesecbox-runner").ok_or_else(missing)?;
    let server = format!("ws://{}/ws/lender", service.address);
    let child = Command::new(&program)
        .args(["--server", &server, "--isolation", "none", "--workspace"])
        .arg(workspace)
        .env("FILESECBOX_RUNNER_TOKEN", "any")
        .env("FILESECBOX_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let runner = Runner(child.map_err(Failure::io("start the runner"))?);
    let begun = Instant::now();
    let mut connection = service.connect()?;
    loop {
        let told: Value =
            serde_json::from_slice(connection.exchange(&get("/v1/runners/lender"))?.body).unwrap_or_default();
        if told.pointer("/data/0/connected") == Some(&Value::Bool(true)) {
            return Ok(runner);
        }
        if begun.elapsed() > REGISTERING {
            return Err(Failure::NotReady(program.display().to_string()));
        }
        sleep(Duration::from_millis(20));
    }
}

/// A read, a write and a command.
fn small(bench: &Bench, [lent, own, bare]: [&Side; 3]) -> Result<Vec<Row>> {
    let (mut lines, mut echo) = (Lines::default(), connect(bench.relaxed.bare.address, "/echo")?);
    let bytes = fixture::small();
    let write =
        |side: &Side| with_body("PUT", &side.target("raw/lent.txt?parents=true"), "text/plain", &bytes);
    for side in [lent, own, bare] {
        lines.of(side)?.call(&write(side))?;
    }
    let frame = "x".repeat(bytes.len());
    let mut measure = |name: &str, goal, request: &dyn Fn(&Side) -> Vec<u8>| {
        let sides = [Asked::Tree(lent), Asked::Tree(own), Asked::Echo, Asked::Tree(bare)];
        let figures = bench.compare(sides, |asked| {
            let sample = match asked {
                Asked::Tree(side) => {
                    load::serial(lines.of(side)?, bench.effort.slice, &mut || request(side))?
                }
                Asked::Echo => round_trips(&mut echo, &frame, bench.effort.slice)?,
            };
            Ok(figure(&sample))
        })?;
        let figures = figures.map(Some).into();
        Ok::<_, Failure>(Row { name: name.to_owned(), unit: Unit::Micros, figures, goal })
    };
    Ok(vec![
        measure("read 4 KiB, p50", "≤ 2 × echo", &|side| get(&side.target("raw/lent.txt")))?,
        measure("write 4 KiB, p50", "–", &write)?,
        measure("`echo`, p50", "≤ 1.3 × own + echo", &|side| execute(side, &["echo", "hi"]))?,
    ])
}

type Line = WebSocket<TcpStream>;

/// Opens a WebSocket.
fn connect(address: SocketAddr, path: &str) -> Result<Line> {
    let stream = TcpStream::connect(address).map_err(Failure::io("connect"))?;
    stream.set_nodelay(true).map_err(Failure::io("set TCP_NODELAY"))?;
    let opened = client(format!("ws://{address}{path}"), stream);
    Ok(opened.map_err(|error| broken(&error))?.0)
}

fn broken(error: &impl std::fmt::Display) -> Failure {
    Failure::io("speak over a WebSocket")(std::io::Error::other(error.to_string()))
}

fn round_trips(line: &mut Line, text: &str, slice: Slice) -> Result<load::Sample> {
    let (mut latencies, start) = (Vec::new(), Instant::now());
    while latencies.len() < slice.calls && (start.elapsed() < slice.time || latencies.len() < slice.calls_min)
    {
        let sent = Instant::now();
        line.send(Message::text(text)).map_err(|error| broken(&error))?;
        line.read().map_err(|error| broken(&error))?;
        latencies.push(sent.elapsed());
    }
    Ok(load::sample(latencies, start.elapsed()))
}

/// A large file each way: its pace, and by how much service and runner grow meanwhile.
fn large(bench: &Bench, runner: &Runner, [lent, own, bare]: [&Side; 3]) -> Result<Vec<Row>> {
    let bytes = bench.effort.lent_bytes;
    #[expect(clippy::cast_precision_loss, reason = "500 MB")]
    let megabytes = bytes as f64 / 1e6;
    let processes = [bench.relaxed.filesecbox.pid(), runner.0.id()];
    let mut growth = [0_f64; 2];
    let mut rows = Vec::new();
    for (name, is_write) in [("in", true), ("out", false)] {
        let [lent, own, bare] = bench.compare([lent, own, bare], |side| {
            let before = processes.map(mark_peak);
            let took = if is_write { put(side, bytes)? } else { fetch(side, bytes)? };
            if side.user == "lender" {
                for ((growth, process), before) in growth.iter_mut().zip(processes).zip(before) {
                    *growth = growth.max(megabytes_of(process, "VmHWM:") - before);
                }
            }
            Ok(Figure::from(megabytes / took.as_secs_f64()))
        })?;
        rows.push(Row {
            name: format!("{megabytes:.0} MB {name}"),
            unit: Unit::MegabytesPerSecond,
            figures: vec![Some(lent), Some(own), None, Some(bare)],
            goal: "≥ 0.7 × bare axum",
        });
    }
    for (name, growth) in ["service", "runner"].into_iter().zip(growth) {
        rows.push(Row {
            name: format!("the {name} grows meanwhile by"),
            unit: Unit::Megabytes,
            figures: vec![Some(growth.into()), None, None, None],
            goal: "< 67",
        });
    }
    Ok(rows)
}

fn put(side: &Side, bytes: usize) -> Result<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(side.address).map_err(Failure::io("connect"))?;
    let target = side.target("raw/huge.bin?parents=true");
    let head = format!(
        "PUT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).map_err(Failure::io("send"))?;
    let (piece, mut left) = (vec![b'x'; PIECE_BYTES], bytes);
    while left > 0 {
        let part = piece.get(..left.min(PIECE_BYTES)).unwrap_or_default();
        stream.write_all(part).map_err(Failure::io("send"))?;
        left -= part.len();
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(Failure::io("receive"))?;
    answered(&head, &answer)?;
    Ok(begun.elapsed())
}

fn fetch(side: &Side, bytes: usize) -> Result<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(side.address).map_err(Failure::io("connect"))?;
    let target = side.target("raw/huge.bin");
    let head = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(Failure::io("send"))?;
    let (mut piece, mut count, mut first) = (vec![0; PIECE_BYTES], 0, Vec::new());
    loop {
        let read = stream.read(&mut piece).map_err(Failure::io("receive"))?;
        if read == 0 {
            break;
        }
        if first.is_empty() {
            first.extend_from_slice(piece.get(..read).unwrap_or_default());
        }
        count += read;
    }
    answered(&head, &first)?;
    if count < bytes {
        return Err(Failure::io("receive")(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(begun.elapsed())
}

/// Demands an answer of success.
fn answered(head: &str, answer: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(answer.get(..answer.len().min(500)).unwrap_or_default()).into_owned();
    if text.starts_with("HTTP/1.1 2") {
        return Ok(());
    }
    let status = text.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    let request = head.lines().next().unwrap_or_default().to_owned();
    Err(Failure::Answer { request, status, body: text })
}

/// Has the peak of a process begin anew (proc_pid_clear_refs(5)), and tells its memory, in megabytes.
fn mark_peak(process: u32) -> f64 {
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    megabytes_of(process, "VmRSS:")
}

/// A row of `/proc/PID/status`, in megabytes.
fn megabytes_of(process: u32, row: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(row));
    let kibibytes = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kibibytes.unwrap_or(f64::NAN) * 1024.0 / 1e6
}

/// Many machines that are connected and do nothing.
fn many(bench: &Bench) -> Result<Vec<Row>> {
    let (service, count) = (&bench.relaxed.filesecbox, bench.effort.runners);
    let before = megabytes_of(service.pid(), "VmRSS:");
    let mut lines = Vec::new();
    for number in 0..count {
        let user = format!("lender-{number}");
        let mut line = connect(service.address, &format!("/ws/{user}"))?;
        let body = json!({"user_id": user, "auth_token": "", "workspace": "/w", "features": ["exact", "live", "transfers"]});
        let register = json!({"type": "register", "user_id": user, "body": body});
        line.send(Message::text(register.to_string())).map_err(|error| broken(&error))?;
        let told = line.read().map_err(|error| broken(&error))?;
        if !told.to_text().is_ok_and(|told| told.contains("register_ok")) {
            return Err(broken(&format!("the runner {number} was not taken: {told}")));
        }
        lines.push(line);
    }
    let memory = megabytes_of(service.pid(), "VmRSS:") - before;
    let (begun, ticks) = (Instant::now(), processor(service.pid()));
    sleep(AT_REST);
    let seconds = begun.elapsed().as_secs_f64();
    let busy = (processor(service.pid()) - ticks) / TICKS;
    drop(lines);
    let row = |name: String, unit, value: f64| Row {
        name,
        unit,
        figures: vec![Some(value.into()), None, None, None],
        goal: "–",
    };
    Ok(vec![
        row(format!("{count} runners at rest: the service grows by"), Unit::Megabytes, memory),
        row(format!("{count} runners at rest: processor in a second"), Unit::Millis, busy / seconds * 1e3),
    ])
}

/// Ticks of processor time that a process has taken.
fn processor(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}
