//! `filesecbox check-config`: everything that a start checks before it touches anything.

use std::io::Write;
use std::process::ExitCode;

use policy::CommandPolicy;
use policy::environment::Configured;

use super::{Outcome, ServeArgs};
use crate::access::signed::Keys;

/// Checks the configuration and tells what it comes to.
pub(super) fn run(args: &ServeArgs) -> Outcome {
    let config = args.config()?;
    config.check_values()?;
    let sources = args.sources(&config)?;
    let tokens = sources.tokens()?;
    config.check_open(!tokens.is_empty())?;
    if !config.access.key_file.as_os_str().is_empty() {
        Keys::read(sources.key_file())?;
    }
    Configured::new(config.commands.environment.clone().into_iter().collect())?;
    CommandPolicy::new(config.commands.profile, &config.commands.extra)?;
    config.egress()?;
    let mut out = std::io::stdout();
    writeln!(out, "the configuration can be served")?;
    writeln!(out, "listen   {}", config.listen)?;
    writeln!(out, "root     {}", config.root.display())?;
    writeln!(out, "tokens   {}", tokens.len())?;
    for token in &tokens {
        writeln!(out, "         {} ({})", token.name(), token.role().word())?;
    }
    if tokens.is_empty() {
        writeln!(out, "         none: every caller without a signed token is an admin")?;
    }
    Ok(ExitCode::SUCCESS)
}
