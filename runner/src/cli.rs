//! The command line.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};
use sandbox::wire::{Feature, Register};
use sandbox::{NoneOptions, NoneSandbox, Reach, Root, Sandbox, UserId};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::Runs;
use crate::backoff::LONGEST_SECONDS;
use crate::confine::{Confinement, Isolation};
use crate::connect::{Address, Proxies, Way};
use crate::link::{Rejected, Runner};
use crate::screen::Screen;
use crate::status::{self, About};

/// The variable with the token.
const TOKEN: &str = "FILESECBOX_RUNNER_TOKEN";
/// The longest token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// How long what runs may take to be killed at the end.
const LAST_WORK: Duration = Duration::from_secs(1);

/// Lends this machine to your agent: it connects out to a filesecbox service, which then reads, edits and runs commands in one directory
/// here.
///
/// The token is safest in a file (`--token-file`), or in the variable FILESECBOX_RUNNER_TOKEN. A token on the command line is seen by other
/// users of this machine for a moment, until the runner has replaced its command line; it stays in the history of your shell.
#[derive(Parser)]
#[command(name = "filesecbox-runner", version, about, long_about)]
struct Cli {
    /// The service and the user: wss://HOST/ws/USER
    #[arg(long, value_name = "URL", required_unless_present = "status")]
    server: Option<Address>,
    /// The right to be that user's runner
    #[arg(long, env = TOKEN, hide_env_values = true)]
    token: Option<String>,
    /// A file with the token; it comes before `--token`
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The directory that is lent; it is made when it is missing
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "status")]
    workspace: Option<PathBuf>,
    /// The user, when it is not the last segment of the URL
    #[arg(long, value_name = "USER")]
    user_id: Option<String>,
    /// The name of this machine among those of the user
    #[arg(long, default_value = "default")]
    name: String,
    /// The shell for scripts
    #[arg(long, default_value = "/bin/sh", value_name = "PROGRAM")]
    shell: String,
    /// Whether commands are confined
    #[arg(long, value_enum, default_value_t)]
    isolation: Isolation,
    /// Let the agent read, write and remove every file that you may, and not the workspace alone. Commands stay as `--isolation` says
    #[arg(long)]
    full_control: bool,
    /// A further directory that confined commands may read and run programs of, such as ~/.pyenv; several times for several
    #[arg(long, value_name = "DIRECTORY")]
    readable: Vec<PathBuf>,
    /// A file with further certificate authorities (PEM)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The longest pause until it is tried again to connect, 1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = LONGEST_SECONDS, value_parser = clap::value_parser!(u64).range(1..=LONGEST_SECONDS))]
    reconnect_seconds: u64,
    /// Take the silence of a service of the first generation for consent
    #[arg(long)]
    founding: bool,
    /// Tell about the runners of this user that run on this machine, and end
    #[arg(long)]
    status: bool,
    /// Tell more in the log
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the program to its end: 0 after a signal, 1 when it cannot start, 2 when the service rejects it.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if cli.status {
        return show_status();
    }
    if matches.value_source("token") == Some(clap::parser::ValueSource::CommandLine) {
        return tell(&without_token(&cli));
    }
    let filter = tracing_subscriber::EnvFilter::try_from_env("FILESECBOX_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new(if cli.verbose { "info,runner=debug" } else { "info" })
    });
    let is_terminal = std::io::stderr().is_terminal();
    let screen = Screen::stderr();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(screen.clone())
        .with_ansi(is_terminal)
        .init();
    // Else a command of the same user could read the token in /proc, where Landlock does not hold it (prctl(2)).
    if let Err(errno) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        warn!(%errno, "this process can be looked into by others of the same user");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tell(&format!("the runtime cannot start: {error}")),
    };
    let ended = runtime.block_on(lend(cli, screen));
    runtime.shutdown_timeout(LAST_WORK);
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(rejected)) => {
            error!(why = %rejected, "rejected");
            ExitCode::from(2)
        }
        Err(sentence) => tell(&sentence),
    }
}

/// Shows the runners that run: 0 when there is one, 1 when there is none.
fn show_status() -> ExitCode {
    let lines = sockets().map(|directory| status::ask(&directory)).unwrap_or_default();
    if lines.is_empty() {
        return tell("no runner of this user runs here, or it has no XDG_RUNTIME_DIR to tell in");
    }
    let _gone = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    ExitCode::SUCCESS
}

