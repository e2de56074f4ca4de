//! [`curves`]: what the tables of medians do not show: how latencies are distributed, and how costs grow.

use std::time::Duration;

use crate::chart::{Axis, Chart, Line, Scale};
use crate::client::{self, Connection};
use crate::error::Result;
use crate::execution::execute;
use crate::fixture;
use crate::growth::{publish_several, seeing};
use crate::load::{self, Slice};
use crate::service::{Kind, Service};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::micros;

const ECHO: [&str; 2] = ["echo", "hi"];
/// Requests of which a distribution is made, each time that a side has its turn.
const DISTRIBUTED: usize = 1_000;
/// Points of the line of a distribution.
const POINTS: usize = 200;
/// Skills that a command sees.
const SKILLS: [usize; 7] = [0, 1, 4, 8, 16, 32, 64];
/// Clients at once.
const CLIENTS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MICROS: &str = "microseconds, median";

/// All pictures.
///
/// # Errors
/// Every [`Failure`](crate::error::Failure).
pub(crate) fn curves(bench: &Bench) -> Result<Vec<Chart>> {
    let mut charts = distributions(bench)?;
    charts.extend([users(bench)?, files(bench)?, skills(bench)?, connections(bench)?]);
    Ok(charts)
}

/// How latencies of one client are distributed.
fn distributions(bench: &Bench) -> Result<Vec<Chart>> {
    let bytes = fixture::small();
    let read = |side: &Side| client::get(&side.target("raw/small.txt"));
    let write = |side: &Side| {
        client::with_body("PUT", &side.target("raw/written.txt"), "application/octet-stream", &bytes)
    };
    let echo = |side: &Side| execute(side, &ECHO);
    Ok(vec![
        distribution(bench, "latency-read", "Reading 4 KiB", "demo", &read)?,
        distribution(bench, "latency-write", "Writing 4 KiB, relaxed", "demo", &write)?,
        distribution(bench, "latency-echo", "Running `echo`", "tiny", &echo)?,
    ])
}

fn distribution(
    bench: &Bench,
    name: &'static str,
    what: &str,
    skill: &'static str,
    request: &dyn Fn(&Side) -> Vec<u8>,
) -> Result<Chart> {
    let sides = bench.relaxed.sides(skill);
    let mut all: [Vec<Duration>; 3] = Default::default();
    let slice = Slice { calls: DISTRIBUTED.min(bench.effort.slice.calls), ..bench.effort.slice };
    for round in 0..=bench.effort.rounds {
        for (side, all) in sides.iter().zip(&mut all) {
            let request = request(side);
            let mut connection = Connection::open(side.address)?;
            let latencies = load::latencies(&mut connection, slice, &mut || request.clone())?;
            if round > 0 {
                all.extend(latencies);
            }
        }
    }
    let names = ["in a skill", "in a workspace", "bare axum"];
    let lines = names.into_iter().zip(all).map(|(name, latencies)| (name.to_owned(), shares(latencies)));
    let lines = lines.collect();
    let x = Axis { label: "microseconds", scale: Scale::Logarithmic };
    let y = Axis { label: "percent of requests that took no longer", scale: Scale::Even };
    Ok(Chart {
        name,
        title: format!("{what}, one client: how long requests take"),
        x,
        y,
        is_key_below: true,
        lines,
    })
}

/// The points of a distribution: a latency, and the percentage of those that are not longer. The longest half a percent is
/// left out.
fn shares(mut latencies: Vec<Duration>) -> Vec<(f64, f64)> {
    latencies.sort_unstable();
    let point = |number: usize| {
        let index = latencies.len().saturating_sub(1) * number * 199 / (POINTS * 200);
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let share = number as f64 * 99.5 / POINTS as f64;
        latencies.get(index).map(|latency| (micros(*latency), share))
    };
    (0..=POINTS).filter_map(point).collect()
}

