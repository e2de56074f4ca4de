//! The service against an earlier build of itself: what a change costs, request by request.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::client;
use crate::error::{Failure, Result};
use crate::execution::execute;
use crate::fixture;
use crate::load;
use crate::report::{Figure, Layout, Row, Unit};
use crate::service::{Kind, Service};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure};

/// Both builds, each with a tree of a skill and a workspace.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["skill", "skill, earlier", "workspace", "workspace, earlier"],
    ratios: &[("skill ÷ earlier", 0, 1), ("workspace ÷ earlier", 2, 3)],
};

/// Two versions of one skill.
static BUNDLES: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| [1, 2].into_iter().filter_map(|variant| fixture::bundle(variant).ok()).collect());

/// The goal of every ratio.
const GOAL: &str = "≤ 1.05";

/// One kind of request: its name, and how it is made for a tree. The number is another one each time.
type Workload = (&'static str, fn(&Side, usize) -> Vec<u8>);

/// The comparisons where writes need not wait for the disk.
const RELAXED: &[Workload] = &[
    ("raw read 4 KiB", |side, _| client::get(&side.target("raw/small.txt"))),
    ("read 10 of 2 000 lines", |side, _| {
        client::get(&side.target("content?path=lines.txt&start=1000&end=1009"))
    }),
    ("list", |side, _| client::get(&side.target("files?detail=true"))),
    ("grep", |side, _| {
        let body = serde_json::json!({ "pattern": "line 001999" }).to_string();
        client::with_body("POST", &side.target("grep"), "application/json", body.as_bytes())
    }),
    ("write 4 KiB", write),
    ("edit a line of 2 000", |side, _| {
        let target = side.target("edit?path=lines.txt&start=1000&end=1000");
        client::with_body("PUT", &target, "text/plain", b"line 001000 edited\n")
    }),
    ("replace a skill of 500 files", |_, number| {
        let archive = BUNDLES.get(number % 2).map_or(&[][..], |bundle| bundle.as_slice());
        client::upload("/v1/skills/u/a/upload?scope=baseline", "bundle.zip", archive)
    }),
    ("`echo`", |side, _| execute(side, &["echo", "hi"])),
    ("`echo`, first command of a user", |side, number| {
        execute(&side.of(format!("first-{number}")), &["echo", "hi"])
    }),
];

/// The comparisons where writes wait for the disk.
const STRICT: &[Workload] = &[("write 4 KiB, strict", write)];

/// The comparisons at tier `landlock`.
const LANDLOCK: &[Workload] = &[
    ("`echo`, `landlock`", |side, _| execute(side, &["echo", "hi"])),
    ("`echo`, first command of a user, `landlock`", |side, number| {
        execute(&side.of(format!("first-{number}")), &["echo", "hi"])
    }),
    // Python opens some hundred files for it.
    ("`python3` that imports, `landlock`", |side, _| {
        execute(side, &["python3", "-c", "import json, http.client"])
    }),
];

fn write(side: &Side, _: usize) -> Vec<u8> {
    let octets = "application/octet-stream";
    client::with_body("PUT", &side.target("raw/written.txt"), octets, &fixture::small())
}

/// Compares `program` with the service under test.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn earlier(bench: &Bench, program: &Path) -> Result<Vec<Row>> {
    let config = bench.scratch.path().join("weaker.toml");
    fs::write(&config, "[isolation]\nmaximum = \"landlock\"\n").map_err(Failure::io("write"))?;
    let now = &bench.programs.filesecbox;
    let mut rows = Vec::new();
    for (workloads, config, strict) in
        [(RELAXED, None, false), (STRICT, None, true), (LANDLOCK, Some(config.as_path()), false)]
    {
        let (now, before) = (start(bench, now, config, strict)?, start(bench, program, config, strict)?);
        for (name, request) in workloads {
            rows.push(compare(bench, &now, &before, name, *request)?);
        }
    }
    Ok(rows)
}

fn start(bench: &Bench, program: &Path, config: Option<&Path>, strict: bool) -> Result<Service> {
    let root = bench.fresh()?;
    let mut service = Service::start(Kind::Filesecbox { config }, program, root.path(), strict)?;
    service.keep(root);
    bench.fill(&service)?;
    Ok(service)
}

fn compare(
    bench: &Bench,
    now: &Service,
    before: &Service,
    name: &str,
    request: fn(&Side, usize) -> Vec<u8>,
) -> Result<Row> {
    let (mut lines, mut number) = (Lines::default(), 0);
    let (skill, workspace) = (Tree::Skill("demo"), Tree::Workspace);
    let sides = [(now, skill), (before, skill), (now, workspace), (before, workspace)]
        .map(|(service, tree)| Side::new(service, tree));
    let figures = bench.compare(sides, |side| {
        let sample = load::serial(lines.of(side)?, bench.effort.slice, &mut || {
            number += 1;
            request(side, number - 1)
        })?;
        Ok(figure(&sample))
    })?;
    Ok(Row {
        name: format!("{name}, p50"),
        unit: Unit::Micros,
        figures: figures.map(Some as fn(Figure) -> Option<Figure>).to_vec(),
        goal: GOAL,
    })
}
