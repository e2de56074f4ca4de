//! `filesecbox doctor`: what this host grants, in words.

use std::process::ExitCode;

use exec::{HostReport, Layer, Tier};

use super::Outcome;
use crate::config::Config;
use crate::serve::{open_store, start_launcher};

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
    let store = match open_store(&store_config) {
        Ok((store, _)) => {
            let what = if exists { "is usable" } else { "will be made when the service starts" };
            say(&format!("data directory   {} {what}", config.root.display()));
            Some(store)
        }
        Err(error) => {
            sound = false;
            say(&format!("data directory   NOT USABLE: {error}"));
            None
        }
    };

    // Asks for nothing, so that whatever is there gets reported.
    let (launcher, _) = start_launcher(config, Tier::Process)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(store) = &store {
        match runtime.block_on(launcher.probe(&store.probe_directory(), store.probe_owner())) {
            Ok(report) => {
                sound &= report.is_sound() && report.enforcement.tier >= config.isolation.minimum;
                describe(&report, config);
            }
            Err(error) => {
                sound = false;
                say(&format!("commands         CANNOT RUN: {error}"));
            }
        }
    }
    say("");
    say(if sound { "The service can start here." } else { "The service cannot start here as configured." });
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        ("termination", &enforcement.termination),
    ] {
        say(&format!("{name:<16} {layer}"));
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

#[expect(clippy::print_stdout, reason = "the command line speaks to a person")]
fn say(line: &str) {
    println!("{line}");
}