fn sockets() -> Option<PathBuf> {
    status::directory(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

fn tell(sentence: &str) -> ExitCode {
    let _gone = writeln!(std::io::stderr(), "filesecbox-runner: {sentence}");
    ExitCode::FAILURE
}

/// Becomes the same program with the token in its environment, which other users cannot read; returns only when that fails.
fn without_token(cli: &Cli) -> String {
    let mut words = Vec::new();
    let mut given = std::env::args_os().skip(1);
    while let Some(word) = given.next() {
        if word == "--token" {
            given.next();
        } else if !word.to_string_lossy().starts_with("--token=") {
            words.push(word);
        }
    }
    #[expect(clippy::disallowed_methods, reason = "this very program")]
    let mut command = std::process::Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let error = command.args(words).env(TOKEN, cli.token.as_deref().unwrap_or_default()).exec();
    format!("the command line cannot be rid of the token ({error}): use `--token-file`")
}

/// Lends the machine until a signal; the outer error is why it cannot begin.
async fn lend(cli: Cli, screen: Screen) -> Result<Result<(), Rejected>, String> {
    let (Some(server), Some(lent)) = (&cli.server, &cli.workspace) else {
        return Err("`--server` and `--workspace` are needed".to_owned());
    };
    let token = match (&cli.token, &cli.token_file) {
        (_, Some(file)) => read_token(file)?,
        (Some(token), None) => token.clone(),
        (None, None) => return Err(format!("a token is needed: `--token-file`, or the variable {TOKEN}")),
    };
    let token = token.trim().to_owned();
    if token.is_empty() || token.chars().any(char::is_control) {
        return Err("the token is empty, or has control characters".to_owned());
    }
    let user = cli.user_id.as_deref().or(server.user.as_deref());
    let user = user.ok_or("the URL names no user: add it, or `--user-id`")?;
    let user = UserId::parse(user).map_err(|error| format!("`{user}` is no user: {error}"))?;
    if !server.is_encrypted && !server.is_local() {
        warn!(
            "the connection is not encrypted: others on the way can read the token and all files; use wss://"
        );
    }
    let proxies = Proxies::from(|name| std::env::var(name).ok());
    let way = Way::new(server.clone(), proxies, cli.ca_file.as_deref(), &token);
    let way = Arc::new(way.map_err(|error| told(&error))?);

    let (sandbox, confinement) = sandbox(&cli, lent)?;
    let workspace = sandbox.workspace(&user).await.map_err(|error| told(&error))?;
    if confinement.is_weak {
        warn!(workspace = %workspace, "{}", confinement.sentence);
    } else {
        info!(workspace = %workspace, "{}", confinement.sentence);
    }
    if cli.full_control {
        warn!(
            "full control: the agent reads, writes and removes every file that you may, also outside the workspace (`--full-control`)"
        );
    }
    let token_file = cli.token_file.as_ref().and_then(|file| file.canonicalize().ok());
    if token_file.is_some_and(|file| file.starts_with(workspace.as_str())) {
        warn!("the file with the token is in the workspace, where the agent reads it: put it elsewhere");
    }
    if rustix::process::geteuid().is_root() {
        warn!("the runner is root: run it as a user of its own");
    }
    let register = Register {
        user_id: user.to_string(),
        auth_token: token,
        workspace: workspace.to_string(),
        shell: cli.shell,
        name: cli.name,
        features: vec![Feature::Exact, Feature::Live, Feature::Transfers, Feature::Swap],
        instance: format!("{:016x}", getrandom::u64().map_err(|error| told(&error))?),
        isolation: match cli.full_control {
            true => format!("{}, full control of files", confinement.word),
            false => confinement.word.clone(),
        },
    };
    let about = About {
        // A query may hold what is secret.
        server: server.url.split('?').next().unwrap_or_default().to_owned(),
        user: register.user_id.clone(),
        name: register.name.clone(),
        workspace: register.workspace.clone(),
    };
    let _told = sockets().and_then(|directory| {
        status::tell(&directory, about, Arc::clone(&way.figures))
            .map_err(|error| warn!(%error, "this runner tells nothing to `--status`"))
            .ok()
    });
    let runs = Runs::new(Arc::new(sandbox), user);
    let pause_max = Duration::from_secs(cli.reconnect_seconds);
    let runner = Runner { way, screen, register, runs, workspace, pause_max, is_founding: cli.founding };
    let stop = CancellationToken::new();
    let _signals = tokio::spawn(await_signal(stop.clone()));
    let ended = runner.run(&stop).await;
    // With the runner ends what it runs, connected or not.
    runner.runs.close().await;
    drop(confinement);
    Ok(ended)
}

fn sandbox(cli: &Cli, lent: &Path) -> Result<(NoneSandbox, Confinement), String> {
    let made = std::fs::create_dir_all(lent).and_then(|()| lent.canonicalize());
    let place = made.map_err(|error| format!("`{}` cannot be lent: {error}", lent.display()))?;
    let root = Root::Shared(place.clone());
    let reach = if cli.full_control { Reach::Machine } else { Reach::Workspace };
    let mut options = NoneOptions {
        shell: cli.shell.clone(),
        reach,
        timeout_max: crate::tasks::LONGEST,
        ..NoneOptions::new(root)
    };
    let confinement = Confinement::set_up(cli.isolation, &place, &cli.readable, &mut options);
    let confinement = confinement.map_err(|error| told(&error))?;
    let sandbox = NoneSandbox::open(options).map_err(|error| told(&error))?;
    Ok((sandbox, confinement))
}

#[expect(clippy::disallowed_methods, reason = "the file of the person who starts the runner")]
fn read_token(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read =
        std::fs::File::open(file).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    Ok(text)
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

async fn await_signal(stop: CancellationToken) {
    if let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    }
}
