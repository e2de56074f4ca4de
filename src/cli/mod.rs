//! The command line.

mod audit;
mod check;
mod client;
mod diff;
mod doctor;
mod edit;
mod exec;
mod folder;
mod health;
mod mcp;
mod package;
mod prepare;
mod registry;
mod rollback;
mod runner;
mod share;
mod skill;
mod target;
mod token;
mod user;
mod workspace;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError, CredentialSources, Durability, LogFormat, listen_address};
use crate::log_lines::LogLines;
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
    /// Tell whether the configuration can be served, without serving
    CheckConfig(ServeArgs),
    /// Read the audit log of this configuration's data directory
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Issue tokens for users of a service of this configuration
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Make the registry of skills anew
    #[command(subcommand)]
    Registry(registry::RegistryCommand),
    /// Upload, list, download and remove skills of a running service
    #[command(subcommand)]
    Skill(skill::SkillCommand),
    /// Run a command in a workspace or a skill of a running service, and exit as it did
    Exec(exec::ExecArgs),
    /// Speak MCP over standard input and output, about a workspace of a running service
    Mcp(mcp::McpArgs),
    /// Bring a workspace of a running service to the state that a round of a conversation needs
    Prepare(prepare::PrepareArgs),
    /// Put and get the archives that `prepare` deploys
    #[command(subcommand)]
    Package(package::PackageCommand),
    /// Change a text file in a workspace or a skill of a running service
    Edit(edit::EditArgs),
    /// Show what a user changed in a skill, as a patch
    Diff(diff::DiffArgs),
    /// Go back to a former version of an application's skill, for all users
    Rollback(rollback::RollbackArgs),
    /// List, show and remove users of a running service, with everything of theirs
    #[command(subcommand)]
    User(user::UserCommand),
    /// List, choose, cut and revoke the machines that a user lends
    #[command(subcommand)]
    Runner(runner::RunnerCommand),
    /// Make, list and revoke links by which installers read skills
    #[command(subcommand)]
    Share(share::ShareCommand),
    /// List, measure and remove workspaces of a running service
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
}

#[derive(Args)]
struct ServeArgs {
    /// Configuration file (TOML); see docs/CONFIGURATION.md
    #[arg(long, env = "FILESECBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address or `localhost`, and port; port 0 picks a free one [default: 127.0.0.1:8003]
    #[arg(long, env = "FILESECBOX_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
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
    /// A file that holds a token with the role admin
    #[arg(long, env = "FILESECBOX_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ServeArgs {
    /// The configuration as meant: the file under the environment under the command line.
    fn config(&self) -> Result<Config, ConfigError> {
        // A setting is text; a variable that is none is not ours.
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut config = Config::read(self.config.as_deref(), variables)?;
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

    /// Where tokens and keys of that configuration come from.
    fn sources(&self, config: &Config) -> Result<CredentialSources, ConfigError> {
        let (token, token_file) = (self.token.as_deref(), self.token_file.as_deref());
        CredentialSources::new(config, self.config.as_deref(), token, token_file)
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
        Some(Command::CheckConfig(args)) => check::run(&args),
        Some(Command::Audit(command)) => audit::run(&command),
        Some(Command::Token(command)) => token::run(command),
        Some(Command::Registry(command)) => registry::run(&command),
        Some(Command::Skill(command)) => skill::run(command),
        Some(Command::Exec(args)) => exec::run(args),
        Some(Command::Mcp(args)) => mcp::run(&args),
        Some(Command::Prepare(args)) => prepare::run(args),
        Some(Command::Package(command)) => package::run(command),
        Some(Command::Edit(args)) => edit::run(args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Rollback(args)) => rollback::run(&args),
        Some(Command::User(command)) => user::run(command),
        Some(Command::Runner(command)) => runner::run(command),
        Some(Command::Share(command)) => share::run(command),
        Some(Command::Workspace(command)) => workspace::run(command),
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
    let config = args.config()?;
    let filter = tracing_subscriber::EnvFilter::try_from_env("FILESECBOX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Below this level the SDK of MCP logs each mistake of a caller, and then whole messages with what is in files.
    let filter = filter.add_directive("rmcp=error".parse()?);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(LogLines);
    match config.log.format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).with_ansi(false).init(),
    }
    let sources = args.sources(&config)?;
    serve(config, sources)?;
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
