//! `bench`: measures filesecbox against a bare service of the same routes, on this machine, in one run.
//!
//! * [`bare`] is the service to compare with, [`fixture`] what both are filled with;
//! * [`sides`] starts them on fresh directories and lets them take turns, [`workloads`] says at what;
//! * [`client`] and [`load`] are the load generator, [`native`] the floors, [`report`] the table.
//!
//! `scripts/bench` builds both programs in release mode and starts this one; `docs/PERFORMANCE.md` reads the table.

mod bare;
mod client;
mod error;
mod fixture;
mod load;
mod native;
mod report;
mod service;
mod sides;
mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::error::{Failure, Result};
use crate::report::Row;
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
    /// A few seconds: shows that everything runs, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Print the body of the table only
    #[arg(long)]
    markdown: bool,
    /// Only the groups of workloads named: reads, writes, listing, uploads, runs, footprint
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The service under test [default: `filesecbox` beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where fresh directories are made: on the file system to be measured
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    place: PathBuf,
}

type Group = (&'static str, fn(&Bench) -> Result<Vec<Row>>);

const GROUPS: [Group; 6] = [
    ("reads", workloads::reads),
    ("writes", workloads::writes),
    ("listing", workloads::listing),
    ("uploads", workloads::uploads),
    ("runs", workloads::runs),
    ("footprint", workloads::footprint),
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
    for program in ["bsdtar", workloads::PYTHON] {
        if !native::has(program) {
            let _ = writeln!(notes, "bench: `{program}` is not installed: its figures are left out");
        }
    }
    let before = report::circumstances(&options.place);
    let bench = Bench::start(effort, Programs { filesecbox, bare }, &options.place)?;
    let mut rows = Vec::new();
    for (name, group) in GROUPS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            let _ = writeln!(notes, "bench: {name}");
            rows.extend(group(&bench)?);
        }
    }
    let mut text = report::table(&rows, !options.markdown);
    if !options.markdown {
        let after = report::circumstances(&options.place);
        text.push_str(&format!("\nBefore: {before}\n\nAfter: {after}\n"));
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::io("print"))
}
