//! Commands: isolated at each tier over HTTP, in the bare service, without a service, and by the `bwrap` program, all
//! taking turns.

use std::fs;

use crate::client;
use crate::error::{Failure, Result};
use crate::fixture;
use crate::load::{self, Slice};
use crate::native;
use crate::report::{Figure, Layout, Row, Unit};
use crate::service::{Kind, Service};
use crate::sides::{Bench, Side, Tree};
use crate::spawn::Spawn;
use crate::workloads::{Lines, figure};

/// Where every side finds `python3`; a version manager's stand-in earlier in `PATH` would cost more than Python.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// Clients of the row that measures throughput.
const CLIENTS: usize = 8;

/// Two tiers, the bare service, and what there is without a service.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &[
        "skill",
        "workspace",
        "skill, `landlock`",
        "workspace, `landlock`",
        "bare axum",
        "bare spawn",
        "`bwrap`",
    ],
    ratios: &[("skill ÷ bare axum", 0, 4), ("workspace ÷ bare axum", 1, 4), ("skill ÷ `bwrap`", 0, 6)],
};

/// Who runs a command.
pub(crate) enum Runner {
    /// A service.
    Service(Side),
    /// The bench itself, without a service.
    Native(Spawn),
}

/// A service that is kept from the strongest tier, on a fresh directory, filled as the others are.
///
/// # Errors
/// [`Failure::Io`], [`Failure::NotReady`], [`Failure::Answer`].
pub(crate) fn weaker(bench: &Bench) -> Result<Service> {
    let config = bench.scratch.path().join("landlock.toml");
    fs::write(&config, "[isolation]\nmaximum = \"landlock\"\n").map_err(Failure::io("write"))?;
    let root = bench.fresh()?;
    let kind = Kind::Filesecbox { config: Some(&config) };
    let mut service = Service::start(kind, &bench.programs.filesecbox, root.path(), false)?;
    service.keep(root);
    bench.fill(&service)?;
    Ok(service)
}

/// One command on every side that can run it.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn commands(bench: &Bench) -> Result<Vec<Row>> {
    let weaker = weaker(bench)?;
    let volume = bench.effort.volume;
    let text = fixture::volume(volume);
    let tree = bench.scratch.path().join("tree");
    fs::create_dir_all(&tree).map_err(Failure::io("mkdir"))?;
    fs::write(tree.join(fixture::VOLUME), &text).map_err(Failure::io("write"))?;
    for service in [&bench.relaxed.filesecbox, &weaker, &bench.relaxed.bare] {
        let mut connection = service.connect()?;
        let target = "/v1/skills/u/a/upload?scope=baseline";
        connection.call(&client::upload(target, "volume.zip", &fixture::volume_skill(&text)?))?;
        let target = format!("/v1/sandbox/u/a/raw/{}?parents=true", fixture::VOLUME);
        connection.call(&client::with_body("PUT", &target, "text/plain", &text))?;
    }
    let runners = |skill| {
        let [skill_side, workspace, bare] = bench.relaxed.sides(skill);
        let of_weaker = |tree| Side::new(&weaker, tree);
        let services =
            [skill_side, workspace, of_weaker(Tree::Skill(skill)), of_weaker(Tree::Workspace), bare];
        let [a, b, c, d, e] = services.map(|side| Some(Runner::Service(side)));
        [a, b, c, d, e, Some(Runner::Native(Spawn::plain(&tree))), Spawn::bwrap(&tree).map(Runner::Native)]
    };
    let row = |name: String, unit, figures: [Option<Figure>; 7], goal| Row {
        name,
        unit,
        figures: figures.to_vec(),
        goal,
    };
    let slice = bench.effort.slice;
    let mut lines = Lines::default();
    let mut latency = |runner: &Runner, words: &[&str]| match runner {
        Runner::Native(spawn) => Ok(figure(&spawn.serial(slice, words)?)),
        Runner::Service(side) => {
            let request = execute(side, words);
            Ok(figure(&load::serial(lines.of(side)?, slice, &mut || request.clone())?))
        }
    };
    let echo = ["echo", "hi"];
    let mut rows = Vec::new();
    let figures = bench.compare_optional(runners("tiny"), |runner| latency(runner, &echo))?;
    let goal = "≤ 1.15 × bare axum; ≤ 0.33 × `bwrap`";
    rows.push(row("`echo`, one client, p50".to_owned(), Unit::Micros, figures, goal));
    let figures = bench.compare_optional(runners("tiny"), |runner| throughput(runner, slice, &echo))?;
    rows.push(row(format!("`echo`, {CLIENTS} clients"), Unit::PerSecond, figures, "≥ 1 400/s"));
    if native::has(PYTHON) {
        let python = [PYTHON.rsplit('/').next().unwrap_or_default(), "-c", "1"];
        let figures = bench.compare_optional(runners("tiny"), |runner| latency(runner, &python))?;
        rows.push(row("`python3 -c 1`, p50".to_owned(), Unit::Micros, figures, "≤ 1.05"));
    }
    let cat = ["cat", fixture::VOLUME];
    let figures = bench.compare_optional(runners("volume"), |runner| latency(runner, &cat))?;
    #[expect(clippy::cast_precision_loss, reason = "50 MB")]
    let megabytes = volume as f64 / 1e6;
    let rates = figures.map(|figure| Some(Figure::from(megabytes / (figure?.value / 1e6))));
    rows.push(row(format!("{megabytes:.0} MB of output"), Unit::MegabytesPerSecond, rates, "≥ 0.8"));
    Ok(rows)
}

/// The request to run a command, as both services take it.
pub(crate) fn execute(side: &Side, words: &[&str]) -> Vec<u8> {
    let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
    let target = side.target(&format!("execute?command={program}"));
    client::with_body(
        "POST",
        &target,
        "application/json",
        serde_json::json!(arguments).to_string().as_bytes(),
    )
}

fn throughput(runner: &Runner, slice: Slice, words: &[&str]) -> Result<Figure> {
    let slice = Slice { calls: usize::MAX, ..slice };
    let sample = match runner {
        Runner::Native(spawn) => spawn.parallel(slice, CLIENTS, words)?,
        Runner::Service(side) => load::parallel(side.address, CLIENTS, slice, &execute(side, words))?,
    };
    Ok(sample.per_second.into())
}
