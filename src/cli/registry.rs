//! `filesecbox registry`: making the registry of skills anew while no service runs.

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use storage::{Options, Store};

use super::{Outcome, ServeArgs};
use crate::registry::RegistrySync;

#[derive(Subcommand)]
pub(super) enum RegistryCommand {
    /// Make the registry anew from the data directory. A running service does it itself: POST /v1/registry/rebuild
    Rebuild(ServeArgs),
}

pub(super) fn run(command: &RegistryCommand) -> Outcome {
    let RegistryCommand::Rebuild(args) = command;
    let config = args.config()?;
    if !config.root.is_dir() {
        return Err(format!("there is no data directory `{}`", config.root.display()).into());
    }
    // It takes the lock of the data directory, and fails while a service has it.
    let (store, _) = Store::open(&config.root, Options::default()).map_err(|error| match error {
        storage::Error::Conflict(_) => {
            "a service runs on this data directory: stop it, or ask it with POST /v1/registry/rebuild".into()
        }
        other => Box::<dyn std::error::Error>::from(other),
    })?;
    let keeper = RegistrySync::start(store, true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let rebuilt = runtime.block_on(keeper.rebuild());
    keeper.close();
    writeln!(std::io::stdout(), "{} rows", rebuilt?)?;
    Ok(ExitCode::SUCCESS)
}
