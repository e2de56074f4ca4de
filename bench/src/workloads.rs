//! The workloads on files: one function per group of rows, in the order of the table.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{self, Connection};
use crate::error::{Failure, Result};
use crate::fixture;
use crate::load::{self, Sample};
use crate::native;
use crate::report::{Figure, Row, Unit};
use crate::service::{Kind, Service, disk_bytes};
use crate::sides::{Bench, Pair, Side, Tree, median};

/// Clients that write at once.
const WRITERS: usize = 32;

/// A row of a skill, a workspace and the bare service.
fn row(
    name: impl Into<String>,
    unit: Unit,
    values: [Figure; 3],
    native: Option<f64>,
    goal: &'static str,
) -> Row {
    let mut figures = values.map(Some).to_vec();
    figures.push(native.map(Figure::from));
    Row { name: name.into(), unit, figures, goal }
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub(crate) fn figure(sample: &Sample) -> Figure {
    Figure { value: micros(sample.p50), tail: Some(micros(sample.p99)) }
}

/// Connections that stay open between the rounds, one per service.
#[derive(Default)]
pub(crate) struct Lines(HashMap<SocketAddr, Connection>);

impl Lines {
    pub(crate) fn of(&mut self, side: &Side) -> Result<&mut Connection> {
        match self.0.entry(side.address) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                Ok(entry.insert(Connection::open(side.address)?))
            }
        }
    }
}

/// The median latency of one client, in microseconds, on each side.
fn latency(bench: &Bench, sides: [Side; 3], request: impl Fn(&Side) -> Vec<u8>) -> Result<[Figure; 3]> {
    let mut lines = Lines::default();
    bench.compare(sides, |side: &Side| {
        let request = request(side);
        let sample = load::serial(lines.of(side)?, bench.effort.slice, &mut || request.clone())?;
        Ok(figure(&sample))
    })
}

/// Requests per second of `clients` clients on each side.
fn throughput(
    bench: &Bench,
    sides: [Side; 3],
    clients: usize,
    request: impl Fn(&Side) -> Vec<u8>,
) -> Result<[Figure; 3]> {
    bench.compare(sides, |side: &Side| {
        let slice = bench.effort.slice;
        let sample = load::parallel(
            side.address,
            clients,
            load::Slice { calls: usize::MAX, ..slice },
            &request(side),
        )?;
        Ok(sample.per_second.into())
    })
}

/// Reading files: whole, in parallel, as JSON, by lines, large.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn reads(bench: &Bench) -> Result<Vec<Row>> {
    let sides = || bench.relaxed.sides("demo");
    let small = |side: &Side| client::get(&side.target("raw/small.txt"));
    let text = |side: &Side| client::get(&side.target("content?path=small.txt"));
    let part = |side: &Side| client::get(&side.target("content?path=lines.txt&start=1000&end=1009"));
    let large = |side: &Side| client::get(&side.target("raw/large.bin"));
    let health = |_: &Side| client::get("/healthz");

    let file = bench.scratch.path().join("small.txt");
    fs::write(&file, fixture::small()).map_err(Failure::io("write"))?;
    let floor = micros(native::median(bench.effort.slice, || native::read(&file))?);
    let file = bench.scratch.path().join("large.bin");
    fs::write(&file, vec![b'x'; fixture::LARGE_BYTES]).map_err(Failure::io("write"))?;
    let large_floor = native::median(bench.effort.slice, || native::read(&file))?;
    #[expect(clippy::cast_precision_loss, reason = "16 MiB")]
    let megabytes = fixture::LARGE_BYTES as f64 / 1e6;

    let large =
        latency(bench, sides(), large)?.map(|latency| Figure::from(megabytes / (latency.value / 1e6)));
    let goals = ["–", "≤ 1.15", "≥ 0.9", "≥ 0.8", "≤ 1.0", "≥ 0.95"];
    let [g0, g1, g2, g3, g4, g5] = goals;
    Ok(vec![
        row("`healthz`, one client, p50", Unit::Micros, latency(bench, sides(), health)?, None, g0),
        row(
            "raw read 4 KiB, one client, p50",
            Unit::Micros,
            latency(bench, sides(), small)?,
            Some(floor),
            g1,
        ),
        row("raw read 4 KiB, 32 clients", Unit::PerSecond, throughput(bench, sides(), 32, small)?, None, g2),
        row("`content` 4 KiB, 32 clients", Unit::PerSecond, throughput(bench, sides(), 32, text)?, None, g3),
        row("read 10 of 2 000 lines, p50", Unit::Micros, latency(bench, sides(), part)?, None, g4),
        row(
            "read 16 MiB, one client",
            Unit::MegabytesPerSecond,
            large,
            Some(megabytes / large_floor.as_secs_f64()),
            g5,
        ),
    ])
}

