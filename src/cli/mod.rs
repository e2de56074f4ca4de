//! The command line.

mod client;
mod doctor;
mod health;
mod skill;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, Durability};
use crate::serve::serve;

/// Layered skills and private workspaces for AI agents, with isolated command execution, over REST.
///
/// Without a command, it serves.
#[derive(Parser)]
#[command(name = "filesecbox", version, about, long_about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until SIGTERM (the default)
    Serve(ServeArgs),
    /// Tell what this host grants to commands, and what is missing
    Doctor(ServeArgs),
    /// Ask the running service of this configuration whether it serves; exits with 1 when it does not
    Health {
        #[command(flatten)]
        serve: ServeArgs,
        /// Ask here instead of where the configuration listens
        #[arg(long, value_name = "URL")]
        url: Option<String>,
    },
    /// Upload, list, download and remove skills of a running service
    #[command(subcommand)]
    Skill(skill::SkillCommand),
}

#[derive(Args)]
struct ServeArgs {
    /// Configuration file (TOML); see docs/CONFIGURATION.md
    #[arg(long, env = "FILESECBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port; port 0 picks a free one [default: 127.0.0.1:8003]
    #[arg(long, env = "FILESECBOX_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Data directory, on ext4, xfs or btrfs [default: ./data]
    #[arg(long, env = "FILESECBOX_ROOT", value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// When a change is acknowledged [default: strict]
    #[arg(long, env = "FILESECBOX_DURABILITY", value_enum)]
    durability: Option<Durability>,
    /// Listen on other than loopback addresses without any token
    #[arg(long)]
    allow_anonymous: bool,
    /// A token with the role admin; better set in the environment than typed
    #[arg(long, env = "FILESECBOX_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl ServeArgs {
    /// The configuration as meant: the file under the environment under the command line.
    fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        if let Some(root) = &self.root {
            config.root.clone_from(root);
        }
        if let Some(durability) = self.durability {
            config.durability = durability;
        }
        config.allow_anonymous |= self.allow_anonymous;
        Ok(config)
    }
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run_service(&cli.serve),
        Some(Command::Serve(args)) => run_service(&args),
        Some(Command::Doctor(args)) => {
            args.config().map_err(Into::into).and_then(|config| doctor::run(&config))
        }
        Some(Command::Health { serve, url }) => {
            serve.config().map_err(Into::into).and_then(|config| health::run(config.listen, url.as_deref()))
        }
        Some(Command::Skill(command)) => skill::run(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn run_service(args: &ServeArgs) -> Outcome {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FILESECBOX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    serve(args.config()?, args.token.clone())?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "the command line speaks to a person")]
fn complain(error: &dyn std::error::Error) {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors already quote their cause.
        if !message.contains(&cause_text) {
            message = format!("{message}: {cause_text}");
        }
        source = cause.source();
    }
    eprintln!("filesecbox: {message}");
}
