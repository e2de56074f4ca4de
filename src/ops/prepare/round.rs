//! [`prepare`]: the order of a round, under its lease.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::bootstrap::{self, Bootstrap};
use super::deploy::{Deployed, Selected, deploy};
use super::entrypoint;
use super::files::{InputFile, Named};
use super::home::{self, Home};
use super::packages::Packages;
use super::scan::{Scope, SkillInfo, find};
use super::site::Site;
use super::steps::{Progress, Step, Steps};
use crate::ops::error::{Error, Initialising, Result};
use crate::ops::lease::{Lease, LeaseError, LeaseStore, Terms, hold};

/// How long a round may take with everything in it.
const ROUND_MAX: Duration = Duration::from_secs(3600);
/// When a workspace that is being prepared may be ready, in seconds.
const RETRY_SECONDS: u64 = 5;

/// What the round is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A conversation with selected skills: everything.
    #[default]
    Run,
    /// A call of a tool: no skills are deployed or removed.
    ToolCall,
    /// A preview of a skill that is being edited: no script runs, and the whole workspace is looked through.
    EditDebug,
}

/// What a caller asks for.
#[derive(Clone, Debug, Default)]
pub struct Preparation {
    /// What the round is for.
    pub mode: Mode,
    /// The selected versions of skills, in the order in which their scripts run.
    pub skills: Vec<Selected>,
    /// The script of the sandbox; white space alone is none.
    pub entrypoint: String,
    /// Input files.
    pub files: Vec<InputFile>,
    /// The time that each script has.
    pub deadline: Duration,
}

/// A workspace that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The working directory of commands.
    pub workdir: String,
    /// The skills that are there.
    pub skills: Vec<SkillInfo>,
    /// What became of each step, in order.
    pub steps: Vec<Step>,
}

/// Where a round takes place, and what it may use.
pub struct Round {
    /// The workspace.
    pub site: Site,
    /// The packages that may be deployed; `None` when the caller may deploy none.
    pub packages: Option<Arc<dyn Packages>>,
    /// What is set up first.
    pub bootstrap: Vec<Arc<dyn Bootstrap>>,
    /// Is told of each step.
    pub listener: Option<mpsc::UnboundedSender<Progress>>,
}

/// Brings a workspace to the state that `preparation` asks for, under the lease of `key`.
///
/// `open` tells where, and is asked under the lease. Nothing is done without the lease.
///
/// # Errors
/// [`Error::Initialising`] when the lease is another's, cannot be had, or was lost; that of `open`; that of the first step that
/// blocks: listing, deploying, writing input files.
pub async fn prepare(
    leases: &Arc<dyn LeaseStore>,
    key: &str,
    terms: Terms,
    open: impl Future<Output = Result<Round>>,
    preparation: Preparation,
) -> Result<Prepared> {
    let work = async |lease| {
        let round = async { open.await?.under(lease).work(preparation).await };
        timeout(ROUND_MAX, round).await.unwrap_or_else(|_| {
            Err(Error::RunFailed(format!(
                "the preparation was ended after {} s: select fewer skills, or shorten their scripts",
                ROUND_MAX.as_secs()
            )))
        })
    };
    let initialising = |why| Error::Initialising { why, retry_after_seconds: RETRY_SECONDS };
    match hold(leases, key, terms, work).await {
        Ok(prepared) => prepared,
        Err(LeaseError::Held) => Err(initialising(Initialising::Elsewhere)),
        Err(error @ LeaseError::Unavailable(_)) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no lease for a preparation: nothing was done"
            );
            Err(initialising(Initialising::Unleased))
        }
        Err(LeaseError::Lost) => {
            tracing::error!(key, "the lease of a preparation was lost: it was ended");
            Err(initialising(Initialising::Lost))
        }
    }
}

impl Round {
    /// The same, whose steps ask first whether `lease` is held.
    fn under(self, lease: Lease) -> Self {
        Self { site: self.site.under(lease), ..self }
    }

