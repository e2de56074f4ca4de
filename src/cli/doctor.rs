//! `filesecbox doctor`: what this host grants, in words.

use std::io::Write;
use std::process::ExitCode;

use exec::{HostReport, Layer, Network, Tier};

use super::Outcome;
use crate::config::Config;
use crate::confine::{self, Confined};
use crate::serve::ServeError;

/// Tries everything that the service would need and says how it went.
///
/// Exits with 1 when the service would not start as configured.
pub(super) fn run(config: &Config) -> Outcome {
    let mut sound = true;
    say(&format!("filesecbox {} on this host", env!("CARGO_PKG_VERSION")));
    say("");

    let exists = config.root.exists();
    let scratch;
    let store_config = if exists {
        config.clone()
    } else {
        // A directory that is not there is tried beside where it will be, and leaves nothing behind.
        scratch = Scratch::beside(&config.root)?;
        Config { root: scratch.path.clone(), ..config.clone() }
    };
    // Asks for no minimum, so that every tier is reported.
    match confine::start(&store_config, Tier::Process) {
        Ok(Confined { host, store, launcher, .. }) => {
            let what = if exists { "is usable" } else { "will be made when the service starts" };
            say(&format!("data directory   {} {what}", config.root.display()));
            say(&format!(
                "live views       {}",
                store.live().map_or_else(|reason| format!("none: {reason}"), |()| "mounted".to_owned())
            ));
            say(&format!(
                "quotas           {}",
                store.kernel_keeps_quotas().map_or_else(
                    |reason| format!("kept by the service: {reason}"),
                    |()| "kept by the kernel".to_owned()
                )
            ));
            sound &= host.is_sound() && host.enforcement.tier >= config.isolation.minimum;
            describe(&host, config);
            match confine::network(config, &launcher) {
                Ok(network) => say(&format!("reach            {}", network_words(network))),
                Err(error) => {
                    sound = false;
                    say(&format!("reach            {error}"));
                }
            }
        }
        Err(error @ (ServeError::Config(_) | ServeError::Commands(_))) => return Err(error.into()),
        Err(error) => {
            sound = false;
            say(&format!("NOT USABLE       {error}"));
            let mut cause = std::error::Error::source(&error);
            while let Some(reason) = cause {
                say(&format!("                 because {reason}"));
                cause = reason.source();
            }
        }
    }
    tell_keeping(config);
    say("");
    say(if sound { "The service can start here." } else { "The service cannot start here as configured." });
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what goes by itself as configured, and after how long.
fn tell_keeping(config: &Config) {
    let hours = |time: std::time::Duration| time.as_secs() / 3600;
    match config.workspaces.idle() {
        None => say("workspaces       stay until a request removes them"),
        Some(idle) => {
            let (idle, keep) = (hours(idle), hours(config.workspaces.keep()));
            say(&format!(
                "workspaces       are set aside after {idle} h without use, and removed {keep} h later"
            ));
        }
    }
    say(&format!("versions         {} former ones of each baseline skill stay", config.keep_versions));
    let ended = config.limits.sessions.ended_ms / 1000;
    say(&format!("ended runs       are remembered for {ended} s"));
    let audit = &config.audit;
    if audit.enabled {
        let (days, bytes) = (audit.keep_days, audit.total_bytes);
        say(&format!("audit log        stays for {days} days at least; older files go beyond {bytes} bytes"));
    } else {
        say("audit log        none is written");
    }
}

fn network_words(network: Network) -> &'static str {
    match network {
        Network::None => "commands reach nothing",
        Network::Proxy => "commands reach what the egress proxy lets pass",
        Network::Host => "commands reach every address that the host reaches",
    }
}

fn describe(report: &HostReport, config: &Config) {
    let enforcement = &report.enforcement;
    let floor = config.isolation.minimum;
    let verdict = if enforcement.tier >= floor { "meets" } else { "is BELOW" };
    say(&format!("tier             {}, which {verdict} the configured floor `{floor}`", enforcement.tier));
    say(&format!("landlock         ABI {}", enforcement.landlock_abi));
    for (name, layer) in [
        ("files", &enforcement.files),
        ("programs", &enforcement.programs),
        ("system calls", &enforcement.system_calls),
        ("identity", &enforcement.identity),
        ("namespaces", &enforcement.namespaces),
        ("signals", &enforcement.signals),
        ("network", &enforcement.network),
        ("limits", &enforcement.limits),
        ("memory", &enforcement.memory),
        ("termination", &enforcement.termination),
    ] {
        say(&format!("{name:<16} {layer}"));
    }
    say(&format!("memory bound     {}", enforcement.memory_bound));
    if exec::sessions_have_shares() {
        say(
            "processors       a command with many sessions has many shares of them: give the service a control group with a",
        );
        say(
            "                 share of its own (`CPUWeight=` in its unit), or set `kernel.sched_autogroup_enabled` to 0",
        );
    }
    for note in &enforcement.notes {
        say(&format!("                 note: {note}"));
    }
    for canary in &report.canaries {
        let outcome = match &canary.outcome {
            Layer::Enforced => "as it must be".to_owned(),
            Layer::Unavailable { reason } => format!("FAILED: {reason}"),
        };
        say(&format!("tried            {}: {outcome}", canary.attempt));
    }
    if !report.missing_programs.is_empty() {
        say(&format!("not installed    {}", report.missing_programs.join(" ")));
    }
}

/// A directory that goes when it is dropped.
struct Scratch {
    path: std::path::PathBuf,
}

impl Scratch {
    fn beside(root: &std::path::Path) -> std::io::Result<Self> {
        let parent = root.parent().filter(|parent| parent.is_dir()).unwrap_or(std::path::Path::new("."));
        let path = parent.join(format!(".filesecbox-doctor-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    #[expect(clippy::disallowed_methods, reason = "the doctor removes its own empty store")]
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Speaks to a person, who may have stopped listening (`| head`).
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
