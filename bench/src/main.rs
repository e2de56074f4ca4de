//! `bench`: measures filesecbox against a bare service of the same routes, on this machine, in one run.
//!
//! * [`bare`] is the service to compare with, [`fixture`] what both are filled with;
//! * [`sides`] starts them on fresh directories and lets them take turns; [`workloads`] says at what with files,
//!   [`searching`] in them, [`execution`] and [`growth`] with commands, [`backend`] through the
//!   agent's side, [`preparing`] workspaces, [`lending`] machines;
//! * [`earlier`] compares two builds of the service instead, [`peers`] other services;
//! * [`curves`] measures what [`chart`] draws;
//! * [`client`] and [`load`] are the load generator, [`native`] and [`spawn`] the floors, [`report`] the tables.
//!
//! `scripts/bench` builds both programs in release mode and starts this one; `docs/PERFORMANCE.md` reads the tables.

mod backend;
mod bare;
mod chart;
mod client;
mod curves;
mod earlier;
mod error;
mod execution;
mod fixture;
mod growth;
mod lending;
mod load;
mod native;
mod peers;
mod preparing;
mod report;
mod searching;
mod service;
mod sides;
mod spawn;
mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::error::{Failure, Result};
use crate::report::{Layout, Row};
use crate::sides::{Bench, Effort, Programs};

/// Measures filesecbox against a bare service of the same routes.
#[derive(Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the routes without checks, layers or isolation: what to compare with
    Bare {
        /// Directory that is served
        #[arg(long)]
        root: PathBuf,
        /// Wait for the disk before answering a write
        #[arg(long)]
        strict: bool,
    },
}

#[derive(Args)]
struct Measure {
    /// Half a minute: shows that everything runs, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Print the tables of docs/PERFORMANCE.md, to paste
    #[arg(long)]
    markdown: bool,
    /// Only the groups of workloads named: reads, writes, listing, uploads, footprint, searching, execution, growth, backend, preparing, lending
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// An earlier build of the service: compares the two, request by request, and measures nothing else
    #[arg(long, conflicts_with = "only")]
    against: Option<PathBuf>,
    /// A directory with the programs of other services (`scripts/bench --peers` makes it): compares with these only
    #[arg(long, conflicts_with_all = ["only", "against"])]
    peers: Option<PathBuf>,
    /// A directory for pictures (SVG) of how latencies are distributed and how costs grow: measures these only
    #[arg(long, conflicts_with_all = ["only", "against", "peers"])]
    plot: Option<PathBuf>,
    /// The service under test [default: `filesecbox` beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where fresh directories are made: on the file system to be measured
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    place: PathBuf,
}

/// A group of rows: its name, the table it belongs to, and how it is measured.
type Group = (&'static str, &'static Layout, fn(&Bench) -> Result<Vec<Row>>);

const GROUPS: [Group; 11] = [
    ("reads", &report::SERVICES, workloads::reads),
    ("writes", &report::SERVICES, workloads::writes),
    ("listing", &report::SERVICES, workloads::listing),
    ("uploads", &report::SERVICES, workloads::uploads),
    ("footprint", &report::SERVICES, workloads::footprint),
    ("searching", &searching::LAYOUT, searching::searching),
    ("execution", &execution::LAYOUT, execution::commands),
    ("growth", &growth::LAYOUT, growth::growth),
    ("backend", &backend::LAYOUT, backend::backend),
    ("preparing", &preparing::LAYOUT, preparing::preparing),
    ("lending", &lending::LAYOUT, lending::lending),
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Bare { root, strict }) => bare::serve(root, strict),
        None => measure(&cli.measure),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Measure) -> Result<()> {
    let missing = || Failure::NotReady("filesecbox (build it first: scripts/bench does)".to_owned());
    let filesecbox = options.program.clone().or_else(|| service::beside("filesecbox")).ok_or_else(missing)?;
    let bare = std::env::current_exe().map_err(Failure::io("find this program"))?;
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let mut notes = std::io::stderr();
    for program in ["bsdtar", "rg", "bwrap", execution::PYTHON] {
        if !native::has(program) {
            let _ = writeln!(notes, "bench: `{program}` is not installed: its figures are left out");
        }
    }
    if let Some(unknown) = options.only.iter().find(|only| !GROUPS.iter().any(|(name, ..)| name == only)) {
        return Err(Failure::NoSuchGroup(unknown.clone()));
    }
    let before = report::circumstances(&options.place);
    let bench = Bench::start(effort, Programs { filesecbox, bare }, &options.place)?;
    let tier = bench.relaxed.filesecbox.tier()?.unwrap_or_else(|| "unknown".to_owned());
    if tier != "namespaces" {
        let _ =
            writeln!(notes, "bench: this host grants commands tier `{tier}` only; the figures are of that");
    }
    if let Some(directory) = &options.plot {
        std::fs::create_dir_all(directory).map_err(Failure::io("make the directory of pictures"))?;
        return curves::curves(&bench)?.iter().try_for_each(|chart| chart.write(directory));
    }
    let mut tables: Vec<(&Layout, Vec<Row>)> = Vec::new();
    if let Some(programs) = &options.peers {
        tables.push((&peers::LAYOUT, peers::peers(&bench, programs)?));
    }
    if let Some(earlier) = &options.against {
        tables.push((&earlier::LAYOUT, earlier::earlier(&bench, earlier)?));
    }
    for (name, layout, group) in GROUPS {
        if options.against.is_some() || options.peers.is_some() {
            break;
        }
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            let _ = writeln!(notes, "bench: {name}");
            let rows = group(&bench)?;
            match tables.last_mut().filter(|(last, _)| std::ptr::eq(*last, layout)) {
                Some((_, table)) => table.extend(rows),
                None => tables.push((layout, rows)),
            }
        }
    }
    let mut tables: Vec<String> =
        tables.iter().map(|(layout, rows)| report::table(layout, rows, !options.markdown)).collect();
    let after = report::circumstances(&options.place);
    tables.push(format!("Tier `{tier}`. Before: {before}. After: {after}.\n"));
    std::io::stdout().write_all(tables.join("\n").as_bytes()).map_err(Failure::io("print"))
}