/// Changing files: whole and by lines, relaxed and strict.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn writes(bench: &Bench) -> Result<Vec<Row>> {
    let octets = "application/octet-stream";
    let bytes = fixture::small();
    let write = |side: &Side| client::with_body("PUT", &side.target("raw/written.txt"), octets, &bytes);
    let line = format!("line {:06} {:<27}\n", 1000, "edited");
    let edit = |side: &Side| {
        client::with_body(
            "PUT",
            &side.target("edit?path=lines.txt&start=1000&end=1000"),
            "text/plain",
            line.as_bytes(),
        )
    };
    let mut rows = new_files(bench)?;
    for (pair, strict, name) in [(&bench.relaxed, false, "relaxed"), (&bench.strict, true, "strict")] {
        let dir = bench.scratch.path();
        let floor = |bytes: &[u8]| native::median(bench.effort.slice, || native::write(dir, bytes, strict));
        let written = latency(bench, pair.sides("demo"), write)?;
        let edited = latency(bench, pair.sides("demo"), edit)?;
        rows.push(row(
            format!("write 4 KiB, {name}, p50"),
            Unit::Micros,
            written,
            Some(micros(floor(&bytes)?)),
            "≤ 1.2",
        ));
        let floor = micros(floor(&fixture::lines())?);
        rows.push(row(
            format!("edit a line of 2 000, {name}, p50"),
            Unit::Micros,
            edited,
            Some(floor),
            "≤ 1.2",
        ));
    }
    Ok(rows)
}

/// Writing files that are not there: one client, and many.
fn new_files(bench: &Bench) -> Result<Vec<Row>> {
    let (bytes, number) = (fixture::small(), Cell::new(0_usize));
    let write = |side: &Side| {
        let file = number.replace(number.get() + 1);
        let target = side.target(&format!("raw/new/{}/{file}.txt?parents=true", file / 1000));
        client::with_body("PUT", &target, "application/octet-stream", &bytes)
    };
    let (mut lines, slice) = (Lines::default(), bench.effort.slice);
    let latency = bench.compare(bench.relaxed.sides("demo"), |side: &Side| {
        Ok(figure(&load::serial(lines.of(side)?, slice, &mut || write(side))?))
    })?;
    let throughput = bench.compare(bench.relaxed.sides("demo"), |side: &Side| {
        let start = Instant::now();
        let next = &mut |_| (start.elapsed() < slice.time).then(|| Cow::Owned(write(side)));
        Ok(load::each(side.address, WRITERS, next)?.per_second.into())
    })?;
    let dir = bench.scratch.path();
    let floor = native::median(slice, || native::write(dir, &bytes, false))?;
    Ok(vec![
        row("write 4 KiB to a new file, relaxed, p50", Unit::Micros, latency, Some(micros(floor)), "≤ 1.3"),
        row(
            format!("write 4 KiB to new files, relaxed, {WRITERS} clients"),
            Unit::PerSecond,
            throughput,
            None,
            "≥ 0.8",
        ),
    ])
}

/// Listing a large tree with details.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn listing(bench: &Bench) -> Result<Vec<Row>> {
    let [skill, workspace, bare] = bench.relaxed.sides("many");
    let mut connection = Connection::open(workspace.address)?;
    // A user of its own, so that the other workspace stays small.
    for number in 0..bench.effort.many {
        let target = format!("/v1/sandbox/lister/a/raw/{}?parents=true", fixture::many_name(number));
        connection.call(&client::with_body("PUT", &target, "text/plain", b"file\n"))?;
    }
    let values = latency(bench, [skill, workspace, bare], |side| match side.tree {
        Tree::Workspace => client::get("/v1/sandbox/lister/a/files?detail=true"),
        Tree::Skill(_) => client::get(&side.target("files?detail=true")),
    })?;
    let tree = bench.relaxed.root.path().join("skill/baseline/a/many");
    let floor = micros(native::median(bench.effort.slice, || native::walk(&tree))?) / 1000.0;
    let name = format!("list {} files with details, p50", bench.effort.many);
    Ok(vec![row(name, Unit::Millis, values.map(|figure| figure.scaled(1e-3)), Some(floor), "≤ 0.7")])
}