    async fn work(self, preparation: Preparation) -> Result<Prepared> {
        let Preparation { mode, skills, entrypoint, files, deadline } = preparation;
        let Self { site, packages, bootstrap, listener } = self;
        let files = Named::new(&files)?;
        let mut steps = Steps::new(listener);
        if mode == Mode::EditDebug {
            for step in &bootstrap {
                steps.skip(format!("bootstrap:{}", step.name()), "a preview runs nothing by itself");
            }
        } else {
            bootstrap::run(&site, &bootstrap, deadline, &mut steps).await;
        }
        let deployed = match mode {
            Mode::Run => deploy(&site, packages.as_deref(), &skills, &mut steps).await?,
            Mode::ToolCall | Mode::EditDebug => Vec::new(),
        };
        if !skills.is_empty() && mode != Mode::Run {
            steps.skip("deploy", "skills are deployed in the mode `run` only");
        }
        files.inject(&site, &mut steps).await?;
        if mode == Mode::EditDebug && !entrypoint.trim().is_empty() {
            steps.skip("entrypoint", "a preview runs nothing by itself: run the script in a terminal");
        }
        let scope = match mode {
            Mode::Run if !deployed.is_empty() => Some(Scope::Versions(&deployed)),
            Mode::EditDebug => Some(Scope::Everything),
            Mode::Run | Mode::ToolCall => None,
        };
        // Most rounds have no script to run: what is there is looked through while it is asked which have succeeded.
        let (ran, early) = tokio::join!(
            async {
                match mode {
                    Mode::EditDebug => Ran { is_any: false, workdir: home::workdir(&site).await },
                    Mode::Run | Mode::ToolCall => {
                        scripts(&site, &entrypoint, &deployed, deadline, &mut steps).await
                    }
                }
            },
            async {
                match &scope {
                    Some(scope) => Some(find(&site, scope).await),
                    None => None,
                }
            },
        );
        // As commands see it, else as file operations name it.
        let workdir = ran.workdir.unwrap_or_else(|| site.root().as_str().to_owned());
        let skills = match (scope, early) {
            (Some(scope), Some(found)) => {
                let begun = steps.begin("scan");
                // A script may have made skills.
                let found = if ran.is_any { find(&site, &scope).await } else { found };
                found.tell(&scope, &workdir, &mut steps, begun)
            }
            _ => Vec::new(),
        };
        Ok(Prepared { workdir, skills, steps: steps.into_ended() })
    }
}

/// What became of the scripts of a round.
struct Ran {
    /// Whether one was begun.
    is_any: bool,
    /// The working directory of commands, if it could be told.
    workdir: Option<String>,
}

/// Runs the scripts that have not succeeded yet, and tells the working directory. Without any script the state is not even looked
/// at.
async fn scripts(
    site: &Site,
    entrypoint: &str,
    deployed: &[Deployed],
    deadline: Duration,
    steps: &mut Steps,
) -> Ran {
    let has_script = !entrypoint.trim().is_empty();
    if !has_script && deployed.is_empty() {
        return Ran { is_any: false, workdir: home::workdir(site).await };
    }
    let (mut home, workdir) = Home::read(site).await;
    let selected: Vec<_> = deployed.iter().map(|version| version.version.clone()).collect();
    let is_pruned = !selected.is_empty() && home.state.keep_only(&selected);
    let before = home.state.clone();
    let mut is_any = false;
    if has_script {
        is_any |= entrypoint::of_sandbox(site, &mut home, entrypoint, deadline, steps).await;
    }
    for version in deployed {
        let of_version = (&version.version, version.directory.as_str());
        is_any |= entrypoint::of_version(site, &mut home, of_version, deadline, steps).await;
    }
    // What a script has changed was written with it.
    if is_pruned && home.state == before {
        home.write(site).await;
    }
    Ran { is_any, workdir }
}