/// What users on the disk cost one of them, and the next start.
fn users(bench: &Bench) -> Result<Chart> {
    let root = bench.fresh()?;
    let program = &bench.programs.filesecbox;
    let start = || Service::start(Kind::Filesecbox { config: None }, program, root.path(), false);
    let names =
        ["start to first answer", "listing skills", "reading 4 KiB", "a first command", "a later command"];
    let mut lines = names.map(|name| (name.to_owned(), Vec::new()));
    let (mut there, mut is_filled) = (0, false);
    let most = 10 * bench.effort.users;
    for count in std::iter::successors(Some(1), |count| Some(count * 10)).take_while(|count| *count <= most) {
        {
            let service = start()?;
            if !is_filled {
                bench.fill(&service)?;
                is_filled = true;
            }
            let mut connection = service.connect()?;
            for user in there..count {
                let target = format!("/v1/skills/user-{user}/a/tiny/edit?path=SKILL.md&start=1&end=1");
                connection.call(&client::with_body("PUT", &target, "text/plain", b"---\n"))?;
            }
            there = count;
        }
        let service = start()?;
        let mut connection = service.connect()?;
        let workspace = Side::new(&service, Tree::Workspace);
        let mut newcomer = 0;
        let slice = bench.effort.slice;
        let first = load::serial(&mut connection, slice, &mut || {
            newcomer += 1;
            execute(&workspace.of(format!("new-{count}-{newcomer}")), &ECHO)
        })?;
        let mut median = |request: Vec<u8>| {
            load::serial(&mut connection, slice, &mut || request.clone()).map(|sample| micros(sample.p50))
        };
        let listed = median(client::get("/v1/skills/user-0/a/list"))?;
        let read = median(client::get(&workspace.target("raw/small.txt")))?;
        let later = median(execute(&workspace, &ECHO))?;
        let values = [micros(service.first_answer), listed, read, micros(first.p50), later];
        for ((_, points), value) in lines.iter_mut().zip(values) {
            points.push((number(count), value));
        }
    }
    Ok(Chart {
        name: "users",
        title: "Users with changes of their own on the disk".to_owned(),
        x: Axis { label: "users", scale: Scale::Logarithmic },
        y: Axis { label: MICROS, scale: Scale::Logarithmic },
        is_key_below: false,
        lines: lines.into(),
    })
}

/// What files in a skill cost.
fn files(bench: &Bench) -> Result<Chart> {
    let services = [(&bench.relaxed.filesecbox, ""), (&bench.relaxed.bare, ", bare axum")];
    let mut lines: Vec<Line> = Vec::new();
    for (_, of) in services {
        for what in ["listing with details", "`echo`", "reading its `SKILL.md`"] {
            lines.push((format!("{what}{of}"), Vec::new()));
        }
    }
    let counts = [10, 100, 1_000, bench.effort.many];
    for (index, count) in counts.into_iter().filter(|count| *count <= bench.effort.many).enumerate() {
        let skill = ["ten", "hundred", "thousand", "most"].get(index).copied().unwrap_or("most");
        let archive = fixture::many(count)?;
        for (column, (service, _)) in services.iter().enumerate() {
            let mut connection = service.connect()?;
            let target = "/v1/skills/u/a/upload?scope=baseline";
            connection.call(&client::upload(target, &format!("{skill}.zip"), &archive))?;
            let side = Side::new(service, Tree::Skill(skill));
            let requests = [
                client::get(&side.target("files?detail=true")),
                execute(&side, &ECHO),
                client::get(&side.target("raw/SKILL.md")),
            ];
            for (row, request) in requests.into_iter().enumerate() {
                let sample = load::serial(&mut connection, bench.effort.slice, &mut || request.clone())?;
                if let Some((_, points)) = lines.get_mut(column * 3 + row) {
                    points.push((number(count), micros(sample.p50)));
                }
            }
        }
    }
    Ok(Chart {
        name: "files",
        title: "Files in a skill".to_owned(),
        x: Axis { label: "files", scale: Scale::Logarithmic },
        y: Axis { label: MICROS, scale: Scale::Logarithmic },
        is_key_below: false,
        lines,
    })
}

/// What it costs a command that it sees skills.
fn skills(bench: &Bench) -> Result<Chart> {
    let mut connection = bench.relaxed.filesecbox.connect()?;
    publish_several(bench, SKILLS.into_iter().max().unwrap_or_default())?;
    let figures = bench.compare(SKILLS, |skills| {
        let request = seeing(*skills);
        let sample = load::serial(&mut connection, bench.effort.slice, &mut || request.clone())?;
        Ok(micros(sample.p50).into())
    })?;
    let points = SKILLS.into_iter().zip(figures).map(|(skills, figure)| (number(skills), figure.value));
    Ok(Chart {
        name: "skills",
        title: "Skills that a command in a workspace sees".to_owned(),
        x: Axis { label: "skills", scale: Scale::Even },
        y: Axis { label: MICROS, scale: Scale::Even },
        is_key_below: true,
        lines: vec![("`echo`".to_owned(), points.collect())],
    })
}

/// Requests in a second with more and more clients.
fn connections(bench: &Bench) -> Result<Chart> {
    let [_, workspace, bare] = bench.relaxed.sides("demo");
    let mut lines: Vec<Line> = ["a workspace", "bare axum"].map(|name| (name.to_owned(), Vec::new())).into();
    for clients in CLIENTS {
        let figures = bench.compare([workspace.clone(), bare.clone()], |side| {
            let slice = Slice { calls: usize::MAX, ..bench.effort.slice };
            let request = client::get(&side.target("raw/small.txt"));
            Ok(load::parallel(side.address, clients, slice, &request)?.per_second.into())
        })?;
        for ((_, points), figure) in lines.iter_mut().zip(figures) {
            points.push((number(clients), figure.value));
        }
    }
    Ok(Chart {
        name: "connections",
        title: "Reading 4 KiB through many connections at once".to_owned(),
        x: Axis { label: "connections", scale: Scale::Logarithmic },
        y: Axis { label: "requests a second", scale: Scale::Even },
        is_key_below: true,
        lines,
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}