/// Uploading a whole skill: a new one every time, and one that replaces the former version.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn uploads(bench: &Bench) -> Result<Vec<Row>> {
    let versions = [fixture::bundle(1)?, fixture::bundle(2)?];
    let [first, _] = &versions;
    let zip = bench.scratch.path().join("bundle.zip");
    fs::write(&zip, first).map_err(Failure::io("write"))?;
    let mut floor = None;
    if native::has("bsdtar") {
        let number = Cell::new(0);
        let zip = zip.to_string_lossy().into_owned();
        floor = Some(
            micros(native::median(bench.effort.slice, || {
                let dir = bench.scratch.path().join(format!("unpacked-{}", number.replace(number.get() + 1)));
                fs::create_dir(&dir).map_err(Failure::io("mkdir"))?;
                native::run("bsdtar", &["-xf", &zip], &dir)
            })?) / 1000.0,
        );
    }
    let mut rows = Vec::new();
    for (pair, name, goal) in
        [(&bench.relaxed, "relaxed", "≤ 1.0"), (&bench.strict, "strict", "≤ 1.0, durable")]
    {
        for replacing in [false, true] {
            // The bare service never waits for the disk here, so it is the same in both rows.
            let values = upload(bench, pair, &versions, replacing)?;
            let [skill, bare] = values.map(|figure| Some(figure.scaled(1e-3)));
            let what = if replacing { "replace" } else { "publish" };
            let name = format!("{what} a skill of 500 files, 5 MB ZIP, {name}");
            let figures = vec![skill, None, bare, floor.map(Figure::from)];
            rows.push(Row { name, unit: Unit::Millis, figures, goal });
        }
    }
    Ok(rows)
}

fn upload(bench: &Bench, pair: &Pair, versions: &[Vec<u8>; 2], replacing: bool) -> Result<[Figure; 2]> {
    let [skill, _, bare] = pair.sides("bundle");
    let mut lines = Lines::default();
    let mut number = 0_usize;
    bench.compare([skill, bare], |side| {
        let sample: Sample = load::serial(lines.of(side)?, bench.effort.slice, &mut || {
            number += 1;
            let name = if replacing { "replaced.zip".to_owned() } else { format!("bundle-{number}.zip") };
            let archive = if replacing { versions.get(number % 2) } else { versions.first() };
            client::upload("/v1/skills/u/a/upload?scope=baseline", &name, archive.map_or(&[], Vec::as_slice))
        })?;
        Ok(figure(&sample))
    })
}

/// Starting, and what rests in memory and on disk with many users.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn footprint(bench: &Bench) -> Result<Vec<Row>> {
    let (filesecbox, bare) = (&bench.programs.filesecbox, &bench.programs.bare);
    let (root, bare_root) = (bench.fresh()?, bench.fresh()?);
    let mut starts = [Vec::new(), Vec::new()];
    let mut resident = [0.0, 0.0];
    for _ in 0..bench.effort.starts {
        let services = [
            Service::start(Kind::Filesecbox { config: None }, filesecbox, root.path(), true)?,
            Service::start(Kind::Bare, bare, bare_root.path(), true)?,
        ];
        for ((service, starts), resident) in services.iter().zip(&mut starts).zip(&mut resident) {
            starts.push(micros(service.first_answer) / 1000.0);
            *resident = megabytes(service.resident_bytes());
        }
    }
    let [started, bare_started] = starts.map(|times| Some(median(times)));
    let [resident, bare_resident] = resident.map(Some);
    let line = |name: &str, unit, skill: Option<f64>, bare: Option<f64>, goal| Row {
        name: name.to_owned(),
        unit,
        figures: vec![skill.map(Figure::from), None, bare.map(Figure::from), None],
        goal,
    };
    let mut rows = vec![
        line("start to first answer", Unit::Millis, started, bare_started, "≤ 25 ms"),
        line("memory at rest, launcher included", Unit::Megabytes, resident, bare_resident, "≤ 15 MB"),
    ];
    let users = bench.effort.users;
    let (service, root) = (&bench.relaxed.filesecbox, bench.relaxed.root.path());
    let (memory, disk) = (service.resident_bytes(), disk_bytes(root));
    let mut connection = service.connect()?;
    let began = Instant::now();
    for user in 0..users {
        let target = format!("/v1/skills/user-{user}/a/tiny/edit?path=SKILL.md&start=1&end=1");
        connection.call(&client::with_body("PUT", &target, "text/plain", b"---\n"))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "few users")]
    let each = micros(began.elapsed()) / users as f64;
    let memory_after = megabytes(service.resident_bytes());
    let disk = megabytes(disk_bytes(root).saturating_sub(disk));
    let name = |what: &str| format!("{users} users each edit a line of a baseline skill: {what}");
    rows.push(line(&name("each"), Unit::Micros, Some(each), None, "–"));
    rows.push(line(&name("memory before"), Unit::Megabytes, Some(megabytes(memory)), None, "–"));
    rows.push(line(&name("memory after"), Unit::Megabytes, Some(memory_after), None, "as before"));
    rows.push(line(&name("disk gained"), Unit::Megabytes, Some(disk), None, "changed bytes"));
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
