//! Names and lines in a large tree: over HTTP, and by the `rg` program on the same files.

use std::cell::Cell;
use std::path::Path;

use crate::client;
use crate::error::Result;
use crate::fixture;
use crate::load;
use crate::native;
use crate::report::{Figure, Layout, Row, Unit};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure, micros};

/// The skill that is searched.
const CORPUS: &str = "corpus";
/// The user whose workspace has the same files.
const USER: &str = "searcher";
/// The text that is looked for: in one file of ten, once.
const EXPRESSION: &str = r"error \d+: \w+";

/// A merged view, a workspace, and the program whose libraries the service uses.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["skill", "workspace", "`rg`"],
    ratios: &[("skill ÷ `rg`", 0, 2), ("workspace ÷ `rg`", 1, 2)],
};

/// Who searches.
enum Searcher {
    /// A service.
    Service(Side),
    /// The program.
    Rg,
}

/// Finding names, and finding lines.
///
/// # Errors
/// Every [`Failure`](crate::error::Failure).
pub(crate) fn searching(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.effort.many;
    let sides = fill(bench, files)?;
    let root = bench.relaxed.root.path().join("skill/baseline/a").join(CORPUS);
    let body = format!("{{\"pattern\":{},\"limit\":10000}}", serde_json::Value::from(EXPRESSION));
    let find = |side: &Side| client::get(&side.target("glob?pattern=*.txt"));
    let grep =
        |side: &Side| client::with_body("POST", &side.target("grep"), "application/json", body.as_bytes());
    let names = compare(bench, &sides, &root, &["--files", "--glob", "*.txt"], find)?;
    let lines = compare(bench, &sides, &root, &["--line-number", EXPRESSION], grep)?;
    let megabytes = files.saturating_mul(fixture::CORPUS_FILE_BYTES) / 1_000_000;
    let row = |name: String, figures: [Option<Figure>; 3], goal| Row {
        name,
        unit: Unit::Millis,
        figures: figures.map(|figure| figure.map(|figure| figure.scaled(1e-3))).into(),
        goal,
    };
    Ok(vec![
        row(format!("glob in {files} files, p50"), names, "≤ 3.5 ms"),
        row(format!("grep a regex in {megabytes} MB, p50"), lines, "≤ 1.1"),
    ])
}

/// Fills a skill and a workspace with the same files.
fn fill(bench: &Bench, files: usize) -> Result<[Side; 2]> {
    let service = &bench.relaxed.filesecbox;
    let mut connection = service.connect()?;
    let name = format!("{CORPUS}.zip");
    let archive = fixture::corpus(files)?;
    connection.call(&client::upload("/v1/skills/u/a/upload?scope=baseline", &name, &archive))?;
    for (name, text) in fixture::corpus_files(files) {
        let target = format!("/v1/sandbox/{USER}/a/raw/{name}?parents=true");
        connection.call(&client::with_body("PUT", &target, "text/plain", &text))?;
    }
    let workspace = Side::new(service, Tree::Workspace).of(USER.to_owned());
    Ok([Side::new(service, Tree::Skill(CORPUS)), workspace])
}

/// The median of each, in microseconds; the program is left out where it is not installed.
fn compare(
    bench: &Bench,
    sides: &[Side; 2],
    root: &Path,
    arguments: &[&str],
    request: impl Fn(&Side) -> Vec<u8>,
) -> Result<[Option<Figure>; 3]> {
    let [skill, workspace] = sides.clone().map(|side| Some(Searcher::Service(side)));
    let rg = native::has("rg").then_some(Searcher::Rg);
    let lines = Cell::new(Lines::default());
    bench.compare_optional([skill, workspace, rg], |searcher| match searcher {
        Searcher::Service(side) => {
            let mut open = lines.take();
            let request = request(side);
            let sample = load::serial(open.of(side)?, bench.effort.slice, &mut || request.clone())?;
            lines.set(open);
            Ok(figure(&sample))
        }
        Searcher::Rg => {
            let arguments: Vec<&str> =
                ["--no-config", "--no-ignore"].iter().chain(arguments).copied().collect();
            Ok(micros(native::median(bench.effort.slice, || native::run("rg", &arguments, root))?).into())
        }
    })
}
